"""Carries a command to a machine and its answer back, within the command timeout."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
import structlog
from msgspec import Raw

from outrider.cloud.fleet.bus import BusDown
from outrider.cloud.fleet.presence import Presence
from outrider.cloud.fleet.routes import Routes
from outrider.cloud.fleet.state import MachineState
from outrider.contract.commands import RESULTS, CommandType
from outrider.contract.errors import ApiError, ErrorCode, OutriderError, not_found
from outrider.contract.frames import MAX_COMMANDS_IN_FLIGHT, Cancel, Command, CommandResult

PATIENCE: Final = 0.1
"""Seconds after which a command is slow enough to look whether its client is still there."""

BUSY_SECONDS: Final = 1.0
"""Seconds after which a machine with too many commands may take another one."""

DRAIN_SECONDS: Final = 3.0
"""Seconds that a stopping service gives the commands under way."""

_ARRIVAL_SECONDS: Final = 2.0
_ARRIVAL_PAUSE: Final = 0.02
"""How long, and how often, a machine is tried that has said hello and takes no command yet."""

_FROM_MACHINE: Final = frozenset({400, 404, 409, 413, 500, 503, 504})
"""The statuses that a machine may answer with; another is its fault."""

_CODES: Final = frozenset(
    {ErrorCode.NO_PENDING_ACTION, ErrorCode.APPROVAL_PENDING, ErrorCode.AMBIGUOUS_TARGET}
)
"""The codes that a machine may give, with a 409: the others tell of credentials and limits."""

_decoders = {command: msgspec.json.Decoder(result) for command, result in RESULTS.items()}

_log = structlog.get_logger(__name__)

Gone = Callable[[], Awaitable[None]]
"""Returns once the client that made the request has gone away."""


class ClientGone(OutriderError):
    """The client went away before its answer came."""


class _Waiting:
    """A command that has no answer yet."""

    __slots__ = ("future", "machine_id")

    def __init__(self, machine_id: str, future: asyncio.Future[CommandResult]) -> None:
        self.machine_id = machine_id
        self.future = future


class Dispatcher:
    """Sends commands to machines.

    Args:
        timeout: seconds that a machine has to answer.
    """

    def __init__(self, *, presence: Presence, routes: Routes, timeout: float) -> None:
        self._presence = presence
        self._routes = routes
        self._timeout = timeout
        self._waiting: dict[str, _Waiting] = {}
        self._waiting_of: dict[str, set[_Waiting]] = {}
        """By machine: many may be lost at once, and each must find its own."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def owned(self, account_id: str, machine_id: str) -> MachineState:
        """Return a machine of the account, with its last state if it is offline.

        Raises:
            ApiError: 404, the account has none such, whether another has or not.
        """
        state = await self._presence.find(account_id, machine_id)
        if state is None:
            raise not_found(f"No machine {machine_id!r} in this account")
        return state

    async def call(
        self, account_id: str, machine_id: str, command: CommandType, payload: bytes, gone: Gone
    ) -> bytes:
        """Have a machine carry out a command and return its result, JSON of the type it has.

        Args:
            payload: JSON of the command's payload, checked.
            gone: tells when nobody waits for the answer any more.

        Raises:
            ApiError: 404 not the account's; 500 offline, or the command broke; 503 connected
                without a socket, or too many commands; 504 no answer in time; and what the
                machine answered.
            ClientGone: nobody waits for the answer any more.
        """
        state = await self.owned(account_id, machine_id)
        if not state.connected:
            raise _unreachable(state)
        if self._routes.owed(machine_id) >= MAX_COMMANDS_IN_FLIGHT:
            raise ApiError(
                503,
                f"The machine {state.nickname!r} has {MAX_COMMANDS_IN_FLIGHT} commands "
                "unanswered: wait for some of them",
                retry_after=BUSY_SECONDS,
                undone=True,
            )
        result = await self._exchange(state, command, payload, gone)
        return _checked(state, command, result)

    def settle(self, machine_id: str, result: CommandResult) -> None:
        """Take a machine's answer. One that nobody waits for is dropped."""
        waiting = self._waiting.get(result.id)
        if waiting is None or waiting.machine_id != machine_id:
            _log.debug("late answer dropped", machine=machine_id, command=result.id)
        elif not waiting.future.done():
            waiting.future.set_result(result)

    def dropped(self, machine_id: str) -> None:
        """Take it that the machine's socket has gone: no answer comes for what is under way."""
        for waiting in self._waiting_of.get(machine_id, ()):
            _fail(waiting)

    def forgotten(self, command_id: str) -> None:
        """Take it that no answer comes for a command: its machine's node has gone."""
        waiting = self._waiting.get(command_id)
        if waiting is not None:
            _fail(waiting)

    async def drain(self) -> None:
        """Wait until no command is under way; after `DRAIN_SECONDS` the others get a 503."""
        futures = [waiting.future for waiting in self._waiting.values()]
        if not futures:
            return
        _, late = await asyncio.wait(futures, timeout=DRAIN_SECONDS)
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
        """Wait, briefly, for the cancellations that are on their way."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=2)

    async def _exchange(
        self, state: MachineState, command: CommandType, payload: bytes, gone: Gone
    ) -> CommandResult:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[CommandResult] = loop.create_future()
        frame = Command(
            id=self._routes.new_command_id(),
            command=command,
            payload=Raw(payload),
            timeout_ms=max(1, int(self._timeout * 1000)),
        )
        waiting = self._waiting[frame.id] = _Waiting(state.id, future)
        self._waiting_of.setdefault(state.id, set()).add(waiting)
        watcher: list[asyncio.Task[None]] = []
        watch = loop.call_later(PATIENCE, _start_watching, watcher, future, gone)
        try:
            async with asyncio.timeout(self._timeout):
                if not await self._sent(state, frame):
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
            ) from error
        finally:
            watch.cancel()
            for task in watcher:
                task.cancel()
            del self._waiting[frame.id]
            self._waiting_of[state.id].remove(waiting)
            if not self._waiting_of[state.id]:
                del self._waiting_of[state.id]
            self._routes.settled(state.id, frame.id)

    async def _sent(self, state: MachineState, frame: Command) -> bool:
        """Send a command; tell whether a socket took it.

        A machine is listed as soon as it has said hello, and takes commands once that is saved
        and it is welcome: who asks in between waits for that.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + _ARRIVAL_SECONDS
        while not await self._routes.send(state.id, frame):
            now = await self._presence.find(state.account_id, state.id)
            if now is None or not now.online or loop.time() >= end:
                return False
            await asyncio.sleep(_ARRIVAL_PAUSE)
        return True

    def _cancel(self, machine_id: str, command_id: str) -> None:
        task = asyncio.create_task(self._send_cancel(machine_id, command_id))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send_cancel(self, machine_id: str, command_id: str) -> None:
        # A machine that takes no frames has not taken the command either, or will drop its
        # answer: there is nobody to tell about it.
        with_bound = asyncio.wait_for(self._routes.send(machine_id, Cancel(id=command_id)), 5)
        await asyncio.gather(with_bound, return_exceptions=True)


def _fail(waiting: _Waiting) -> None:
    if not waiting.future.done():
        waiting.future.set_exception(
            ApiError(
                503,
                "The machine's connection dropped before it answered; "
                "what was asked may have been done. Try again in a moment",
            )
        )


def _unreachable(state: MachineState) -> ApiError:
    if not state.connected:
        return ApiError(
            500,
            f"The machine {state.nickname!r} is offline: "
            "start `outrider daemon` on it and try again",
            undone=True,
        )
    return ApiError(
        503,
        f"The connection of the machine {state.nickname!r} has dropped; "
        "it is expected back: try again in a few seconds",
        undone=True,
    )


def _start_watching(
    watcher: list[asyncio.Task[None]], future: asyncio.Future[CommandResult], gone: Gone
) -> None:
    watcher.append(asyncio.create_task(_watch(future, gone)))


async def _watch(future: asyncio.Future[CommandResult], gone: Gone) -> None:
    await gone()
    if not future.done():
        future.set_exception(ClientGone("The client went away"))


def _checked(state: MachineState, command: CommandType, answer: CommandResult) -> bytes:
    """Return the result as JSON, or raise the error that the machine answered."""
    failure = answer.error
    if failure is not None:
        status = failure.status if failure.status in _FROM_MACHINE else 500
        code = failure.code if status == 409 and failure.code in _CODES else None
        is_busy = status == 503  # it, or its node, has too many commands, and has not begun this
        raise ApiError(
            status,
            failure.message,
            code=code,
            details=failure.details,
            retry_after=BUSY_SECONDS if is_busy else None,
            undone=True if is_busy else None,
        )
    data = bytes(answer.result)
    try:
        _decoders[command].decode(data)
    except msgspec.DecodeError as error:
        _log.warning("malformed result", machine=state.id, command=command, error=str(error))
        raise ApiError(
            500, f"The machine {state.nickname!r} gave a malformed answer: update its agent"
        ) from error
    return data
