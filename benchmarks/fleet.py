"""What thousands of simulated machines cost one node; and how benchmarks enroll them."""

import resource
import time
from functools import partial
from typing import Final

from sqlalchemy import insert

from benchmarks.bench import Bench, Sections
from benchmarks.load import Request, Run, load
from benchmarks.processes import SERVING, BenchmarkError, Program
from benchmarks.report import Figure, Measure, Section, Target, plural
from benchmarks.service import Installation, Server, status_path
from benchmarks.simulator import Fleet, simulated
from outrider.contract.enrollment import Enrolled
from outrider.contract.ids import new_id
from outrider.service.accounts import credentials
from outrider.service.database import tables
from outrider.service.database.engine import Database

MACHINES: Final = 10_000
"""How many machines a fleet has by default."""

PER_ACCOUNT: Final = 100

_FEW: Final = 10
_CONNECTIONS: Final = (1, 32)
_FILES_BESIDE: Final = 500
_SETTLE_SECONDS: Final = 25
"""Beyond one round of load reports."""

_ROUND_SECONDS: Final = 20
_TURN_SECONDS: Final = 300
"""A machine's agent begins or ends a turn that often, while the fleet is at work."""

_MEMORY: Final = Target("at most", 45)
_LATENCY: Final = Target("at most", 1.5, of="ratio")
_MEASURES: Final = (
    Measure("median latency", "us", lambda run: run.p50, _LATENCY),
    Measure("99th percentile", "us", lambda run: run.p99, _LATENCY),
)


def fleet(bench: Bench) -> Sections:
    """Measure with ten machines, then with all of them."""
    count = bench.machines or MACHINES
    bench.progress(f"{count:,} machines are enrolled")
    installation = Installation(bench.stage, "fleet")
    account, key = installation.new_account()
    machines = enroll(installation, account, count)
    server = installation.serve(key, SERVING)
    with simulated(machines, server) as fleet:
        fleet.connect(_FEW)
        few = _latencies(server, machines[:_FEW], f"{_FEW} machines", bench)
        at_rest, costs = _costs(server.program, fleet, count, bench)
        yield Section(f"{count:,} machines on one node, SQLite", costs)
        many = _latencies(server, machines[:PER_ACCOUNT], f"{count:,} machines", bench)
        if fleet.status.connected < count or fleet.status.reconnected:
            raise BenchmarkError(f"machines were lost: {fleet.status}")
    figures = []
    for number in _CONNECTIONS:
        name = f", {plural(number, 'connection')}"
        runs = many[number], few[number]
        own = [_own_cost(run, at_rest) for run in many[number]]
        baseline = [run.cpu_per_request for run in few[number]]
        figures += [
            *(measure.of(runs, name) for measure in _MEASURES),
            Figure(f"processor time beside that at rest{name}", "us/request", own, baseline),
        ]
    yield Section(f"GET …/status with {count:,} machines, the baseline being with {_FEW}", figures)


def _costs(program: Program, fleet: Fleet, count: int, bench: Bench) -> tuple[float, list[Figure]]:
    """Connect every machine; return what they cost at rest, and all their costs."""
    new = count - _FEW
    before, cpu = program.memory(), program.cpu_seconds()
    bench.progress(f"{count:,} machines connect")
    seconds = fleet.connect(count)
    connecting = program.cpu_seconds() - cpu
    bench.progress("they are at rest")
    time.sleep(_SETTLE_SECONDS)
    at_rest = [program.busy(_ROUND_SECONDS) for _ in range(2)]
    resident, shared = (
        (now - then) / new * 1000 for now, then in zip(program.memory(), before, strict=True)
    )
    bench.progress("they are at work")
    with fleet.at_work(turns=count / _TURN_SECONDS):
        at_work = [program.busy(_ROUND_SECONDS) for _ in range(2)]
    work = f"at work: a turn begins or ends every {_TURN_SECONDS} s"
    return sum(at_rest) / len(at_rest), [
        Figure("memory of a machine (RSS)", "KB", [resident], target=_MEMORY),
        Figure("memory of a machine (PSS)", "KB", [shared]),
        Figure("connect, until all are welcome", "1/s", [new / seconds]),
        Figure("connect, processor time", "us each", [connecting / new * 1e6]),
        Figure("at rest: load reports and pings", "% of a processor", at_rest),
        Figure(work, "% of a processor", at_work),
    ]


def _latencies(
    server: Server, machines: list[Enrolled], name: str, bench: Bench
) -> dict[int, list[Run]]:
    """Request the status of these machines' agents in turns, on each number of connections."""
    request = status_request(machines)
    runs: dict[int, list[Run]] = {}
    for connections in _CONNECTIONS:
        run = partial(load, server, request, connections=connections)
        run(seconds=1)  # warm up
        rounds = bench.each_round(f"{name}, connections: {connections}")
        runs[connections] = [run(seconds=bench.seconds) for _ in rounds]
    return runs


def _own_cost(run: Run, at_rest: float) -> float:
    """Return the microseconds of a processor for each request, without the share of the rest.

    On a busy computer a run has few requests, but the same number of load reports.
    """
    return run.cpu_per_request - run.microseconds * at_rest / 100 / run.requests


# The machines, for other benchmarks too


def status_request(machines: list[Enrolled]) -> Request:
    """Return the request for the status of these machines' agents, in turns."""
    first, *others = (status_path(machine.daemon_id) for machine in machines)
    return Request("GET", first, others=tuple(others))


def enroll(installation: Installation, account: str, count: int) -> list[Enrolled]:
    """Enroll machines, the first `PER_ACCOUNT` in a given account, the others in further ones.

    Raises:
        BenchmarkError: they need more open files than the system allows this process.
    """
    _raise_file_limit(count + _FILES_BESIDE)
    accounts = [account, *(new_id("acct") for _ in range((count - 1) // PER_ACCOUNT))]
    machines = [
        Enrolled(
            daemon_id=new_id("machine"),
            token=credentials.new_machine_token(),
            nickname=f"worker {number}",
        )
        for number in range(count)
    ]

    async def insert_rows(database: Database) -> None:
        now = int(time.time() * 1000)
        others = [
            {"id": account_id, "plan": "enterprise", "created_at": now}
            for account_id in accounts[1:]
        ]
        rows = [
            {
                "id": machine.daemon_id,
                "account_id": accounts[number // PER_ACCOUNT],
                "nickname": machine.nickname,
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

    installation.in_database(insert_rows)
    return machines


def _raise_file_limit(wanted: int) -> None:
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
