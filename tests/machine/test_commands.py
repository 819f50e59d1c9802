"""Commands to handlers, and what comes of them to results."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from outrider.contract.commands import COMMANDS, CommandType, Result, Terminal
from outrider.contract.errors import ApiError, ErrorCode, bad_request, conflict
from outrider.contract.frames import MAX_COMMANDS_IN_FLIGHT, Command, CommandResult, Failure
from outrider.machine.commands import command_handlers
from outrider.machine.commands.router import Handler, Router
from outrider.machine.link.journal import Journal
from outrider.machine.sessions.ended_chats import EndedChats
from outrider.machine.sessions.sessions import Sessions
from outrider.machine.terminals.terminal import Terminals
from outrider.machine.tmux.server import Tmux
from tests.machine.conftest import eventually


class Said(Result, kw_only=True):
    """A result that a test can tell from others."""

    text: str


def command(kind: str, payload: object = None, timeout_ms: int = 20_000) -> Command:
    data = (
        payload
        if isinstance(payload, bytes)
        else msgspec.json.encode({} if payload is None else payload)
    )
    return Command(
        id=f"cmd_{next(_numbers)}",
        command=kind,
        payload=msgspec.Raw(data),
        timeout_ms=timeout_ms,
    )


_numbers = itertools.count()


class Bench:
    """A router whose handlers a test chooses."""

    def __init__(self) -> None:
        self.handlers: dict[CommandType, Handler] = {}
        self.router = Router(self.handlers)
        self.answers: list[CommandResult] = []

    def on(self, kind: CommandType, handler: Callable[[Any, float], Awaitable[Result]]) -> None:
        self.handlers[kind] = handler

    async def answer(self, command: Command) -> CommandResult:
        before = len(self.answers)
        self.router.submit(command, self.answers.append)
        await eventually(lambda: len(self.answers) > before)
        return self.answers[-1]

    async def failure(self, command: Command) -> Failure:
        answer = await self.answer(command)
        assert answer.id == command.id
        assert answer.error is not None
        return answer.error


@pytest.fixture
async def bench(nothing_left: object) -> AsyncIterator[Bench]:
    bench = Bench()
    yield bench
    await bench.router.close(within=5)


class Gate:
    """A handler that waits until it is opened."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()
        self.entered = 0
        self.left: list[str] = []

    async def __call__(self, payload: object, deadline: float) -> Result:
        self.entered += 1
        try:
            await self.opened.wait()
        except asyncio.CancelledError:
            self.left.append("cancelled")
            raise
        self.left.append("done")
        return Said(text="done")


async def test_every_command_has_a_row_and_a_handler(tmp_path: Path, journal: Journal) -> None:
    async def reload() -> None: ...

    sessions = Sessions(
        daemon_id="daemon_1",
        providers={},
        journal=journal,
        chats=EndedChats(tmp_path),
        on_change=lambda session: None,
        on_remove=lambda session_id: None,
        emit=lambda event: None,
    )
    handlers = command_handlers(sessions, Terminals(Tmux("unused")), reload)
    assert handlers.keys() == COMMANDS.keys() == set(CommandType)


async def test_a_payload_reaches_its_handler_and_the_result_comes_back(bench: Bench) -> None:
    seen: list[tuple[Terminal, float]] = []

    async def terminal(payload: Terminal, deadline: float) -> Result:
        seen.append((payload, deadline))
        return Said(text="é")

    bench.on(CommandType.TERMINAL, terminal)
    sent = command("terminal", {"command": "ls", "later": "field"}, timeout_ms=60_000)
    clock = asyncio.get_running_loop().time
    before = clock()
    answer = await bench.answer(sent)
    assert answer.id == sent.id
    assert answer.error is None
    assert msgspec.json.decode(answer.result) == {"success": True, "text": "é"}
    assert seen[0][0] == Terminal(command="ls")
    assert before + 60 <= seen[0][1] <= clock() + 60


@pytest.mark.parametrize("name", ["dance", "", "launch_ide"])
async def test_an_unknown_command_asks_for_an_update(bench: Bench, name: str) -> None:
    failure = await bench.failure(command(name))
    assert failure.status == 400
    assert f"does not know the command {name!r}: update it" in failure.message
    assert [detail.path for detail in failure.details] == ["type"]


@pytest.mark.parametrize(
    ("kind", "payload", "path"),
    [
        ("terminal", {}, "payload.command"),
        ("terminal", {"command": 5}, "payload.command"),
        ("terminal", {"command": " "}, "payload"),
        ("terminal", [], "payload"),
        ("send_chat", {"input": {"parts": [{"type": "text"}]}}, "payload.input.parts[0].text"),
        ("send_chat", {}, "payload"),
        ("terminal", b"{", "payload"),
        ("terminal", b'{"command": "\xff"}', "payload"),
        ("terminal", b"[" * 100_000, "payload"),
    ],
)
async def test_a_bad_payload_is_a_400_that_names_the_field(
    bench: Bench, kind: str, payload: object, path: str
) -> None:
    gate = Gate()
    bench.on(CommandType(kind), gate)
    failure = await bench.failure(command(kind, payload))
    assert failure.status == 400
    assert [detail.path for detail in failure.details] == [path]
    assert failure.message
    assert gate.entered == 0


async def test_an_api_error_travels_unchanged(bench: Bench) -> None:
    errors = iter(
        [
            conflict("It waits", ErrorCode.APPROVAL_PENDING),
            bad_request("No such thing", "optionId"),
            ApiError(504, "Too late"),
        ]
    )

    async def fail(payload: object, deadline: float) -> Result:
        raise next(errors)

    bench.on(CommandType.AGENT_STATUS, fail)
    first = await bench.failure(command("agent_status"))
    assert (first.status, first.message) == (409, "It waits")
    assert first.code == ErrorCode.APPROVAL_PENDING
    second = await bench.failure(command("agent_status"))
    assert (second.status, second.details[0].path) == (400, "optionId")
    assert (await bench.failure(command("agent_status"))).status == 504


async def test_a_broken_handler_is_a_500_with_its_traceback_in_the_log(bench: Bench) -> None:
    async def broken(payload: object, deadline: float) -> Result:
        raise ZeroDivisionError("inside")

    bench.on(CommandType.READ_CHAT, broken)
    with capture_logs() as logs:
        failure = await bench.failure(command("read_chat"))
    assert failure.status == 500
    assert failure.message.startswith("The machine agent failed at read_chat")
    assert "inside" not in failure.message
    assert [(log["log_level"], log["event"], log["exc_info"]) for log in logs] == [
        ("error", "command broke", True)
    ]


@pytest.mark.parametrize("text", ["\ud800", "x" * 16 * 1024 * 1024])
async def test_a_result_that_cannot_be_sent_is_a_500(bench: Bench, text: str) -> None:
    async def answer(payload: object, deadline: float) -> Result:
        return Said(text=text)

    bench.on(CommandType.READ_CHAT, answer)
    assert (await bench.failure(command("read_chat"))).status == 500


async def test_commands_do_not_wait_for_each_other(bench: Bench) -> None:
    gate = Gate()

    async def quick(payload: object, deadline: float) -> Result:
        return Said(text="quick")

    bench.on(CommandType.SEND_CHAT, gate)
    bench.on(CommandType.AGENT_STATUS, quick)
    slow = command("send_chat", {"message": "x"})
    bench.router.submit(slow, bench.answers.append)
    assert (await bench.answer(command("agent_status"))).error is None
    assert len(bench.answers) == 1
    gate.opened.set()
    await eventually(lambda: [answer.id for answer in bench.answers[1:]] == [slow.id])


async def test_a_repeated_id_is_done_and_answered_once(bench: Bench) -> None:
    gate = Gate()
    bench.on(CommandType.SEND_CHAT, gate)
    sent = command("send_chat", {"message": "x"})
    bench.router.submit(sent, bench.answers.append)
    bench.router.submit(sent, bench.answers.append)
    gate.opened.set()
    await eventually(lambda: bool(bench.answers))
    bench.router.submit(sent, bench.answers.append)
    await bench.answer(command("send_chat", {"message": "y"}))
    assert gate.entered == 2
    assert len(bench.answers) == 2


async def test_the_commands_in_flight_are_bounded(bench: Bench) -> None:
    gate = Gate()
    bench.on(CommandType.AGENT_STATUS, gate)
    for _ in range(MAX_COMMANDS_IN_FLIGHT):
        bench.router.submit(command("agent_status"), bench.answers.append)
    failure = await bench.failure(command("agent_status"))
    assert failure.status == 503
    assert f"busy with {MAX_COMMANDS_IN_FLIGHT} commands" in failure.message
    gate.opened.set()
    await eventually(lambda: len(bench.answers) == MAX_COMMANDS_IN_FLIGHT + 1)
    assert (await bench.answer(command("agent_status"))).error is None


@pytest.mark.parametrize(
    ("kind", "payload", "left"),
    [
        ("read_chat", {}, "cancelled"),
        ("agent_status", {}, "cancelled"),
        ("screenshot", {}, "cancelled"),
        ("terminal", {"command": "ls"}, "cancelled"),
        ("terminal", {"command": "ls", "name": "t"}, "done"),
        ("launch_cli", {"cliType": "codex"}, "done"),
        ("launch_ide", {"ideType": "cursor"}, "done"),
        ("stop_cli", {"cliType": "codex"}, "done"),
        ("send_chat", {"message": "x"}, "done"),
        ("resolve_action", {"action": "approve"}, "done"),
    ],
)
@pytest.mark.parametrize("all_at_once", [False, True])
async def test_cancel_stops_only_what_leaves_nothing_half_done(
    bench: Bench, kind: str, payload: object, left: str, all_at_once: bool
) -> None:
    gate = Gate()
    bench.on(CommandType(kind), gate)
    sent = command(kind, payload)
    bench.router.submit(sent, bench.answers.append)
    await eventually(lambda: gate.entered == 1)
    if all_at_once:
        bench.router.cancel_all()
    else:
        bench.router.cancel("cmd_of_nobody")
        bench.router.cancel(sent.id)
    await asyncio.sleep(0)  # lets a cancelled task go
    gate.opened.set()
    await eventually(lambda: gate.left == [left])
    await bench.router.close(within=5)
    assert bench.answers == []


async def test_a_cancel_before_the_command_has_begun(bench: Bench) -> None:
    gate = Gate()
    bench.on(CommandType.READ_CHAT, gate)
    sent = command("read_chat")
    bench.router.submit(sent, bench.answers.append)
    bench.router.cancel(sent.id)
    await bench.router.close(within=5)
    assert (gate.entered, bench.answers) == (0, [])


async def test_a_read_that_takes_too_long_is_a_504(bench: Bench) -> None:
    gate = Gate()
    bench.on(CommandType.READ_CHAT, gate)
    failure = await bench.failure(command("read_chat", timeout_ms=50))
    assert failure.status == 504
    assert gate.left == ["cancelled"]


async def test_close_ends_every_command(bench: Bench) -> None:
    gate = Gate()
    bench.on(CommandType.SEND_CHAT, gate)
    bench.router.submit(command("send_chat", {"message": "x"}), bench.answers.append)
    await eventually(lambda: gate.entered == 1)
    await bench.router.close(within=5)
    assert (gate.left, bench.answers) == (["cancelled"], [])
