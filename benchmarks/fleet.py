"""What thousands of simulated machines cost one node."""

import asyncio
import resource
import time
from pathlib import Path
from typing import Final

import msgspec
from sqlalchemy import insert

from benchmarks.command import Options, main
from benchmarks.processes import LOADING, SERVING, BenchmarkError, Program, Stage, stage
from benchmarks.report import Figure, Report, Section, Target, compared, plural
from benchmarks.service import Installation, Server, status_path
from benchmarks.sides import Run
from benchmarks.simulator.control import (
    Connect,
    FleetStatus,
    GetStatus,
    SetTurnRate,
    SimulatorClient,
)
from benchmarks.simulator.machine import Enrolled
from benchmarks.wrk import Request, load, require_wrk
from outrider.cloud.access import credentials
from outrider.cloud.store import tables
from outrider.cloud.store.database import Database
from outrider.contract.ids import new_id

MACHINES: Final = 10_000
"""How many machines a fleet has by default."""

PER_ACCOUNT: Final = 100


def enroll(url: str, account: str, count: int, file: Path) -> list[Enrolled]:
    """Enroll machines, the first `PER_ACCOUNT` in `account`, each further hundred in a new one.

    Args:
        url: the database's address for SQLAlchemy.
        file: is written, for the simulator.
    """
    machines = [Enrolled(new_id("machine"), credentials.new_machine_token()) for _ in range(count)]
    others = [new_id("acct") for _ in range((count - 1) // PER_ACCOUNT)]
    asyncio.run(_insert(url, [account, *others], machines))
    file.touch(mode=0o600)
    file.write_bytes(b"".join(msgspec.json.encode(machine) + b"\n" for machine in machines))
    return machines


async def _insert(url: str, accounts: list[str], machines: list[Enrolled]) -> None:
    now = int(time.time() * 1000)
    database = Database(url)
    try:
        async with database.begin() as transaction:
            if accounts[1:]:
                await transaction.execute(
                    insert(tables.accounts),
                    [
                        {"id": account, "plan": "enterprise", "created_at": now}
                        for account in accounts[1:]
                    ],
                )
            await transaction.execute(
                insert(tables.machines),
                [
                    {
                        "id": machine.daemon_id,
                        "account_id": accounts[number // PER_ACCOUNT],
                        "nickname": f"worker {number}",
                        "hostname": f"worker-{number:05}",
                        "platform": "linux",
                        "version": "0",
                        "token_hash": credentials.digest(machine.token),
                        "created_at": now,
                        "connected": False,
                    }
                    for number, machine in enumerate(machines)
                ],
            )
    finally:
        await database.close()


_FILES_BESIDE: Final = 500
_AT_ONCE: Final = 200
"""Machines that connect at the same time, where they are not a herd."""


class Fleet:
    """The simulator at work.

    Args:
        urls: where the machines connect.
        machines: what the simulator plays, written in `file`.
    """

    def __init__(self, here: Stage, machines: list[Enrolled], file: Path, urls: list[str]) -> None:
        self.machines = machines
        control = here.directory / "simulator.sock"
        control.unlink(missing_ok=True)
        self.program: Program = here.start(
            "simulator",
            ["-m", "benchmarks.simulator", str(file), str(control), *urls],
            {},
            LOADING,
        )
        self.program.wait_until(lambda: SimulatorClient.is_listening(control), "listening")
        self.simulator = SimulatorClient(control)

    def connect(self, count: int, seconds: float = 300) -> tuple[float, FleetStatus]:
        """Connect machines until `count` are connected; return how long that took."""
        began = time.perf_counter()
        self.simulator.send(Connect(count, _AT_ONCE))
        status = self.simulator.wait_for(count, seconds)
        self.program.check()
        if status.connected < count:
            raise BenchmarkError(f"of {count} machines {status.connected} are connected: {status}")
        return time.perf_counter() - began, status

    def end(self) -> None:
        """End it."""
        self.simulator.close()
        self.program.end()


def started(here: Stage, count: int) -> tuple[Server, Fleet]:
    """Start a single node with SQLite, and the simulator of its machines, none connected yet."""
    raise_file_limit(count + _FILES_BESIDE)
    installation = Installation(here, "fleet")
    account, key = installation.new_account()
    file = here.directory / "machines.jsonl"
    database = f"sqlite+aiosqlite:///{here.directory / 'fleet' / 'outrider.db'}"
    machines = enroll(database, account, count, file)
    server = installation.serve(key, SERVING)
    return server, Fleet(here, machines, file, [server.websocket_url])


def status_request(machines: list[Enrolled]) -> Request:
    """Return the request for the status of these machines' agents, in turns."""
    first, *others = (status_path(machine.daemon_id) for machine in machines)
    return Request("GET", first, others=tuple(others))


def raise_file_limit(wanted: int) -> None:
    """Let this process and those that it starts open so many files.

    Raises:
        BenchmarkError: the system does not let it.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= wanted or soft == resource.RLIM_INFINITY:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, max(wanted, hard)))
    except (ValueError, OSError) as error:
        raise BenchmarkError(
            f"This needs {wanted} open files, and the limit is {hard} (ulimit -Hn): raise it, "
            "or measure with fewer --machines"
        ) from error


FEW: Final = 10

_CONNECTIONS: Final = (1, 32)
_SETTLE_SECONDS: Final = 25
"""Beyond one round of heartbeats."""

_ROUND_SECONDS: Final = 20
_TURN_SECONDS: Final = 300
"""A machine's agent begins or ends a turn that often, where the fleet is at work."""

_MEMORY: Final = Target("at most", 40)
_LATENCY: Final = Target("at most", 1.5, of="ratio")


def benchmark(options: Options) -> Report:
    """Measure with ten machines, then with all of them."""
    require_wrk()
    machines = options.machines or MACHINES
    with stage() as here:
        options.progress(f"{machines:,} machines are enrolled")
        server, fleet = started(here, machines)
        fleet.connect(FEW)
        few = _latencies(server, fleet, f"{FEW} machines", options)
        costs = _costs(server, fleet, machines, options)
        at_rest = next(f.value or 0 for f in costs if f.name.startswith("at rest"))
        many = _latencies(server, fleet, f"{machines:,} machines", options)
        status = fleet.simulator.send(GetStatus())
        if status.connected < machines or status.closed:
            raise BenchmarkError(f"machines were lost: {status}")
    return Report(
        benchmark="fleet",
        sections=[
            Section(title=f"{machines:,} machines on one node, SQLite", figures=costs),
            Section(
                title=f"GET …/status with {machines:,} machines, the baseline being with {FEW}",
                figures=[
                    figure
                    for connections in _CONNECTIONS
                    for figure in _compared(connections, many, few, at_rest)
                ],
            ),
        ],
    )


def _costs(server: Server, fleet: Fleet, count: int, options: Options) -> list[Figure]:
    """Connect every machine; return what that costs, and what they cost at rest and at work."""
    program = server.program
    before, cpu = program.memory(), program.cpu_seconds()
    options.progress(f"{count:,} machines connect")
    seconds, _ = fleet.connect(count)
    connecting = program.cpu_seconds() - cpu
    options.progress("they are at rest")
    time.sleep(_SETTLE_SECONDS)
    at_rest = _busy(server)
    resident, shared = (
        (now - then) / (count - FEW) / 1000
        for now, then in zip(program.memory(), before, strict=True)
    )
    options.progress("they are at work")
    fleet.simulator.send(SetTurnRate(count / _TURN_SECONDS))
    at_work = _busy(server)
    fleet.simulator.send(SetTurnRate(0))
    return [
        Figure("memory of a machine (RSS)", "KB", [resident], target=_MEMORY),
        Figure("memory of a machine (PSS)", "KB", [shared]),
        Figure("connect, until all are welcome", "1/s", [(count - FEW) / seconds]),
        Figure("connect, processor time", "us each", [connecting / (count - FEW) * 1e6]),
        Figure("at rest: heartbeats and pings", "% of a processor", at_rest),
        Figure(
            f"at work: a turn begins or ends every {_TURN_SECONDS} s", "% of a processor", at_work
        ),
    ]


def _busy(server: Server) -> list[float]:
    """Return how busy the service is in two rounds of heartbeats."""
    found = []
    for _ in range(2):
        before, began = server.program.cpu_seconds(), time.perf_counter()
        time.sleep(_ROUND_SECONDS)
        used = server.program.cpu_seconds() - before
        found.append(used / (time.perf_counter() - began) * 100)
    return found


def _latencies(server: Server, fleet: Fleet, name: str, options: Options) -> dict[int, list[Run]]:
    """Ask the account's connected machines for their agent's status, in turns."""
    connected = fleet.simulator.send(GetStatus()).connected
    request = status_request(fleet.machines[: min(connected, PER_ACCOUNT)])
    runs: dict[int, list[Run]] = {}
    for connections in _CONNECTIONS:
        _load(server, request, connections, seconds=1)  # warm up
        for _ in options.each_round(f"{name}, connections: {connections}"):
            run = _load(server, request, connections, options.seconds)
            runs.setdefault(connections, []).append(run)
    return runs


def _load(server: Server, request: Request, connections: int, seconds: int) -> Run:
    before = server.program.cpu_seconds()
    seen = load(server, request, connections=connections, seconds=seconds, cpus=LOADING)
    return Run(seen, server.program.cpu_seconds() - before)


def _own_cost(run: Run, at_rest: float) -> float:
    """Return the microseconds of a processor for each request, without the share of the rest.

    On a busy computer there are few requests in a run, and as many heartbeats as ever.
    """
    rest = run.load.microseconds * at_rest / 100
    return run.cpu_per_request - rest / run.load.requests


def _compared(
    connections: int, many: dict[int, list[Run]], few: dict[int, list[Run]], at_rest: float
) -> list[Figure]:
    name = plural(connections, "connection")
    runs = many[connections], few[connections]
    return [
        compared(f"median latency, {name}", "us", runs, lambda run: run.load.p50, _LATENCY),
        compared(f"99th percentile, {name}", "us", runs, lambda run: run.load.p99, _LATENCY),
        Figure(
            f"processor time beside that at rest, {name}",
            "us/request",
            [_own_cost(run, at_rest) for run in many[connections]],
            baseline=[run.cpu_per_request for run in few[connections]],
        ),
    ]


if __name__ == "__main__":
    main({"fleet": benchmark})
