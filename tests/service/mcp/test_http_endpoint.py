"""Who may use `/mcp`, how much, and what is refused. Holds docs/mcp.md."""

import asyncio
import re

import httpx
import pytest

from outrider.service.http.request_body import MAX_BODY_BYTES
from outrider.service.mcp.http_endpoint import MAX_CONCURRENT
from tests.conftest import StartSite
from tests.rig.errors import assert_error
from tests.rig.mcp import ACCEPT, error_of, mcp_client, message
from tests.rig.people import V1, logged_in, page_headers
from tests.rig.samples import session
from tests.rig.site import Owner
from tests.rig.waiting import eventually

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.one_store]

LIST = message("tools/list")


def challenge(response: httpx.Response, code: str) -> str:
    """Check that a request was refused with 401; return the address of the metadata."""
    assert_error(response, 401, code)
    header = response.headers["WWW-Authenticate"]
    assert header.startswith("Bearer ")
    found = re.search('resource_metadata="(.+)"', header)
    assert found is not None
    return found[1]


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_both_generations_of_the_protocol(owner: Owner, mode: str) -> None:
    async with mcp_client(owner.site.url, owner.key, mode=mode) as client:
        assert len((await client.list_tools()).tools) == 12
        assert client.server_info is not None
        assert client.server_info.name == "outrider"
        assert "wait_agent" in (client.instructions or "")


async def test_messages_need_no_session(owner: Owner) -> None:
    response = await owner.api.post("/mcp", json=LIST, headers=ACCEPT)
    assert response.status_code == 200
    assert "mcp-session-id" not in response.headers
    assert response.headers["Cache-Control"] == "no-store"
    assert len(response.json()["result"]["tools"]) == 12


async def test_without_a_key(owner: Owner) -> None:
    stranger = owner.site.client()
    metadata = challenge(await stranger.post("/mcp", json=LIST, headers=ACCEPT), "AUTH_REQUIRED")
    described = (await stranger.get(metadata)).json()
    assert described["resource"] == f"{owner.site.url}/mcp"
    assert described["bearer_methods_supported"] == ["header"]
    challenge(await stranger.get("/mcp"), "AUTH_REQUIRED")


async def test_with_a_wrong_key(owner: Owner) -> None:
    wrong = owner.site.client("ork_wrong")
    response = await wrong.post("/mcp", json=LIST, headers=ACCEPT)
    challenge(response, "AUTH_INVALID")
    assert 'error="invalid_token"' in response.headers["WWW-Authenticate"]


async def test_a_login_is_no_key(user: Owner) -> None:
    token = (await logged_in(user)).token
    own = {"Sec-Fetch-Site": "same-origin", "Origin": user.site.url, **ACCEPT}
    cookie = {**own, **await page_headers(user)}
    browser = user.site.client()
    challenge(await browser.post("/mcp", json=LIST, headers=cookie), "AUTH_REQUIRED")
    bearer = {**own, "Authorization": f"Bearer {token}"}
    challenge(await browser.post("/mcp", json=LIST, headers=bearer), "AUTH_INVALID")


async def test_a_page_of_another_site(owner: Owner) -> None:
    headers = {"Origin": "https://evil.example", **ACCEPT}
    assert_error(await owner.api.post("/mcp", json=LIST, headers=headers), 403, "AUTH_FORBIDDEN")


async def test_another_host(owner: Owner) -> None:
    headers = {"Host": "evil.example", **ACCEPT}
    assert_error(await owner.api.post("/mcp", json=LIST, headers=headers), 421)


@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_another_method(owner: Owner, method: str) -> None:
    response = await owner.api.request(method, "/mcp", headers=ACCEPT)
    assert_error(response, 405)
    assert response.headers["Allow"] == "POST"


async def test_a_body_that_is_too_large(owner: Owner) -> None:
    body = b" " * (MAX_BODY_BYTES + 1)
    headers = {"Content-Type": "application/json", **ACCEPT}
    assert_error(await owner.api.post("/mcp", content=body, headers=headers), 413)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'{"jsonrpc": "2.0"}', b"[" * 9999])
async def test_a_body_that_is_no_message(owner: Owner, body: bytes) -> None:
    headers = {"Content-Type": "application/json", **ACCEPT}
    response = await owner.api.post("/mcp", content=body, headers=headers)
    assert response.status_code == 400
    assert "error" in response.json()


async def test_limits(start_site: StartSite) -> None:
    """A tool call over the limit is a tool error, which its model reads; the rest gets a 429."""
    owner = await (await start_site(rate_limit_key=5)).account()
    async with mcp_client(owner.site.url, owner.key, mode="legacy") as client:
        answers = [await client.call_tool("list_machines", {}) for _ in range(6)]
        assert not answers[0].is_error
        assert "Try again in" in error_of(answers[-1])
    response = await owner.api.post("/mcp", json=LIST, headers=ACCEPT)
    assert_error(response, 429, "RATE_LIMITED")
    assert int(response.headers["Retry-After"]) > 0
    assert_error(await owner.api.get(f"{V1}/daemons"), 429, "RATE_LIMITED")  # they count together


async def test_requests_beyond_the_concurrent_ones_of_a_key_are_refused(owner: Owner) -> None:
    machine = await owner.machine(session(id="session_1"))
    arguments = {"agent": f"{machine.id}:session:session_1", "timeout_seconds": 45}
    wait = message("tools/call", {"name": "wait_agent", "arguments": arguments})
    waiting = owner.site.client(owner.key)
    waits: list[asyncio.Task[httpx.Response]] = []
    refusals: list[httpx.Response] = []

    def begin_wait() -> None:
        waits.append(asyncio.create_task(waiting.post("/mcp", json=wait, headers=ACCEPT)))

    async def is_full() -> bool:
        begin_wait()  # one of the others may have been refused, beside the request below
        return await is_refused()

    async def is_refused() -> bool:
        response = await owner.api.post("/mcp", json=LIST, headers=ACCEPT)
        refusals.append(response)
        return response.status_code == 429

    for _ in range(MAX_CONCURRENT - 1):
        begin_wait()
    await eventually(is_full)
    assert_error(refusals[-1], 429, "RATE_LIMITED")
    call = message("tools/call", {"name": "list_machines", "arguments": {}})
    answer = await owner.api.post("/mcp", json=call, headers=ACCEPT)
    assert answer.json()["result"]["isError"]
    another = owner.site.client(await owner.site.key(owner.id))
    assert (await another.post("/mcp", json=LIST, headers=ACCEPT)).status_code == 200
    for request in waits:
        request.cancel()

    async def is_free() -> bool:
        return not await is_refused()

    await eventually(is_free)
