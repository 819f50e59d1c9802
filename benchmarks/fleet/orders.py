"""What the simulator can be told to do, and what it tells of itself: JSON lines on a socket."""

import socket
import time
from pathlib import Path
from typing import Final

import msgspec

_ANSWER_SECONDS: Final = 30.0


class Connect(msgspec.Struct, tag=True):
    """Have machines connect until `count` of them do, with `at_once` of them under way at once."""

    count: int
    at_once: int


class Work(msgspec.Struct, tag=True):
    """Have so many agents a second begin or end a turn, from now on."""

    turns_per_second: float


class Fail(msgspec.Struct, tag=True):
    """From now on drop so many sockets a second, and answer this share of the commands late.

    A late answer comes after `late_seconds`.
    """

    drops_per_second: float
    late_share: float
    late_seconds: float


class StayAway(msgspec.Struct, tag=True):
    """Have these machines (by their ids) not come back once their connection ends."""

    machines: list[str]


class Tell(msgspec.Struct, tag=True):
    """Only tell how it is."""


Order = Connect | Work | Fail | StayAway | Tell


class Told(msgspec.Struct):
    """How the fleet is. The counts but `connected` are since the start.

    `late` counts the answers that were held back, `closed` lost connections by close code (0 for
    none). `longest_away` is the longest time in seconds for which a machine that came back was
    without a connection.
    """

    connected: int
    attempts: int
    refused: int
    answered: int
    late: int
    waiting_events: int
    closed: dict[int, int]
    came_back: int
    longest_away: float
    cpu_seconds: float


class Orders:
    """The way to a simulator that listens on a Unix socket."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(_ANSWER_SECONDS)
        self._socket.connect(str(path))
        self._lines = self._socket.makefile("rb")

    @staticmethod
    def taken_at(path: Path) -> bool:
        """Tell whether a simulator listens there."""
        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(str(path)) == 0

    def give(self, order: Order) -> Told:
        """Give an order, and return how the fleet is then."""
        self._socket.sendall(msgspec.json.encode(order) + b"\n")
        return msgspec.json.decode(self._lines.readline(), type=Told)

    def wait_for(self, connected: int, seconds: float) -> Told:
        """Return as soon as so many are connected, or once the time is over."""
        deadline = time.monotonic() + seconds
        while (told := self.give(Tell())).connected < connected and time.monotonic() < deadline:
            time.sleep(0.05)
        return told

    def close(self) -> None:
        """Let go of the simulator."""
        self._lines.close()
        self._socket.close()
