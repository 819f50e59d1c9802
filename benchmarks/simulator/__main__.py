"""Thousands of machines in one process, each with a protocol-true connection of its own.

Run as `python -m benchmarks.simulator MACHINES CONTROL URL...`: a file of JSON lines (the
id and the token of each machine), the Unix socket to be controlled on (see the package),
and the service's addresses. Each connection tries them in a random order, like a load balancer.
"""

import asyncio
import gc
import random
import sys
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
import uvloop

from benchmarks.simulator import Enrolled, FleetStatus, Order
from benchmarks.simulator.machine import SimulatedMachine, connect

_AT_ONCE: Final = 200
"""Machines that connect for the first time at the same time; when they reconnect, all do."""

_LATE_SECONDS: Final = 5.0


class Fleet:
    """The machines, and what has happened to them."""

    def __init__(self, enrolled: list[Enrolled], urls: list[str]) -> None:
        self._urls = urls
        self._machines = [
            SimulatedMachine(machine, number, self) for number, machine in enumerate(enrolled)
        ]
        self._not_started = deque(self._machines)
        self._starting: set[SimulatedMachine] = set()
        """Machines that connect for the first time and are not connected yet."""
        self._wanted = 0
        self._late_share = 0.0
        self._dialling: set[asyncio.Task[None]] = set()
        self._repeated: dict[str, asyncio.Task[None]] = {}
        self.status = FleetStatus()

    def handle(self, order: Order) -> FleetStatus:
        """Carry out an order; return the status after it."""
        if order.connect is not None:
            self._wanted = order.connect
            self._start_machines()
        self._repeat("turns", order.turns, SimulatedMachine.turn)
        self._repeat("drops", order.drops, SimulatedMachine.drop)
        if order.late_share is not None:
            self._late_share = order.late_share
        if order.away is not None:
            for machine in self._machines:
                machine.can_reconnect = machine.daemon_id not in order.away
        self.status.waiting_events = sum(machine.waiting_events for machine in self._machines)
        return self.status

    def connected(self, machine: SimulatedMachine, seconds_away: float | None) -> None:
        """Count a welcome; `seconds_away` is how long it had been disconnected, if it was."""
        self.status.connected += 1
        if seconds_away is not None:
            self.status.reconnected += 1
            self.status.longest_away = max(self.status.longest_away, seconds_away)
        self._starting.discard(machine)
        self._start_machines()

    def lost(self) -> None:
        """Count a machine's loss of its connection."""
        self.status.connected -= 1
        self.status.closed += 1

    def delay(self) -> float:
        """Count an answer to a command; return how many seconds to delay it."""
        self.status.answered += 1
        if random.random() >= self._late_share:
            return 0
        self.status.delayed += 1
        return _LATE_SECONDS

    def dial(self, machine: SimulatedMachine, number: int) -> None:
        """Open a socket for a machine under a number.

        It ends in `socket_opened` or `socket_closed` of the machine.
        """
        task = asyncio.create_task(self._open(machine, number))
        self._dialling.add(task)
        task.add_done_callback(self._dialling.discard)

    async def _open(self, machine: SimulatedMachine, number: int) -> None:
        for url in random.sample(self._urls, len(self._urls)):
            try:
                await connect(url, number, machine)
            except OSError:
                continue
            return
        machine.socket_closed(number, None)

    def _start_machines(self) -> None:
        """Connect as many machines as are wanted and may connect at the same time."""
        started = len(self._machines) - len(self._not_started)
        while self._not_started and started < self._wanted and len(self._starting) < _AT_ONCE:
            machine = self._not_started.popleft()
            started += 1
            self._starting.add(machine)
            machine.connect()

    def _repeat(
        self, name: str, per_second: float | None, action: Callable[[SimulatedMachine], None]
    ) -> None:
        """Apply `action` to random machines from now on."""

        async def repeat(rate: float) -> None:
            while True:
                await asyncio.sleep(random.expovariate(rate))
                action(random.choice(self._machines))

        if per_second is not None:
            if (previous := self._repeated.pop(name, None)) is not None:
                previous.cancel()
            if per_second:
                self._repeated[name] = asyncio.create_task(repeat(per_second))


async def run(machines: list[Enrolled], control: Path, urls: list[str]) -> None:
    """Handle orders until the process ends."""
    fleet = Fleet(machines, urls)
    decode = msgspec.json.Decoder(Order).decode

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(msgspec.json.encode(fleet.handle(decode(line))) + b"\n")
        writer.close()

    server = await asyncio.start_unix_server(serve, control, limit=2**24)
    await server.serve_forever()


if __name__ == "__main__":
    gc.disable()  # a collection would visit every machine, while commands wait
    lines = Path(sys.argv[1]).read_bytes().splitlines()
    enrolled = [msgspec.json.decode(line, type=Enrolled) for line in lines]
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run(enrolled, Path(sys.argv[2]), sys.argv[3:]))
