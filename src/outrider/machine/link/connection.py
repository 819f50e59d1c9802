"""The machine agent's link to the service: runs `contract.link.machine` on WebSockets.

    Outbox ── next_batch ──▶ `_send` ──▶ socket of the current connection
    MachineLink ── actions ──▶ a task per connection: open, send the hello, read, close
                ── events ──▶ router, log, the caller of `run`
                ── deadline ──▶ `_run_deadlines`

The protocol object decides everything; after each report to it, `_update` carries out what it
returns. contributing/protocol.md describes the frames.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import structlog
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

from outrider import __version__
from outrider.contract.errors import OutriderError
from outrider.contract.frames import (
    MAX_FRAME_BYTES,
    PROTOCOL_VERSION,
    Cancel,
    CloseCode,
    Command,
    FromDaemon,
    Goodbye,
    Snapshot,
    Welcome,
    close_reason,
    encode,
)
from outrider.contract.limits import fitted
from outrider.contract.link import machine as protocol
from outrider.contract.link.outbox import Outbox
from outrider.machine.commands.router import Router
from outrider.machine.settings import Connection
from outrider.machine.terminals.live import LiveTerminals

_BROKEN_LIMITS: Final = frozenset(
    {CloseCode.BAD_FRAME, CloseCode.TOO_MUCH_STATE, CloseCode.TOO_MANY_EVENTS, 1009}
)

_log = structlog.get_logger(__name__)


_REFUSALS: Final[dict[int, str]] = {
    CloseCode.UNAUTHORIZED: (
        "The service does not accept this machine's token (it was revoked, or replaced by another "
        "setup): run `outrider setup` again"
    ),
    CloseCode.UNSUPPORTED_VERSION: (
        f"The service does not speak version {PROTOCOL_VERSION} of the daemon protocol: update "
        "outrider so that both sides have the same version"
    ),
    CloseCode.REPLACED: (
        "Another machine agent connected with this machine's token: if the configuration was "
        "copied, run `outrider setup` on one of the two machines"
    ),
}


class LinkRefusedError(OutriderError):
    """The service refuses this machine agent, for `code`: reconnecting is of no use."""

    def __init__(self, code: CloseCode) -> None:
        super().__init__(_REFUSALS[code])
        self.code = code


@dataclass(frozen=True)
class SocketTiming(protocol.LinkTiming):
    """The intervals of a link and its sockets, in seconds.

    A service that is frozen, or has disappeared without a close, is left after `ping_interval`
    plus `ping_timeout` at the latest: before the end of its machines' grace period, which the
    other nodes start 15 s after the last heartbeat of that node.
    """

    open_timeout: float = 10.0
    ping_interval: float = 10.0
    ping_timeout: float = 10.0
    close_timeout: float = 2.0


class Link:
    """Keeps this machine connected.

    Args:
        connection: the service, and this machine's identity there.
        outbox: what is to be sent.
        router: carries out the service's commands.
        snapshot: returns everything that runs on the machine now.
        terminals: serves the viewers of terminals; without it, the machine offers none.
        on_connected: called after each welcome.
        sleep, random_fraction: how to wait between attempts, and how to randomize that (0 to 1).
    """

    def __init__(
        self,
        connection: Connection,
        *,
        outbox: Outbox,
        router: Router,
        snapshot: Callable[[], Snapshot],
        terminals: LiveTerminals | None = None,
        timing: SocketTiming | None = None,
        on_connected: Callable[[], None] = lambda: None,
        sleep: Callable[[float], Coroutine[Any, Any, None]] = asyncio.sleep,
        random_fraction: Callable[[], float] = random.random,
    ) -> None:
        self._connection = connection
        self._timing = timing or SocketTiming()
        self._router = router
        self._outbox = outbox
        self._machine_link = protocol.MachineLink(
            outbox,
            version=__version__,
            describe=snapshot,
            timing=self._timing,
            random_fraction=random_fraction,
            has_terminals=terminals is not None,
        )
        self._terminals = terminals
        self._on_connected = on_connected
        self._sleep = sleep
        self._sockets: dict[int, ClientConnection] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        """The task that opens and reads each connection."""
        self._helpers: set[asyncio.Task[None]] = set()
        """Tasks that send a hello or close a socket; each ends within a timeout of the socket."""
        self._output = asyncio.Event()
        self._deadline: float | None = None
        self._deadline_changed = asyncio.Event()
        self._failure: asyncio.Future[None] | None = None
        self._log = _log.bind(server=connection.server)
        outbox.subscribe(self._output.set)
        if terminals is not None:
            terminals.subscribe(self._output.set)

    async def run(self, stop: asyncio.Event) -> None:
        """Stay connected until `stop` is set; then say goodbye. Call it once.

        Raises:
            LinkRefusedError: the service refuses this machine permanently.
        """
        failure = self._failure = asyncio.get_running_loop().create_future()
        stopping = asyncio.create_task(stop.wait(), name="link stop")
        workers = [
            self._start(self._send(), "link send"),
            self._start(self._run_deadlines(), "link deadlines"),
        ]
        self._machine_link.start()
        self._update()
        try:
            await asyncio.wait({stopping, failure}, return_when=asyncio.FIRST_COMPLETED)
            if failure.done():
                failure.result()
        finally:
            # In this order: no frame may follow the goodbye, which `stop` returns. What still runs
            # then ends by itself: opening and closing have timeouts.
            for task in (stopping, *workers):
                task.cancel()
            await asyncio.wait((stopping, *workers))
            self._machine_link.stop()
            self._update()
            while self._helpers or self._tasks:
                await asyncio.wait({*self._helpers, *self._tasks.values()})
            if failure.done():
                failure.exception()  # raised above, or a failure while stopping

    # The protocol object

    def _update(self) -> None:
        """Carry out what the protocol object returns after a report to it."""
        for action in self._machine_link.actions():
            match action:
                case protocol.Connect(number, delay):
                    task = self._start(self._connect(number, delay), f"link connection {number}")
                    self._tasks[number] = task
                    task.add_done_callback(partial(self._tasks.pop, number))
                case protocol.SendHello(number, hello):
                    self._start_helper(self._send_frame(number, hello), "link hello")
                case protocol.Close():
                    self._start_helper(self._close(action), "link close")
        for event in self._machine_link.events():
            self._handle(event)
        self._update_deadline()

    def _handle(self, event: protocol.LinkEvent) -> None:
        match event:
            case Command():
                self._router.submit(event, self._outbox.result)
                return
            case Cancel(id=command_id):
                self._router.cancel(command_id)
                return
            case protocol.StreamEvents(streams, events) if self._terminals is not None:
                self._terminals.handle(streams, events)
                return
            case protocol.StreamsLost() if self._terminals is not None:
                self._terminals.lost()
            case protocol.CommandsLost():
                self._router.cancel_all()
            case Welcome(daemon_id=daemon_id, version=version):
                self._log.info("connected", daemon=daemon_id, service=version)
                self._on_connected()
            case Goodbye(reason=reason):
                self._log.info("the service says goodbye", reason=reason)
            case protocol.ConnectionEnded():
                self._log_end(event)
            case protocol.LinkRefused(code):
                self._fail(LinkRefusedError(code))
        self._output.set()  # it may be possible to send again

    def _update_deadline(self) -> None:
        deadline = self._machine_link.deadline(_now())
        if deadline != self._deadline:
            self._deadline = deadline
            self._deadline_changed.set()

    def _log_end(self, event: protocol.ConnectionEnded) -> None:
        if event.is_older:
            self._log.info("the older connection has ended", reason=event.reason)
        elif event.is_fault and event.code == CloseCode.HELLO_TIMEOUT:
            self._log.warning("the service did not answer the hello")
        elif event.is_fault:
            self._log.warning("the service sent what is not a frame", reason=event.reason)
        elif event.code in _BROKEN_LIMITS:
            self._log.error(
                "the service ended the connection: this machine broke a limit",
                code=event.code,
                reason=event.reason,
            )
        else:
            self._log.warning("connection lost", code=event.code, reason=event.reason)

    # Tasks

    async def _send(self) -> None:
        """Send what the outbox has, on the connection that the protocol object says."""
        while True:
            await self._output.wait()
            # Before the outbox is read: what is added from here on sets it again.
            self._output.clear()
            while await self._send_next():
                self._machine_link.batch_written(_now())
                self._update()
            self._update_deadline()  # events may have to wait for the rate limit

    async def _send_next(self) -> bool:
        """Send the frames that wait, or else one message of a terminal; return if there was one."""
        batch = self._machine_link.next_batch(_now())
        if batch is not None:
            number, frames = batch
            for frame in frames:
                await self._send_frame(number, frame)
            return True
        terminal = self._machine_link.next_terminal_message()
        if terminal is not None:
            await self._send_message(*terminal)
        return terminal is not None

    async def _run_deadlines(self) -> None:
        while True:
            # Before the deadline is read: a change in between would not be noticed.
            self._deadline_changed.clear()
            try:
                async with asyncio.timeout_at(self._deadline):
                    await self._deadline_changed.wait()
            except TimeoutError:
                self._machine_link.tick(_now())
                self._update()
                self._output.set()

    async def _connect(self, number: int, delay: float) -> None:
        """Open a connection after a delay, then read it until its end."""
        if delay:
            self._log.info("connecting again", in_seconds=round(delay, 1))
            await self._sleep(delay)
        socket = await self._open()
        if socket is None:
            self._machine_link.connection_lost(number, _now())
            self._update()
            return
        self._sockets[number] = socket
        self._machine_link.connection_opened(number, _now())
        self._update()
        try:
            while True:
                self._machine_link.receive(number, await socket.recv(), _now())
                self._update()
        except ConnectionClosed as error:
            closed = error.rcvd
            self._machine_link.connection_lost(
                number,
                _now(),
                None if closed is None else closed.code,
                str(error) if closed is None or not closed.reason else closed.reason,
            )
            self._sockets.pop(number, None)
            self._update()

    async def _open(self) -> ClientConnection | None:
        """Return a socket; None, with a line in the log, if none can be opened now."""
        try:
            return await connect(
                self._connection.websocket_url,
                additional_headers={"Authorization": f"Bearer {self._connection.token}"},
                user_agent_header=f"outrider/{__version__}",
                compression=None,
                max_size=MAX_FRAME_BYTES,
                open_timeout=self._timing.open_timeout,
                ping_interval=self._timing.ping_interval,
                ping_timeout=self._timing.ping_timeout,
                close_timeout=self._timing.close_timeout,
            )
        except InvalidStatus as error:
            status = error.response.status_code
            self._log.warning("the service refused the connection", http_status=status)
        except TimeoutError:
            seconds = self._timing.open_timeout
            self._log.warning("the service did not answer", within_seconds=seconds)
        except (OSError, WebSocketException, UnicodeError) as error:
            self._log.warning("the service cannot be reached", reason=str(error))
        return None

    async def _send_frame(self, number: int, frame: FromDaemon) -> None:
        """Send a frame within the limits of the contract, unless the connection is lost."""
        await self._send_message(number, encode(fitted(frame)).decode())

    async def _send_message(self, number: int, message: str | bytes) -> None:
        socket = self._sockets.get(number)
        if socket is not None:
            with suppress(ConnectionClosed):  # the task that reads it reports that
                await socket.send(message)

    async def _close(self, action: protocol.Close) -> None:
        """Close a connection, or stop opening it."""
        socket = self._sockets.pop(action.connection, None)
        if socket is None:
            task = self._tasks.get(action.connection)
            if task is not None:
                task.cancel()
            return
        if action.goodbye is not None:
            try:
                async with asyncio.timeout(self._timing.close_timeout):
                    await socket.send(encode(action.goodbye).decode())
            except (ConnectionClosed, TimeoutError):
                self._log.info("the connection was lost before the goodbye")
        await socket.close(action.code, close_reason(action.reason))

    # Their owner

    def _start(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Start a task whose failure ends `run`."""
        task = asyncio.create_task(work, name=name)
        task.add_done_callback(self._ended)
        return task

    def _start_helper(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = self._start(work, name)
        self._helpers.add(task)
        task.add_done_callback(self._helpers.discard)

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        assert self._failure is not None
        if not self._failure.done():
            self._failure.set_exception(error)


def _now() -> float:
    return asyncio.get_running_loop().time()
