"""`outrider up` in a process of its own, whose machine agent a test attacks."""

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil

from outrider.machine.settings import DaemonSettings
from tests.machine.agents.acp.conftest import provider_file
from tests.machine.agents.machine import kill_server, running_in
from tests.rig.processes import environment
from tests.rig.waiting import TIMEOUT, eventually
from tests.security.target import Watched
from tests.system.up import Up

TERMINAL_AGENT = """
type = "echo"
display_name = "Echo"
command = [{program}]
args = ["{{conversation}}"]
install = "-"
settle = 0.1
{more}
[input]
prompt = '> '
[[rules]]
name = "prompt"
status = "idle"
screen = '^> \\Z|^>\\Z'
[[rules]]
name = "no prompt"
status = "generating"
screen = '.'
"""

ECHO = """
import json, os, sys
with open(os.path.expanduser(f"~/agent.{os.getpid()}"), "w") as file:
    json.dump([os.getcwd(), sys.argv[1]], file)
while True:
    print("you said", input("> "))
"""
"""Says in a file of HOME where it was started, and as which conversation."""


class MachineTarget(Watched):
    """A service and a machine agent in one process, with scripted agents.

    They share an event loop: what holds up the machine agent holds up every client.

    Attributes:
        home: the user's HOME.
        machine: the machine's id.
        url, key: where the service is, and a key with all scopes.
    """

    def __init__(self, folder: Path, up: Up, machine: str) -> None:
        self.home = folder / "home"
        self.machine = machine
        self.process = psutil.Process(up.process.pid)
        self.url, self.key = up.url, up.key
        self._up = up

    async def healthy(self) -> bool:
        """Return whether another client's question for the machine's status is answered."""
        try:
            async with asyncio.timeout(TIMEOUT):
                await self.call("GET", f"/daemons/{self.machine}/status")
        except (TimeoutError, httpx.HTTPError, AssertionError):
            return False
        return True

    async def call(self, method: str, path: str, body: Any = None, status: int = 200) -> Any:
        """Make a request under /api/v1, check its status, and return its JSON."""
        return await self._up.call(method, path, body, status)

    async def launch(self, kind: str, directory: Path) -> str:
        """Launch an agent and wait until it is idle; return its session's target id."""
        body = {"type": kind, "dir": str(directory)}
        launched = await self.call("POST", f"/shortcuts/{self.machine}/launch", body)
        target = str(launched["sessionTargetId"])
        await self.idle(target)
        return target

    async def idle(self, target: str) -> None:
        """Wait until an agent has nothing to do."""

        async def is_idle() -> bool:
            state = await self.call("GET", f"/shortcuts/{target}/status")
            return bool(state["status"] == "idle")

        await eventually(is_idle, 2 * TIMEOUT)

    async def chat(self, target: str, query: str = "") -> Any:
        """Return the chat of a session."""
        return await self.call("GET", f"/shortcuts/{target}/chat{query}")

    async def says(self, target: str, text: str) -> str:
        """Send a message, wait for the end of its turn, return the last message of the chat."""
        before = (await self.chat(target))["totalMessages"]
        await self.call("POST", f"/shortcuts/{target}/chat", {"message": text})

        async def is_answered() -> bool:
            return bool((await self.chat(target))["totalMessages"] >= before + 2)

        await eventually(is_answered, 2 * TIMEOUT)
        await self.idle(target)
        return str((await self.chat(target))["messages"][-1]["content"])

    def agents(self) -> list[tuple[str, str]]:
        """Return the directory and the conversation of each terminal agent."""
        return [tuple(json.loads(path.read_text())) for path in self.home.glob("agent.*")]


@asynccontextmanager
async def machine_target(
    folder: Path, *, record: str | None = None, **settings: str
) -> AsyncIterator[MachineTarget]:
    """Run a machine that knows the agents `echo`, in a terminal, and `scripted`, over ACP.

    Args:
        folder: an empty directory.
        record: the form of the record that `echo` is said to keep, if any.
        settings: of the service.
    """
    home = folder / "home"
    home.mkdir()
    (home / "echo.py").write_text(ECHO)
    program = ", ".join(json.dumps(word) for word in (sys.executable, "-S", str(home / "echo.py")))
    more = "" if record is None else f'record = "{record}"'
    provider_file(folder)
    (folder / "config" / "providers" / "echo.toml").write_text(
        TERMINAL_AGENT.format(program=program, more=more)
    )
    env = environment(folder / "data", port="0", **settings) | {"HOME": str(home)}
    env["TMPDIR"] = str(home)
    socket = DaemonSettings(folder / "config").tmux_socket
    try:
        async with Up("-m", "outrider", "up", env=env) as up:
            await up.greeting()
            (machine,) = (await up.call("GET", "/daemons"))["daemons"]
            yield MachineTarget(folder, up, machine["id"])
            up.signal(signal.SIGINT)
            assert await up.ends() == 0
    finally:
        kill_server(socket)
        await eventually(lambda: not running_in(home))
