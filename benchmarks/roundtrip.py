"""The cost of a request to a machine and back: roundtrip, access, sdk; and of idle programs.

Each compares the real service with something that has less to do, and its own scripted machine.
"""

import statistics
import time
from collections.abc import Callable
from typing import Final, NamedTuple

import httpx2
import msgspec
from tests.servers.server import free_port

from benchmarks.bench import Bench, Sections
from benchmarks.load import Request, Run, load
from benchmarks.machine_agent import machine_agent
from benchmarks.processes import MEGABYTE, SERVING, BenchmarkError, Program, Stage
from benchmarks.report import Figure, Measure, Section, Target, plural
from benchmarks.service import Installation, Server, start_scripted_machine, status_path
from outrider.sdk import Outrider

_SETTLE_SECONDS: Final = 2.0
_STARTS: Final = 3
_CALLS: Final = 50

_START: Final = Target("at most", 1.0)
_SERVICE_MEMORY: Final = Target("at most", 85)
_AGENT_MEMORY: Final = Target("at most", 70)
_ACCESS: Final = Target("at least", 0.85, of="ratio")
_SDK: Final = Target("at most", 1.3, of="ratio")

_COST: Final = Measure("processor time", "us/request", lambda run: run.cpu_per_request)
_MEASURES: Final = {
    1: [
        Measure("median latency", "us", lambda run: run.p50, Target("at most", 1.7, of="ratio")),
        Measure("99th percentile", "us", lambda run: run.p99),
    ],
    32: [
        Measure(
            "throughput",
            "requests/s",
            lambda run: run.per_second,
            Target("at least", 0.6, of="ratio"),
        ),
        Measure("median latency", "us", lambda run: run.p50),
        _COST,
        Measure(
            "server busy", "% of a processor", lambda run: run.cpu_seconds * 1e8 / run.microseconds
        ),
    ],
}
"""The figures for each number of connections. The processor time measures the same as the
throughput, with less noise from others on the computer; a server that is not busy was limited by
its load."""


class Sides(NamedTuple):
    """The service and what it is compared with, each with a machine connected."""

    outrider: Server
    baseline: Server
    requests: dict[str, Request]
    """The requests to measure, by the name that the report gives them."""

    def measure(
        self, bench: Bench, name: str, connections: int, measures: list[Measure]
    ) -> list[Figure]:
        """Measure a request on both sides, run by run."""

        def run(server: Server, seconds: int) -> Run:
            return load(server, self.requests[name], connections=connections, seconds=seconds)

        for server in (self.outrider, self.baseline):
            run(server, 1)  # warm up
        runs = bench.in_turns(
            f"{name}, connections: {connections}",
            lambda: run(self.outrider, bench.seconds),
            lambda: run(self.baseline, bench.seconds),
        )
        return [one.of(runs, f", {plural(connections, 'connection')}") for one in measures]


class Site(NamedTuple):
    """A service with an account, a key of it, and a scripted machine."""

    installation: Installation
    account: str
    server: Server
    daemon_id: str
    token: str


def _site(here: Stage) -> Site:
    installation = Installation(here, "outrider")
    account, key = installation.new_account()
    server = installation.serve(key, SERVING)
    daemon_id, token = server.enroll(installation.new_code())
    start_scripted_machine(here, server, daemon_id, token)
    return Site(installation, account, server, daemon_id, token)


def _sides(here: Stage, start_baseline: Callable[[Site], Server]) -> Sides:
    """Start the service and what it is compared with."""
    site = _site(here)
    baseline = start_baseline(site)
    start_scripted_machine(here, baseline, site.daemon_id, site.token)
    command = f"/api/v1/daemons/{site.daemon_id}/command"
    read_chat = '{"type":"read_chat","payload":{}}'
    requests = {
        "GET …/status": Request("GET", status_path(site.daemon_id)),
        "POST …/command read_chat": Request("POST", command, read_chat),
        "GET /daemons": Request("GET", "/api/v1/daemons"),
    }
    return Sides(site.server, baseline, requests)


def roundtrip(bench: Bench) -> Sections:
    """Compare with the bare baseline; then measure the programs at rest."""
    sides = _sides(bench.stage, _bare)
    _check_same(sides)
    for name in sides.requests:
        figures = []
        for connections, measures in _MEASURES.items():
            figures += sides.measure(bench, name, connections, measures)
        yield Section(name, figures)
    sides.outrider.program.end()
    sides.baseline.program.end()
    yield _at_rest(bench)


def access(bench: Bench) -> Sections:
    """Compare with the same build, its access layer (limits, keys, quota, audit) bypassed."""
    throughput = _MEASURES[32][0]._replace(target=_ACCESS)
    sides = _sides(bench.stage, _bypassed)
    for name in list(sides.requests)[:2]:
        figures = sides.measure(bench, name, 32, [throughput, _COST])
        yield Section(f"{name}, with the access layer; the baseline is without it", figures)


def sdk(bench: Bench) -> Sections:
    """Compare `agent.status()` of the Python client with a bare request."""
    site = _site(bench.stage)
    server, path = site.server, status_path(site.daemon_id)
    with (
        httpx2.Client(headers=server.headers) as bare,
        Outrider(server.url, server.key) as client,
    ):
        agent = client.agent(path.split("/")[-2])
        runs = bench.in_turns(
            "agent.status()",
            lambda: _median(agent.status, bench.seconds),
            lambda: _median(lambda: bare.get(server.url + path).json(), bench.seconds),
        )
    measure = Measure("agent.status(), median", "us", float, _SDK)
    yield Section("The Python client", [measure.of(runs)])


def _bare(site: Site) -> Server:
    """Start the bare baseline."""
    port, key = free_port(), site.server.key
    program = site.installation.stage.start(
        "baseline",
        ["-m", "benchmarks.programs.bare_service", str(port), site.daemon_id],
        {"KEY": key, "DAEMONS": site.server.get("/api/v1/daemons").decode()},
        SERVING,
    )
    baseline = Server(program, f"http://127.0.0.1:{port}", key)
    program.wait_until(lambda: baseline.answers("/api/v1/daemons"), "ready")
    return baseline


def _bypassed(site: Site) -> Server:
    """Start the same build with the access layer bypassed, on a copy of the data."""
    return Installation(site.installation.stage, "bypassed", copy_of=site.installation).serve(
        site.server.key,
        SERVING,
        module="benchmarks.programs.bypassed_service",
        settings={"ACCOUNT": site.account},
    )


def _check_same(sides: Sides) -> None:
    """Check that both sides give the same answers."""
    for name, request in sides.requests.items():
        ours, theirs = (
            msgspec.json.decode(
                server.request(request.method, request.path, content=request.body).content
            )
            for server in (sides.outrider, sides.baseline)
        )
        for daemon in (d for body in (ours, theirs) for d in body.get("daemons", ())):
            del daemon["lastSeenAt"]
        if ours != theirs:
            raise BenchmarkError(f"{name}: the baseline does not answer what the service answers")


def _median(call: Callable[[], object], seconds: int) -> float:
    """Return the median of a call in microseconds."""
    for _ in range(_CALLS):
        call()  # warm up
    taken: list[float] = []
    end = time.perf_counter() + seconds
    while (began := time.perf_counter()) < end:
        call()
        taken.append((time.perf_counter() - began) * 1e6)
    return statistics.median(taken)


def _at_rest(bench: Bench) -> Section:
    """Measure starts and idle memory, on installations of their own."""
    bench.progress("start-up and idle memory")
    installations = [Installation(bench.stage, f"idle-{number}") for number in range(_STARTS)]
    first = [_start(installation) for installation in installations]
    second = [_start(installation) for installation in installations]
    figures = []
    for name, starts, target in (
        ("second start", second, _START),
        ("first start, of an empty directory,", first, None),
    ):
        seconds, resident, shared = map(list, zip(*starts, strict=True))
        figures += [
            Figure(f"service: {name} to /readyz", "s", seconds, target=target),
            Figure("  then idle memory (RSS)", "MB", resident, target=_SERVICE_MEMORY),
            Figure("  then idle memory (PSS)", "MB", shared),
        ]
    with machine_agent(Installation(bench.stage, "agent")) as agent:
        resident_agent, shared_agent = _memory(agent.program)
        children = agent.program.process.children(recursive=True)
        of_children = sum(child.memory_info().rss for child in children) / MEGABYTE
    figures += [
        Figure("machine agent: idle memory (RSS)", "MB", [resident_agent], target=_AGENT_MEMORY),
        Figure("machine agent: idle memory (PSS)", "MB", [shared_agent]),
        Figure("machine agent: its children (RSS)", "MB", [of_children]),
    ]
    return Section("At rest", figures)


def _start(installation: Installation) -> tuple[float, float, float]:
    """Start the service; return the seconds until it is ready, and its idle memory."""
    began = time.perf_counter()
    program = installation.serve().program
    seconds = time.perf_counter() - began
    memory = _memory(program)
    program.end()
    return (seconds, *memory)


def _memory(program: Program) -> tuple[float, float]:
    """Return a program's memory once it has had time to settle."""
    time.sleep(_SETTLE_SECONDS)
    program.check()
    return program.memory()
