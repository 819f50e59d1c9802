"""Thousands of machines in one process, each with a protocol-true connection of its own.

Run as `python -m benchmarks.fleet.simulator MACHINES CONTROL URL...`: a file of JSON lines (the
id and the token of each machine), the Unix socket to take orders on (`benchmarks.fleet.orders`),
and the service's addresses, among which each connection chooses by chance, as a load balancer
does: an address that nothing listens on is passed over.
"""

import asyncio
import gc
import random
import sys
import time
from collections import Counter, deque
from pathlib import Path

import msgspec
import uvloop

from benchmarks.fleet.machine import Enrolled, SimulatedMachine
from benchmarks.fleet.member import Member
from benchmarks.fleet.orders import Connect, Fail, Order, StayAway, Tell, Told, Work
from benchmarks.fleet.socket import connect


class Fleet:
    """The machines, and what has happened to them."""

    def __init__(self, enrolled: list[Enrolled], urls: list[str]) -> None:
        self._urls = urls
        self._members = [
            Member(SimulatedMachine(machine, number), self._dial, self)
            for number, machine in enumerate(enrolled)
        ]
        self._waiting = deque(self._members)
        self._first: set[Member] = set()
        """Those that connect for the first time, and are not there yet."""
        self._at_once = 0
        self._wanted = 0
        self._connected = self._attempts = self._refused = self._answered = 0
        self._closed: Counter[int] = Counter()
        self._came_back, self._longest_away = 0, 0.0
        self._dialling: set[asyncio.Task[None]] = set()
        self._work: asyncio.Task[None] | None = None
        self._dropping: asyncio.Task[None] | None = None
        self._faults = Fail(0, 0, 0)
        self._late = 0

    def obey(self, order: Order) -> Told:
        """Carry an order out, and tell how the fleet is."""
        match order:
            case Connect(count=count, at_once=at_once):
                self._wanted, self._at_once = count, at_once
                self._fill()
            case Work(turns_per_second=rate):
                if self._work is not None:
                    self._work.cancel()
                self._work = asyncio.create_task(self._keep_working(rate)) if rate else None
            case Fail(drops_per_second=rate):
                self._faults = order
                if self._dropping is not None:
                    self._dropping.cancel()
                self._dropping = asyncio.create_task(self._keep_dropping(rate)) if rate else None
            case StayAway(machines=machines):
                for member in self._members:
                    if member.machine.daemon_id in machines:
                        member.stay_away()
            case Tell():
                pass
        return Told(
            connected=self._connected,
            attempts=self._attempts,
            refused=self._refused,
            answered=self._answered,
            late=self._late,
            waiting_events=sum(len(member.machine.unstored) for member in self._members),
            closed=dict(self._closed),
            came_back=self._came_back,
            longest_away=self._longest_away,
            cpu_seconds=time.process_time(),
        )

    def connected(self, member: Member, seconds_away: float | None) -> None:
        """Count a welcome."""
        self._connected += 1
        if seconds_away is not None:
            self._came_back += 1
            self._longest_away = max(self._longest_away, seconds_away)
        self._first.discard(member)
        self._fill()

    def lost(self, code: int | None) -> None:
        """Count a connection that ended."""
        self._connected -= 1
        self._closed[code or 0] += 1

    def refused(self) -> None:
        """Count a machine that will not come back."""
        self._refused += 1

    def answered(self) -> None:
        """Count an answer."""
        self._answered += 1

    def delay(self) -> float:
        """Return how many seconds to hold the next answer back."""
        if random.random() >= self._faults.late_share:
            return 0
        self._late += 1
        return self._faults.late_seconds

    def _fill(self) -> None:
        """Let as many begin to connect as may be under way."""
        begun = len(self._members) - len(self._waiting)
        while self._waiting and begun < self._wanted and len(self._first) < self._at_once:
            member = self._waiting.popleft()
            begun += 1
            self._first.add(member)
            member.connect()

    def _dial(self, member: Member) -> None:
        task = asyncio.create_task(self._open(member))
        self._dialling.add(task)
        task.add_done_callback(self._dialling.discard)

    async def _open(self, member: Member) -> None:
        self._attempts += 1
        for url in random.sample(self._urls, len(self._urls)):
            try:
                await connect(url, member.machine.token, member.opened, member.heard, member.ended)
            except OSError:
                continue
            return
        member.failed()

    async def _keep_working(self, turns_per_second: float) -> None:
        while True:
            await asyncio.sleep(random.expovariate(turns_per_second))
            random.choice(self._members).work()

    async def _keep_dropping(self, drops_per_second: float) -> None:
        while True:
            await asyncio.sleep(random.expovariate(drops_per_second))
            random.choice(self._members).drop()


def read(file: Path) -> list[Enrolled]:
    """Return the machines of a file."""
    return [msgspec.json.decode(line, type=Enrolled) for line in file.read_bytes().splitlines()]


async def run(machines: list[Enrolled], control: Path, urls: list[str]) -> None:
    """Take orders until the process ends."""
    fleet = Fleet(machines, urls)
    decode = msgspec.json.Decoder(Order).decode

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(msgspec.json.encode(fleet.obey(decode(line))) + b"\n")
        writer.close()

    server = await asyncio.start_unix_server(serve, control, limit=2**24)
    await server.serve_forever()


if __name__ == "__main__":
    gc.disable()  # it would look through all the machines again and again, while commands wait
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run(read(Path(sys.argv[1])), Path(sys.argv[2]), sys.argv[3:]))
