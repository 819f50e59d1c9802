"""The real service, as an operator starts it, with accounts and keys as the tests make them."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import httpx
from tests.rig.site import new_account
from tests.servers.server import free_port

from benchmarks.processes import LOADING, Program, Stage
from outrider.cli.admin import issue_key
from outrider.service.accounts.enrollment import Enrollment
from outrider.service.accounts.passwords import HASHER
from outrider.service.accounts.principal import ALL_SCOPES
from outrider.service.database.engine import Database
from outrider.service.settings import Settings

ResultT = TypeVar("ResultT")

EMAIL: Final = "bench@outrider.invalid"
PASSWORD: Final = "a password of the benchmark"

_NO_LIMIT: Final = "1000000000"

# A client is slow to make, and a kept connection would be one to a server that has ended.
_client: Final = httpx.Client(
    limits=httpx.Limits(max_keepalive_connections=0), trust_env=False, timeout=30
)


@dataclass(frozen=True)
class Server:
    """A server of the API: its address, and a key (if any)."""

    program: Program
    url: str
    key: str = ""

    @property
    def headers(self) -> dict[str, str]:
        """The headers of a request."""
        return {"Authorization": f"Bearer {self.key}"} if self.key else {}

    @property
    def websocket_url(self) -> str:
        """Where a machine connects."""
        return f"ws{self.url.removeprefix('http')}/api/v1/daemon/connect"

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Return the response to a request with the key, or with the `headers` of the options."""
        options = {"headers": self.headers, **options}
        return _client.request(method, self.url + path, **options).raise_for_status()

    def get(self, path: str) -> bytes:
        """Return the body of the response to a GET."""
        return self.request("GET", path).content

    def answers(self, path: str) -> bool:
        """Return whether a GET of `path` succeeds now."""
        try:
            return self.request("GET", path).status_code == 200
        except httpx.HTTPError:
            return False

    def log_in(self) -> dict[str, str]:
        """Return the headers of a new session of the user `EMAIL`."""
        body = {"email": EMAIL, "password": PASSWORD}
        token = self.request("POST", "/api/v1/auth/login", json=body, headers={}).json()["token"]
        return {"Authorization": f"Bearer {token}"}

    def add_webhook(self, session: dict[str, str], url: str, event: str = "*") -> str:
        """Subscribe a URL to an event (all), in a session; return the webhook's path."""
        body = {"url": url, "events": [event]}
        made = self.request("POST", "/api/v1/webhooks", json=body, headers=session).json()
        return f"/api/v1/webhooks/{made['id']}"

    def enroll(self, code: str) -> tuple[str, str]:
        """Enroll a machine; return its daemon id and its token."""
        body = {"code": code, "hostname": "bench", "platform": "linux", "version": "0"}
        enrolled = self.request("POST", "/api/v1/auth/enroll", json=body, headers={}).json()
        return enrolled["daemonId"], enrolled["token"]


class Installation:
    """One data directory of the service, and the settings that it is started with.

    Args:
        settings: further settings, by their variables.

    Attributes:
        accounts: the account ids that were created, by the user's address.
    """

    def __init__(
        self, stage: Stage, name: str, *, settings: Mapping[str, str] | None = None
    ) -> None:
        self.stage = stage
        self.name = name
        self.directory = stage.directory / name
        self.directory.mkdir(parents=True)
        self.accounts: dict[str, str] = {}
        self.port = free_port()
        self.settings = {
            "OUTRIDER_DATA_DIR": str(self.directory),
            "OUTRIDER_PORT": str(self.port),
            # What is measured is the way of a request, not how one is refused.
            **{f"OUTRIDER_RATE_LIMIT_{of}": _NO_LIMIT for of in ("KEY", "SESSION", "IP", "AUTH")},
            "OUTRIDER_LOG_LEVEL": "warning",
            **(settings or {}),
        }

    def serve(self, key: str = "", cpus: Sequence[int] = (), module: str = "outrider") -> Server:
        """Start `python -m MODULE serve` and wait until it is ready."""
        program = self.stage.start(self.name, ["-m", module, "serve"], self.settings, cpus)
        server = Server(program, f"http://127.0.0.1:{self.port}", key)
        program.wait_until(lambda: server.answers("/readyz"), "ready", 60)
        return server

    def new_account(self, email: str = EMAIL) -> tuple[str, str]:
        """Create an account without limits; return its id and a key of it with every scope."""

        async def create(database: Database) -> tuple[str, str]:
            account = await new_account(database, "enterprise", HASHER.hash(PASSWORD), email)
            return account.id, (await new_key(database, account.id))

        self.accounts[email], key = self.in_database(create)
        return self.accounts[email], key

    def new_code(self, email: str = EMAIL) -> str:
        """Return a one-time code that enrolls a machine in the account of this user."""

        async def create(database: Database) -> str:
            return (await Enrollment(database).new_code(self.accounts[email], None)).code

        return self.in_database(create)

    def in_database(self, work: Callable[[Database], Awaitable[ResultT]]) -> ResultT:
        """Return what some work on the database returns; the service may run meanwhile."""
        address = self.settings.get("OUTRIDER_DATABASE_URL")
        settings = Settings(data_dir=self.directory, database_url=address)

        async def run() -> ResultT:
            database = Database(settings.sqlalchemy_url)
            try:
                await database.migrate()
                return await work(database)
            finally:
                await database.close()

        return asyncio.run(run())


async def new_key(database: Database, account: str) -> str:
    """Create a key of an account with every scope."""
    return (await issue_key(database, account, "benchmark", set(ALL_SCOPES)))[1]


def start_receiver(here: Stage) -> Server:
    """Start a receiver of webhooks (`benchmarks.programs.receiver`)."""
    port = free_port()
    program = here.start("receiver", ["-m", "benchmarks.programs.receiver", str(port)], {}, LOADING)
    receiver = Server(program, f"http://127.0.0.1:{port}")
    program.wait_until(lambda: receiver.answers("/count"), "listening")
    return receiver


def status_path(daemon_id: str) -> str:
    """Return the path of the status of a simulated machine's first agent."""
    return f"/api/v1/shortcuts/{daemon_id}:cli:claude-code/status"


def start_scripted_machine(here: Stage, server: Server, daemon_id: str, token: str) -> Program:
    """Start a `benchmarks.scripted_machine`, and wait until it answers."""
    arguments = ["-m", "benchmarks.scripted_machine", server.websocket_url]
    program = here.start("scripted machine", arguments, {"TOKEN": token}, LOADING)
    program.wait_until(lambda: server.answers(status_path(daemon_id)), "connected")
    return program
