"""One machine of the fleet and its connection, made again by the real agent's rules."""

import asyncio
import random
import time
from collections.abc import Callable
from typing import Final, Protocol

from benchmarks.fleet.machine import SimulatedMachine
from benchmarks.fleet.socket import PACE, Socket
from outrider.contract.backoff import Backoff
from outrider.contract.frames import (
    Acknowledge,
    CloseCode,
    Command,
    FromDaemon,
    FromService,
    Goodbye,
    Welcome,
)
from outrider.contract.link.machine import MAX_RECONNECT_SECONDS

_REFUSALS: Final = frozenset(
    {CloseCode.UNAUTHORIZED, CloseCode.REPLACED, CloseCode.UNSUPPORTED_VERSION}
)

Dial = Callable[["Member"], None]


class Watcher(Protocol):
    """Counts what happens to the members of a fleet."""

    def connected(self, member: "Member", seconds_away: float | None) -> None:
        """A member was welcomed; again, where it was so many seconds without a connection."""

    def lost(self, code: int | None) -> None:
        """A member's only connection ended, with this close code if it had one."""

    def refused(self) -> None:
        """A member was refused for good."""

    def answered(self) -> None:
        """A member answered a command."""

    def delay(self) -> float:
        """Return how many seconds a member holds its next answer back."""


class Member:
    """A machine with at most one connection, and a second one while it moves to another node.

    Args:
        dial: opens a socket for the member that is given, and ends in `opened` or `failed`.
    """

    __slots__ = (
        "_away",
        "_backoff",
        "_current",
        "_dial",
        "_heartbeat",
        "_held",
        "_lost_at",
        "_opening",
        "_retry",
        "_since",
        "_watcher",
        "_welcome",
        "machine",
    )

    def __init__(self, machine: SimulatedMachine, dial: Dial, watcher: Watcher) -> None:
        self.machine = machine
        self._dial = dial
        self._watcher = watcher
        self._backoff = Backoff(random.random)
        self._current: Socket | None = None
        self._opening: Socket | None = None
        self._welcome: asyncio.TimerHandle | None = None
        self._heartbeat: asyncio.TimerHandle | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._held: list[FromDaemon] = []
        """What waits while a hello has no welcome yet."""
        self._lost_at: float | None = None
        self._since = 0.0
        self._away = False

    @property
    def is_connected(self) -> bool:
        """Whether it was welcomed over a connection that still stands."""
        return self._current is not None

    def connect(self) -> None:
        """Begin to connect."""
        self._retry = None
        if not self._away:
            self._dial(self)

    def stay_away(self) -> None:
        """Do not connect again once the connection has ended."""
        self._away = True

    def drop(self) -> None:
        """Lose the connection, without a close frame."""
        if self._current is not None:
            self._current.abort()

    def work(self) -> None:
        """Have an agent begin its turn, or end it."""
        change, event = self.machine.turn()
        self._say(change, event)

    def opened(self, socket: Socket) -> None:
        """Say hello over a new WebSocket."""
        self._opening = socket
        self._welcome = _later(PACE.welcome_timeout, socket.abort)
        socket.send(self.machine.hello())

    def failed(self) -> None:
        """Take it that no connection was to be had."""
        self._connect_again()

    def heard(self, socket: Socket, frame: FromService) -> None:
        """Take a frame."""
        match frame:
            case Command():
                answer = self.machine.answer(frame)
                if delay := self._watcher.delay():
                    _later(delay, lambda: self._say(answer))
                else:
                    self._say(answer)
                self._watcher.answered()
            case Welcome(acknowledged=acknowledged):
                self._welcomed(socket, acknowledged)
            case Acknowledge(seq=seq):
                self.machine.stored(seq)
            case Goodbye(reconnect_ms=millis) if millis:
                self._move(min(millis / 1000, MAX_RECONNECT_SECONDS) * random.random())

    def ended(self, socket: Socket, code: int | None) -> None:
        """Take it that a connection has ended, or never became one."""
        if socket is self._current:
            self._current = None
            self._lost_at = time.monotonic()
            _cancel(self._heartbeat)
            self._watcher.lost(code)
            if self._lost_at - self._since >= PACE.stable_after:
                self._backoff.reset()
        elif socket is self._opening:
            self._opening = None
            _cancel(self._welcome)
            self._say()
        elif self._current is not None:
            return  # an old one, after its successor's welcome
        if self._opening is not None or self._retry is not None:
            return  # it is on its way to another node
        if code in _REFUSALS:
            self._watcher.refused()
        else:
            self._connect_again()

    def _welcomed(self, socket: Socket, acknowledged: int) -> None:
        _cancel(self._welcome)
        moved = self._current is not None
        self._opening, self._current = None, socket
        now = time.monotonic()
        lost_at, self._lost_at, self._since = self._lost_at, None, now
        for event in self.machine.welcomed(acknowledged):
            socket.send(event)
        self._say()
        _cancel(self._heartbeat)
        self._heartbeat = _later(PACE.report_interval, self._beat)
        if not moved:
            self._watcher.connected(self, None if lost_at is None else now - lost_at)

    def _say(self, *frames: FromDaemon) -> None:
        """Send frames, those that were held first; none between a hello and its welcome."""
        self._held += frames
        if self._opening is None:
            held, self._held = self._held, []
            if self._current is not None:
                for frame in held:
                    self._current.send(frame)

    def _beat(self) -> None:
        self._say(self.machine.heartbeat())
        self._heartbeat = _later(PACE.report_interval, self._beat)

    def _move(self, seconds: float) -> None:
        """Make the next connection before the one that stands ends."""
        if self._retry is None and self._opening is None:
            self._retry = _later(seconds, self.connect)

    def _connect_again(self) -> None:
        if self._retry is None and self._opening is None:
            self._retry = _later(self._backoff.next(), self.connect)


def _later(seconds: float, what: Callable[[], None]) -> asyncio.TimerHandle:
    return asyncio.get_running_loop().call_later(seconds, what)


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
