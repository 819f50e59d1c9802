"""Command execution: decode a command, run its handler, encode the result.

    link ── submit(Command) ──> Router ── payload, deadline ──> handler (agents, terminals, …)
         <── reply(CommandResult) ──┘ <── Result or ApiError ──────┘

Each command runs in its own task, so that none waits for another's agent. An error becomes a
`Failure` with the status that the HTTP response will have.
"""

import asyncio
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import structlog

from outrider.contract.commands import COMMANDS, CommandType, Result, Terminal
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
        # During a move between nodes, both connections may bring the same command.
        if command.id in self._seen:
            _log.warning("repeated command ignored", id=command.id, command=command.command)
            return
        self._seen[command.id] = None
        if len(self._seen) > _MAX_SEEN:
            self._seen.popitem(last=False)
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


async def _execute(
    command: Command, kind: CommandType, handler: Handler, payload: Wire
) -> CommandResult:
    """Run a handler and return its result or failure; raises nothing but `CancelledError`.

    Commands that only read end at the deadline here. The others observe it themselves: they know
    where they can stop without leaving work half done.
    """
    deadline = asyncio.get_running_loop().time() + command.timeout_ms / 1000
    try:
        # A change that is cut short here would leave a message half typed, or a half-made worktree.
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
    # A new shell is killed with its command; a named one keeps what runs in it.
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
