"""A machine that speaks the daemon protocol truly and answers every command at once.

Run as `python -m benchmarks.scripted_machine URL`, with the connection token in `TOKEN`. It
has two sessions, and a chat of twenty messages, about four kilobytes. It does as little as a
machine can, so that what is measured is the service.
"""

import asyncio
import os
import sys
from typing import Final

import msgspec
import uvloop
from msgspec import Raw
from websockets.asyncio.client import ClientConnection, connect

from outrider import __version__
from outrider.contract.commands import AgentState, Chat, CommandType
from outrider.contract.frames import (
    MAX_FRAME_BYTES,
    PROTOCOL_VERSION,
    Command,
    CommandResult,
    Failure,
    Hello,
    Welcome,
    decode_from_service,
    encode,
)
from outrider.contract.providers import BUILT_IN
from outrider.contract.resources import (
    Control,
    Machine,
    Message,
    Provider,
    Session,
    SummaryItem,
    SummaryMetadata,
    Workspace,
)

NOW: Final = 1_750_000_000_000
_SESSION: Final = "session_01jz3v7k2qf8ar4n0w5h6xt9cd"
_WORKSPACE: Final = Workspace(path="/home/dev/shop", name="shop")

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


def machine() -> Machine:
    """Return a machine as a daemon reports it."""
    return Machine(
        hostname="bench",
        platform="linux",
        arch="x86_64",
        release="6.1.0",
        cpus=8,
        total_mem=32_000_000_000,
        free_mem=20_000_000_000,
        loadavg=[0.4, 0.3, 0.2],
        uptime=86_400.0,
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


def sessions() -> list[Session]:
    """Return what runs on the machine: a CLI agent and an ACP agent."""
    return [
        Session(
            id=_SESSION,
            target_id="",
            kind="cli",
            type="claude-code",
            name="Claude Code",
            status="idle",
            title="Test the discount",
            workspace=_WORKSPACE,
            model="claude-sonnet",
            created_at=NOW,
            last_activity_at=NOW + 60_000,
        ),
        Session(
            id="session_01jz3v8m4te2brs7x1p9qy6gfh",
            target_id="",
            kind="acp",
            type="opencode-acp",
            name="opencode (ACP)",
            status="generating",
            title="Move the shop to the new tax table",
            workspace=_WORKSPACE,
            created_at=NOW,
            last_activity_at=NOW + 30_000,
        ),
    ]


def hello() -> Hello:
    """Return the machine's first frame."""
    return Hello(
        protocol=PROTOCOL_VERSION,
        version=__version__,
        machine=machine(),
        providers=PROVIDERS,
        sessions=sessions(),
    )


def results(daemon_id: str) -> dict[str, Raw]:
    """Return the result of each command that the machine knows, encoded once."""
    target = f"{daemon_id}:session:{_SESSION}"
    state = AgentState(
        id=target,
        session_id=_SESSION,
        agent_type="claude-code",
        status="idle",
        title="Test the discount",
        summary_metadata=SummaryMetadata(
            items=[
                SummaryItem(id="model", label="Model", value="claude-sonnet"),
                SummaryItem(id="version", label="Version", value="2.0.1"),
            ]
        ),
        controls=[
            Control(
                id="mode",
                label="Mode",
                type="select",
                options=["default", "acceptEdits", "plan"],
                value="default",
            )
        ],
        workspace=_WORKSPACE,
        pending_action=None,
        error=None,
        updated_at=NOW + 60_000,
    )
    messages = [
        Message(
            id=f"msg_01jz3v7k2qf8ar4n0w5h6x{index:04d}",
            index=index,
            role=role,  # type: ignore[arg-type]  # the script above has only real ones
            kind=kind,  # type: ignore[arg-type]
            content=content,
            timestamp=NOW + 3000 * index,
        )
        for index, (role, kind, content) in enumerate(_TURN * 4)
    ]
    chat = Chat(
        id=target,
        session_id=_SESSION,
        agent_type="claude-code",
        title="Test the discount",
        status="idle",
        messages=messages,
        pending_action=None,
        total_messages=len(messages),
    )
    return {
        CommandType.AGENT_STATUS: Raw(msgspec.json.encode(state)),
        CommandType.READ_CHAT: Raw(msgspec.json.encode(chat)),
    }


async def answer(socket: ClientConnection, known: dict[str, Raw]) -> None:
    """Answer commands until the socket closes."""
    async for data in socket:
        frame = decode_from_service(data)
        if not isinstance(frame, Command):
            continue
        result = known.get(frame.command)
        reply = (
            CommandResult(id=frame.id, result=result)
            if result is not None
            else CommandResult(
                id=frame.id, error=Failure(status=400, message=f"No script for {frame.command}")
            )
        )
        await socket.send(encode(reply), text=True)


async def run(url: str, token: str) -> None:
    """Connect, say hello, and answer until the service goes away."""
    async with connect(
        url,
        additional_headers={"Authorization": f"Bearer {token}"},
        compression=None,
        max_size=MAX_FRAME_BYTES,
        max_queue=256,
        ping_interval=None,  # the service pings
        proxy=None,
    ) as socket:
        await socket.send(encode(hello()), text=True)
        welcome = decode_from_service(await socket.recv())
        assert isinstance(welcome, Welcome), "the service answers a hello with a welcome"
        await answer(socket, results(welcome.daemon_id))


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run(sys.argv[1], os.environ["TOKEN"]))
