"""The process of an agent: how it is ended."""

import asyncio
import os
from pathlib import Path
from unittest.mock import Mock

from outrider.machine.agents.acp.process import RunningAgent, start_agent
from outrider.machine.agents.acp.spec import DEFAULT_TIMEOUTS
from tests.rig.waiting import TIMEOUT, eventually


async def test_a_cancelled_end_kills_the_process_at_once(tmp_path: Path) -> None:
    """As when the daemon stops, and cannot wait for an agent that does not exit."""
    stubborn = ["sh", "-c", "trap '' TERM; echo ready; sleep 1000"]
    child = await start_agent(stubborn, str(tmp_path), {"PATH": os.environ["PATH"]})
    assert child.stdin is not None
    agent = RunningAgent(Mock(), child, Mock(), Mock(), timeouts=DEFAULT_TIMEOUTS)
    await eventually(lambda: "ready" in agent.evidence()["unreadableOutput"])
    ending = asyncio.create_task(agent.end(TIMEOUT))
    await eventually(child.stdin.is_closing)  # it waits for the agent to exit
    ending.cancel()
    await asyncio.wait({ending})
    assert ending.cancelled()
    try:
        await eventually(lambda: agent.exit_code == -9)
    finally:
        await agent.clean_up()
