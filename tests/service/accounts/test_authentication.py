"""Who gets in, and with which scope. Holds docs/access.md, "Credentials"."""

from typing import Any

import pytest

from outrider.service.accounts import credentials
from outrider.service.accounts.principal import ALL_SCOPES
from outrider.service.accounts.store import api_keys
from tests.rig.errors import assert_error
from tests.rig.samples import session
from tests.rig.site import Owner, Site

pytestmark = pytest.mark.asyncio(loop_scope="session")

# Written by hand, not from the table of the API: method, path, scope, body, status with the scope.
ENDPOINTS: list[tuple[str, str, str, Any, int]] = [
    ("GET", "/daemons", "ide:read", None, 200),
    ("GET", "/daemons/{daemon}/status", "ide:read", None, 200),
    ("POST", "/daemons/{daemon}/command", "ide:control", {"type": "read_chat"}, 200),
    ("POST", "/daemons/{daemon}/terminal", "terminal:exec", {"command": "id"}, 200),
    ("POST", "/daemons/{daemon}/disconnect", "ide:control", None, 403),
    ("POST", "/daemons/{daemon}/revoke", "ide:control", None, 403),
    ("POST", "/shortcuts/{daemon}/launch", "ide:control", {"type": "claude-code"}, 200),
    ("POST", "/shortcuts/{daemon}/stop", "ide:control", {"type": "claude-code"}, 200),
    ("DELETE", "/shortcuts/{target}/worktree", "ide:control", None, 200),
    ("POST", "/shortcuts/{target}/chat", "agent:control", {"message": "hi"}, 200),
    ("GET", "/shortcuts/{target}/chat", "agent:read", None, 200),
    ("POST", "/shortcuts/{target}/approve", "agent:control", {"action": "approve"}, 200),
    ("GET", "/shortcuts/{target}/status", "agent:read", None, 200),
]


@pytest.mark.one_store
@pytest.mark.parametrize(("method", "path", "scope", "body", "status"), ENDPOINTS)
class TestEachEndpoint:
    async def test_takes_a_key_with_just_its_scope(
        self, owner: Owner, method: str, path: str, scope: str, body: Any, status: int
    ) -> None:
        """The scope that each requires is enough."""
        machine = (await owner.machine(session())).obliges()
        target = f"{machine.id}:cli:claude-code"
        client = await owner.may(scope)
        response = await client.request(
            method, "/api/v1" + path.format(daemon=machine.id, target=target), json=body
        )
        if status == 403:
            assert_error(response, 403, "RECENT_LOGIN_REQUIRED")
        else:
            assert response.status_code == status, response.text

    async def test_refuses_a_key_with_every_other_scope(
        self, owner: Owner, method: str, path: str, scope: str, body: Any, status: int
    ) -> None:
        """docs/access.md, Credentials: a key lacking the scope of the route, 403."""
        client = await owner.may(*(ALL_SCOPES - {scope}))
        response = await client.request(
            method, "/api/v1" + path.format(daemon="machine_x", target="machine_x:cli:x"), json=body
        )
        assert scope in assert_error(response, 403, "AUTH_FORBIDDEN")["error"]

    async def test_refuses_no_key(
        self, site: Site, method: str, path: str, scope: str, body: Any, status: int
    ) -> None:
        """docs/access.md, Credentials: no header, 401 AUTH_REQUIRED."""
        response = await site.client().request(
            method, "/api/v1" + path.format(daemon="machine_x", target="machine_x:cli:x"), json=body
        )
        assert_error(response, 401, "AUTH_REQUIRED")


def _mistyped(key: str) -> str:
    return key[:10] + ("A" if key[10] != "A" else "B") + key[11:]


@pytest.mark.one_store
@pytest.mark.parametrize(
    "header",
    [
        "",
        "Bearer",
        "Bearer nonsense",
        "Bearer ork_",
        "Bearer ork_" + "é" * 38,
        "Basic dXNlcjpwYXNz",
        f"Bearer {credentials.new_machine_token()}",
        f"Bearer {credentials.new_key()}",
        f"Bearer {_mistyped(credentials.new_key())}",
        f"Bearer {credentials.new_key()} extra",
        "Bearer " + "x" * 5000,
    ],
    ids=[
        "empty",
        "nothing behind Bearer",
        "nonsense",
        "a key's prefix",
        "not ASCII",
        "Basic",
        "a machine's token",
        "an unknown key",
        "a mistyped key",
        "more behind the key",
        "long",
    ],
)
async def test_a_credential_that_does_not_work(site: Site, header: str) -> None:
    """docs/access.md: unknown, expired, revoked or malformed credentials are AUTH_INVALID."""
    response = await site.client().get(
        "/api/v1/daemons", headers={b"Authorization": header.encode("latin-1")}
    )
    assert_error(response, 401, "AUTH_INVALID")


async def test_the_scheme_is_case_insensitive(owner: Owner, site: Site) -> None:
    """RFC 9110: authentication schemes are case-insensitive."""
    response = await site.client().get(
        "/api/v1/daemons", headers={"Authorization": f"bearer {owner.key}"}
    )
    assert response.status_code == 200


async def test_an_expired_key(owner: Owner, site: Site) -> None:
    """docs/access.md, Credentials: an expired key, 401 AUTH_INVALID."""
    expired = site.client(await site.key(owner.id, lifetime=-1))
    assert_error(await expired.get("/api/v1/daemons"), 401, "AUTH_INVALID")
    fresh = site.client(await site.key(owner.id, lifetime=60_000))
    assert (await fresh.get("/api/v1/daemons")).status_code == 200


@pytest.mark.one_store
async def test_only_the_hash_of_a_key_is_kept(owner: Owner, site: Site) -> None:
    """SECURITY.md: a key is stored as SHA-256."""
    found = await api_keys.by_hash(site.database, credentials.digest(owner.key))
    assert found is not None
    assert found.account_id == owner.id
    body = owner.key.removeprefix("ork_")
    for path in site.settings.data_dir.iterdir():
        assert body.encode() not in path.read_bytes()
