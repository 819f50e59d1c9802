"""What happens to an agent in the scenario that all of them go through."""

import asyncio
import contextlib
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.machine.agents.kind import AgentKind
from tests.machine.agents.machine import Agent, until

SPECIAL = [
    "/help me with this",
    "!echo is not a command",
    "@nobody says hello",
    "# not a memory",
    "  /indented like this",
    "ends with a backslash \\",
    "look at @appr",
    "quotes ' \" ` $HOME $(id) ; #{pane_id} %1 \\n",
    "several\nlines\n\n  with  spaces\nand ünïcödé 🎉 漢字",
    "\n".join(f"line {number} of 'many'" for number in range(200)),
]
"""Messages that an agent, a terminal, tmux or a shell might change or act on."""


def param(kind: AgentKind, test: str = "") -> Any:
    """Return the parameter that runs a test with this kind, skipped where the kind cannot pass it.

    `make test-agents` runs the kinds side by side, and what one kind does one after the other.
    """
    marks = [
        pytest.mark.real_agent,
        pytest.mark.xdist_group(kind.type),
    ]
    if test in kind.cannot:
        marks.append(pytest.mark.skip(reason=f"{kind.type}: {kind.cannot[test]}"))
    return pytest.param(kind, id=kind.type, marks=marks)


def press(agent: Agent, *keys: str) -> None:
    """Press keys in the agent's terminal, as a person would who is attached to it."""
    target = ["-t", f"=outrider:={agent.id}"]
    subprocess.run(["tmux", "-L", agent.machine.socket, "send-keys", *target, *keys], check=True)


async def interrupt(agent: Agent) -> None:
    """Interrupt the agent, as a person would."""
    for _ in range(5):
        for key in agent.machine.kind.interrupt:
            press(agent, key)
            await asyncio.sleep(0.3)  # Escape and another key at once are one key to a terminal
        with contextlib.suppress(AssertionError):
            await until(lambda: agent.status != "generating", 3)
            return


async def stays(agent: Agent, status: str, seconds: float) -> None:
    """Sample the status every 50 ms: it is never another."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        assert agent.status == status, agent.evidence()
        await asyncio.sleep(0.05)


async def stays_until(agent: Agent, status: str, over: Callable[[], bool]) -> None:
    """Sample the status until `over`: it is never another."""
    await until(lambda: agent.status != status or over())
    assert over(), agent.evidence()


async def wants(agent: Agent, command: str) -> None:
    """Make the agent ask whether it may run `command`."""
    await agent.say(agent.machine.kind.wants(command))
    await agent.until("waiting_approval")


async def said(agent: Agent, role: str) -> list[str]:
    """Return the texts of one side of the chat."""
    return [m.content for m in await agent.messages() if (m.role, m.kind) == (role, "text")]


def repository(folder: Path) -> None:
    """Make an empty git repository."""
    subprocess.run(["git", "init", "--quiet", str(folder)], check=True)
