"""The cost of a request to a machine and back: roundtrip, access, sdk; and of idle programs.

Each compares the real service with something that has less to do, and its own scripted machine.
"""

import time
from collections.abc import Sequence
from typing import Final

import httpx2
import msgspec
from tests.servers.server import free_port

from benchmarks.bench import Bench, Sections, median_latency
from benchmarks.load import Request, Run, load
from benchmarks.machine_agent import machine_agent
from benchmarks.processes import MEGABYTE, SERVING, BenchmarkError, Program
from benchmarks.report import Figure, Measure, Section, Target, plural
from benchmarks.service import Installation, Server, start_scripted_machine, status_path
from outrider.sdk import Outrider

_SETTLE_SECONDS: Final = 2.0
_STARTS: Final = 3
_WARM_UP_SECONDS: Final = 0.2

_LATENCY: Final = Measure("median latency", "us", lambda run: run.p50)
_THROUGHPUT: Final = Measure("throughput", "requests/s", lambda run: run.per_second)
_COST: Final = Measure("processor time", "us/request", lambda run: run.cpu_per_request)
_BUSY: Final = Measure(
    "server busy", "% of a processor", lambda run: run.cpu_seconds * 1e8 / run.microseconds
)
_MEASURES: Final = {
    1: [
        _LATENCY._replace(target=Target("at most", 2, of="ratio")),
        Measure("99th percentile", "us", lambda run: run.p99),
    ],
    32: [
        _THROUGHPUT._replace(target=Target("at least", 0.5, of="ratio")),
        _LATENCY,
        _COST,
        _BUSY,
    ],
}
"""The figures for each number of connections. The processor time measures the same as the
throughput, with less noise from others on the computer; a server that is not busy was limited by
its load."""

_SDK: Final = Measure("agent.status(), median", "us", float, Target("at most", 1.3, of="ratio"))


class _Site(Installation):
    """The service with an account, a key of it, and a scripted machine.

    Attributes:
        machine: its daemon id and its token.
        requests: the requests to measure, by the name that the report gives them.
    """

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench.stage, "outrider")
        self._bench = bench
        self.account, key = self.new_account()
        self.server = self.serve(key, SERVING)
        self.machine = self.server.enroll(self.new_code())
        self.connect_machine(self.server)
        daemon_id, _ = self.machine
        read_chat = '{"type":"read_chat","payload":{}}'
        self.requests = {
            "GET …/status": Request("GET", status_path(daemon_id)),
            "POST …/command read_chat": Request(
                "POST", f"/api/v1/daemons/{daemon_id}/command", read_chat
            ),
            "GET /daemons": Request("GET", "/api/v1/daemons"),
        }

    def connect_machine(self, server: Server) -> None:
        """Connect a scripted machine to the service, or to what it is compared with."""
        start_scripted_machine(self.stage, server, *self.machine)

    def compare(
        self, baseline: Server, name: str, connections: int, measures: Sequence[Measure]
    ) -> list[Figure]:
        """Measure a request on the service and on the baseline, run by run."""

        def run(server: Server, seconds: int = self._bench.seconds) -> Run:
            return load(server, self.requests[name], connections=connections, seconds=seconds)

        for server in (self.server, baseline):
            run(server, 1)  # warm up
        title = f"{name}, connections: {connections}"
        runs = self._bench.in_turns(title, lambda: run(self.server), lambda: run(baseline))
        return [measure.of(runs, f", {plural(connections, 'connection')}") for measure in measures]


def roundtrip(bench: Bench) -> Sections:
    """Compare with the bare baseline; then measure the programs at rest."""
    site = _Site(bench)
    baseline = _bare(site)
    _check_same(site, baseline)
    for name in site.requests:
        figures = []
        for connections, measures in _MEASURES.items():
            figures += site.compare(baseline, name, connections, measures)
        yield Section(name, figures)
    site.server.program.end()
    baseline.program.end()
    yield _at_rest(bench)


def sdk(bench: Bench) -> Sections:
    """Compare `agent.status()` of the Python client with a bare request."""
    site = _Site(bench)
    server, path = site.server, status_path(site.machine[0])
    with (
        httpx2.Client(headers=server.headers) as bare,
        Outrider(server.url, server.key) as client,
    ):
        status = client.agent(path.split("/")[-2]).status

        def bare_status() -> object:
            return bare.get(server.url + path).json()

        for call in (status, bare_status):
            median_latency(call, _WARM_UP_SECONDS)
        runs = bench.in_turns(
            "agent.status()",
            lambda: median_latency(status, bench.seconds) * 1000,
            lambda: median_latency(bare_status, bench.seconds) * 1000,
        )
    yield Section("The Python client", [_SDK.of(runs)])


def _bare(site: _Site) -> Server:
    """Start the bare baseline."""
    port, key = free_port(), site.server.key
    program = site.stage.start(
        "baseline",
        ["-m", "benchmarks.programs.bare_service", str(port), site.machine[0]],
        {"KEY": key, "DAEMONS": site.server.get("/api/v1/daemons").decode()},
        SERVING,
    )
    baseline = Server(program, f"http://127.0.0.1:{port}", key)
    program.wait_until(lambda: baseline.answers("/api/v1/daemons"), "ready")
    site.connect_machine(baseline)
    return baseline


def _check_same(site: _Site, baseline: Server) -> None:
    """Check that both sides give the same answers."""
    for name, request in site.requests.items():
        ours, theirs = (
            msgspec.json.decode(
                server.request(request.method, request.path, content=request.body).content
            )
            for server in (site.server, baseline)
        )
        for body in (ours, theirs):
            body.pop("id", None)  # of the target, which the service puts in
            for daemon in body.get("daemons", ()):
                del daemon["lastSeenAt"]
        if ours != theirs:
            raise BenchmarkError(f"{name}: the baseline does not answer what the service answers")


def _at_rest(bench: Bench) -> Section:
    """Measure starts and idle memory, on installations of their own."""
    bench.progress("start-up and idle memory")
    installations = [Installation(bench.stage, f"idle-{number}") for number in range(_STARTS)]
    first = [_start(installation) for installation in installations]
    second = [_start(installation) for installation in installations]
    figures = []
    for name, starts, target in (
        ("second start", second, Target("at most", 1.0)),
        ("first start, of an empty directory,", first, None),
    ):
        seconds, resident, shared = map(list, zip(*starts, strict=True))
        figures += [
            Figure(f"service: {name} to /readyz", "s", seconds, target=target),
            Figure("  then idle memory (RSS)", "MB", resident, target=Target("at most", 110)),
            Figure("  then idle memory (PSS)", "MB", shared),
        ]
    with machine_agent(Installation(bench.stage, "agent")) as agent:
        own, own_shared = _memory(agent.program)
        children = agent.program.process.children(recursive=True)
        of_children = sum(child.memory_info().rss for child in children) / MEGABYTE
    limit = Target("at most", 70)
    figures += [
        Figure("machine agent: idle memory (RSS)", "MB", [own], target=limit),
        Figure("machine agent: idle memory (PSS)", "MB", [own_shared]),
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
