"""Processes of their own that a test attacks, and how they are doing meanwhile."""

import asyncio
import socket
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import httpx
import psutil

from outrider.contract.resources import Session
from outrider.service.accounts.passwords import HASHER
from outrider.service.accounts.principal import ALL_SCOPES
from outrider.service.settings import Settings
from tests.rig.machine import ScriptedMachine
from tests.rig.memory import peak_rss, reset_peak_rss
from tests.rig.people import PASSWORD, login, person
from tests.rig.processes import Serving
from tests.rig.site import Owner, Site
from tests.rig.stores import Addresses
from tests.rig.waiting import TIMEOUT

MB: Final = 1_000_000


class Watched(ABC):
    """A process whose memory is watched, and that other clients must go on being served by.

    Attributes:
        process: the process.
    """

    process: psutil.Process

    @abstractmethod
    async def healthy(self) -> bool:
        """Return whether another client is answered within `TIMEOUT`."""

    def rss(self) -> int:
        """Return the bytes of memory that the service has now."""
        memory: int = self.process.memory_info().rss
        return memory

    def peak_rss(self) -> int:
        """Return the most bytes of memory that it has had since its start or `reset_peak`."""
        return peak_rss(self.process.pid)

    def reset_peak(self) -> None:
        """Set the peak to what the service has now."""
        reset_peak_rss(self.process.pid)

    @asynccontextmanager
    async def grows_at_most(self, limit: int) -> AsyncIterator[None]:
        """Attack the service in this block: its peak may be `limit` bytes above the start.

        Other clients must be answered before and afterwards.
        """
        assert await self.healthy()
        self.reset_peak()
        before = self.rss()
        yield
        assert await self.healthy()
        growth = self.peak_rss() - before
        assert growth <= limit, f"the service grew by {growth / MB:.1f} MB"

    async def healthy_meanwhile(self, attack: Awaitable[object]) -> int:
        """Run an attack; return how often another client was answered meanwhile, every time."""
        attacking = asyncio.ensure_future(attack)
        answered = 0
        while not attacking.done() or not answered:
            assert await self.healthy()
            answered += 1
        await attacking
        return answered


@dataclass(frozen=True)
class Account(Owner):
    """An account of the target, whose user can log in with this password."""

    password: str


class Target(Watched):
    """A service process to attack; an asynchronous context, at whose end everything is gone.

    The rate limits are high, so that they do not end an attack that something else has to stop: a
    test of the limits themselves sets them (`rate_limit_ip="300"`).

    Args:
        data_dir: an empty directory of its own.
        addresses: where it stores, if not in SQLite.
        settings: further settings, such as `log_level="debug"` for `OUTRIDER_LOG_LEVEL`.

    Attributes:
        process: the service's process, for the figures that `Target` has no method for.
        site: for tests that read the database; what it hands out uses the process.
    """

    host = "127.0.0.1"

    def __init__(self, data_dir: Path, addresses: Addresses, **settings: str) -> None:
        self._serving = Serving(data_dir, 0, **addresses, **settings)
        self._serving.log = data_dir.parent / f"{data_dir.name}.log"
        self.site = Site(Settings(data_dir=data_dir, **addresses), password_hasher=HASHER)
        self._held = AsyncExitStack()
        self._account: Account | None = None

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as starting:
            await starting.enter_async_context(self._serving)
            starting.push_async_callback(self.site.close)
            self.process = psutil.Process(self._serving.process.pid)
            self.site.url = self.url
            self._bystander = await person(self.site)
            self._held = starting.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._held.aclose()

    @property
    def url(self) -> str:
        """The service's address, without a path."""
        return self._serving.url

    @property
    def gateway(self) -> str:
        """The address that machines connect to."""
        return self.site.gateway

    @property
    def port(self) -> int:
        """The port of `host` that it listens on."""
        return self._serving.port

    @property
    def log(self) -> str:
        """What the service has written to standard error."""
        return self._serving.log.read_text(errors="replace")

    async def healthy(self) -> bool:
        """Return whether another client's GET is answered with 200 within `TIMEOUT`."""
        try:
            async with asyncio.timeout(TIMEOUT):
                return (await self._bystander.api.get("/api/v1/daemons")).status_code == 200
        except (TimeoutError, httpx.TransportError):
            return False

    async def account(self) -> Account:
        """Make an account whose user has a password.

        Its `api` is a client with a key of every scope; `machine()` and `enrolls()` work too.
        """
        return Account(**vars(await person(self.site)), password=PASSWORD)

    async def key(self, scopes: Iterable[str] = ALL_SCOPES, account: Account | None = None) -> str:
        """Make an API key of this account, else of one account for all calls."""
        return await self.site.key((account or await self._default()).id, scopes)

    async def login(self, account: Account | None = None) -> httpx.AsyncClient:
        """Log in through the API; return a client with the session as a bearer token."""
        owner = account or await self._default()
        response = await login(self.site, owner.email, owner.password)
        return self.site.client(response.raise_for_status().json()["token"])

    async def machine(
        self, *sessions: Session, account: Account | None = None, **fields: Any
    ) -> ScriptedMachine:
        """Connect a scripted machine that runs these sessions; `fields` change its hello."""
        return await (account or await self._default()).machine(*sessions, **fields)

    async def token(self, account: Account | None = None) -> str:
        """Enroll a machine that does not connect; return its token."""
        return (await (account or await self._default()).enrolls()).token

    async def connect(
        self, *, narrow: bool = False
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a TCP connection for bytes of the test's own; it is dropped at the end.

        Args:
            narrow: have the kernel keep at most 1 MB of what is not read; it keeps over 5 MB on
                loopback otherwise.
        """
        connection = socket.socket()
        connection.setblocking(False)
        if narrow:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 1000)
        await asyncio.get_running_loop().sock_connect(connection, (self.host, self.port))
        reader, writer = await asyncio.open_connection(sock=connection)
        self._held.callback(_drop, writer)
        return reader, writer

    async def _default(self) -> Account:
        if self._account is None:
            self._account = await self.account()
        return self._account


def _drop(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()
