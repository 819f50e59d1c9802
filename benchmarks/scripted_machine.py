"""A machine that speaks the daemon protocol truly and answers every command at once.

Run as `python -m benchmarks.scripted_machine URL`, with the connection token in `TOKEN`. What it
says is that of the tests' scripted machine (`tests.rig`), but for a chat of twenty messages, about
four kilobytes. It does as little as a machine can, so that what is measured is the service.
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
from tests.rig.machine import hello as hello_with
from tests.rig.samples import CHAT, STATE, session
from tests.rig.samples import MACHINE as _TESTS_MACHINE
from websockets.asyncio.client import ClientConnection, connect

from outrider.contract.commands import CommandType
from outrider.contract.events import AgentEvent, EventName
from outrider.contract.frames import (
    MAX_FRAME_BYTES,
    Command,
    CommandResult,
    Failure,
    Hello,
    Welcome,
    decode_from_service,
    encode,
)
from outrider.contract.ids import new_id
from outrider.contract.providers import BUILT_IN
from outrider.contract.resources import Provider, Session

_NOW: Final = 1_750_000_000_000

_TURN: Final = (
    ("user", "text", "Add a test for the discount that applies above a hundred euros."),
    ("assistant", "thinking", "The rule is in pricing.py; the boundary is what may be wrong."),
    ("assistant", "tool_call", '{"name": "Read", "input": {"file_path": "src/pricing.py"}}'),
    (
        "tool",
        "tool_result",
        (
            "def discount(total: Decimal) -> Decimal:\n"
            '    """Ten per cent above a hundred euros, nothing below."""\n'
            '    return total * Decimal("0.1") if total > 100 else Decimal(0)\n'
        ),
    ),
    (
        "assistant",
        "text",
        (
            "I have added `test_discount_starts_above_a_hundred` with the values 99.99, 100 and "
            "100.01. The three of them pass; the boundary itself gets no discount, as the "
            "docstring says."
        ),
    ),
)

PROVIDERS: Final = [
    Provider(
        type=kind,
        category=category,
        display_name=name,
        installed=category == "cli",
        path=f"/usr/bin/{kind}" if category == "cli" else None,
        verified=True,
    )
    for kind, (category, name) in BUILT_IN.items()
]

MACHINE: Final = msgspec.structs.replace(_TESTS_MACHINE, hostname="bench")
"""Named as `service.enroll` names it."""

_SESSIONS: Final = (
    session(id="session_01jz3v7k2qf8ar4n0w5h6xt9cd", model="claude-sonnet"),
    session("acp", "opencode-acp", id="session_01jz3v8m4te2brs7x1p9qy6gfh", status="generating"),
)


def sessions() -> list[Session]:
    """Return what runs on the machine: a CLI agent and an ACP agent."""
    return [msgspec.structs.replace(one) for one in _SESSIONS]


def hello() -> Hello:
    """Return the machine's first frame."""
    return hello_with(*sessions(), machine=MACHINE, providers=PROVIDERS)


RESULTS: Final = {
    CommandType.AGENT_STATUS: Raw(msgspec.json.encode(STATE | {"status": "idle"})),
    CommandType.READ_CHAT: Raw(
        msgspec.json.encode(
            CHAT
            | {
                "messages": [
                    {
                        "id": f"msg_01jz3v7k2qf8ar4n0w5h6x{index:04d}",
                        "index": index,
                        "role": role,
                        "kind": kind,
                        "content": content,
                        "timestamp": _NOW + 3000 * index,
                    }
                    for index, (role, kind, content) in enumerate(_TURN * 4)
                ],
                "status": "idle",
                "pendingAction": None,
                "totalMessages": 4 * len(_TURN),
            }
        )
    ),
}
"""The result of each command that the machine knows, encoded once."""


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
    """Return the result of a command."""
    result = RESULTS.get(command.command)  # type: ignore[call-overload]
    if result is not None:
        return CommandResult(id=command.id, result=result)
    failure = Failure(status=400, message=f"No script for {command.command}")
    return CommandResult(id=command.id, error=failure)


@asynccontextmanager
async def connected(url: str, token: str) -> AsyncIterator[tuple[ClientConnection, Welcome]]:
    """Connect and send the hello; give the socket and the service's welcome."""
    async with connect(
        url,
        additional_headers={"Authorization": f"Bearer {token}"},
        compression=None,
        max_size=MAX_FRAME_BYTES,
        max_queue=256,
        ping_interval=None,  # the service pings
        close_timeout=1,
        proxy=None,
    ) as socket:
        await socket.send(encode(hello()), text=True)
        welcome = decode_from_service(await socket.recv())
        assert isinstance(welcome, Welcome), "the service answers a hello with a welcome"
        yield socket, welcome


async def run(url: str, token: str) -> None:
    """Connect, and answer commands until the service closes the socket."""
    async with connected(url, token) as (socket, _):
        async for data in socket:
            frame = decode_from_service(data)
            if isinstance(frame, Command):
                await socket.send(encode(answer(frame)), text=True)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run(sys.argv[1], os.environ["TOKEN"]))
