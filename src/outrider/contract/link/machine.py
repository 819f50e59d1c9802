"""The machine's end of the link, free of I/O.

One `MachineLink` lives as long as the machine agent, over all its connections. The caller reports
what happens; after each report, `actions` returns what to do, `events` what it means to the machine
agent, and `deadline` when to call `tick`. Frames are pulled with `next_batch`, so that state which
changes faster than the socket can send it is sent in its newest form only.

A connection goes through these states, and at most one is in each of the first four:

    CONNECTING ─▶ OPEN ─▶ GREETING ─▶ CURRENT ─▶ LINGERING ─▶ (closed)
                   │         │           │
                   │         │           a newer one is welcomed: this one is still read for a while
                   │         the hello is sent, the welcome has not arrived
                   a batch is being written on the current connection: the hello waits for its end

Invariants:

- From a hello to its welcome nothing is sent on any connection: the service may close the current
  connection, unread, as soon as it has the hello. So a batch is never lost because of a move.
- A current connection that is lost while a hello is in flight may have been closed because of that
  hello. Commands in flight are given up only if no welcome follows.
- An event is deleted only after the service has acknowledged it, on whatever connection.
- Streams of terminals belong to the current connection, and end with it or with a move. One message
  of a terminal at a time is sent, and only while no frame waits.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from outrider.contract.backoff import Backoff
from outrider.contract.frames import (
    PROTOCOL_VERSION,
    Acknowledge,
    AcknowledgeRefusals,
    Cancel,
    CloseCode,
    Command,
    DecodeError,
    FromDaemon,
    FromService,
    Goodbye,
    Hello,
    Snapshot,
    WatchDeltas,
    Welcome,
    decode_from_service,
)
from outrider.contract.limits import fitted
from outrider.contract.link import terminals
from outrider.contract.link.outbox import Outbox
from outrider.contract.resources import Provider

MAX_RECONNECT_SECONDS: Final = 600.0
"""The longest time within which a service's goodbye may have a machine reconnect."""

FINAL_CODES: Final = frozenset(
    {CloseCode.UNAUTHORIZED, CloseCode.REPLACED, CloseCode.UNSUPPORTED_VERSION}
)
"""The close codes after which a machine does not reconnect."""


@dataclass(frozen=True)
class LinkTiming:
    """The intervals of a link, in seconds.

    After a connection that lasted for `stable_after`, the backoff starts anew. A connection that
    has been succeeded by another one is read for `linger` more.
    """

    welcome_timeout: float = 15.0
    report_interval: float = 20.0
    stable_after: float = 30.0
    linger: float = 10.0


# Actions: what the caller is to do.


@dataclass(frozen=True)
class Connect:
    """Open a connection after `delay` seconds.

    Then call `connection_opened`, or `connection_lost` if it cannot be opened.
    """

    connection: int
    delay: float


@dataclass(frozen=True)
class SendHello:
    """Send the hello of a new connection."""

    connection: int
    hello: Hello


@dataclass(frozen=True)
class Close:
    """Send the goodbye, if there is one, and close; or stop opening the connection.

    Messages of a closed connection, and its loss, need not be reported; they are ignored.
    """

    connection: int
    code: CloseCode
    reason: str
    goodbye: Goodbye | None = None


Action = Connect | SendHello | Close


# Events: what the machine agent has to know.


@dataclass(frozen=True)
class CommandsLost:
    """Nobody waits for the result of any command any more: the connection is lost."""


@dataclass(frozen=True)
class ConnectionEnded:
    """An open connection has ended.

    Args:
        code: the close code, None if there was none.
        is_fault: whether this side closed it because the service broke the protocol.
        is_older: whether a newer connection had succeeded it before.
    """

    code: int | None
    reason: str
    is_fault: bool = False
    is_older: bool = False


@dataclass(frozen=True)
class StreamEvents:
    """What has happened to streams of terminals; answer on `streams`."""

    streams: terminals.TerminalStreams
    events: list[terminals.StreamEvent]


@dataclass(frozen=True)
class StreamsLost:
    """The streams of terminals have ended with their connection; the terminals may stay."""


@dataclass(frozen=True)
class LinkRefused:
    """The service refuses this machine permanently; the link is stopped."""

    code: CloseCode


LinkEvent = (
    Welcome
    | Command
    | Cancel
    | Goodbye
    | CommandsLost
    | ConnectionEnded
    | StreamEvents
    | StreamsLost
    | LinkRefused
)
"""A frame of the service is an event too; a repeated command has the same id."""


class _State(Enum):
    CONNECTING = auto()
    OPEN = auto()
    GREETING = auto()
    CURRENT = auto()
    LINGERING = auto()


class _Connection:
    """One connection. `reconnect_within` is the seconds that the service's goodbye allows."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.state = _State.CONNECTING
        self.deadline: float | None = None
        self.reconnect_within: float | None = None
        self.may_be_replaced = False
        """A newer connection of this machine has sent a hello: the service may close this one."""


class MachineLink:
    """The protocol state of a machine's link.

    Longer than other classes, for one idea: a move concerns the connection before and the one
    after it at once, so their states cannot be separated.

    Args:
        outbox: what waits to be sent.
        version: of the machine agent.
        describe: returns everything that runs on the machine now.
        random_fraction: returns a number from 0 to 1; randomizes the delays of connections and
            of the first report on each.
        has_terminals: whether the machine agent takes terminals; if not, a binary message is a
            fault of the service.

    Times are seconds of a monotonic clock.
    """

    def __init__(
        self,
        outbox: Outbox,
        *,
        version: str,
        describe: Callable[[], Snapshot],
        timing: LinkTiming | None = None,
        random_fraction: Callable[[], float] = random.random,
        has_terminals: bool = False,
    ) -> None:
        self._has_terminals = has_terminals
        self._streams: terminals.TerminalStreams | None = None
        self._outbox = outbox
        self._version = version
        self._describe = describe
        self._timing = timing or LinkTiming()
        self._random_fraction = random_fraction
        self._backoff = Backoff(random_fraction)
        self._connections: dict[int, _Connection] = {}
        self._current: _Connection | None = None
        self._next: _Connection | None = None
        """The connection in one of the states before CURRENT."""
        self._last_number = 0
        self._is_writing = False
        self._is_current_lost = False
        self._is_stopped = False
        self._reconnect_within: float | None = None
        self._welcomed_at: float | None = None
        self._report_at: float | None = None
        self._providers: list[Provider] = []
        self._actions: list[Action] = []
        self._events: list[LinkEvent] = []

    # Output

    def actions(self) -> list[Action]:
        """Return the actions to take now, in this order; each is returned once."""
        actions, self._actions = self._actions, []
        return actions

    def events(self) -> list[LinkEvent]:
        """Return the events that have happened, in this order; each is returned once."""
        events, self._events = self._events, []
        return events

    def next_batch(self, now: float) -> tuple[int, list[FromDaemon]] | None:
        """Return the next frames to send and their connection; None if there are none now.

        Call `batch_written` before the next call. Try again when the outbox has output, after
        each event and after each `tick`.
        """
        current = self._writable()
        if current is None:
            return None
        frames = self._outbox.next_batch(now, self._describe)
        if not frames:
            return None
        self._is_writing = True
        return current.number, frames

    def next_terminal_message(self) -> tuple[int, bytes] | None:
        """Return the next binary message and its connection; None if there is none now.

        Call it only when `next_batch` has nothing, and `batch_written` after it.
        """
        current = self._writable()
        if current is None or self._streams is None:
            return None
        message = self._streams.next_message()
        if message is None:
            return None
        self._is_writing = True
        return current.number, message

    def _writable(self) -> _Connection | None:
        """Return the current connection if something may be sent on it now."""
        if self._current is None or self._is_current_lost or self._is_writing:
            return None
        if self._next is not None and self._next.state is not _State.CONNECTING:
            return None
        return self._current

    def deadline(self, now: float) -> float | None:
        """Return when to call `tick`; None while nothing is due at any time."""
        deadlines = [connection.deadline for connection in self._connections.values()]
        if self._current is not None:
            deadlines += [self._report_at, self._outbox.next_at(now)]
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    @property
    def current(self) -> int | None:
        """The number of the connection that carries frames; None if there is none."""
        return None if self._current is None else self._current.number

    # Input

    def start(self) -> None:
        """Make the first connection, at once."""
        self._connect(0.0)

    def stop(self) -> None:
        """Say goodbye and close every connection. Later input is ignored."""
        self._is_stopped = True
        for number in list(self._connections):
            is_current = self._current is not None and self._current.number == number
            goodbye = Goodbye(reason="The machine agent stops") if is_current else None
            self._close(number, CloseCode.GOING_AWAY, "The machine agent stops", goodbye)
        self._next = None
        self._lose_current()

    def connection_opened(self, number: int, now: float) -> None:
        """Report that a connection is open."""
        connection = self._connections.get(number)
        if connection is not None:
            connection.state = _State.OPEN
            self._greet(now)

    def batch_written(self, now: float) -> None:
        """Report that the batch of `next_batch` is written, or that its connection is lost."""
        self._is_writing = False
        self._greet(now)

    def receive(self, number: int, message: str | bytes, now: float) -> None:
        """Report a message that has arrived on an open connection."""
        connection = self._connections.get(number)
        if connection is None:
            return  # it arrived before the caller had closed the connection
        try:
            if isinstance(message, bytes):
                self._receive_terminal_message(connection, message)
                return
            frame = decode_from_service(message)
            if connection.state in (_State.OPEN, _State.GREETING):
                self._receive_first(connection, frame, now)
            else:
                self._receive(connection, frame, now)
        except DecodeError as error:
            self._fail(connection, CloseCode.BAD_FRAME, str(error), now)

    def connection_lost(
        self, number: int, now: float, code: int | None = None, reason: str = ""
    ) -> None:
        """Report that a connection could not be opened, or is lost.

        Args:
            code: the close code that was received, None if there was none.
        """
        connection = self._connections.get(number)
        if connection is None:
            return
        is_older = connection.state is _State.LINGERING
        is_expected = code == CloseCode.REPLACED and connection.may_be_replaced
        if code in FINAL_CODES and not is_older and not is_expected:
            del self._connections[number]
            if connection is self._current:
                self._lose_current()
            self._refuse(CloseCode(code))
            return
        if connection.state is not _State.CONNECTING:
            self._events.append(ConnectionEnded(code, reason, is_older=is_older))
        self._end(connection, now)

    def tick(self, now: float) -> None:
        """Do what is due at `now`."""
        for connection in list(self._connections.values()):
            if connection.deadline is None or now < connection.deadline:
                continue
            if connection.state is _State.LINGERING:
                reason = "This machine has a newer connection"
                self._close(connection.number, CloseCode.GOING_AWAY, reason)
            else:
                self._fail(connection, CloseCode.HELLO_TIMEOUT, "No welcome in time", now)
        if self._report_at is not None and now >= self._report_at:
            self._report_at = now + self._timing.report_interval
            self._report()

    # The next connection

    def _connect(self, delay: float) -> None:
        self._last_number += 1
        self._next = self._connections[self._last_number] = _Connection(self._last_number)
        self._actions.append(Connect(self._last_number, delay))

    def _reconnect(self, now: float) -> None:
        """Make the next connection after a random delay, unless one is being made."""
        if self._is_stopped or self._next is not None:
            return
        within, self._reconnect_within = self._reconnect_within, None
        welcomed_at, self._welcomed_at = self._welcomed_at, None
        if welcomed_at is not None and now - welcomed_at >= self._timing.stable_after:
            self._backoff.reset()
        self._connect(self._backoff.next() if within is None else within * self._random_fraction())

    def _greet(self, now: float) -> None:
        """Send the hello on the next connection, once no batch is being written."""
        connection = self._next
        if connection is None or connection.state is not _State.OPEN or self._is_writing:
            return
        report = self._outbox.begin(self._describe())
        self._providers = report.providers
        if self._current is not None:
            self._current.may_be_replaced = True
        connection.state = _State.GREETING
        connection.deadline = now + self._timing.welcome_timeout
        hello = Hello(
            protocol=PROTOCOL_VERSION,
            version=self._version,
            machine=report.machine,
            providers=report.providers,
            sessions=report.sessions,
            last_event=self._outbox.last_event(),
            terminals=self._has_terminals,
        )
        self._actions.append(SendHello(connection.number, hello))

    def _receive_first(
        self, connection: _Connection, frame: FromService | None, now: float
    ) -> None:
        match frame:
            case Welcome() if connection.state is _State.GREETING:
                self._receive_welcome(connection, frame, now)
            case Goodbye():
                self._receive_goodbye(connection, frame)
            case None:
                pass  # a frame of a newer version
            case _:
                raise DecodeError("The first frame must be a welcome")

    def _receive_welcome(self, connection: _Connection, welcome: Welcome, now: float) -> None:
        if welcome.protocol != PROTOCOL_VERSION:
            self._refuse(CloseCode.UNSUPPORTED_VERSION)
            return
        self._outbox.resume(welcome.acknowledged, welcome.events)
        older = self._current
        self._current, self._next = connection, None
        connection.state, connection.deadline = _State.CURRENT, None
        if older is not None and not self._is_current_lost:
            older.state, older.deadline = _State.LINGERING, now + self._timing.linger
        self._is_current_lost = False
        self._welcomed_at = now
        # Thousands of machines may have connected at once: they do not report at once for ever.
        self._report_at = now + self._timing.report_interval * self._random_fraction()
        self._lose_streams()
        if self._has_terminals:
            self._streams = terminals.TerminalStreams(is_machine=True)
        self._events.append(welcome)

    # The current connection, and those before it

    def _receive(self, connection: _Connection, frame: FromService | None, now: float) -> None:
        match frame:
            case Command() | Cancel():
                self._events.append(frame)
            case Acknowledge(seq=seq):
                self._outbox.events_acknowledged(seq)
            case WatchDeltas(sessions=sessions):
                if connection is self._current:
                    self._outbox.watch_deltas(sessions)
            case AcknowledgeRefusals(seq=seq):
                self._outbox.refusals_acknowledged(seq)
            case Goodbye():
                self._receive_goodbye(connection, frame)
                if connection is self._current and connection.reconnect_within is not None:
                    self._move(connection, now)

    def _receive_terminal_message(self, connection: _Connection, message: bytes) -> None:
        if not self._has_terminals:
            raise DecodeError("A frame is a text message, this one is binary")
        if connection.state is _State.LINGERING:
            return  # its streams ended with the welcome on the newer connection
        if connection is not self._current or self._streams is None:
            raise DecodeError("The first message must be a welcome")
        self._streams.receive(message)
        self._events.append(StreamEvents(self._streams, self._streams.events()))

    def _receive_goodbye(self, connection: _Connection, goodbye: Goodbye) -> None:
        self._events.append(goodbye)
        if goodbye.reconnect_ms:
            within = min(goodbye.reconnect_ms / 1000, MAX_RECONNECT_SECONDS)
            connection.reconnect_within = within

    def _move(self, connection: _Connection, now: float) -> None:
        """Make the next connection while this one stays in use."""
        if self._next is None:
            self._reconnect_within = connection.reconnect_within
            self._reconnect(now)

    def _report(self) -> None:
        """Report the machine's figures, or everything if the providers have changed."""
        report = fitted(self._describe())
        if report.providers == self._providers:
            self._outbox.machine_changed(report.machine)
        else:
            self._providers = report.providers
            self._outbox.report()

    # The end of a connection

    def _fail(self, connection: _Connection, code: CloseCode, reason: str, now: float) -> None:
        """Close a connection on which the service broke the protocol."""
        is_older = connection.state is _State.LINGERING
        self._events.append(ConnectionEnded(code, reason, is_fault=True, is_older=is_older))
        self._actions.append(Close(connection.number, code, reason))
        self._end(connection, now)

    def _end(self, connection: _Connection, now: float) -> None:
        """Continue without this connection."""
        del self._connections[connection.number]
        if connection is self._next:
            self._next = None
            self._reconnect_within = connection.reconnect_within
            if self._is_current_lost:
                self._lose_current()
            if self._current is None:
                self._outbox.end()
            self._reconnect(now)
        elif connection is self._current:
            self._is_writing = False
            if self._next is not None and self._next.state is _State.GREETING:
                self._is_current_lost = True  # until the welcome, or the loss of that connection
            else:
                self._lose_current()
                self._greet(now)
                self._reconnect(now)

    def _lose_current(self) -> None:
        """Give up what is in flight on the current connection."""
        self._current, self._is_current_lost = None, False
        self._report_at = None
        self._outbox.end()
        self._events.append(CommandsLost())
        self._lose_streams()

    def _lose_streams(self) -> None:
        if self._streams is not None:
            self._streams = None
            self._events.append(StreamsLost())

    def _refuse(self, code: CloseCode) -> None:
        self._events.append(LinkRefused(code))
        self.stop()

    def _close(
        self, number: int, code: CloseCode, reason: str, goodbye: Goodbye | None = None
    ) -> None:
        self._actions.append(Close(number, code, reason, goodbye))
        self._connections.pop(number, None)
