"""How a benchmark controls the simulator: requests and responses as JSON lines on a Unix socket."""

import socket
import time
from pathlib import Path
from typing import Final

import msgspec

_RESPONSE_SECONDS: Final = 30.0


class Connect(msgspec.Struct, tag=True):
    """Connect machines until `count` are connected, `at_once` at the same time."""

    count: int
    at_once: int


class SetTurnRate(msgspec.Struct, tag=True):
    """From now on begin or end so many turns of agents a second."""

    turns_per_second: float


class InjectFaults(msgspec.Struct, tag=True):
    """From now on drop so many sockets a second, and delay this share of the answers."""

    drops_per_second: float
    delayed_share: float
    delay_seconds: float


class DisableReconnect(msgspec.Struct, tag=True):
    """Do not reconnect these machines (by their ids) once their connection ends."""

    machines: list[str]


class GetStatus(msgspec.Struct, tag=True):
    """Only return the status."""


Request = Connect | SetTurnRate | InjectFaults | DisableReconnect | GetStatus


class FleetStatus(msgspec.Struct):
    """The state of the fleet: `connected` is of now, the other counts are since the start.

    `closed` counts lost connections by close code (0 for none). `longest_away` is the longest
    time in seconds for which a machine that reconnected was disconnected.
    """

    connected: int
    refused: int
    answered: int
    delayed: int
    waiting_events: int
    closed: dict[int, int]
    reconnected: int
    longest_away: float


class SimulatorClient:
    """A client of the simulator that listens on a Unix socket."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(_RESPONSE_SECONDS)
        self._socket.connect(str(path))
        self._lines = self._socket.makefile("rb")

    @staticmethod
    def is_listening(path: Path) -> bool:
        """Return whether a simulator listens there."""
        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(str(path)) == 0

    def send(self, request: Request) -> FleetStatus:
        """Send a request, and return the status after it."""
        self._socket.sendall(msgspec.json.encode(request) + b"\n")
        return msgspec.json.decode(self._lines.readline(), type=FleetStatus)

    def wait_for(self, connected: int, seconds: float) -> FleetStatus:
        """Return the status once so many machines are connected, or `seconds` have passed."""
        deadline = time.monotonic() + seconds
        while True:
            status = self.send(GetStatus())
            if status.connected >= connected or time.monotonic() >= deadline:
                return status
            time.sleep(0.05)

    def close(self) -> None:
        """Close the connection to the simulator."""
        self._lines.close()
        self._socket.close()
