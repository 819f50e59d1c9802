"""A laptop with `outrider up`, for tests of what only the real thing does."""

import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from outrider.machine.settings import DaemonSettings
from tests.machine.agents.machine import kill_server
from tests.rig.processes import environment
from tests.system.up import Up


class Home(NamedTuple):
    """A running `outrider up`, and what it has printed."""

    up: Up
    email: str
    password: str
    folder: Path

    async def launch(self, title: str, directory: Path | None = None) -> str:
        """Launch the demo agent, give its session a title, and return its target id."""
        (machine,) = (await self.up.call("GET", "/daemons"))["daemons"]
        body = {"type": "demo", "dir": str(directory or self.folder)}
        launched = await self.up.call("POST", f"/shortcuts/{machine['id']}/launch", body)
        target: str = launched["sessionTargetId"]
        await self.say(target, title)
        return target

    async def say(self, target: str, message: str, *until: str) -> Any:
        """Send a message, and wait until the agent is idle, or in one of these states."""
        sent = await self.up.call("POST", f"/shortcuts/{target}/chat", {"message": message})
        states = ",".join(until or ("idle",))
        path = f"/shortcuts/{target}/wait?after={sent['cursor']}&until={states}&timeout=60"
        return await self.up.call("GET", path)


@asynccontextmanager
async def at_home(folder: Path, port: int = 0, **variables: str) -> AsyncIterator[Home]:
    """Run `outrider up` on a machine without any agent but the demo agent."""
    env = environment(folder / "data", port=str(port)) | {"HOME": str(folder)} | variables
    try:
        async with Up("-m", "outrider", "up", env=env) as up:
            greeting = await up.greeting()
            login = next(line.split() for line in greeting.splitlines() if line.startswith("Login"))
            yield Home(up, login[1], login[-1], folder)
            if up.process.returncode is None:
                up.signal(signal.SIGINT)
                assert await up.ends() == 0
    finally:
        kill_server(DaemonSettings(folder / "config").tmux_socket)
