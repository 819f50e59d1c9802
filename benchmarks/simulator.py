"""Thousands of simulated machines on one event loop, in a thread of the benchmark.

A machine is the real agent's link and outbox, with two sessions that change and no agents; its
events are kept in memory.
"""

import asyncio
import gc
import os
import random
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import uvloop
from tests.contract.link.memory_log import MemoryLog
from tests.rig.samples import MACHINE, PROVIDER, session
from tests.rig.waiting import eventually

from benchmarks import scripted_machine
from benchmarks.processes import LOADING, BenchmarkError
from benchmarks.service import Server
from outrider.contract.commands import CommandType
from outrider.contract.enrollment import Enrolled
from outrider.contract.events import EventName
from outrider.contract.frames import Snapshot
from outrider.contract.link.outbox import Outbox
from outrider.contract.providers import BUILT_IN_TYPES
from outrider.contract.resources import Session, Workspace
from outrider.machine.commands.router import Router
from outrider.machine.link.connection import Link, LinkRefusedError
from outrider.machine.settings import Connection

_AT_ONCE: Final = 200
"""Machines that connect for the first time at the same time; when they reconnect, all do."""

_CONNECT_SECONDS: Final = 300.0
_PROVIDERS: Final = [
    msgspec.structs.replace(PROVIDER, type=kind, display_name=name)
    for kind, (category, name) in BUILT_IN_TYPES.items()
    if category == "cli"
]
_GIGABYTE: Final = 10**9


@contextmanager
def simulated(machines: Sequence[Enrolled], server: Server) -> Iterator["Fleet"]:
    """Provide a fleet of machines, none connected yet, for the length of a block."""
    gc.disable()  # a collection would visit every machine, while commands wait
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:  # ends what still runs
        loop = runner.get_loop()

        def run() -> None:
            if LOADING:
                os.sched_setaffinity(0, LOADING)  # of this thread
            loop.run_forever()

        thread = threading.Thread(target=run, name="machines", daemon=True)
        thread.start()
        try:
            yield Fleet(machines, server, loop)
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            gc.enable()


@dataclass
class FleetStatus:
    """The state of a fleet: `connected` is of now, the other counts are since the start."""

    connected: int = 0
    refused: int = 0
    answered: int = 0
    restarted: int = 0
    reconnected: int = 0


class Fleet:
    """Simulated machines. The methods are for the benchmark's thread."""

    def __init__(
        self, machines: Sequence[Enrolled], server: Server, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._loop = loop
        self.status = FleetStatus()
        self._machines = [
            SimulatedMachine(machine, number, server.url, self.status)
            for number, machine in enumerate(machines)
        ]
        self._started = 0

    def connect(self, count: int) -> float:
        """Connect machines, 200 at a time, until `count` are; return how long that took."""
        began = time.perf_counter()
        new = iter(self._machines[self._started : count])
        self._started = count

        async def connect_each() -> None:
            for machine in new:
                await machine.connect()

        async def connect() -> None:
            async with asyncio.TaskGroup() as group:
                for _ in range(_AT_ONCE):
                    group.create_task(connect_each())

        self._run(connect(), _CONNECT_SECONDS)
        return time.perf_counter() - began

    @contextmanager
    def at_work(self, turns: float, restarts: float = 0) -> Iterator[None]:
        """Keep random machines at work in this block.

        Args:
            turns: how many turns of agents begin or end per second.
            restarts: how many machine agents are killed and started again per second.
        """

        async def repeat(per_second: float, action: Callable[[SimulatedMachine], None]) -> None:
            while per_second:
                await asyncio.sleep(random.expovariate(per_second))
                action(random.choice(self._machines))

        work = repeat(turns, SimulatedMachine.turn), repeat(restarts, SimulatedMachine.restart)
        repeated = [asyncio.run_coroutine_threadsafe(each, self._loop) for each in work]
        try:
            yield
        finally:
            for future in repeated:
                if not future.cancel():
                    future.result()  # raise what ended it

    def wait_until_connected(self, count: int, seconds: float) -> None:
        """Wait until `count` machines are connected, and all their events stored.

        Raises:
            BenchmarkError: they are not within `seconds`.
        """

        def is_so() -> bool:
            return self.status.connected >= count and not any(
                machine.has_events for machine in self._machines
            )

        self._run(eventually(is_so, seconds), seconds + 1)

    def _run(self, work: Coroutine[Any, Any, None], seconds: float) -> None:
        try:
            asyncio.run_coroutine_threadsafe(work, self._loop).result(seconds)
        except (TimeoutError, AssertionError) as error:
            raise BenchmarkError(f"the fleet after {seconds:g} s: {self.status}") from error


class SimulatedMachine:
    """A machine with two sessions and five providers, which answers as the scripted one does.

    Its sessions differ from those of every other machine, as real ones do.
    """

    def __init__(self, enrolled: Enrolled, number: int, url: str, status: FleetStatus) -> None:
        self._connection = Connection(
            server=url,
            daemon_id=enrolled.daemon_id,
            token=enrolled.token,
            nickname=enrolled.nickname,
        )
        self._number = number
        self._status = status
        self._sessions = [_session("claude-code", number), _session("codex", number)]
        self._log = MemoryLog()
        self._outbox: Outbox
        self._running: asyncio.Task[None] | None = None
        self._connected = asyncio.Event()

    @property
    def has_events(self) -> bool:
        """Whether there are events that the service has not stored yet."""
        return bool(self._log.waiting)

    async def connect(self) -> None:
        """Make the first connection; return once the machine is welcome."""
        self._start()
        await self._connected.wait()

    def restart(self) -> None:
        """Kill the machine agent without a goodbye, and start it again."""
        if self._running is not None and self._connected.is_set():
            self._connected.clear()
            self._status.connected -= 1
            self._status.restarted += 1
            self._running.cancel()
            self._running.add_done_callback(lambda _: self._start())

    def turn(self) -> None:
        """Begin an agent's turn, or end it."""
        agent = self._sessions[0]
        starts = agent.status == "idle"
        agent.status = "generating" if starts else "idle"
        agent.last_activity_at = int(time.time() * 1000)
        event = scripted_machine.event(self._connection.daemon_id, agent)
        if starts:
            event.event, event.duration = EventName.GENERATING_STARTED, None
        self._outbox.session_changed(agent)
        self._outbox.event(event)

    def _start(self) -> None:
        self._outbox = Outbox(self._log)
        self._running = asyncio.create_task(self._run())

    async def _run(self) -> None:
        handlers = {kind: self._answer(kind) for kind in scripted_machine.RESULTS}
        link = Link(
            self._connection,
            outbox=self._outbox,
            router=Router(handlers),
            snapshot=self._snapshot,
            on_connected=self._welcomed,
        )
        try:
            await link.run(asyncio.Event())
        except LinkRefusedError:
            self._status.refused += 1

    def _welcomed(self) -> None:
        if not self._connected.is_set():
            self._connected.set()
            self._status.connected += 1
        else:
            self._status.reconnected += 1

    def _answer(self, kind: CommandType) -> Callable[[Any, float], Coroutine[Any, Any, Any]]:
        async def answer(_payload: object, _deadline: float) -> msgspec.Raw:
            self._status.answered += 1
            return scripted_machine.RESULTS[kind]

        return answer

    def _snapshot(self) -> Snapshot:
        load = round(random.uniform(0.05, 4), 2)
        machine = msgspec.structs.replace(
            MACHINE,
            hostname=f"worker-{self._number:05}",
            free_mem=random.randrange(4 * _GIGABYTE, 28 * _GIGABYTE),
            loadavg=[load, round(load * 0.9, 2), round(load * 0.7, 2)],
            uptime=round(time.monotonic() + self._number, 1),
        )
        return Snapshot(machine=machine, providers=_PROVIDERS, sessions=self._sessions)


def _session(agent: str, number: int) -> Session:
    now = int(time.time() * 1000)
    return session(
        type=agent,
        title=f"Move the shop to the new tax table ({number})",
        workspace=Workspace(path=f"/home/dev{number}/shop", name="shop"),
        created_at=now,
        last_activity_at=now,
    )
