"""WebSocket endpoints, on endpoints of the tests' own behind a running service."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Literal

import pytest
import pytest_asyncio
from websockets.exceptions import ConnectionClosed

from outrider.contract.errors import ApiError, conflict
from outrider.contract.structs import Wire
from outrider.service.accounts import credentials
from outrider.service.accounts.principal import Principal, Scope
from outrider.service.accounts.store import api_keys
from outrider.service.endpoints import ENDPOINTS
from outrider.service.http.endpoint import Call, Endpoint, SocketKind, bind
from outrider.service.http.openapi import describe
from outrider.service.http.sockets import Close, Conversation, Socket, Sockets
from outrider.service.http.websocket import PAGE_PROTOCOL
from tests.conftest import StartSite, settings
from tests.rig.errors import assert_error
from tests.rig.people import V1, dashboard, page_headers, person
from tests.rig.site import Owner, Site
from tests.rig.sockets import refused, viewer
from tests.rig.stores import SQLite
from tests.rig.waiting import TIMEOUT, eventually

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.one_store]

PATH = "/api/v1/echo"
READING = f"{PATH}?mode=read"
MAX_SIZE = 1000


class Mode(Wire, kw_only=True):
    mode: Literal["read"] | None = None
    """Whether the client only reads."""


class Echo(Conversation):
    """Sends back what it receives; a text ends it."""

    def __init__(self, problem: Exception | None = None) -> None:
        self.problem = problem
        self.closed = 0

    async def open(self) -> None:
        if self.problem is not None:
            raise self.problem

    async def run(self, socket: Socket) -> Close:
        while isinstance(message := await socket.receive(), bytes):
            await socket.send(message)
        if message == "fail":
            raise RuntimeError("a defect")
        return Close(4000, message)

    async def close(self) -> None:
        self.closed += 1


class Setting:
    """A service with an echo, and an account of it."""

    def __init__(self) -> None:
        self.echo = Echo()
        self.owner: Owner

    async def handle(self, _services: Any, _call: Call) -> Conversation:
        """Echo."""
        return self.echo

    def endpoints(self) -> list[Endpoint[Any]]:
        return [
            Endpoint(
                method="GET",
                path=PATH,
                scope=Scope.TERMINAL_EXEC,
                read_scope=Scope.AGENT_READ,
                is_read=lambda query: query.mode == "read",
                query=Mode,
                summary="Echo",
                handler=self.handle,
                response=(),
                socket=SocketKind(description="Whatever it gets.", max_size=MAX_SIZE),
                tag="Daemons",
            )
        ]

    async def records(self) -> list[dict[str, Any]]:
        """Return the audit records of the echo, once there are any."""
        page = await dashboard(self.owner)

        async def some() -> bool:
            return bool(await self._records(page))

        await eventually(some)
        return await self._records(page)

    async def _records(self, page: Any) -> list[dict[str, Any]]:
        records = (await page.get(f"{V1}/audit")).json()["records"]
        return [record for record in records if record["action"] == "handle"]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def shared(
    sqlite: SQLite, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[Setting, Site]]:
    """A service that the tests share: each has an account and an echo of its own."""
    made = Setting()
    chosen = settings(tmp_path_factory.mktemp("sockets") / "data", sqlite)
    site = Site(chosen, bind(made.endpoints(), None))
    await site.start()
    yield made, site
    await site.close()


@pytest_asyncio.fixture(loop_scope="session")
async def setting(shared: tuple[Setting, Site]) -> AsyncIterator[Setting]:
    made, site = shared
    async with site.visit():
        made.echo = Echo()
        made.owner = await person(site)
        yield made


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


class TestHandshake:
    async def test_messages_of_both_kinds_and_the_close(self, setting: Setting) -> None:
        async with viewer(setting.owner, PATH) as socket:
            await socket.send(b"\x00\xff")
            assert await socket.recv() == b"\x00\xff"
            await socket.send("enough")
            with pytest.raises(ConnectionClosed) as closed:
                await socket.recv()
        assert closed.value.rcvd is not None
        assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (4000, "enough")
        await eventually(lambda: setting.echo.closed == 1)
        (record,) = await setting.records()
        assert record["outcome"] == 101

    async def test_it_is_authorized_as_every_request(self, setting: Setting) -> None:
        owner = setting.owner
        response = await refused(owner, PATH, {})
        assert_error(response, 401, "AUTH_REQUIRED")
        assert response.headers["www-authenticate"] == "Bearer"
        assert '"ip"' in response.headers["ratelimit-policy"]
        assert_error(await refused(owner, PATH, bearer("ork_no")), 401, "AUTH_INVALID")
        other = bearer(await owner.site.key(owner.id, ["ide:read"]))
        assert_error(await refused(owner, PATH, other), 403, "AUTH_FORBIDDEN")
        assert setting.echo.closed == 0, "it was not asked"
        assert {record["outcome"] for record in await setting.records()} == {403}

    async def test_the_scope_to_read_is_enough_for_reading_only(self, setting: Setting) -> None:
        owner = setting.owner
        reader = bearer(await owner.site.key(owner.id, ["agent:read"]))
        assert_error(await refused(owner, PATH, reader), 403, "AUTH_FORBIDDEN")
        assert_error(await refused(owner, f"{PATH}?mode=write", reader), 400)
        for headers in (reader, bearer(await owner.site.key(owner.id, ["terminal:exec"]))):
            async with viewer(owner, READING, headers) as socket:
                await socket.send(b"a")
                assert await socket.recv() == b"a"

    async def test_an_error_of_the_conversation_refuses_the_handshake(
        self, setting: Setting
    ) -> None:
        setting.echo.problem = conflict("There is no echo in here")
        assert_error(await refused(setting.owner, PATH), 409)
        assert setting.echo.closed == 1

    async def test_a_request_without_an_upgrade_gets_a_426(self, setting: Setting) -> None:
        response = await setting.owner.api.get(PATH)
        assert_error(response, 426)
        assert response.headers["upgrade"] == "websocket"
        assert_error(await setting.owner.api.post(PATH, json={}), 405)
        assert setting.echo.closed == 0

    async def test_openapi_describes_it(self, setting: Setting) -> None:
        document = describe([*ENDPOINTS, *setting.endpoints()])
        operation = document["paths"][PATH]["get"]
        assert operation["responses"].keys() >= {"101", "401", "426", "429"}
        assert "200" not in operation["responses"]
        assert operation["x-websocket"]["maxMessageBytes"] == MAX_SIZE
        assert "`agent:read` is enough" in operation["description"]
        assert "UpgradeRequired" in document["components"]["responses"]


def socket_headers(page: dict[str, str]) -> dict[str, str]:
    """Return the headers of a page's handshake: its secret is in a subprotocol."""
    secret = page["X-Outrider-Page-Secret"]
    protocols = f"{PAGE_PROTOCOL}, {PAGE_PROTOCOL}.{secret}"
    return {"Cookie": page["Cookie"], "Sec-WebSocket-Protocol": protocols}


class TestCookie:
    async def test_it_works_with_the_page_secret_only(self, setting: Setting) -> None:
        """Which a browser is told was taken, without a repetition of the secret."""
        owner = setting.owner
        page = socket_headers(await page_headers(owner)) | {"Origin": owner.site.url}
        async with viewer(owner, PATH, page) as socket:
            assert socket.response is not None
            assert socket.response.headers["Sec-WebSocket-Protocol"] == PAGE_PROTOCOL
        wrong = f"{PAGE_PROTOCOL}, {PAGE_PROTOCOL}.{'x' * 40}"
        for protocols in (PAGE_PROTOCOL, wrong):
            headers = page | {"Sec-WebSocket-Protocol": protocols}
            assert_error(await refused(owner, PATH, headers), 401, "AUTH_INVALID")
        del page["Sec-WebSocket-Protocol"]
        assert_error(await refused(owner, PATH, page), 401, "AUTH_INVALID")

    async def test_only_pages_of_this_site_may_use_the_cookie(self, setting: Setting) -> None:
        owner = setting.owner
        cookie = socket_headers(await page_headers(owner))
        here = owner.site.url
        foreign: list[dict[str, str]] = [
            {},
            {"Origin": "null"},
            {"Origin": "https://evil.example"},
            {"Origin": here + ".evil.example"},
            {"Origin": "http://127.0.0.1"},
            {"Origin": "https://evil.example", "Sec-Fetch-Site": "same-origin"},
            {"Origin": here, "Sec-Fetch-Site": "cross-site"},
            {"Origin": here, "Sec-Fetch-Site": "same-site"},
        ]
        for headers in foreign:
            response = await refused(owner, PATH, cookie | headers)
            assert_error(response, 403, "AUTH_FORBIDDEN")
        for headers in ({"Origin": here}, {"Origin": here, "Sec-Fetch-Site": "same-origin"}):
            async with viewer(owner, PATH, cookie | headers) as socket:
                await socket.send(b"a")
                assert await socket.recv() == b"a"

    async def test_pages_of_the_public_url_may_use_the_cookie(self, start_site: StartSite) -> None:
        made = Setting()
        public = "https://outrider.example.com"
        site = await start_site(more_endpoints=bind(made.endpoints(), None), public_url=public)
        made.owner = owner = await person(site)
        cookie = socket_headers(await page_headers(owner))
        async with viewer(owner, PATH, cookie | {"Origin": public}):
            pass
        plain = {"Origin": "http://outrider.example.com"}
        assert_error(await refused(owner, PATH, cookie | plain), 403, "AUTH_FORBIDDEN")

    async def test_a_page_of_another_site_may_send_a_key(self, setting: Setting) -> None:
        headers = bearer(setting.owner.key) | {"Origin": "https://evil.example"}
        async with viewer(setting.owner, PATH, headers):
            pass


async def end_of(socket: Any) -> tuple[int, str]:
    """Wait until the service closes a socket; return the code and reason."""
    async with asyncio.timeout(TIMEOUT):
        await socket.wait_closed()
    return socket.close_code, socket.close_reason


class TestEnd:
    async def test_a_revoked_key_closes_it(self, setting: Setting) -> None:
        owner = setting.owner
        key = await owner.site.key(owner.id)
        async with viewer(owner, PATH, bearer(key)) as socket:
            row = await api_keys.by_hash(owner.site.database, credentials.digest(key))
            assert row is not None
            await api_keys.revoke(owner.site.database, row.id, 1)
            code, reason = await end_of(socket)
        assert code == 4401
        assert "revoked" in reason

    async def test_the_end_of_its_session_closes_it(self, setting: Setting) -> None:
        owner = setting.owner
        page = await page_headers(owner) | {"Sec-Fetch-Site": "same-origin"}
        handshake = socket_headers(page) | {"Origin": owner.site.url}
        async with viewer(owner, PATH, handshake) as socket:
            out = await owner.site.client().post(f"{V1}/auth/logout", json={}, headers=page)
            assert out.status_code == 200
            assert (await end_of(socket))[0] == 4401

    async def test_a_node_that_drains_closes_it(self, start_site: StartSite) -> None:
        setting = Setting()
        site = await start_site(more_endpoints=bind(setting.endpoints(), None))
        async with viewer(await site.account(), PATH) as socket:
            stop = asyncio.create_task(site.stop())
            code, reason = await end_of(socket)
            assert code == 1001
            assert "connect again" in reason
        async with asyncio.timeout(TIMEOUT):
            await stop
        assert setting.echo.closed == 1

    async def test_a_conversation_that_fails_is_closed_with_1011(self, setting: Setting) -> None:
        async with viewer(setting.owner, PATH) as socket:
            await socket.send("fail")
            assert (await end_of(socket))[0] == 1011


def principal(name: str) -> Principal:
    return Principal("key", name, "acct_1", frozenset())


class TestLimit:
    async def test_a_credential_may_have_so_many_sockets_open(self) -> None:
        sockets = Sockets(per_credential=2)
        echoes = [Echo(), Echo()]
        for echo in echoes:
            await sockets.open(echo, principal("a"))
        with pytest.raises(ApiError) as refusal:
            await sockets.open(Echo(), principal("a"))
        assert refusal.value.status == 429
        assert refusal.value.retry_after
        await sockets.open(Echo(), principal("b"))
        await sockets.release(echoes[0], principal("a"))
        await sockets.open(Echo(), principal("a"))
        assert sockets.count() == 3

    async def test_a_refused_socket_does_not_count(self) -> None:
        sockets = Sockets(per_credential=1)
        with pytest.raises(ApiError):
            await sockets.open(Echo(conflict("no")), principal("a"))
        assert sockets.count() == 0
        sockets.drain()
        with pytest.raises(ApiError) as refusal:
            await sockets.open(Echo(), principal("a"))
        assert refusal.value.status == 503
