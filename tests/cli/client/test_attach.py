"""`outrider attach` in a terminal of its own, at the terminal of a shell."""

import asyncio
import os
import pty
import sys
import termios
from pathlib import Path

import pytest

from outrider.sdk import AsyncMachine
from tests.rig.patience import PATIENCE, eventually

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_live_terminal(env: dict[str, str], machine: AsyncMachine, tmp_path: Path) -> None:
    shell = await machine.launch("shell", dir=str(tmp_path))
    leader, follower = pty.openpty()
    shown = bytearray()
    loop = asyncio.get_running_loop()
    loop.add_reader(leader, lambda: shown.extend(os.read(leader, 65536)))
    before = termios.tcgetattr(follower)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "outrider", "attach", shell.id,
        env=env | {"TERM": "xterm-256color"},
        stdin=follower, stdout=follower, stderr=follower,
    )  # fmt: skip
    try:
        await eventually(lambda: b"sh>" in shown, 2 * PATIENCE)
        os.write(leader, b"echo $((6 * 7))\r")
        await eventually(lambda: b"42" in shown)
        assert termios.tcgetattr(follower) != before
        os.write(leader, b"\x1d")
        async with asyncio.timeout(PATIENCE):
            assert await process.wait() == 0
        assert termios.tcgetattr(follower) == before
        await eventually(lambda: b"Detached" in shown)
        assert (await shell.status()).status == "idle"
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        loop.remove_reader(leader)
        os.close(leader)
        os.close(follower)
        await shell.stop()
