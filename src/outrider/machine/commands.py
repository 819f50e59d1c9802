"""Command execution: decode a command, run its handler, encode the result.

    link ── submit(Command) ──> Router ── payload, deadline ──> handler (sessions, terminals, …)
         <── reply(CommandResult) ──┘ <── Result or ApiError ──────┘

Each command runs in its own task, so that none waits for another's agent. An error becomes a
`Failure` with the status that the HTTP response will have. `command_handlers` says which part of
the daemon carries out which command.
"""

import asyncio
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import structlog

from outrider.contract.commands import (
    COMMANDS,
    AgentStatusQuery,
    AnswerAction,
    ChatDebug,
    CloseTerminal,
    CommandType,
    Interrupt,
    LaunchCli,
    LaunchIde,
    LaunchInWorktree,
    ListTerminals,
    ReadChanges,
    ReadChat,
    ReadFiles,
    ReadQueue,
    ReadScreen,
    ReadTurn,
    RemoveWorktree,
    Result,
    Resume,
    Screenshot,
    SendChat,
    StopCli,
    Terminal,
    TerminalClosed,
    Withdraw,
)
from outrider.contract.errors import ApiError, bad_request
from outrider.contract.frames import (
    MAX_COMMANDS_IN_FLIGHT,
    MAX_FRAME_BYTES,
    UNKNOWN_COMMAND,
    Command,
    CommandResult,
    Failure,
)
from outrider.contract.limits import fitted
from outrider.contract.structs import Wire
from outrider.machine.debug.bundle import BundleCollector
from outrider.machine.sessions.sessions import Sessions
from outrider.machine.terminals.terminal import Terminals
from outrider.tracing import OFF, Tracing

_MAX_SEEN: Final = 4096
"""Ids of recent commands that are remembered, so that a repeated command runs once."""

_MAX_RESULT: Final = MAX_FRAME_BYTES - 4096
_MISSING_FIELD: Final = re.compile(r"missing required field `(\w+)`")

_log = structlog.get_logger(__name__)

ReplyCallback = Callable[[CommandResult], None]
"""Receives the result of a command, at most once, on the event loop's thread."""

Handler = Callable[[Any, float], Awaitable[Result]]
"""Carries out a payload; the second argument is the deadline in event loop time."""


@dataclass
class _Running:
    """A command that is running. `reply` is None once the service does not wait for it."""

    task: asyncio.Task[None]
    reply: ReplyCallback | None
    is_cancellable: bool


class Router:
    """Runs commands, at most `MAX_COMMANDS_IN_FLIGHT` at a time.

    A command that changes something is never cut short by a cancellation or a lost connection:
    it would leave a message half typed. Only `close` cuts it short.
    """

    def __init__(self, handlers: Mapping[CommandType, Handler], *, tracing: Tracing = OFF) -> None:
        self._handlers = handlers
        self._tracing = tracing
        self._in_flight: dict[str, _Running] = {}
        self._seen: OrderedDict[str, None] = OrderedDict()

    def submit(self, command: Command, reply: ReplyCallback) -> None:
        """Start a command; `reply` receives its result. A repeated command id is ignored."""
        if command.id in self._seen:
            _log.warning("repeated command ignored", id=command.id, command=command.command)
            return
        self._remember(command.id)
        try:
            kind, handler = self._handler(command.command)
            payload = _decode(kind, command.payload)
            self._check_capacity()
        except ApiError as error:
            reply(CommandResult(id=command.id, error=_failure(error)))
            return
        task = asyncio.create_task(
            self._run(command, kind, handler, payload), name=f"{kind} {command.id}"
        )
        self._in_flight[command.id] = _Running(task, reply, _is_cancellable(kind, payload))
        task.add_done_callback(lambda _: self._in_flight.pop(command.id, None))

    def cancel(self, command_id: str) -> None:
        """Drop the result of a command, and cancel it unless it changes something."""
        running = self._in_flight.get(command_id)
        if running is None:
            return
        running.reply = None
        if running.is_cancellable:
            running.task.cancel()

    def cancel_all(self) -> None:
        """Cancel every command as `cancel` does; called when the connection is lost."""
        for command_id in list(self._in_flight):
            self.cancel(command_id)

    async def close(self, within: float) -> None:
        """Cancel every command, also those that change something; wait up to `within` seconds."""
        tasks = {running.task for running in self._in_flight.values()}
        for running in self._in_flight.values():
            running.reply = None
            running.task.cancel()
        if tasks:
            _, pending = await asyncio.wait(tasks, timeout=within)
            for task in pending:
                _log.error("cancelled command still running", task=task.get_name())

    def _handler(self, name: str) -> tuple[CommandType, Handler]:
        try:
            kind = CommandType(name)
            return kind, self._handlers[kind]
        except (ValueError, KeyError):
            raise bad_request(
                f"This machine's agent {UNKNOWN_COMMAND} {name!r}: update it "
                "(`outrider upgrade` there says how), then start it again",
                "type",
            ) from None

    async def _run(
        self, command: Command, kind: CommandType, handler: Handler, payload: Wire
    ) -> None:
        attributes = {"outrider.command": kind, "outrider.command.id": command.id}
        with self._tracing.start(
            f"execute {kind}", "server", command.traceparent, attributes
        ) as span:
            result = await _execute(command, kind, handler, payload)
            if result.error is not None:
                span.set("outrider.error.status", result.error.status)
                if result.error.status >= 500:
                    span.fail(str(result.error.status))
        running = self._in_flight.get(command.id)
        if running is None or running.reply is None:
            _log.info("result dropped, the command was cancelled", id=command.id, command=kind)
            return
        running.reply(result)

    def _check_capacity(self) -> None:
        if len(self._in_flight) >= MAX_COMMANDS_IN_FLIGHT:
            raise ApiError(
                503,
                f"This machine is busy with {MAX_COMMANDS_IN_FLIGHT} commands: "
                "try again when some of them have finished",
            )

    def _remember(self, command_id: str) -> None:
        self._seen[command_id] = None
        if len(self._seen) > _MAX_SEEN:
            self._seen.popitem(last=False)


async def _execute(
    command: Command, kind: CommandType, handler: Handler, payload: Wire
) -> CommandResult:
    """Run a handler and return its result or failure; raises nothing but `CancelledError`.

    Commands that only read end at the deadline here. The others observe it themselves: they know
    where they can stop without leaving work half done.
    """
    deadline = asyncio.get_running_loop().time() + command.timeout_ms / 1000
    try:
        async with asyncio.timeout_at(deadline if COMMANDS[kind].is_read else None) as limit:
            result = await handler(payload, deadline)
        return CommandResult(id=command.id, result=_encode(result))
    except ApiError as error:
        failure = _failure(error)
    except Exception:  # noqa: BLE001  # a bug in one handler must not end the connection
        if limit.expired():
            failure = Failure(status=504, message=f"The machine did not answer {kind} in time")
        else:
            _log.exception("command broke", id=command.id, command=kind)
            failure = Failure(
                status=500,
                message=f"The machine agent failed at {kind}: its log has the reason",
            )
    return CommandResult(id=command.id, error=failure)


def _is_cancellable(kind: CommandType, payload: Wire) -> bool:
    """Return whether a command can be stopped half-way without leaving anything behind."""
    return COMMANDS[kind].is_read or (isinstance(payload, Terminal) and payload.name is None)


def _decode(kind: CommandType, payload: msgspec.Raw) -> Wire:
    """Return the validated payload; a service of another version may have other rules."""
    try:
        return msgspec.json.decode(payload, type=COMMANDS[kind].payload)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        message, _, place = str(error).partition(" - at `$")
        missing = _MISSING_FIELD.search(message)
        path = place.rstrip("`") + (f".{missing[1]}" if missing else "")
        raise bad_request(f"`payload{path}`: {message}", f"payload{path}") from error


def _encode(result: Result) -> msgspec.Raw:
    data = msgspec.json.encode(fitted(result))
    if len(data) > _MAX_RESULT:
        raise ApiError(
            500,
            f"The result has {len(data)} bytes, more than the limit of {_MAX_RESULT}: ask for less",
        )
    return msgspec.Raw(data)


def _failure(error: ApiError) -> Failure:
    return Failure(
        status=error.status, message=error.message, code=error.code, details=error.details
    )


def command_handlers(
    sessions: Sessions, terminals: Terminals, reload: Callable[[], Awaitable[None]]
) -> dict[CommandType, Handler]:
    """Return the handler of each command.

    Args:
        reload: reads provider files that have changed; called before each launch, so that a
            provider can be used right after its file was written.
    """
    bundles = BundleCollector(sessions)

    async def send_chat(payload: SendChat, _: float) -> Result:
        return await sessions.find(payload).send(payload)

    async def read_chat(payload: ReadChat, _: float) -> Result:
        return await sessions.read_chat(payload)

    async def interrupt(payload: Interrupt, _: float) -> Result:
        return await sessions.find(payload).interrupt(payload)

    async def read_queue(payload: ReadQueue, _: float) -> Result:
        return sessions.find(payload).queue()

    async def withdraw(payload: Withdraw, _: float) -> Result:
        return await sessions.find(payload).withdraw(payload)

    async def read_screen(payload: ReadScreen, _: float) -> Result:
        return await sessions.find(payload).screen()

    async def resolve_action(payload: AnswerAction, _: float) -> Result:
        return await sessions.find(payload).resolve(payload, payload.by)

    async def agent_status(payload: AgentStatusQuery, _: float) -> Result:
        return sessions.find(payload).state(payload.agent_type)

    async def read_turn(payload: ReadTurn, _: float) -> Result:
        return await sessions.find(payload).turn(payload)

    async def read_changes(payload: ReadChanges, _: float) -> Result:
        return await sessions.read_changes(payload)

    async def read_files(payload: ReadFiles, _: float) -> Result:
        return await sessions.read_files(payload)

    async def chat_debug(payload: ChatDebug, _: float) -> Result:
        return await bundles.collect(payload)

    async def launch_cli(payload: LaunchCli, _: float) -> Result:
        await reload()
        return await sessions.launcher.launch_cli(payload)

    async def launch_ide(payload: LaunchIde, _: float) -> Result:
        await reload()
        return await sessions.launcher.launch_ide(payload)

    async def launch_in_worktree(payload: LaunchInWorktree, _: float) -> Result:
        await reload()
        return await sessions.launcher.launch_in_worktree(payload)

    async def resume(payload: Resume, _: float) -> Result:
        await reload()
        return await sessions.launcher.resume(payload)

    async def stop_cli(payload: StopCli, _: float) -> Result:
        return await sessions.ending.stop(payload)

    async def stop_and_remove_worktree(payload: StopCli, _: float) -> Result:
        return await sessions.ending.stop(payload, remove_worktree=True)

    async def remove_worktree(payload: RemoveWorktree, _: float) -> Result:
        return await sessions.worktrees.remove(payload)

    async def screenshot(payload: Screenshot, _: float) -> Result:
        return await sessions.find(payload).screenshot(payload)

    async def terminal(payload: Terminal, deadline: float) -> Result:
        return await terminals.run(payload, deadline)

    async def close_terminal(payload: CloseTerminal, _: float) -> Result:
        await terminals.end(payload.name)
        return TerminalClosed(terminal=payload.name)

    async def list_terminals(_payload: ListTerminals, _: float) -> Result:
        return terminals.list()

    return {
        CommandType.SEND_CHAT: send_chat,
        CommandType.SEND_CHAT_NOW: send_chat,
        CommandType.READ_CHAT: read_chat,
        CommandType.INTERRUPT: interrupt,
        CommandType.READ_QUEUE: read_queue,
        CommandType.WITHDRAW: withdraw,
        CommandType.READ_SCREEN: read_screen,
        CommandType.RESOLVE_ACTION: resolve_action,
        CommandType.SCREENSHOT: screenshot,
        CommandType.LAUNCH_IDE: launch_ide,
        CommandType.LAUNCH_CLI: launch_cli,
        CommandType.LAUNCH_IN_WORKTREE: launch_in_worktree,
        CommandType.RESUME: resume,
        CommandType.STOP_CLI: stop_cli,
        CommandType.STOP_AND_REMOVE_WORKTREE: stop_and_remove_worktree,
        CommandType.REMOVE_WORKTREE: remove_worktree,
        CommandType.AGENT_STATUS: agent_status,
        CommandType.TERMINAL: terminal,
        CommandType.CLOSE_TERMINAL: close_terminal,
        CommandType.LIST_TERMINALS: list_terminals,
        CommandType.CHAT_DEBUG: chat_debug,
        CommandType.READ_TURN: read_turn,
        CommandType.READ_CHANGES: read_changes,
        CommandType.READ_FILES: read_files,
    }
