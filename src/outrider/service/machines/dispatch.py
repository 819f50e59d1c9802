"""Sends commands to machines and returns their results, within the command timeout."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Final

import structlog
from msgspec import Raw

from outrider.contract.commands import CommandType
from outrider.contract.errors import MACHINE_CODES, ApiError, OutriderError, not_found
from outrider.contract.frames import (
    MAX_COMMANDS_IN_FLIGHT,
    UNKNOWN_COMMAND,
    Cancel,
    Command,
    CommandResult,
    Failure,
)
from outrider.service.cluster.bus import BusDown
from outrider.service.cluster.relay import CommandRelay
from outrider.service.machines.machine_state import MachineState
from outrider.service.machines.presence import Presence
from outrider.service.machines.results import MalformedResult, checked_result
from outrider.tracing import OFF, Tracing

BUSY_SECONDS: Final = 1.0
"""Seconds after which a machine with too many commands may take another one."""

DRAIN_SECONDS: Final = 3.0
"""Seconds that a stopping service waits for commands in flight."""

_REGISTRATION_SECONDS: Final = 2.0
# How long, and how often, to retry a machine whose hello has not been answered yet.
_REGISTRATION_POLL: Final = 0.02

# How long to try to cancel a command on a machine that does not read.
_CANCEL_SECONDS: Final = 5.0

# The statuses that a machine may answer with; any other becomes a 500.
_FROM_MACHINE: Final = frozenset({400, 404, 409, 413, 500, 503, 504})

_log = structlog.get_logger(__name__)

ClientDisconnect = Callable[[], Awaitable[None]]
"""Returns once the client that made the request has disconnected."""


class ClientGone(OutriderError):
    """The client disconnected before the result arrived."""


class Dispatcher:
    """Sends commands to machines.

    Args:
        timeout: seconds that a machine has to answer.
        drain_seconds: how long `drain` waits for commands in flight.
        tracing: begins the spans of commands.
    """

    def __init__(
        self,
        *,
        presence: Presence,
        relay: CommandRelay,
        timeout: float,
        drain_seconds: float = DRAIN_SECONDS,
        tracing: Tracing = OFF,
    ) -> None:
        self._presence = presence
        self._relay = relay
        self._timeout = timeout
        self._drain_seconds = drain_seconds
        self._tracing = tracing
        self._tasks: set[asyncio.Task[None]] = set()

    async def owned(self, account_id: str, machine_id: str) -> MachineState:
        """Return a machine of the account, with its last state if it is offline.

        Raises:
            ApiError: 404, the account has no such machine, whether another account has it or not.
        """
        state = await self._presence.find(account_id, machine_id)
        if state is None:
            raise not_found(f"No machine {machine_id!r} in this account")
        return state

    async def call(
        self,
        account_id: str,
        machine_id: str,
        command: CommandType,
        payload: bytes,
        gone: ClientDisconnect,
    ) -> bytes:
        """Execute a command on a machine and return its result, JSON of the command's type.

        Args:
            payload: the validated payload as JSON.
            gone: returns once the client has disconnected.

        Raises:
            ApiError: 404 not the account's; 500 offline, or the command broke; 503 connected
                without a socket, or too many commands; 504 no answer in time; and what the
                machine answered.
            ClientGone: the client has disconnected; the command is cancelled.
        """
        state = await self.owned(account_id, machine_id)
        if not state.connected:
            raise _unreachable(state)
        if self._relay.in_flight(machine_id) >= MAX_COMMANDS_IN_FLIGHT:
            raise ApiError(
                503,
                f"The machine {state.nickname!r} has {MAX_COMMANDS_IN_FLIGHT} commands "
                "unanswered: wait for some of them",
                retry_after=BUSY_SECONDS,
                safe_to_retry=True,
            )
        attributes = {"outrider.command": command, "outrider.machine.id": machine_id}
        with self._tracing.child(f"command {command}", "client", attributes) as span:
            result = await self._exchange(state, command, payload, gone, span.traceparent)
            return _checked(state, command, payload, result)

    async def drain(self) -> None:
        """Wait until no command is in flight; after `drain_seconds` the rest fail with a 503."""
        futures = self._relay.pending()
        if not futures:
            return
        _, late = await asyncio.wait(futures, timeout=self._drain_seconds)
        for future in late:
            if not future.done():
                future.set_exception(
                    ApiError(
                        503,
                        "The service stopped before the machine answered; "
                        "what was asked may have been done. Try again in a moment",
                    )
                )

    async def close(self) -> None:
        """Wait up to 2 s for cancellations that are being sent."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=2)

    async def _exchange(
        self,
        state: MachineState,
        command: CommandType,
        payload: bytes,
        gone: ClientDisconnect,
        traceparent: str | None,
    ) -> CommandResult:
        frame = Command(
            id=self._relay.new_command_id(),
            command=command,
            payload=Raw(payload),
            timeout_ms=max(1, int(self._timeout * 1000)),
            traceparent=traceparent,
        )
        # Before the frame is sent: the result may arrive before `send` returns.
        future = self._relay.expect(state.id, frame.id)
        watcher = asyncio.create_task(_fail_on_disconnect(future, gone), name="watch a client")
        try:
            async with asyncio.timeout(self._timeout):
                sent = await self._relay.send(state.id, frame)
                if not sent and not await self._sent_later(state, frame):
                    raise _unreachable(state)
                return await future
        except TimeoutError as error:
            self._cancel(state.id, frame.id)
            raise ApiError(
                504,
                f"The machine {state.nickname!r} did not answer within {self._timeout:g} seconds; "
                "what was asked may still be done",
            ) from error
        except (ClientGone, asyncio.CancelledError):
            self._cancel(state.id, frame.id)
            raise
        except BusDown as error:
            raise ApiError(
                503,
                f"The machine {state.nickname!r} is connected to another node of this service, "
                "which cannot be reached now: try again in a few seconds",
                safe_to_retry=not error.may_be_sent,
            ) from error
        finally:
            watcher.cancel()
            self._relay.completed(state.id, frame.id)

    async def _sent_later(self, state: MachineState, frame: Command) -> bool:
        """Retry a command that no socket has accepted; return whether one has."""
        async for _ in self.until_registered(state):
            if await self._relay.send(state.id, frame):
                return True
        return False

    async def until_registered(self, state: MachineState) -> AsyncIterator[None]:
        """Yield at each moment at which a machine may have been registered, for a short time.

        A machine is listed from its hello on, but takes commands only once its registration is
        stored and it is welcomed: what is requested in between is retried.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + _REGISTRATION_SECONDS
        while loop.time() < end:
            now = await self._presence.find(state.account_id, state.id)
            if now is None or not now.online:
                return
            await asyncio.sleep(_REGISTRATION_POLL)
            yield

    def _cancel(self, machine_id: str, command_id: str) -> None:
        task = asyncio.create_task(self._send_cancel(machine_id, command_id))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send_cancel(self, machine_id: str, command_id: str) -> None:
        # A machine that accepts no frames has not received the command either, or will have its
        # result dropped: nothing is to be reported.
        with suppress(TimeoutError, BusDown):
            async with asyncio.timeout(_CANCEL_SECONDS):
                await self._relay.send(machine_id, Cancel(id=command_id))


def _unreachable(state: MachineState) -> ApiError:
    if not state.connected:
        return ApiError(
            500,
            f"The machine {state.nickname!r} is offline: "
            "start `outrider daemon` on it and try again",
            safe_to_retry=True,
        )
    return ApiError(
        503,
        f"The connection of the machine {state.nickname!r} has dropped; "
        "it is expected back: try again in a few seconds",
        safe_to_retry=True,
    )


async def _fail_on_disconnect(
    future: asyncio.Future[CommandResult], gone: ClientDisconnect
) -> None:
    await gone()
    if not future.done():
        future.set_exception(ClientGone("The client has disconnected"))


def _checked(
    state: MachineState, command: CommandType, payload: bytes, answer: CommandResult
) -> bytes:
    """Return the result as JSON, or raise the machine's error."""
    failure = answer.error
    if failure is not None and _is_unknown_command(failure):
        raise ApiError(
            501,
            f"The agent of the machine {state.nickname!r} is older than this service and cannot "
            f"do this ({command}): update it (`outrider upgrade` there says how), then start "
            "it again",
            safe_to_retry=True,
        )
    if failure is not None:
        status = failure.status if failure.status in _FROM_MACHINE else 500
        code = failure.code if status == 409 and failure.code in MACHINE_CODES else None
        is_busy = status == 503  # too many commands: this one was not started
        raise ApiError(
            status,
            failure.message,
            code=code,
            details=failure.details,
            retry_after=BUSY_SECONDS if is_busy else None,
            safe_to_retry=True if is_busy else None,
        )
    try:
        return checked_result(state.id, command, payload, bytes(answer.result))
    except MalformedResult as error:
        _log.warning("malformed result", machine=state.id, command=command, error=str(error))
        raise ApiError(
            500, f"The machine {state.nickname!r} gave a malformed answer: update its agent"
        ) from error


def _is_unknown_command(failure: Failure) -> bool:
    """Return whether a machine agent has refused a command because it does not know it."""
    return (
        failure.status == 400
        and [detail.path for detail in failure.details] == ["type"]
        and UNKNOWN_COMMAND in failure.message
    )
