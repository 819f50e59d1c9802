"""From a command to its handler, and from its outcome to a result.

Every command runs in a task of its own, so that none waits for another's agent. Errors
become failures with the status that the HTTP response will have.
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
    PAYLOADS,
    AgentStatusQuery,
    ChatDebug,
    CommandType,
    ReadChat,
    Result,
    Screenshot,
    Terminal,
)
from outrider.contract.errors import ApiError, bad_request
from outrider.contract.frames import (
    MAX_COMMANDS_IN_FLIGHT,
    MAX_FRAME_BYTES,
    Command,
    CommandResult,
    Failure,
)
from outrider.contract.limits import fitted
from outrider.contract.structs import Wire

_REMEMBERED: Final = 4096
"""Ids of commands that are known to have come, so that a repeat is not done twice."""

_MAX_RESULT: Final = MAX_FRAME_BYTES - 4096
_MISSING: Final = re.compile(r"missing required field `(\w+)`")
_READS: Final = (ReadChat, AgentStatusQuery, Screenshot, ChatDebug)

_log = structlog.get_logger(__name__)

Reply = Callable[[CommandResult], None]
"""Takes the result of a command, once, on the event loop's thread."""

Handler = Callable[[Any, float], Awaitable[Result]]
"""Carries out a payload until a deadline (event loop time)."""


@dataclass
class _Task:
    """A command that is being carried out. Without `reply`, nobody waits for it any more."""

    task: asyncio.Task[None]
    reply: Reply | None
    may_be_cut: bool


class Router:
    """Carries out commands."""

    def __init__(self, handlers: Mapping[CommandType, Handler]) -> None:
        self._handlers = handlers
        self._in_flight: dict[str, _Task] = {}
        self._seen: OrderedDict[str, None] = OrderedDict()

    def submit(self, command: Command, reply: Reply) -> None:
        """Begin to carry out a command; `reply` gets its result. A repeated id does nothing."""
        if command.id in self._seen:
            _log.warning("command came twice", id=command.id, command=command.command)
            return
        self._remember(command.id)
        try:
            kind, handler = self._handler(command.command)
            payload = _decode(kind, command.payload)
            self._check_room()
        except ApiError as error:
            reply(CommandResult(id=command.id, error=_failure(error)))
            return
        task = asyncio.create_task(
            self._carry_out(command, kind, handler, payload), name=f"{kind} {command.id}"
        )
        self._in_flight[command.id] = _Task(task, reply, may_be_cut=_may_be_cut(payload))
        task.add_done_callback(lambda _: self._in_flight.pop(command.id, None))

    def cancel(self, command_id: str) -> None:
        """Stop a command that nobody waits for. One that changes something runs to its end."""
        running = self._in_flight.get(command_id)
        if running is None:
            return
        running.reply = None
        if running.may_be_cut:
            running.task.cancel()

    def cancel_all(self) -> None:
        """Do what `cancel` does with every command: the connection that they came on is gone."""
        for command_id in list(self._in_flight):
            self.cancel(command_id)

    async def close(self, within: float) -> None:
        """Cut every command short; return when none runs, or after `within` seconds."""
        tasks = {running.task for running in self._in_flight.values()}
        for running in self._in_flight.values():
            running.reply = None
            running.task.cancel()
        if tasks:
            _, pending = await asyncio.wait(tasks, timeout=within)
            for task in pending:
                _log.error("command does not end", task=task.get_name())

    def _handler(self, name: str) -> tuple[CommandType, Handler]:
        try:
            kind = CommandType(name)
            return kind, self._handlers[kind]
        except (ValueError, KeyError):
            raise bad_request(
                f"This machine's agent does not know the command {name!r}: update it "
                "(`pip install --upgrade outrider`), then start it again",
                "type",
            ) from None

    async def _carry_out(
        self, command: Command, kind: CommandType, handler: Handler, payload: Wire
    ) -> None:
        answer = await _answer(command, kind, handler, payload)
        running = self._in_flight.get(command.id)
        if running is None or running.reply is None:
            _log.info("answer dropped: nobody waits for it", id=command.id, command=kind)
            return
        running.reply(answer)

    def _check_room(self) -> None:
        if len(self._in_flight) >= MAX_COMMANDS_IN_FLIGHT:
            raise ApiError(
                503,
                f"This machine is busy with {MAX_COMMANDS_IN_FLIGHT} commands: "
                "try again when some of them are done",
            )

    def _remember(self, command_id: str) -> None:
        self._seen[command_id] = None
        if len(self._seen) > _REMEMBERED:
            self._seen.popitem(last=False)


async def _answer(
    command: Command, kind: CommandType, handler: Handler, payload: Wire
) -> CommandResult:
    deadline = asyncio.get_running_loop().time() + command.timeout_ms / 1000
    reads_only = isinstance(payload, _READS)
    try:
        async with asyncio.timeout_at(deadline if reads_only else None) as limit:
            result = await handler(payload, deadline)
        return CommandResult(id=command.id, result=_encoded(result))
    except ApiError as error:
        failure = _failure(error)
    except Exception:  # noqa: BLE001  # whatever breaks one command leaves the others be
        if limit.expired():
            failure = Failure(status=504, message=f"The machine did not answer {kind} in time")
        else:
            _log.exception("command broke", id=command.id, command=kind)
            failure = Failure(
                status=500,
                message=f"The machine agent failed at {kind}: its log on the machine tells why",
            )
    return CommandResult(id=command.id, error=failure)


def _may_be_cut(payload: Wire) -> bool:
    """Return whether a command may be stopped half-way: nothing of it would be left behind."""
    return isinstance(payload, _READS) or (isinstance(payload, Terminal) and payload.name is None)


def _decode(kind: CommandType, payload: msgspec.Raw) -> Wire:
    """Return the payload, checked. The service has checked it too, in its own version."""
    try:
        return msgspec.json.decode(payload, type=PAYLOADS[kind])
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        message, _, place = str(error).partition(" - at `$")
        missing = _MISSING.search(message)
        path = place.rstrip("`") + (f".{missing[1]}" if missing else "")
        raise bad_request(f"`payload{path}`: {message}", f"payload{path}") from error


def _encoded(result: Result) -> msgspec.Raw:
    data = msgspec.json.encode(fitted(result))
    if len(data) > _MAX_RESULT:
        raise ApiError(
            500,
            f"The answer has {len(data)} bytes, more than the {_MAX_RESULT} that one may have: "
            "ask for less of it",
        )
    return msgspec.Raw(data)


def _failure(error: ApiError) -> Failure:
    return Failure(
        status=error.status, message=error.message, code=error.code, details=error.details
    )
