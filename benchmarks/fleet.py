"""What thousands of simulated machines cost one node; and how benchmarks direct them."""

import resource
import socket
import time
from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec
from sqlalchemy import insert

from benchmarks.bench import Bench, Sections
from benchmarks.load import Request, Run, load
from benchmarks.processes import LOADING, SERVING, BenchmarkError, Program, Stage
from benchmarks.report import Figure, Measure, Section, Target, plural
from benchmarks.service import Installation, Server, status_path
from benchmarks.simulator import Enrolled, FleetStatus, Order
from outrider.cloud.access import credentials
from outrider.cloud.store import tables
from outrider.cloud.store.database import Database
from outrider.contract.ids import new_id

MACHINES: Final = 10_000
"""How many machines a fleet has by default."""

PER_ACCOUNT: Final = 100

_FEW: Final = 10
_CONNECTIONS: Final = (1, 32)
_FILES_BESIDE: Final = 500
_ANSWER_SECONDS: Final = 30.0
_SETTLE_SECONDS: Final = 25
"""Beyond one round of load reports."""

_ROUND_SECONDS: Final = 20
_TURN_SECONDS: Final = 300
"""A machine's agent begins or ends a turn that often, while the fleet is at work."""

_MEMORY: Final = Target("at most", 40)
_LATENCY: Final = Target("at most", 1.5, of="ratio")
_MEASURES: Final = (
    Measure("median latency", "us", lambda run: run.p50, _LATENCY),
    Measure("99th percentile", "us", lambda run: run.p99, _LATENCY),
)


def fleet(bench: Bench) -> Sections:
    """Measure with ten machines, then with all of them."""
    count = bench.machines or MACHINES
    bench.progress(f"{count:,} machines are enrolled")
    _, server, machines, simulator = start_fleet(bench.stage, count)
    simulator.connect(_FEW)
    request = machines.status_request(_FEW)
    few = _latencies(server, simulator, request, f"{_FEW} machines", bench)
    at_rest, costs = _costs(server, simulator, count, bench)
    yield Section(f"{count:,} machines on one node, SQLite", costs)
    request = machines.status_request()
    many = _latencies(server, simulator, request, f"{count:,} machines", bench)
    status = simulator.order()
    if status.connected < count or status.closed:
        raise BenchmarkError(f"machines were lost: {status}")
    figures = []
    for number in _CONNECTIONS:
        name = f", {plural(number, 'connection')}"
        runs = many[number], few[number]
        own = [_own_cost(run, at_rest) for run in many[number]]
        baseline = [run.cpu_per_request for run in few[number]]
        figures += [
            *(one.of(runs, name) for one in _MEASURES),
            Figure(f"processor time beside that at rest{name}", "us/request", own, baseline),
        ]
    yield Section(f"GET …/status with {count:,} machines, the baseline being with {_FEW}", figures)


def _costs(
    server: Server, simulator: "Simulator", count: int, bench: Bench
) -> tuple[float, list[Figure]]:
    """Connect every machine; return what they cost at rest, and all their costs."""
    program, new = server.program, count - _FEW
    before, cpu = program.memory(), program.cpu_seconds()
    bench.progress(f"{count:,} machines connect")
    seconds = simulator.connect(count)
    connecting = program.cpu_seconds() - cpu
    bench.progress("they are at rest")
    time.sleep(_SETTLE_SECONDS)
    at_rest = [_busy(program) for _ in range(2)]
    resident, shared = (
        (now - then) / new * 1000 for now, then in zip(program.memory(), before, strict=True)
    )
    bench.progress("they are at work")
    simulator.order(Order(turns=count / _TURN_SECONDS))
    at_work = [_busy(program) for _ in range(2)]
    simulator.order(Order(turns=0))
    work = f"at work: a turn begins or ends every {_TURN_SECONDS} s"
    return sum(at_rest) / len(at_rest), [
        Figure("memory of a machine (RSS)", "KB", [resident], target=_MEMORY),
        Figure("memory of a machine (PSS)", "KB", [shared]),
        Figure("connect, until all are welcome", "1/s", [new / seconds]),
        Figure("connect, processor time", "us each", [connecting / new * 1e6]),
        Figure("at rest: load reports and pings", "% of a processor", at_rest),
        Figure(work, "% of a processor", at_work),
    ]


def _busy(program: Program) -> float:
    """Return the share of a processor (in percent) that a program uses for a while."""
    before, began = program.cpu_seconds(), time.perf_counter()
    time.sleep(_ROUND_SECONDS)
    return (program.cpu_seconds() - before) / (time.perf_counter() - began) * 100


def _latencies(
    server: Server, simulator: "Simulator", request: Request, name: str, bench: Bench
) -> dict[int, list[Run]]:
    """Request the status of machines' agents in turns, on each number of connections."""
    runs: dict[int, list[Run]] = {}
    for connections in _CONNECTIONS:
        run = partial(load, server, request, connections=connections)
        try:
            run(seconds=1)  # warm up
            rounds = bench.each_round(f"{name}, connections: {connections}")
            runs[connections] = [run(seconds=bench.seconds) for _ in rounds]
        except BenchmarkError as error:
            raise BenchmarkError(f"{error}\n{simulator.order()}") from error
    return runs


def _own_cost(run: Run, at_rest: float) -> float:
    """Return the microseconds of a processor for each request, without the share of the rest.

    On a busy computer a run has few requests, but the same number of load reports.
    """
    return run.cpu_per_request - run.microseconds * at_rest / 100 / run.requests


# The machines, for other benchmarks too


def start_fleet(here: Stage, count: int) -> tuple[Installation, Server, "Machines", "Simulator"]:
    """Start a single node with SQLite, and the simulator of its machines, none connected yet."""
    installation = Installation(here, "fleet")
    account, key = installation.new_account()
    machines = Machines(installation, account, count)
    server = installation.serve(key, SERVING)
    return installation, server, machines, machines.simulated(server)


class Machines:
    """Enrolled machines, the first `PER_ACCOUNT` in a given account, the others in further ones."""

    def __init__(self, installation: Installation, account: str, count: int) -> None:
        raise_file_limit(count + _FILES_BESIDE)
        self._here = installation.stage
        self.all = [
            Enrolled(new_id("machine"), credentials.new_machine_token()) for _ in range(count)
        ]
        accounts = [account, *(new_id("acct") for _ in range((count - 1) // PER_ACCOUNT))]
        installation.in_database(partial(_insert, accounts, self.all))
        self._file = self._here.directory / "machines.jsonl"
        self._file.touch(mode=0o600)
        self._file.write_bytes(b"".join(msgspec.json.encode(one) + b"\n" for one in self.all))

    def status_request(self, count: int = PER_ACCOUNT) -> Request:
        """Return the request for the status of the first machines' agents, in turns."""
        first, *others = (status_path(machine.daemon_id) for machine in self.all[:count])
        return Request("GET", first, others=tuple(others))

    def simulated(self, *servers: Server) -> "Simulator":
        """Start the simulator, with no machine connected yet."""
        control = self._here.directory / "simulator.sock"
        control.unlink(missing_ok=True)
        urls = [server.websocket_url for server in servers]
        arguments = ["-m", "benchmarks.simulator", str(self._file), str(control), *urls]
        program = self._here.start("simulator", arguments, cpus=LOADING)
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(_ANSWER_SECONDS)
        program.wait_until(
            lambda: connection.connect_ex(str(control)) == 0, "listening", _ANSWER_SECONDS
        )
        return Simulator(program, connection)


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


class Simulator:
    """Directs the running simulator."""

    def __init__(self, program: Program, connection: socket.socket) -> None:
        self._program = program
        self._socket = connection
        self._lines = connection.makefile("rb")

    def order(self, order: Order | None = None) -> FleetStatus:
        """Send an order; return the status after it."""
        self._socket.sendall(msgspec.json.encode(order or Order()) + b"\n")
        return msgspec.json.decode(self._lines.readline(), type=FleetStatus)

    def wait_for(self, condition: Callable[[FleetStatus], bool], seconds: float) -> FleetStatus:
        """Return the status once it satisfies `condition`.

        Raises:
            BenchmarkError: it does not within `seconds`.
        """
        deadline = time.monotonic() + seconds
        while not condition(status := self.order()):
            self._program.check()
            if time.monotonic() >= deadline:
                raise BenchmarkError(f"the fleet after {seconds:g} s: {status}")
            time.sleep(0.05)
        return status

    def connect(self, count: int) -> float:
        """Connect machines until `count` are connected; return how long that took."""
        began = time.perf_counter()
        self.order(Order(connect=count))
        self.wait_for(lambda status: status.connected >= count, 300)
        return time.perf_counter() - began

    def end(self) -> None:
        """End the simulator."""
        self._lines.close()
        self._socket.close()
        self._program.end()


def raise_file_limit(wanted: int) -> None:
    """Let this process and those that it starts open so many files.

    Raises:
        BenchmarkError: the system does not allow it.
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
