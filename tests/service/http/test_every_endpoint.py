"""Every endpoint of the table against every kind of credential, and against another account.

Generated from the table: a new endpoint is in here by being in there. One that the rules
below cannot judge fails, until they can. Holds docs/access.md, "Credentials".
"""

import re
from collections.abc import AsyncIterator
from typing import Any, Final, NamedTuple

import httpx
import pytest
import pytest_asyncio

from outrider.contract.ids import new_id
from outrider.service.accounts import credentials
from outrider.service.accounts.principal import ALL_SCOPES, Scope
from outrider.service.accounts.store import api_keys
from outrider.service.endpoints import ENDPOINTS
from outrider.service.http.endpoint import Endpoint
from tests.rig.errors import assert_error
from tests.rig.people import V1, dashboard, logged_in, person
from tests.rig.samples import session
from tests.rig.site import Owner, Site

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.one_store]

# Written by hand: only after a recent login.
RECENT_LOGIN: Final = {
    "POST /api/v1/webhooks",
    "PATCH /api/v1/webhooks/{webhookId}",
    "DELETE /api/v1/webhooks/{webhookId}",
    "POST /api/v1/webhooks/{webhookId}/test",
    "POST /api/v1/daemons/{daemonId}/disconnect",
    "POST /api/v1/daemons/{daemonId}/revoke",
    "DELETE /api/v1/account/keys/{keyId}",
    "POST /api/v1/webhooks/{webhookId}/deliveries/{deliveryId}/resend",
    "POST /api/v1/webhooks/{webhookId}/replay",
    "POST /api/v1/webhooks/{webhookId}/rotate-secret",
    "POST /api/v1/auth/password",
}
# Written by hand: what a stranger may call, and what gives nothing but a code or a token.
FOR_ANYONE: Final = {
    "POST /api/v1/auth/login",
    "POST /api/v1/auth/link",
    "POST /api/v1/auth/enroll",
    "POST /api/v1/auth/device",
    "POST /api/v1/auth/device/token",
    "POST /api/v1/auth/password/reset",
}


def name(endpoint: Endpoint[Any]) -> str:
    return f"{endpoint.method} {endpoint.path}"


class Verdict(NamedTuple):
    """How a request is refused; a status of 0 is not at all."""

    status: int
    code: str | None = None


LET_IN = Verdict(0)
REQUIRED = Verdict(401, "AUTH_REQUIRED")
INVALID = Verdict(401, "AUTH_INVALID")
FORBIDDEN = Verdict(403, "AUTH_FORBIDDEN")
NOT_RECENT = Verdict(403, "RECENT_LOGIN_REQUIRED")

CREDENTIALS: Final = [
    "no header",
    "rubbish",
    "wrong scheme",
    "expired key",
    "revoked key",
    "unknown key",
    "machine token",
    "full key",
    *(f"key without {scope}" for scope in sorted(ALL_SCOPES)),
    "stale session",
    "fresh session",
]


def verdict(endpoint: Endpoint[Any], credential: str) -> Verdict:
    """Return how a request has to be refused; fail where no rule says it."""
    assert (endpoint.who == "scope") == (endpoint.scope is not None), "who, and which scope?"
    assert endpoint.who in {"scope", "principal", "session", "anyone"}, "a new kind of caller"
    if endpoint.who == "anyone":
        assert not endpoint.recent_login
        return LET_IN
    match credential.split():
        case ["no", "header"]:
            return REQUIRED
        case ["fresh", "session"]:
            return LET_IN
        case ["stale", "session"]:
            return NOT_RECENT if endpoint.recent_login else LET_IN
        case ["key", "without", scope] if scope == endpoint.scope:
            return FORBIDDEN
        case ["full", "key"] | ["key", "without", _]:
            if endpoint.recent_login:
                return NOT_RECENT
            return FORBIDDEN if endpoint.who == "session" else LET_IN
        case ["rubbish"] | ["wrong", "scheme"] | ["machine", "token"] | [_, "key"]:
            return INVALID
    raise AssertionError(f"no rule for {credential}")


async def header(owner: Owner, credential: str) -> dict[str, str]:
    """Return the header that carries a credential of the account."""
    site = owner.site
    match credential.split():
        case ["no", "header"]:
            return {}
        case ["wrong", "scheme"]:
            return {"Authorization": f"Basic {owner.key}"}
        case ["rubbish"]:
            token = "rubbish"
        case ["machine", "token"]:
            token = (await owner.enrolls()).token
        case ["unknown", "key"]:
            token = credentials.new_key()
        case ["expired", "key"]:
            token = await site.key(owner.id, lifetime=-1)
        case ["revoked", "key"]:
            token = await site.key(owner.id)
            known = await api_keys.by_hash(site.database, credentials.digest(token))
            assert known is not None
            await api_keys.revoke(site.database, known.id, 1)
        case ["full", "key"]:
            token = owner.key
        case ["key", "without", scope]:
            token = await site.key(owner.id, ALL_SCOPES - {scope})
        case ["stale", "session"]:
            token = (await logged_in(owner, age=601)).token
        case ["fresh", "session"]:
            token = (await logged_in(owner)).token
        case _:
            raise AssertionError(f"no credential {credential}")
    return {"Authorization": f"Bearer {token}"}


NOWHERE: Final = {
    "daemonId": "machine_none",
    "ideId": "machine_none:cli:claude-code",
    "keyId": "key_none",
    "sessionId": "session_none",
    "webhookId": "webhook_none",
    "deliveryId": "dlv_none",
    "name": "build",
    "messageId": "msg_none",
}


class Caller(NamedTuple):
    """An account, and the headers that carry its keys and tokens."""

    owner: Owner
    headers: dict[str, dict[str, str]]

    async def header(self, credential: str) -> dict[str, str]:
        """Return the header with a credential. Sessions are new: some endpoints end them."""
        if credential in self.headers:
            return self.headers[credential]
        return await header(self.owner, credential)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def caller(sqlite_site: Site) -> AsyncIterator[Caller]:
    """An account for all endpoints: none of them changes its keys."""
    async with sqlite_site.visit():
        owner = await person(sqlite_site)
        lasting = [one for one in CREDENTIALS if not one.endswith("session")]
        yield Caller(owner, {one: await header(owner, one) for one in lasting})


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=name)
async def test_a_credential_at_an_endpoint(caller: Caller, endpoint: Endpoint[Any]) -> None:
    stranger = caller.owner.site.client()
    for credential in CREDENTIALS:
        expected = verdict(endpoint, credential)
        response = await stranger.request(
            endpoint.method,
            endpoint.path.format_map(NOWHERE),
            headers=await caller.header(credential),
            # Nothing is done by those that are let in: the machine is not there, the body empty.
            content="{}" if endpoint.method in {"POST", "PATCH"} else None,
        )
        try:
            if expected is LET_IN:
                assert response.status_code in {200, 400, 404}, response.text
            else:
                assert_error(response, *expected)
        except AssertionError as error:
            error.add_note(f"with {credential}")
            raise


async def test_the_sensitive_rows_of_the_table() -> None:
    """The rules above go by the table; what it says of the sensitive ones is checked here."""
    table = {name(endpoint): endpoint for endpoint in ENDPOINTS}
    assert len(table) == len(ENDPOINTS)
    recent = {name for name, endpoint in table.items() if endpoint.recent_login}
    assert recent == RECENT_LOGIN
    assert {name for name, e in table.items() if e.who == "anyone"} == FOR_ANYONE
    for endpoint in ENDPOINTS:
        assert endpoint.path.startswith(V1)
        assert set(re.findall(r"{(\w+)}", endpoint.path)) <= NOWHERE.keys(), "a new kind of id"
        takes_credentials = endpoint.path.startswith(f"{V1}/auth/")
        limit = endpoint.rate_limit
        assert (limit is not None and limit.name == "auth") == takes_credentials


# A body of each operation that changes something of what an id names, good enough to reach it.
BODIES: Final[dict[str, Any]] = {
    "command": {"type": "read_chat"},
    "terminal": {"command": "id"},
    "close_terminal": None,
    "disconnect": None,
    "revoke": None,
    "launch": {"type": "claude-code"},
    "stop": {"type": "claude-code"},
    "send_chat": {"message": "hi"},
    "interrupt": None,
    "withdraw": None,
    "remove_worktree": None,
    "approve": {"action": "approve"},
    "chat_debug": None,
    "revoke_key": None,
    "end_session": None,
    "change_webhook": {"active": False},
    "delete_webhook": None,
    "test_webhook": None,
    "resend_delivery": None,
    "replay_deliveries": {"since": 0},
    "rotate_secret": None,
}
OWNED: Final = [endpoint for endpoint in ENDPOINTS if "{" in endpoint.path]


@pytest.mark.parametrize("endpoint", OWNED, ids=name)
async def test_another_account_s_is_as_what_does_not_exist(
    site: Site, user: Owner, endpoint: Endpoint[Any]
) -> None:
    """docs/access.md, Credentials: 404 for anything another account owns, on every route."""
    body = None
    if endpoint.method != "GET":
        assert endpoint.operation in BODIES, "give it a body above"
        body = BODIES[endpoint.operation]
    other = await person(site)
    mine = await dashboard(user)
    theirs = await _owned(other, endpoint)
    for their in theirs:
        nobody = {name: _absent(id_) for name, id_ in their.items()}
        foreign = await mine.request(endpoint.method, endpoint.path.format_map(their), json=body)
        absent = await mine.request(endpoint.method, endpoint.path.format_map(nobody), json=body)
        assert_error(absent, 404)
        assert _told(foreign, their) == _told(absent, nobody)
    # And what was theirs is still there for them.
    owners = await (await dashboard(other)).request(
        endpoint.method, endpoint.path.format_map(theirs[-1]), json=body
    )
    # A request without an upgrade goes as far as that.
    expected = {200, 201} if endpoint.socket is None else {426}
    assert owners.status_code in expected, owners.text


async def _owned(owner: Owner, endpoint: Endpoint[Any]) -> list[dict[str, str]]:
    """Return parameters for the path that name something of the account, in each form."""
    if "{keyId}" in endpoint.path:
        known = await api_keys.by_hash(owner.site.database, credentials.digest(owner.key))
        assert known is not None
        return [{"keyId": known.id}]
    if "{sessionId}" in endpoint.path:
        page = await dashboard(owner)
        (current,) = (await page.get(f"{V1}/account/sessions")).json()["sessions"]
        return [{"sessionId": current["id"]}]
    if "{webhookId}" in endpoint.path:
        page = await dashboard(owner)
        url = {"url": "http://127.0.0.1:9/hook", "events": ["*"]}
        webhook = (await page.post(f"{V1}/webhooks", json=url)).json()["id"]
        tested = await page.post(f"{V1}/webhooks/{webhook}/test")
        sent = tested.json()["delivery"]["id"]
        return [{"webhookId": webhook, "deliveryId": sent}]
    running = session()
    machine = (await owner.machine(running)).obliges()
    if "{daemonId}" in endpoint.path:
        return [{"daemonId": machine.id, "name": "build"}]
    return [
        {"ideId": f"{machine.id}:session:{running.id}", "messageId": "msg_1"},
        {"ideId": f"{machine.id}:cli:claude-code", "messageId": "msg_1"},
    ]


def _absent(id_: str) -> str:
    """Return an id like this one that names nothing."""
    return re.sub(r"_\w{26}", lambda _: new_id("act").removeprefix("act"), id_)


def _told(response: httpx.Response, ids: dict[str, str]) -> tuple[Any, ...]:
    """Return all that a response tells, but for the ids that were asked for."""
    skipped = {"x-request-id", "date", "ratelimit"}
    headers = [(k, v) for k, v in response.headers.multi_items() if k not in skipped]
    text = response.text
    for id_ in ids.values():
        text = text.replace(id_, "<id>").replace(id_.partition(":")[0], "<machine>")
    return response.status_code, headers, text


async def test_every_scope_guards_something() -> None:
    used = {endpoint.scope for endpoint in ENDPOINTS if endpoint.scope is not None}
    assert used == set(Scope)
