"""Thousands of machines in one process, each with a protocol-true connection of its own.

Run as `python -m benchmarks.simulator MACHINES CONTROL URL...`: a file of JSON lines (the
id and the token of each machine), the Unix socket to be controlled on (see `control`),
and the service's addresses. Each connection tries them in a random order, like a load balancer.
"""

import asyncio
import gc
import random
import sys
from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path

import msgspec
import uvloop

from benchmarks.simulator.control import (
    Connect,
    DisableReconnect,
    FleetStatus,
    InjectFaults,
    Request,
    SetTurnRate,
)
from benchmarks.simulator.machine import Enrolled, SimulatedMachine
from benchmarks.simulator.socket import connect


class Fleet:
    """The machines, and what has happened to them."""

    def __init__(self, enrolled: list[Enrolled], urls: list[str]) -> None:
        self._urls = urls
        self._machines = [
            SimulatedMachine(machine, number, self._dial, self)
            for number, machine in enumerate(enrolled)
        ]
        self._not_started = deque(self._machines)
        self._starting: set[SimulatedMachine] = set()
        """Machines that connect for the first time and are not connected yet."""
        self._target = Connect(0, 0)
        self._faults = InjectFaults(0, 0, 0)
        self._dialling: set[asyncio.Task[None]] = set()
        self._turns: asyncio.Task[None] | None = None
        self._drops: asyncio.Task[None] | None = None
        self._status = FleetStatus(0, 0, 0, 0, 0, {}, 0, 0.0)
        self._closed: Counter[int] = Counter()

    def handle(self, request: Request) -> FleetStatus:
        """Carry out a request; return the status after it."""
        match request:
            case Connect():
                self._target = request
                self._start_machines()
            case SetTurnRate(turns_per_second=rate):
                self._turns = self._repeat(self._turns, rate, SimulatedMachine.turn)
            case InjectFaults(drops_per_second=rate):
                self._faults = request
                self._drops = self._repeat(self._drops, rate, SimulatedMachine.drop)
            case DisableReconnect(machines=ids):
                for machine in self._machines:
                    machine.can_reconnect = machine.daemon_id not in ids
        self._status.waiting_events = sum(machine.waiting_events for machine in self._machines)
        self._status.closed = dict(self._closed)
        return self._status

    def connected(self, machine: SimulatedMachine, seconds_away: float | None) -> None:
        """Count a welcome."""
        self._status.connected += 1
        if seconds_away is not None:
            self._status.reconnected += 1
            self._status.longest_away = max(self._status.longest_away, seconds_away)
        self._starting.discard(machine)
        self._start_machines()

    def lost(self, code: int | None) -> None:
        """Count a connection that was lost."""
        self._status.connected -= 1
        self._closed[code or 0] += 1

    def refused(self) -> None:
        """Count a machine that does not reconnect."""
        self._status.refused += 1

    def answered(self) -> None:
        """Count an answer."""
        self._status.answered += 1

    def delay(self) -> float:
        """Return how many seconds to delay the next answer."""
        if random.random() >= self._faults.delayed_share:
            return 0
        self._status.delayed += 1
        return self._faults.delay_seconds

    def _start_machines(self) -> None:
        """Connect as many machines as are wanted and may connect at the same time."""
        started = len(self._machines) - len(self._not_started)
        while (
            self._not_started
            and started < self._target.count
            and len(self._starting) < self._target.at_once
        ):
            machine = self._not_started.popleft()
            started += 1
            self._starting.add(machine)
            machine.connect()

    def _dial(self, machine: SimulatedMachine, number: int) -> None:
        task = asyncio.create_task(self._open(machine, number))
        self._dialling.add(task)
        task.add_done_callback(self._dialling.discard)

    async def _open(self, machine: SimulatedMachine, number: int) -> None:
        for url in random.sample(self._urls, len(self._urls)):
            try:
                await connect(url, machine.token, number, machine)
            except OSError:
                continue
            return
        machine.socket_closed(number, None)

    def _repeat(
        self,
        previous: asyncio.Task[None] | None,
        per_second: float,
        action: Callable[[SimulatedMachine], None],
    ) -> asyncio.Task[None] | None:
        """Apply `action` to random machines from now on; stop the task that did so before."""
        if previous is not None:
            previous.cancel()

        async def repeat() -> None:
            while True:
                await asyncio.sleep(random.expovariate(per_second))
                action(random.choice(self._machines))

        return asyncio.create_task(repeat()) if per_second else None


def read(file: Path) -> list[Enrolled]:
    """Return the machines of a file."""
    return [msgspec.json.decode(line, type=Enrolled) for line in file.read_bytes().splitlines()]


async def run(machines: list[Enrolled], control: Path, urls: list[str]) -> None:
    """Handle requests until the process ends."""
    fleet = Fleet(machines, urls)
    decode = msgspec.json.Decoder(Request).decode

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(msgspec.json.encode(fleet.handle(decode(line))) + b"\n")
        writer.close()

    server = await asyncio.start_unix_server(serve, control, limit=2**24)
    await server.serve_forever()


if __name__ == "__main__":
    gc.disable()  # a collection would visit every machine, while commands wait
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run(read(Path(sys.argv[1])), Path(sys.argv[2]), sys.argv[3:]))
