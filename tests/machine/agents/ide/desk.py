"""A machine for tests with IDEs: real Chromium, real JupyterLab, or a page that plays faults."""

import asyncio
import os
import sys
import tempfile
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import websockets
from playwright.async_api import Page

from outrider.contract.commands import Launched, LaunchIde, StopCli
from outrider.machine.agents.ide.agent import IdeAdapter
from outrider.machine.agents.ide.debugging_port import fetch
from tests.machine.agents.kind import AgentKind
from tests.machine.agents.machine import Agent, Machine, kill_server, running_in, until
from tests.servers.server import free_port

CACHE = Path(
    os.environ.get("OUTRIDER_TEST_AGENTS") or Path(__file__).parents[4] / ".cache" / "agents"
)
"""What is installed for tests."""


class Desk(Machine):
    """One machine agent's sessions, for IDEs."""

    async def open(self, *, cdp: bool = True, model: str | None = None) -> "Ide":
        """Launch the IDE on the project."""
        launched = await self.launched(cdp=cdp, model=model)
        return Ide(self, launched.session_id)

    async def launched(
        self, directory: Path | None = None, *, cdp: bool = True, model: str | None = None
    ) -> Launched:
        """Launch the IDE and return the answer to that."""
        return await self.sessions.launcher.launch_ide(
            LaunchIde(
                ide_type=self.kind.type,
                enable_cdp=cdp,
                dir=str(directory or self.project),
                model=model,
            )
        )

    async def launch(self, directory: Path | None = None, kind: str | None = None) -> "Ide":
        """Launch the IDE, as the scenario of all agents does."""
        assert kind is None
        return Ide(self, (await self.launched(directory)).session_id)

    async def shut(self, ide: "Ide") -> None:
        """Stop the IDE."""
        await self.sessions.ending.stop(StopCli(cli_type=self.kind.type, session_id=ide.id))


class Ide(Agent):
    """One session with an IDE."""

    @property
    def adapter(self) -> IdeAdapter:
        """Its adapter now."""
        adapter = self.session.adapter
        assert isinstance(adapter, IdeAdapter)
        return adapter

    async def script(self, source: str) -> Any:
        """Run JavaScript in its page, as a fault of it would."""
        return await self.page.evaluate(source)

    @property
    def page(self) -> Page:
        """Its page now."""
        window = self.adapter.monitor.window
        assert window is not None
        return window.page

    @property
    def shown(self) -> bool:
        """Whether a person could see the selected agent's chat now."""
        report = self.adapter.monitor.panel.report
        return report is not None and report.shown

    async def load_again(self) -> None:
        """Reload its crashed page, as a person would: by the debugging port's first target."""
        endpoint = str(self.evidence()["endpoint"])
        pages = await asyncio.to_thread(fetch, f"{endpoint}/json/list")
        (address,) = [p["webSocketDebuggerUrl"] for p in pages if p["type"] == "page"]
        async with websockets.connect(address, proxy=None) as target:
            await target.send('{"id": 1, "method": "Page.reload"}')
            await asyncio.wait_for(target.recv(), 10)

    def processes(self) -> list[psutil.Process]:
        """Return the programs that were started for it: the last one first."""
        return [psutil.Process(program.pid) for program in self.adapter.programs]


@asynccontextmanager
async def desk(
    folder: Path, kind: AgentKind, path: str, environment: dict[str, str]
) -> AsyncIterator[Desk]:
    """Run a machine for this kind of IDE, and check in the end that nothing of it is left."""
    home, project = folder / "home", folder / "project"
    home.mkdir(exist_ok=True)
    project.mkdir(exist_ok=True)
    socket = f"outrider-test-{uuid.uuid4().hex[:8]}"
    with tempfile.TemporaryDirectory(prefix="ide-") as sockets:  # their paths must be short
        own = {"HOME": str(home), "PATH": path, "LANG": "C.UTF-8", "TMPDIR": sockets}
        made = Desk(kind, folder, own | environment, socket, project)
        await made.start()
        try:
            yield made
        finally:
            for session in made.sessions.describe():
                await made.sessions.ending.stop(
                    StopCli(cli_type=session.type, session_id=session.id)
                )
            await made.stop()
            kill_server(socket)
            await until(lambda: not running_in(home), why=lambda: str(running_in(home)))


@asynccontextmanager
async def faulty_desk(folder: Path) -> AsyncIterator[Desk]:
    """Run a machine for the IDE that plays faults, described in a provider file of its own."""
    here = Path(__file__).parent
    described = (here / "faulty.toml").read_text()
    described = described.replace("@python@", sys.executable)
    described = described.replace("@program@", str(here / "faulty_ide.py"))
    described = described.replace("@port@", str(free_port()))
    providers = folder / "config" / "providers"
    providers.mkdir(parents=True)
    (providers / "faulty.toml").write_text(described)
    (providers / "faulty.js").write_text((here / "faulty.js").read_text())
    kind = AgentKind("faulty", seed=lambda *_: None, environment=lambda _: {})
    async with desk(folder, kind, program_path(), {}) as running:
        yield running


@asynccontextmanager
async def real_desk(
    folder: Path, kind: AgentKind, programs: list[Path], model: str
) -> AsyncIterator[Desk]:
    """Run a machine for a real IDE, whose agent asks the stub model at this URL."""
    kind.seed(folder / "home", folder / "project", model)
    path = program_path(*programs)
    async with desk(folder, kind, path, kind.environment(model)) as running:
        yield running


def programs_of(kind: AgentKind) -> list[Path]:
    """Return the folders with the IDE's programs, once install.sh has put it into CACHE."""
    return [CACHE / kind.type / part for part in kind.bin.split(":")]


def program_path(*folders: Path) -> str:
    """Return a PATH with these folders first."""
    return ":".join([*map(str, folders), os.environ["PATH"]])
