"""The service's end of the link, free of I/O.

`ServiceLink` is one connection of a machine. The caller reports what happens (a message has
arrived, an event is stored, time passes). After each report, `events` returns what it means,
`frames` what to send, and `closing` whether to close the connection. Its states:

    AWAITING_HELLO ─▶ ADMITTING ─▶ SERVING ─▶ CLOSED
                          │
                          the caller registers the machine, then calls `welcome` or `close`

`LinkTable` has the connections of each machine on one node: at most one that is not welcomed yet,
and the newest of the others. Connections on different nodes are ordered by the numbers that the
database gives them.

Invariants:

- An event is acknowledged only after it is stored, together with all events before it: the caller
  stores the events of a connection in their order.
- An event is returned at most once per connection. It may be returned again on a later connection,
  with the same id; the caller stores it once.
- A refusal is acknowledged as soon as it is returned: the audit log takes it at once, buffers and
  limits it, and stores no number of it. So there are no cursors for refusals here, and a refusal
  that is sent again is recorded again.
- What arrives on a connection that the database does not have as the machine's newest never
  changes the number of its newest stored event: the caller checks that when it stores. Such an
  event may be of a journal that has been lost since, whose numbers denote other events now.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import Generic, Protocol, TypeVar

from outrider.contract.events import NEGOTIATED_EVENTS
from outrider.contract.frames import (
    HELLO_TIMEOUT,
    PROTOCOL_VERSION,
    Acknowledge,
    AcknowledgeRefusals,
    CloseCode,
    DecodeError,
    Delta,
    Event,
    FromDaemon,
    FromService,
    Goodbye,
    Hello,
    Refusal,
    WatchDeltas,
    Welcome,
    decode_from_daemon,
    hello_protocol,
)
from outrider.contract.limits import EventAllowance


@dataclass(frozen=True)
class Closing:
    """How to close a connection."""

    code: CloseCode
    reason: str


class _State(Enum):
    AWAITING_HELLO = auto()
    ADMITTING = auto()
    SERVING = auto()
    CLOSED = auto()


class ServiceLink:
    """The protocol state of one connection. Times are seconds of a monotonic clock.

    Attributes:
        number: higher than those of the machine's earlier connections; 0 until it is known.
        is_moving: whether the machine was asked to connect to another node: results arrive there.
        closing: how to close the connection; None if it stays open.
        deadline: when to call `tick`, None if it need not be called.
    """

    def __init__(self, hello_timeout: float = HELLO_TIMEOUT) -> None:
        self._hello_timeout = hello_timeout
        self._state = _State.AWAITING_HELLO
        self.deadline: float | None = None
        self.closing: Closing | None = None
        self.is_moving = False
        self.number = 0
        self._newest = self._stored = self._acknowledged = 0
        """The numbers of the newest event that was returned, stored, and acknowledged."""
        self._watches_deltas = False
        self._allowance: EventAllowance | None = None
        self._events: list[FromDaemon] = []
        self._frames: list[FromService] = []

    @property
    def is_closed(self) -> bool:
        """Whether the connection is lost, or is to be closed."""
        return self._state is _State.CLOSED

    # Output

    def events(self) -> list[FromDaemon]:
        """Return the frames of the machine that the caller has to handle, in their order, once.

        - A hello: register the machine, then call `welcome` or `close`.
        - An event: store it, then call `event_stored`.
        - A result, perhaps of a command that nobody waits for; a refusal, which is acknowledged
          already; a snapshot or change; a delta of a session that was asked for; a goodbye.
        """
        events, self._events = self._events, []
        return events

    def frames(self) -> list[FromService]:
        """Return the frames to send now, in this order; each is returned once.

        One acknowledgement covers all events that were stored since the last one.
        """
        frames, self._frames = self._frames, []
        if self._stored > self._acknowledged and not self.is_closed:
            self._acknowledged = self._stored
            frames.append(Acknowledge(seq=self._stored))
        return frames

    # Input

    def accepted(self, now: float) -> None:
        """Report that the upgrade is accepted: the hello must arrive within `hello_timeout`."""
        if not self.is_closed:
            self.deadline = now + self._hello_timeout

    def receive(self, message: str | bytes, now: float) -> None:
        """Report a message that has arrived. Read none between a hello and its welcome."""
        if self._state is _State.SERVING:
            try:
                self._receive(decode_from_daemon(message), now, len(message))
            except DecodeError as error:
                self.close(CloseCode.BAD_FRAME, str(error))
        elif self._state is _State.AWAITING_HELLO:
            self._receive_first(message)
        elif self._state is _State.ADMITTING:
            raise RuntimeError("Read no message between a hello and its welcome")
        # else it is closed: the message arrived before the caller had closed the socket

    def tick(self, now: float) -> None:
        """Do what is due at `now`."""
        if self.deadline is not None and now >= self.deadline:
            reason = f"No hello within {self._hello_timeout:g} seconds"
            self.close(CloseCode.HELLO_TIMEOUT, reason)

    def welcome(
        self,
        *,
        daemon_id: str,
        nickname: str,
        version: str,
        acknowledged: int,
        number: int,
        allowance: EventAllowance | None = None,
    ) -> None:
        """Accept the machine, unless the connection is closed.

        Args:
            version: of the service.
            acknowledged: the number of the machine's newest stored event.
            number: of this connection.
            allowance: the events that the machine may send, shared with its other connections.
        """
        if self.is_closed:
            return
        self._state = _State.SERVING
        self.number = number
        self._newest = self._stored = self._acknowledged = acknowledged
        self._allowance = allowance or EventAllowance()
        self._frames.append(
            Welcome(
                protocol=PROTOCOL_VERSION,
                version=version,
                daemon_id=daemon_id,
                nickname=nickname,
                acknowledged=acknowledged,
                events=sorted(NEGOTIATED_EVENTS),
            )
        )

    def event_stored(self, seq: int) -> None:
        """Report that an event, and all events returned before it, are stored."""
        self._stored = max(self._stored, seq)

    def watch_deltas(self, sessions: list[str] | None) -> None:
        """Ask the machine for the deltas of these sessions; None: of all. Off at first."""
        self._watches_deltas = sessions != []
        self._frames.append(WatchDeltas(sessions=sessions))

    def move(self, reason: str, reconnect_ms: int) -> None:
        """Have the machine connect to another node within a time."""
        self.is_moving = True
        self._frames.append(Goodbye(reason=reason, reconnect_ms=reconnect_ms))

    def stop(self, reason: str) -> None:
        """Send a goodbye because the service stops, and close the connection."""
        self._frames.append(Goodbye(reason=reason))
        self.close(CloseCode.GOING_AWAY, reason)

    def close(self, code: CloseCode, reason: str) -> None:
        """Have the connection closed. Does nothing if it is closed or lost."""
        if not self.is_closed:
            self.closing = Closing(code, reason)
            self.lost()

    def lost(self) -> None:
        """Report that the connection is lost."""
        self._state = _State.CLOSED
        self.deadline = None

    def _receive_first(self, message: str | bytes) -> None:
        version = hello_protocol(message)
        if version is not None and version != PROTOCOL_VERSION:
            is_newer = version > PROTOCOL_VERSION
            self.close(
                CloseCode.UNSUPPORTED_VERSION,
                f"This service speaks protocol {PROTOCOL_VERSION}, not {version}: "
                f"update the {'service' if is_newer else 'machine agent'}",
            )
            return
        try:
            frame = decode_from_daemon(message)
        except DecodeError as error:
            self.close(CloseCode.BAD_FRAME, str(error))
            return
        if isinstance(frame, Hello):
            self._state = _State.ADMITTING
            self.deadline = None
            self._events.append(frame)
        else:
            self.close(CloseCode.BAD_FRAME, "The first frame must be a hello")

    def _receive(self, frame: FromDaemon | None, now: float, size: int) -> None:
        match frame:
            case None | Hello():
                return  # a frame of a newer version, or one that has no meaning now
            case Event():
                self._receive_event(frame, now, size)
                return
            case Delta() if not self._watches_deltas:
                return  # it was sent before the machine knew
            case Refusal(seq=seq):
                self._frames.append(AcknowledgeRefusals(seq=seq))
        self._events.append(frame)

    def _receive_event(self, event: Event, now: float, size: int) -> None:
        assert self._allowance is not None  # set by `welcome`
        if (reason := self._allowance.refusal(now, size)) is not None:
            self.close(CloseCode.TOO_MANY_EVENTS, reason)
        elif event.seq > self._newest:
            self._newest = event.seq
            self._events.append(event)
        elif event.seq <= self._stored:
            # The machine has not received the acknowledgement: send it again.
            self._acknowledged = min(self._acknowledged, event.seq - 1)


class HasLink(Protocol):
    """What a `LinkTable` holds: the caller's end of a connection."""

    @property
    def link(self) -> ServiceLink:
        """The protocol state of the connection."""


ConnectionT = TypeVar("ConnectionT", bound=HasLink)


class LinkTable(Generic[ConnectionT]):
    """The connections of each machine on one node, by the machine's id.

    A connection that a method returns is closed by that: send its frames and close its socket.
    """

    def __init__(self) -> None:
        self._unwelcomed: dict[str, ConnectionT] = {}
        self._newest: dict[str, ConnectionT] = {}

    def __len__(self) -> int:
        return len(self._newest)

    def __iter__(self) -> Iterator[ConnectionT]:
        return iter(list(self._newest.values()))

    def newest(self, machine: str) -> ConnectionT | None:
        """Return the machine's newest connection, None if it has none here."""
        return self._newest.get(machine)

    def accept(self, machine: str, connection: ConnectionT) -> ConnectionT | None:
        """Add a connection that has to send its hello; return the one that it supersedes.

        A machine has one such connection, because what they may keep in memory is limited.
        """
        older = self._unwelcomed.get(machine)
        self._unwelcomed[machine] = connection
        if older is not None:
            older.link.close(CloseCode.TRY_AGAIN_LATER, "A newer connection says hello")
        return older

    def admit(self, machine: str, connection: ConnectionT) -> ConnectionT | None:
        """Make a connection the machine's newest, after its hello; return the older one."""
        if self._unwelcomed.get(machine) is connection:
            del self._unwelcomed[machine]
        older = self._newest.get(machine)
        self._newest[machine] = connection
        if older is not None:
            older.link.close(CloseCode.REPLACED, "A newer connection of this machine took over")
        return older

    def evict(
        self, machine: str, code: CloseCode, reason: str, claimed_by: int | None = None
    ) -> ConnectionT | None:
        """Remove and return the machine's newest connection, None if there is none.

        Args:
            claimed_by: the number of a connection on another node. A connection here that is not
                older than that stays, and so does one without a number: it is about to get one.
        """
        connection = self._newest.get(machine)
        if connection is None:
            return None
        number = connection.link.number
        if claimed_by is not None and (not number or number >= claimed_by):
            return None
        del self._newest[machine]
        connection.link.close(code, reason)
        return connection

    def remove(self, machine: str, connection: ConnectionT) -> bool:
        """Remove a connection that has ended; return whether it was the machine's newest."""
        if self._unwelcomed.get(machine) is connection:
            del self._unwelcomed[machine]
        if self._newest.get(machine) is not connection:
            return False
        del self._newest[machine]
        return True
