"""A machine for tests with IDEs: real Chromium, real JupyterLab, or a page that plays faults."""

import os
import socket
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from outrider.contract.commands import Launched, LaunchIde, StopCli
from outrider.daemon.agents.ide.adapter import IdeAdapter
from tests.agents.kind import AgentKind
from tests.agents.machine import Agent, Machine, kill_server, running_in, until


class Desk(Machine):
    """One machine agent's sessions, for IDEs."""

    async def open(self, *, cdp: bool = True, directory: Path | None = None) -> "Ide":
        """Launch the IDE."""
        launched = await self.launched(cdp=cdp, directory=directory)
        return Ide(self, launched.session_id)

    async def launched(self, *, cdp: bool = True, directory: Path | None = None) -> Launched:
        """Launch the IDE and return the answer to that."""
        return await self.sessions.launch_ide(
            LaunchIde(ide_type=self.kind.type, enable_cdp=cdp, dir=str(directory or self.project))
        )

    async def shut(self, ide: "Ide") -> None:
        """Stop the IDE."""
        await self.sessions.stop(StopCli(cli_type=self.kind.type, session_id=ide.id))


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
        window = self.adapter._window
        assert window is not None
        return await window.page.evaluate(source)


@asynccontextmanager
async def desk(
    folder: Path, kind: AgentKind, path: str, environment: dict[str, str]
) -> AsyncIterator[Desk]:
    """Run a machine for this kind of IDE, and check in the end that nothing of it is left."""
    home, project = folder / "home", folder / "project"
    home.mkdir(exist_ok=True)
    project.mkdir(exist_ok=True)
    whole = {"HOME": str(home), "PATH": path, "LANG": "C.UTF-8", **environment}
    socket = f"outrider-test-{uuid.uuid4().hex[:8]}"
    made = Desk(kind, folder, whole, socket, project)
    await made.start()
    try:
        yield made
    finally:
        for session in made.sessions.describe():
            await made.sessions.stop(StopCli(cli_type=session.type, session_id=session.id))
        await made.stop()
        kill_server(socket)
        await until(lambda: not running_in(home), 10, lambda: str(running_in(home)))


def free_port() -> int:
    """Return a port on which nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    assert isinstance(port, int)
    return port


def program_path(*folders: Path) -> str:
    """Return a PATH with these folders first."""
    return ":".join([*map(str, folders), os.environ["PATH"]])
