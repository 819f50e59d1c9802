"""The real service, as an operator starts it, with an account and a key of its own."""

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import httpx

from benchmarks.processes import (
    LOADING,
    REPOSITORY,
    BenchmarkError,
    Program,
    Stage,
    deferred,
    free_port,
)

EMAIL: Final = "bench@outrider.invalid"
PASSWORD: Final = "a password of the benchmark"
"""Of a benchmark's user; some have a second one."""

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
    key: str

    @property
    def headers(self) -> dict[str, str]:
        """The headers of a request."""
        return {"Authorization": f"Bearer {self.key}"} if self.key else {}

    @property
    def websocket_url(self) -> str:
        """Where a machine connects."""
        return f"ws{self.url.removeprefix('http')}/api/v1/daemon/connect"

    def answers(self, path: str) -> bool:
        """Return whether a GET of `path` gives a 200 now."""
        try:
            return _client.get(self.url + path, headers=self.headers).status_code == 200
        except httpx.TransportError:
            return False

    def get(self, path: str) -> bytes:
        """Return what a GET of `path` answers."""
        return _client.get(self.url + path, headers=self.headers).raise_for_status().content

    def post(self, path: str, body: bytes) -> bytes:
        """Return what a POST to `path` answers."""
        answer = _client.post(self.url + path, headers=self.headers, content=body)
        return answer.raise_for_status().content

    def log_in(self, email: str = EMAIL) -> dict[str, str]:
        """Return the headers of a new session of a user."""
        login = {"email": email, "password": PASSWORD}
        answer = _client.post(f"{self.url}/api/v1/auth/login", json=login)
        return {"Authorization": f"Bearer {answer.raise_for_status().json()['token']}"}

    def add_webhook(self, session: dict[str, str], url: str, event: str = "*") -> str:
        """Subscribe a URL to an event (all), in a session; return the webhook's path."""
        body = {"url": url, "events": [event]}
        answer = _client.post(f"{self.url}/api/v1/webhooks", json=body, headers=session)
        return f"/api/v1/webhooks/{answer.raise_for_status().json()['id']}"


class Installation:
    """One data directory of the service, and the settings that it is started with.

    Args:
        copy_of: an installation whose data it begins with.
        database: the address of its database, where it is not SQLite in the directory.
        settings: further settings, by their variables.
    """

    def __init__(
        self,
        stage: Stage,
        name: str,
        copy_of: "Installation | None" = None,
        *,
        database: str | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.stage = stage
        self.name = name
        self._port = free_port()
        self.settings: Mapping[str, str] = {
            **({} if database is None else {"OUTRIDER_DATABASE_URL": database}),
            "OUTRIDER_DATA_DIR": str(stage.directory / name),
            "OUTRIDER_PORT": str(self._port),
            # What is measured is the way of a request, not how one is refused.
            "OUTRIDER_RATE_LIMIT_KEY": _NO_LIMIT,
            "OUTRIDER_RATE_LIMIT_SESSION": _NO_LIMIT,
            "OUTRIDER_RATE_LIMIT_IP": _NO_LIMIT,
            "OUTRIDER_RATE_LIMIT_AUTH": _NO_LIMIT,
            "OUTRIDER_LOG_LEVEL": "warning",
            **(settings or {}),
        }
        if copy_of is None:
            (stage.directory / name).mkdir()
        else:
            shutil.copytree(stage.directory / copy_of.name, stage.directory / name)

    @property
    def url(self) -> str:
        """The address that the service has while it runs."""
        return f"http://127.0.0.1:{self._port}"

    def serve(
        self,
        key: str,
        cpus: Sequence[int] = (),
        *,
        module: str = "outrider",
        options: Sequence[str] = (),
        settings: Mapping[str, str] | None = None,
    ) -> Server:
        """Start `python -m MODULE serve OPTIONS` and wait until it is ready."""
        arguments = ["-m", module, "serve", *options]
        settings = {**self.settings, **(settings or {})}
        program = self.stage.start(self.name, arguments, settings, cpus)
        server = Server(program, self.url, key)
        program.wait_until(lambda: server.answers("/readyz"), "ready", 60)
        return server

    def new_key(self, email: str = EMAIL) -> str:
        """Create an account without limits; return a key of it with every scope."""
        return self.new_account(email)[1]

    def new_account(self, email: str = EMAIL) -> tuple[str, str]:
        """Create an account without limits; return its id and a key of it with every scope."""
        account: str = self._admin("account", "create", "--email", email, "--plan", "enterprise")[
            "accountId"
        ]
        key: str = self._admin("key", "create", "--account", account, "--name", "benchmark")["key"]
        return account, key

    def new_code(self, email: str = EMAIL) -> str:
        """Return a one-time code that enrolls a machine in the account of this user."""
        code: str = self._admin("enroll", "--account", email)["code"]
        return code

    def _admin(self, *arguments: str) -> dict[str, Any]:
        with deferred():  # it takes a second
            done = subprocess.run(
                [sys.executable, "-m", "outrider", "admin", *arguments, "--json"],
                cwd=REPOSITORY,
                env=self.stage.environment({**self.settings, "OUTRIDER_PASSWORD": PASSWORD}),
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
        if done.returncode != 0:
            raise BenchmarkError(f"outrider admin {' '.join(arguments)}: {done.stderr.strip()}")
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer


def start_receiver(here: Stage) -> tuple[Program, str]:
    """Start a receiver of webhooks (`benchmarks.programs.receiver`); return it and its URL."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    program = here.start("receiver", ["-m", "benchmarks.programs.receiver", str(port)], {}, LOADING)
    receiver = Server(program, url, key="")
    program.wait_until(lambda: receiver.answers("/count"), "listening")
    return program, url


def enroll(server: Server, code: str) -> tuple[str, str]:
    """Enroll a machine by hand; return its daemon id and its token."""
    answer = _client.post(
        f"{server.url}/api/v1/auth/enroll",
        json={"code": code, "hostname": "bench", "platform": "linux", "version": "0"},
    )
    enrolled = answer.raise_for_status().json()
    return enrolled["daemonId"], enrolled["token"]


def status_path(daemon_id: str) -> str:
    """Return the path of the status of a simulated machine's first agent."""
    return f"/api/v1/shortcuts/{daemon_id}:cli:claude-code/status"


def start_scripted_machine(here: Stage, server: Server, daemon_id: str, token: str) -> Program:
    """Start a `benchmarks.scripted_machine`, and wait until it answers."""
    arguments = ["-m", "benchmarks.scripted_machine", server.websocket_url]
    program = here.start("scripted machine", arguments, {"TOKEN": token}, LOADING)
    program.wait_until(lambda: server.answers(status_path(daemon_id)), "connected")
    return program
