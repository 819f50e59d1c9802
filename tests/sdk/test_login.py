"""A client that logs in with a password, for what an API key may not do."""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from outrider.sdk import AsyncOutrider, AuthenticationError
from tests.rig.people import PASSWORD, dashboard, person
from tests.rig.site import Owner, Site
from tests.sdk.scripted_api import ScriptedApi, answer

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.one_store]

PAGE = Path(__file__).parents[2] / "docs" / "python.md"
LOGGED_IN = b'{"token":"%s"}'
RECENT = b'{"error":"Give the password again","code":"RECENT_LOGIN_REQUIRED"}'
NONE = b'{"webhooks":[]}'
DELETED = b'{"success":true,"id":"webhook_1"}'
DONE = b'{"success":true}'


@pytest_asyncio.fixture(loop_scope="session")
async def owner(sqlite_site: Site) -> AsyncIterator[Owner]:
    """An account whose user has a password."""
    async with sqlite_site.visit():
        yield await person(sqlite_site)


async def sessions_of(owner: Owner) -> int:
    """Return how many sessions the user has, without the one that asks."""
    async with await dashboard(owner) as http:
        return len((await http.get("/api/v1/account/sessions")).json()["sessions"]) - 1


async def test_a_user_creates_and_deletes_a_webhook(owner: Owner) -> None:
    before = await sessions_of(owner)
    async with AsyncOutrider(owner.site.url, login=(owner.email, PASSWORD)) as client:
        made = await client.webhooks.create("https://example.org/hook", ["agent:error"])
        assert made.secret.startswith("whsec_")
        assert [webhook.id for webhook in await client.webhooks.list()] == [made.id]
        await client.webhooks.delete(made.id)
    assert await sessions_of(owner) == before + 1  # that of the first count: none of the client


async def test_the_example_of_the_page_creates_a_webhook(
    owner: Owner, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the synchronous client."""
    marked = r"<!-- run: tests/sdk/test_login.py -->\n```python\n(.*?)^```$"
    (example,) = re.findall(marked, PAGE.read_text(), re.MULTILINE | re.DOTALL)
    example = example.replace("you@example.com", owner.email).replace("your password", PASSWORD)
    monkeypatch.setenv("OUTRIDER_URL", owner.site.url)
    await asyncio.to_thread(exec, compile(example, "example", "exec"), {})
    assert capsys.readouterr().out.startswith("whsec_")


async def test_a_wrong_password_is_refused(owner: Owner) -> None:
    async with AsyncOutrider(owner.site.url, login=(owner.email, "wrong")) as client:
        with pytest.raises(AuthenticationError, match="password"):
            await client.machines.list()


async def test_the_password_is_given_again_if_the_login_is_not_recent() -> None:
    steps = [
        answer(200, LOGGED_IN % b"first"),
        answer(403, RECENT),
        answer(200, LOGGED_IN % b"second"),
        answer(200, DELETED),
        answer(200, DONE),
    ]
    async with ScriptedApi(steps) as api:
        async with AsyncOutrider(api.url, login=("a@example.org", "secret")) as client:
            await client.webhooks.delete("webhook_1")
    paths = [(request.path, request.headers.get("authorization")) for request in api.requests]
    assert paths == [
        ("/api/v1/auth/login", None),
        ("/api/v1/webhooks/webhook_1", "Bearer first"),
        ("/api/v1/auth/reauthenticate", "Bearer first"),
        ("/api/v1/webhooks/webhook_1", "Bearer second"),
        ("/api/v1/auth/logout", "Bearer second"),
    ]


async def test_a_session_that_has_expired_is_begun_again() -> None:
    expired = answer(401, b'{"error":"It has expired","code":"AUTH_INVALID"}')
    begun = [answer(200, LOGGED_IN % name) for name in (b"first", b"second")]
    steps = [begun[0], answer(200, NONE), expired, begun[1], answer(200, NONE), answer(200, DONE)]
    async with ScriptedApi(steps) as api:
        async with AsyncOutrider(api.url, login=("a@example.org", "secret")) as client:
            await client.webhooks.list()
            await client.webhooks.list()
    assert [request.path for request in api.requests][3] == "/api/v1/auth/login"
    assert "authorization" not in api.requests[3].headers


async def test_a_refusal_that_stays_is_raised() -> None:
    steps = [answer(200, LOGGED_IN % b"first"), answer(401, b'{"error":"No"}')]
    async with ScriptedApi([*steps, steps[0], steps[1], steps[1]]) as api:
        async with AsyncOutrider(api.url, login=("a@example.org", "secret")) as client:
            with pytest.raises(AuthenticationError):
                await client.webhooks.list()
    assert len(api.requests) == 5  # two logins, two attempts, the logout
