"""The process of an agent: how it is ended."""

import asyncio
import os
from pathlib import Path

from outrider.machine.agents.acp.process import AgentProcess
from tests.rig.patience import PATIENCE, eventually


async def test_an_end_that_is_cancelled_kills_at_once(tmp_path: Path) -> None:
    """As when the daemon stops, and cannot wait for an agent that does not exit."""
    stubborn = ["sh", "-c", "trap '' TERM; echo; sleep 1000"]
    process = await AgentProcess.start(stubborn, str(tmp_path), {"PATH": os.environ["PATH"]})
    await process.reader.readline()
    ending = asyncio.create_task(process.end(PATIENCE))
    await eventually(process.writer.is_closing)  # it waits for the agent to exit
    ending.cancel()
    await asyncio.wait({ending})
    assert ending.cancelled()
    try:
        await eventually(lambda: process.exit_code == -9)
    finally:
        await process.kill_remaining()
