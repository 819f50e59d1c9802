"""The scripted machine of the tests (`tests.rig`) as a program that answers commands at once.

Run as `python -m benchmarks.scripted_machine URL`, with the connection token in `TOKEN`. It has two
sessions, and a chat of twenty messages, about four kilobytes. It does as little as a machine can,
so that what is measured is the service.
"""

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import msgspec
import uvloop
from msgspec import Raw
from tests.rig.machine import hello, socket
from tests.rig.samples import CHAT, STATE, session
from websockets.asyncio.client import ClientConnection

from outrider.contract.commands import CommandType
from outrider.contract.events import AgentEvent, EventName
from outrider.contract.frames import Command, CommandResult, Welcome, decode_from_service, encode
from outrider.contract.ids import new_id
from outrider.contract.resources import Session

_SESSIONS: Final = (session(), session("acp", "opencode-acp", status="generating"))
_TEXT: Final = (
    "I have added `test_discount_starts_above_a_hundred` with the values 99.99, 100 and 100.01; "
    "the three of them pass."
)
_MESSAGES: Final = [
    {
        "id": f"msg_01jz3v7k2qf8ar4n0w5h6x{index:04d}",
        "index": index,
        "role": "assistant" if index % 2 else "user",
        "kind": "text",
        "content": _TEXT,
        "timestamp": 1_750_000_000_000 + 3000 * index,
        "tool": None,
        "source": None,
    }
    for index in range(20)
]
_CHAT: Final = {"messages": _MESSAGES, "totalMessages": len(_MESSAGES)}
_IDLE: Final = {"status": "idle", "pendingAction": None}

RESULTS: Final[dict[CommandType, Raw]] = {
    CommandType.AGENT_STATUS: Raw(msgspec.json.encode(STATE)),
    CommandType.READ_CHAT: Raw(msgspec.json.encode(CHAT | _CHAT | _IDLE)),
}
"""The result of each command that the machine knows, encoded once."""


def sessions() -> list[Session]:
    """Return what runs on the machine: a CLI agent and an ACP agent."""
    return [msgspec.structs.replace(session) for session in _SESSIONS]


def event(daemon_id: str, of: Session = _SESSIONS[0]) -> AgentEvent:
    """Return a new event: the end of an agent's turn."""
    return AgentEvent(
        id=new_id("evt"),
        event=EventName.GENERATING_COMPLETED,
        session_id=of.id,
        ide_id=f"{daemon_id}:session:{of.id}",
        ide_type=of.type,
        chat_title=of.title,
        duration=12.5,
        timestamp=time.time_ns() // 1_000_000,
    )


def answer(command: Command) -> CommandResult:
    """Return the result of a command that the machine knows."""
    return CommandResult(id=command.id, result=RESULTS[CommandType(command.command)])


@asynccontextmanager
async def connected(url: str, token: str) -> AsyncIterator[tuple[ClientConnection, Welcome]]:
    """Connect and send the hello; give the socket and the service's welcome."""
    async with socket(url, token) as connection:
        await connection.send(encode(hello(*sessions())), text=True)
        welcome = decode_from_service(await connection.recv())
        assert isinstance(welcome, Welcome), "the service answers a hello with a welcome"
        yield connection, welcome


async def run(url: str, token: str) -> None:
    """Connect, and answer commands until the service closes the socket."""
    async with connected(url, token) as (connection, _):
        async for data in connection:
            frame = decode_from_service(data)
            if isinstance(frame, Command):
                await connection.send(encode(answer(frame)), text=True)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run(sys.argv[1], os.environ["TOKEN"]))
