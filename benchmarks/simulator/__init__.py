"""Simulated machines, thousands in one process (`python -m benchmarks.simulator`).

`machine` is one of them with its WebSocket. `benchmarks.fleet` directs them by JSON lines on a
Unix socket: an `Order` to them, a `FleetStatus` back.
"""

import msgspec


class Enrolled(msgspec.Struct, frozen=True):
    """A machine that the service knows: its id and the token that opens its socket."""

    daemon_id: str
    token: str


class Order(msgspec.Struct, omit_defaults=True):
    """What the fleet does from now on; what is None stays as it is.

    Attributes:
        connect: how many machines connect, 200 at the same time.
        turns: how many turns of agents begin or end per second.
        drops: how many sockets are lost per second.
        late_share: the share of the command results that are delayed, each by `late_seconds`.
        away: the ids of the machines that do not reconnect once their connection ends.
    """

    connect: int | None = None
    turns: float | None = None
    drops: float | None = None
    late_share: float | None = None
    away: list[str] | None = None


class FleetStatus(msgspec.Struct):
    """The state of the fleet: `connected` is of now, the other counts are since the start.

    `closed` counts lost connections. `longest_away` is the longest time in seconds for which a
    machine that reconnected was disconnected.
    """

    connected: int = 0
    refused: int = 0
    answered: int = 0
    delayed: int = 0
    waiting_events: int = 0
    closed: int = 0
    reconnected: int = 0
    longest_away: float = 0.0
