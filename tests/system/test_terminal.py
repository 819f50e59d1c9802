"""An agent's live terminal, all parts real: a shell in tmux, the machine agent, the service."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from tests.rig.processes import environment
from tests.rig.sockets import resize
from tests.rig.stores import SQLite
from tests.rig.waiting import TIMEOUT
from tests.system.up import Up

SHELL = """
type = "shell"
display_name = "Shell"
command = ["bash", "--norc"]
install = "-"
settle = 0.3
[environment]
set = { PS1 = "sh> ", HISTFILE = "/dev/null" }
[[rules]]
name = "prompt"
status = "idle"
screen = 'sh>\\Z'
[[rules]]
name = "no prompt"
status = "generating"
screen = '.'
"""


@asynccontextmanager
async def terminal(up: Up, target: str, query: str = "") -> AsyncIterator[ClientConnection]:
    async with connect(
        f"ws{up.url.removeprefix('http')}/api/v1/shortcuts/{target}/terminal{query}",
        additional_headers={"Authorization": f"Bearer {up.key}"},
        proxy=None,
        open_timeout=TIMEOUT,
    ) as socket:
        yield socket


async def shows(socket: ClientConnection, text: bytes) -> None:
    """Read until the terminal shows a text."""
    shown = b""
    async with asyncio.timeout(TIMEOUT):
        while text not in shown:
            message = await socket.recv()
            assert isinstance(message, bytes), message
            shown += message


@pytest.fixture
async def up(tmp_path: Path, tmux_socket: str, sqlite: SQLite) -> AsyncIterator[Up]:
    """`outrider up` on a machine whose agents are shells."""
    assert tmux_socket  # for the end of its server
    (tmp_path / "home").mkdir()
    providers = tmp_path / "config" / "providers"
    providers.mkdir(parents=True)
    (providers / "shell.toml").write_text(SHELL)
    sqlite.migrated(tmp_path / "data")
    env = environment(tmp_path / "data", port="0") | {"HOME": str(tmp_path / "home")}
    async with Up("-m", "outrider", "up", env=env) as running:
        await running.greeting()
        yield running
        running.signal(signal.SIGINT)
        assert await running.ends() == 0


async def test_a_terminal_is_shared_and_survives_its_clients(up: Up, tmp_path: Path) -> None:
    (machine,) = (await up.call("GET", "/daemons"))["daemons"]
    body = {"type": "shell", "dir": str(tmp_path / "home")}
    launched = await up.call("POST", f"/shortcuts/{machine['id']}/launch", body)
    target = launched["sessionTargetId"]
    async with (
        terminal(up, target, "?columns=100&rows=30") as socket,
        terminal(up, target, "?mode=read") as watching,
    ):
        await shows(watching, b"sh> ")
        await socket.send("echo $((6 * 7)) héllo ✓\r".encode())
        for viewer in (socket, watching):
            await shows(viewer, "42 héllo ✓".encode())
        await socket.send(resize(133, 41))
        await socket.send(b"until [ $(tput cols) = 133 ]; do sleep 0.1; done; echo wi''de\r")
        await shows(socket, b"wide")
        # A paste through the whole way, as a program gets it.
        pasted = tmp_path / "pasted"
        read = (
            f"stty -echo -icanon; echo rea''dy; head -c 100000 > {pasted}; stty sane; echo do''ne"
        )
        await socket.send(read.encode() + b"\r")
        await shows(socket, b"ready")
        paste = bytes(ord("a") + number % 26 for number in range(100_000))
        await socket.send(paste)
        await shows(socket, b"done")
        assert pasted.read_bytes() == paste
    async with terminal(up, target) as socket:
        await shows(socket, b"done")  # it is as it was
        await socket.send(b"exit\r")
        with pytest.raises(ConnectionClosed) as closed:
            await shows(socket, b"nothing more")
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1000
