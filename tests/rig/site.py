"""A running service with its database at hand: accounts, keys, clients and machines."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import httpx
from argon2 import PasswordHasher

from outrider.cli.admin import issue_key
from outrider.contract.account import PlanName
from outrider.contract.enrollment import Enrolled, EnrollRequest
from outrider.contract.frames import Hello
from outrider.contract.ids import new_id
from outrider.contract.resources import Session
from outrider.service.accounts.enrollment import Enrollment
from outrider.service.accounts.one_time_links import LoginLinks
from outrider.service.accounts.principal import ALL_SCOPES
from outrider.service.accounts.store import accounts
from outrider.service.components import Options
from outrider.service.database.engine import Database
from outrider.service.events.streams import StreamTimes
from outrider.service.http.endpoint import BoundEndpoint
from outrider.service.machines.dispatch import DRAIN_SECONDS
from outrider.service.operations.tls import ServerCertificate
from outrider.service.server import listen, listen_for_metrics, run_service
from outrider.service.settings import Settings
from outrider.tracing import OFF, Tracing
from tests.rig.machine import ScriptedMachine, hello
from tests.rig.stores import Addresses
from tests.rig.waiting import TIMEOUT
from tests.servers.server import reserve_ports

GATEWAY = "/api/v1/daemon/connect"

CHEAP_HASHER: Final = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
"""Hashes passwords of users in microseconds, for tests that are not about the hash itself."""

_numbers = itertools.count(1)


class Account(NamedTuple):
    """An account and its user."""

    id: str
    user_id: str
    email: str


async def new_account(
    database: Database,
    plan: PlanName = "free",
    password_hash: str | None = None,
    email: str | None = None,
) -> Account:
    """Make an account."""
    email = email or f"user{next(_numbers)}@example.org"
    account = Account(new_id("acct"), new_id("user"), email)
    await accounts.create(
        database,
        account_id=account.id,
        user_id=account.user_id,
        email=account.email,
        plan=plan,
        password_hash=password_hash,
        now=1,
    )
    return account


class Site:
    """A service that listens on a port of its own.

    What it hands out (clients, machines) ends with it, or earlier by the test's hand.

    Args:
        drain_seconds: how long a stop waits for commands in flight.
        stream_times: the intervals of event streams.
        password_hasher: production's is `passwords.HASHER`, which takes 64 MB and a core.
        tracing: begins the spans; the caller closes it.
    """

    def __init__(
        self,
        settings: Settings,
        more_endpoints: Sequence[BoundEndpoint] = (),
        *,
        password_hasher: PasswordHasher = CHEAP_HASHER,
        drain_seconds: float = DRAIN_SECONDS,
        stream_times: StreamTimes | None = None,
        tracing: Tracing = OFF,
    ) -> None:
        self.settings = settings
        self.links = LoginLinks()
        self._options = Options(
            more_endpoints=more_endpoints,
            password_hasher=password_hasher,
            drain_seconds=drain_seconds,
            stream_times=stream_times or StreamTimes(),
            login_links=self.links,
            tracing=tracing,
        )
        self.database = Database(settings.sqlalchemy_url)
        self.url = ""
        self._certificate: ServerCertificate | None = None
        self._stop = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._held = AsyncExitStack()
        self._port: int | None = None
        self._release = ExitStack()

    @property
    def addresses(self) -> Addresses:
        """Where it stores, for other processes that are to do so too."""
        return self.settings.model_dump(include={"database_url", "redis_url"}, exclude_none=True)

    @property
    def gateway(self) -> str:
        """The address that machines connect to."""
        return self.url.replace("http", "ws", 1) + GATEWAY

    async def start(self) -> None:
        """Start the service, or start it again on its old port."""
        settings = self.settings
        if settings.port == 0 and self._port is None:
            self._port, release = reserve_ports()
            self._release.callback(release)
        if self._port is not None:
            settings = settings.model_copy(update={"port": self._port})
        self._certificate = ServerCertificate.of(settings)
        listener = listen(settings)
        self.url = f"{settings.scheme}://127.0.0.1:{listener.getsockname()[1]}{settings.base_path}"
        self._stop, ready = asyncio.Event(), asyncio.Event()
        work = run_service(
            settings,
            [listener, *listen_for_metrics(settings)],
            self._stop,
            ready.set,
            options=self._options,
            certificate=self._certificate,
        )
        self._task = asyncio.create_task(work, name="the service")
        waiting = asyncio.create_task(ready.wait())
        await asyncio.wait([waiting, self._task], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if self._task.done():
            self._release.close()
            await self._task

    async def stop(self) -> None:
        """Stop the service as SIGTERM does."""
        self._stop.set()
        if self._task is not None:
            await self._task
            self._task = None

    def reload_certificate(self) -> None:
        """Do what `outrider serve` does at SIGHUP."""
        assert self._certificate is not None
        self._certificate.reload()

    @asynccontextmanager
    async def visit(self) -> AsyncIterator[None]:
        """End at the end what the service hands out from now on."""
        outer, self._held = self._held, AsyncExitStack()
        try:
            yield
        finally:
            await self._held.aclose()
            self._held = outer

    async def close(self) -> None:
        """End everything."""
        await self._held.aclose()
        await self.stop()
        await self.database.close()
        self._release.close()

    def client(self, key: str | None = None) -> httpx.AsyncClient:
        """Return a client with this key; it does not raise on errors."""
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        client = httpx.AsyncClient(
            base_url=self.url, headers=headers, verify=False, trust_env=False, timeout=TIMEOUT * 2
        )
        self._held.push_async_callback(client.aclose)
        return client

    async def account(
        self, plan: PlanName = "enterprise", password_hash: str | None = None
    ) -> "Owner":
        """Make an account with a key that may do everything."""
        account = await new_account(self.database, plan, password_hash)
        key = await self.key(account.id)
        return Owner(self, account.id, account.email, key, self.client(key))

    async def key(
        self, account_id: str, scopes: Iterable[str] = ALL_SCOPES, lifetime: int | None = None
    ) -> str:
        """Make a key. `lifetime` is milliseconds."""
        _, key = await issue_key(self.database, account_id, "test", set(scopes), lifetime=lifetime)
        return key

    async def hold(self, machine: ScriptedMachine) -> ScriptedMachine:
        """Connect a machine, to be dropped at the end."""
        return await self._held.enter_async_context(machine)


@dataclass(frozen=True)
class Owner:
    """An account; `api` is a client with a key that may do everything."""

    site: Site
    id: str
    email: str
    key: str
    api: httpx.AsyncClient

    def sends(
        self, method: str, path: str, body: Any = None, *, content: str | None = None
    ) -> asyncio.Task[httpx.Response]:
        """Send a request that is answered later."""
        work = self.api.request(
            method, path, json=body if content is None else None, content=content
        )
        return asyncio.create_task(work, name=f"{method} {path}")

    async def may(self, *scopes: str) -> httpx.AsyncClient:
        """Return a client whose key has just these scopes."""
        return self.site.client(await self.site.key(self.id, scopes))

    async def enrolls(self, daemon_id: str | None = None, nickname: str = "Bench") -> Enrolled:
        """Enroll a machine, with the token that it connects with."""
        enrollment = Enrollment(self.site.database)
        code = await enrollment.new_code(self.id, nickname)
        _, enrolled = await enrollment.redeem(
            EnrollRequest(
                code=code.code, hostname="workbench", platform="linux", daemon_id=daemon_id
            )
        )
        return enrolled

    async def machine(
        self,
        *sessions: Session,
        enrolled: Enrolled | None = None,
        says: Hello | None = None,
        **fields: Any,
    ) -> ScriptedMachine:
        """Connect a scripted machine that runs these sessions."""
        enrolled = enrolled or await self.enrolls()
        machine = ScriptedMachine(
            self.site.gateway, enrolled.token, says or hello(*sessions, **fields)
        )
        return await self.site.hold(machine)
