"""The shape of errors, the order of checks, and what no endpoint answers.

Holds docs/api.md, "Errors", and docs/access.md, "Credentials".
"""

import asyncio
import json
from collections.abc import AsyncIterator
from urllib.parse import urlparse

import httpx
import pytest

from outrider.contract.resources import DaemonStatus
from tests.rig.errors import assert_error
from tests.rig.samples import session
from tests.rig.site import Owner, Site
from tests.rig.waiting import TIMEOUT

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.one_store]

MIB = 1024 * 1024


async def test_every_response_has_a_request_id_of_its_own(owner: Owner, site: Site) -> None:
    """docs/api.md, Errors: every response carries X-Request-Id."""
    machine = await owner.machine()
    responses = [
        await owner.api.get("/api/v1/daemons"),
        await owner.api.get("/api/v1/daemons"),
        await site.client().get("/api/v1/daemons"),
        await owner.api.get("/nowhere"),
        await owner.api.put("/api/v1/daemons"),
        await owner.api.post(f"/api/v1/daemons/{machine.id}/terminal", content=b"x" * (MIB + 1)),
        await owner.api.get("/healthz"),
        await owner.api.get("/openapi.json"),
    ]
    assert [r.status_code for r in responses] == [200, 200, 401, 404, 405, 413, 200, 200]
    ids = {response.headers["x-request-id"] for response in responses}
    assert len(ids) == len(responses)


async def test_a_401_has_a_challenge(owner: Owner, site: Site) -> None:
    """RFC 9110, 15.5.2: a 401 has a challenge."""
    body = {"email": owner.email, "password": "no"}
    for response in (
        await site.client().get("/api/v1/daemons"),
        await site.client("rubbish").get("/api/v1/daemons"),
        await site.client().post("/api/v1/auth/login", json=body),
    ):
        assert response.status_code == 401
        assert response.headers["www-authenticate"] == "Bearer"
    assert "www-authenticate" not in (await owner.api.get("/api/v1/daemons")).headers


async def test_an_unexpected_exception_is_a_500_without_its_trace(
    owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """docs/api.md, Errors: a 500 too has the error body and a request id."""

    def broken(*_: object, **__: object) -> DaemonStatus:
        raise ZeroDivisionError("secret detail")

    monkeypatch.setattr("outrider.service.machines.views.daemon_status", broken)
    machine = await owner.machine()
    response = await owner.api.get(f"/api/v1/daemons/{machine.id}/status")
    assert "secret" not in json.dumps(assert_error(response, 500))


@pytest.mark.parametrize(
    "path",
    [
        "/nothing",
        "/api",
        "/api/v1",
        "/api/v2/daemons",
        "/api/v1/daemons/",
        "/api/v1/daemons//status",
        "/api/v1/daemons/x/status/",
        "/api/v1/daemons/a%2Fb/status",
        "/api/v1/shortcuts/x/nothing",
        "/api/v1/daemon/connect",
        "/mcp/nothing",
    ],
)
async def test_an_unknown_route_is_a_404_in_json_for_programs_and_browsers(
    owner: Owner, path: str
) -> None:
    assert_error(await owner.api.get(path), 404)
    response = await owner.api.get(path, headers={"Accept": "text/html"})
    if path.startswith(("/api", "/mcp")):
        assert_error(response, 404)
        assert response.headers["content-type"] == "application/json"


async def test_an_unknown_page_is_html_for_a_browser(owner: Owner) -> None:
    response = await owner.api.get("/nothing/here", headers={"Accept": "text/html,*/*"})
    assert response.status_code == 404
    assert response.headers["content-type"].startswith("text/html")
    assert "script-src" in response.headers["content-security-policy"]


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("POST", "/api/v1/daemons", "GET"),
        ("DELETE", "/api/v1/daemons/x/status", "GET"),
        ("GET", "/api/v1/daemons/x/command", "POST"),
        ("GET", "/api/v1/daemons/x/revoke", "POST"),
        ("PUT", "/api/v1/shortcuts/x:cli:y/chat", "GET, POST"),
        ("PATCH", "/api/v1/shortcuts/x:cli:y/approve", "POST"),
        ("OPTIONS", "/api/v1/daemons", "GET"),
    ],
)
async def test_a_wrong_method_is_a_405(owner: Owner, method: str, path: str, allow: str) -> None:
    """A wrong method is a 405; its header has the right ones (RFC 9110)."""
    response = await owner.api.request(method, path, content=b"{}")
    assert_error(response, 405)
    assert response.headers["allow"] == allow


async def test_a_body_of_one_mebibyte_is_taken_and_a_larger_one_is_not(owner: Owner) -> None:
    """A body over 1 MiB is a 413."""
    machine = (await owner.machine()).obliges()
    path = f"/api/v1/daemons/{machine.id}/terminal"
    frame = len(json.dumps({"command": ""}))
    fits = json.dumps({"command": "x" * (MIB - frame)})
    assert len(fits) == MIB
    assert (await owner.api.post(path, content=fits)).status_code == 200
    assert_error(await owner.api.post(path, content=fits + " "), 413)


async def test_a_chunked_body_is_counted_as_it_comes(owner: Owner) -> None:
    """A body that does not tell its length is limited as well."""
    machine = await owner.machine()
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while sent < 64 * MIB:
            sent += 65536
            yield b" " * 65536

    try:
        response = await owner.api.post(f"/api/v1/daemons/{machine.id}/terminal", content=endless())
    except httpx.TransportError:
        pytest.fail("the client was cut off before it could read the 413")
    assert_error(response, 413)


async def raw_answer(owner: Owner, site: Site, headers: str, body: bytes = b"") -> bytes:
    """Post to a machine's terminal with exactly these headers; return the answer's first line."""
    machine = await owner.machine()
    address = urlparse(site.url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    writer.write(
        f"POST /api/v1/daemons/{machine.id}/terminal HTTP/1.1\r\nHost: localhost\r\n"
        f"Authorization: Bearer {owner.key}\r\n{headers}\r\n".encode()
    )
    writer.write(body)
    async with asyncio.timeout(TIMEOUT):
        line = await reader.readline()
    writer.close()
    return line


async def test_a_refused_body_is_not_read_to_its_end(owner: Owner, site: Site) -> None:
    """The service answers 413 while the client is still sending, and takes no more of it."""
    length = f"Content-Length: {900 * MIB}\r\n"
    assert (await raw_answer(owner, site, length, b" " * (MIB + 1))).startswith(b"HTTP/1.1 413")


async def test_a_body_that_says_it_is_too_large_is_not_waited_for(owner: Owner, site: Site) -> None:
    """A client that asks first (`Expect`) gets the error before it sends anything."""
    headers = f"Expect: 100-continue\r\nContent-Length: {MIB + 1}\r\n"
    assert (await raw_answer(owner, site, headers)).startswith(b"HTTP/1.1 413")


_UPGRADE = "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
_KEY = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        ("hello\r\n\r\n", 400),
        ("BREW /api/v1/daemons HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        ("GET /api/v1/daemons HTTP/1.1\r\nno colon\r\n\r\n", 400),
        ("POST /api/v1/webhooks HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n", 400),
        (f"{_UPGRADE.format(path='/api/v1/daemons')}{_KEY}Sec-WebSocket-Version: 13\r\n\r\n", 403),
        (f"{_UPGRADE.format(path='/api/v1/daemon/connect')}\r\n", 400),
        (f"{_UPGRADE.format(path='/api/v1/daemon/connect')}{_KEY}\r\n", 400),
    ],
    ids=["rubbish", "method", "header", "length", "no socket there", "no key", "no version"],
)
async def test_invalid_http_is_refused_with_an_error_body(
    site: Site, sent: str, status: int
) -> None:
    """docs/api.md, Errors: every response has the error body and an X-Request-Id."""
    address = urlparse(site.url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    writer.write(sent.encode())
    async with asyncio.timeout(TIMEOUT):
        answer = await reader.read()
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = [(name, value) for name, _, value in (line.partition(": ") for line in lines)]
    response = httpx.Response(int(first.split()[1]), headers=headers, content=body)
    assert_error(response, status)
    assert response.headers["content-length"] == str(len(body))


async def test_another_accounts_session_is_not_reached_through_a_machine_of_mine(
    owner: Owner, site: Site
) -> None:
    """A payload that names another machine's target goes to nobody but the machine of the path."""
    other = await site.account()
    theirs = session()
    their_machine = await other.machine(theirs)
    mine = (await owner.machine()).obliges()
    payload = {"target": f"{their_machine.id}:session:{theirs.id}"}
    command = {"type": "read_chat", "payload": payload}
    await owner.api.post(f"/api/v1/daemons/{mine.id}/command", json=command)
    await their_machine.settled()
    assert their_machine.received_nothing()
