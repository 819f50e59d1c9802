"""Fixtures: what delivers webhooks, what receives them, and a machine with the demo agent."""

import signal
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest
import pytest_asyncio

from outrider.machine.settings import Connection, DaemonSettings
from outrider.sdk import AsyncAgent, AsyncMachine, AsyncOutrider
from tests.machine.agents.machine import kill_server
from tests.rig.processes import PROCESS_TIMEOUT, Program, environment
from tests.rig.site import Site
from tests.rig.waiting import eventually
from tests.service.webhooks.conftest import database_url, node, receiver  # noqa: F401  # fixtures
from tests.system.test_terminal import SHELL


class Workplace(NamedTuple):
    """A service, a key of an account, and its machine, which is called `laptop`."""

    site: Site
    key: str
    machine_id: str
    project: Path

    def client(self, **options: object) -> AsyncOutrider:
        """Return a client with the key."""
        return AsyncOutrider(self.site.url, self.key, **options)  # type: ignore[arg-type]


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def workplace(
    sqlite_site: Site, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Workplace]:
    """One machine agent with the demo agent, for all tests of the client."""
    folder = tmp_path_factory.mktemp("workplace")
    (folder / "project").mkdir()
    owner = await sqlite_site.account()
    enrolled = await owner.enrolls(nickname="laptop")
    settings = DaemonSettings(folder / "config")
    (folder / "config" / "providers").mkdir(parents=True)
    (folder / "config" / "providers" / "shell.toml").write_text(SHELL)  # an agent in a terminal
    settings.save_connection(
        Connection(
            server=sqlite_site.url,
            daemon_id=enrolled.daemon_id,
            token=enrolled.token,
            nickname="laptop",
        )
    )
    async with Program("-m", "outrider", "daemon", env=environment(folder / "data")) as daemon:
        async with AsyncOutrider(sqlite_site.url, owner.key) as client:

            async def connected() -> bool:
                return [listed.id for listed in await client.machines.list()] == [
                    enrolled.daemon_id
                ]

            await eventually(connected, within=PROCESS_TIMEOUT)
        yield Workplace(sqlite_site, owner.key, enrolled.daemon_id, folder / "project")
        daemon.signal(signal.SIGTERM)
        await daemon.ends()
    kill_server(settings.tmux_socket)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def client(workplace: Workplace) -> AsyncIterator[AsyncOutrider]:
    """A client of the workplace."""
    async with workplace.client() as client:
        yield client


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def machine(client: AsyncOutrider) -> AsyncMachine:
    """The machine of the workplace."""
    return await client.machines.get("laptop")


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def agent(machine: AsyncMachine, workplace: Workplace) -> AsyncAgent:
    """A demo agent for tests that leave it idle."""
    return await machine.launch("demo", dir=str(workplace.project))


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A git repository with a commit."""
    identity = ("-c", "user.name=T", "-c", "user.email=t@example.org")
    for command in (
        ("init", "--quiet", "--initial-branch=main"),
        (*identity, "commit", "--quiet", "--allow-empty", "--message=Begin"),
    ):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    return tmp_path
