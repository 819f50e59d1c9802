"""What thousands of simulated machines cost one node."""

import resource
import socket
import time
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
from sqlalchemy import insert

from benchmarks.command import Options
from benchmarks.processes import LOADING, SERVING, BenchmarkError, Stage, stage
from benchmarks.report import Figure, Report, Section, Target, compared, plural
from benchmarks.service import Installation, Server, status_path
from benchmarks.simulator import Enrolled, FleetStatus, Order
from benchmarks.wrk import Request, Run, load, require_wrk
from outrider.cloud.access import credentials
from outrider.cloud.store import tables
from outrider.cloud.store.database import Database
from outrider.contract.ids import new_id

MACHINES: Final = 10_000
"""How many machines a fleet has by default."""

PER_ACCOUNT: Final = 100

_FILES_BESIDE: Final = 500
_ANSWER_SECONDS: Final = 30.0


async def _insert(accounts: list[str], machines: list[Enrolled], database: Database) -> None:
    now = int(time.time() * 1000)
    others = [{"id": one, "plan": "enterprise", "created_at": now} for one in accounts[1:]]
    rows = [
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
    ]
    async with database.begin() as transaction:
        if others:
            await transaction.execute(insert(tables.accounts), others)
        await transaction.execute(insert(tables.machines), rows)


class Machines:
    """Enrolled machines, the first `PER_ACCOUNT` in a given account, the others in further ones."""

    def __init__(self, installation: Installation, account: str, count: int) -> None:
        _raise_file_limit(count + _FILES_BESIDE)
        self._here = installation.stage
        self.all = [
            Enrolled(new_id("machine"), credentials.new_machine_token()) for _ in range(count)
        ]
        accounts = [account, *(new_id("acct") for _ in range((count - 1) // PER_ACCOUNT))]
        installation.in_database(partial(_insert, accounts, self.all))
        self._file = self._here.directory / "machines.jsonl"
        self._file.touch(mode=0o600)
        self._file.write_bytes(b"".join(msgspec.json.encode(one) + b"\n" for one in self.all))

    def __len__(self) -> int:
        return len(self.all)

    def status_request(self, count: int = PER_ACCOUNT) -> Request:
        """Return the request for the status of the first machines' agents, in turns."""
        first, *others = (status_path(machine.daemon_id) for machine in self.all[:count])
        return Request("GET", first, others=tuple(others))

    def simulated(self, *servers: Server) -> "Fleet":
        """Start the simulator, with no machine connected yet."""
        control = self._here.directory / "simulator.sock"
        control.unlink(missing_ok=True)
        urls = [server.websocket_url for server in servers]
        arguments = ["-m", "benchmarks.simulator", str(self._file), str(control), *urls]
        return Fleet(self._here, arguments, control)


class Fleet:
    """The simulator at work, and a client of it."""

    def __init__(self, here: Stage, arguments: list[str], control: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(_ANSWER_SECONDS)
        self.program = here.start("simulator", arguments, {}, LOADING)
        self.program.wait_until(
            lambda: self._socket.connect_ex(str(control)) == 0, "listening", _ANSWER_SECONDS
        )
        self._lines = self._socket.makefile("rb")

    def order(self, order: Order | None = None) -> FleetStatus:
        """Send an order; return the status after it."""
        self._socket.sendall(msgspec.json.encode(order or Order()) + b"\n")
        return msgspec.json.decode(self._lines.readline(), type=FleetStatus)

    def wait_for(self, connected: int, seconds: float) -> FleetStatus:
        """Return the status once so many machines are connected.

        Raises:
            BenchmarkError: they are not within `seconds`.
        """
        deadline = time.monotonic() + seconds
        while (status := self.order()).connected < connected:
            self.program.check()
            if time.monotonic() >= deadline:
                raise BenchmarkError(f"after {seconds:g} s not all are connected: {status}")
            time.sleep(0.05)
        return status

    def connect(self, count: int) -> float:
        """Connect machines until `count` are connected; return how long that took."""
        began = time.perf_counter()
        self.order(Order(connect=count))
        self.wait_for(count, 300)
        return time.perf_counter() - began

    def end(self) -> None:
        """End it."""
        self._lines.close()
        self._socket.close()
        self.program.end()


def started(here: Stage, count: int) -> tuple[Installation, Server, Machines, Fleet]:
    """Start a single node with SQLite, and the simulator of its machines, none connected yet."""
    installation = Installation(here, "fleet")
    account, key = installation.new_account()
    machines = Machines(installation, account, count)
    server = installation.serve(key, SERVING)
    return installation, server, machines, machines.simulated(server)


def _raise_file_limit(wanted: int) -> None:
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
    count = options.machines or MACHINES
    with stage() as here:
        options.progress(f"{count:,} machines are enrolled")
        _, server, machines, fleet = started(here, count)
        fleet.connect(FEW)
        few = _latencies(server, machines.status_request(FEW), f"{FEW} machines", options)
        costs = _costs(server, fleet, count, options)
        at_rest = next(f.value or 0 for f in costs if f.name.startswith("at rest"))
        many = _latencies(server, machines.status_request(), f"{count:,} machines", options)
        status = fleet.order()
        if status.connected < count or status.closed:
            raise BenchmarkError(f"machines were lost: {status}")
    latencies = [f for n in _CONNECTIONS for f in _compared(n, many[n], few[n], at_rest)]
    return Report(
        benchmark="fleet",
        sections=[
            Section(f"{count:,} machines on one node, SQLite", costs),
            Section(
                f"GET …/status with {count:,} machines, the baseline being with {FEW}", latencies
            ),
        ],
    )


def _costs(server: Server, fleet: Fleet, count: int, options: Options) -> list[Figure]:
    """Connect every machine; return what that costs, and what they cost at rest and at work."""
    program, new = server.program, count - FEW
    before, cpu = program.memory(), program.cpu_seconds()
    options.progress(f"{count:,} machines connect")
    seconds = fleet.connect(count)
    connecting = program.cpu_seconds() - cpu
    options.progress("they are at rest")
    time.sleep(_SETTLE_SECONDS)
    at_rest = _busy(server)
    resident, shared = (
        (now - then) / new / 1000 for now, then in zip(program.memory(), before, strict=True)
    )
    options.progress("they are at work")
    fleet.order(Order(turns=count / _TURN_SECONDS))
    at_work = _busy(server)
    fleet.order(Order(turns=0))
    work = f"at work: a turn begins or ends every {_TURN_SECONDS} s"
    return [
        Figure("memory of a machine (RSS)", "KB", [resident], target=_MEMORY),
        Figure("memory of a machine (PSS)", "KB", [shared]),
        Figure("connect, until all are welcome", "1/s", [new / seconds]),
        Figure("connect, processor time", "us each", [connecting / new * 1e6]),
        Figure("at rest: heartbeats and pings", "% of a processor", at_rest),
        Figure(work, "% of a processor", at_work),
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


def _latencies(
    server: Server, request: Request, name: str, options: Options
) -> dict[int, list[Run]]:
    """Ask machines for their agent's status, in turns, on each number of connections."""
    runs: dict[int, list[Run]] = {}
    for connections in _CONNECTIONS:
        load(server, request, connections=connections, seconds=1)  # warm up
        runs[connections] = [
            load(server, request, connections=connections, seconds=options.seconds)
            for _ in options.each_round(f"{name}, connections: {connections}")
        ]
    return runs


def _own_cost(run: Run, at_rest: float) -> float:
    """Return the microseconds of a processor for each request, without the share of the rest.

    On a busy computer there are few requests in a run, and as many heartbeats as ever.
    """
    return run.cpu_per_request - run.microseconds * at_rest / 100 / run.requests


def _compared(connections: int, many: list[Run], few: list[Run], at_rest: float) -> list[Figure]:
    name, runs = plural(connections, "connection"), (many, few)
    own = [_own_cost(run, at_rest) for run in many]
    return [
        compared(f"median latency, {name}", "us", runs, lambda run: run.p50, _LATENCY),
        compared(f"99th percentile, {name}", "us", runs, lambda run: run.p99, _LATENCY),
        Figure(
            f"processor time beside that at rest, {name}",
            "us/request",
            own,
            [run.cpu_per_request for run in few],
        ),
    ]
