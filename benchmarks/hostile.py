"""The latency that other clients see while a service or a machine is attacked, and without."""

import asyncio
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Final

import msgspec

from benchmarks.clients import Clients
from benchmarks.command import Options
from benchmarks.machine_agent import machine_agent
from benchmarks.processes import LOADING, SERVING, BenchmarkError, Program, Stage, stage
from benchmarks.programs.attacks import MAX_SECONDS, Aim, Attack
from benchmarks.report import NONE, Figure, Report, Section, Target, compared, counted, percentile
from benchmarks.service import Installation, Server, enroll, start_scripted_machine, status_path

_INTERVAL: Final = 0.02
_TIMEOUT: Final = 30.0
"""Seconds after which an answer counts as failed."""


class Prober(Clients):
    """One connection that GETs `path` every 20 ms, for so many seconds.

    A request that is due while an answer is outstanding is sent late, and its latency counts from
    when it was due: otherwise a service that stands still for a second would show in one request.
    """

    def __init__(self, server: Server, path: str, seconds: float) -> None:
        super().__init__(server, _TIMEOUT)
        self._url = server.url + path
        self._seconds = seconds

    async def work(self) -> None:
        """Make the requests that are due."""
        begin = time.monotonic()
        for number in range(int(self._seconds / _INTERVAL)):
            due = begin + number * _INTERVAL
            await asyncio.sleep(due - time.monotonic())
            await self.request("status", "GET", self._url, due)
            if time.monotonic() - begin > self._seconds + _TIMEOUT:
                break


def probe(server: Server, path: str, seconds: float) -> Prober:
    """Probe for so many seconds; return the prober with its latencies."""
    prober = Prober(server, path, seconds)
    prober.run()
    return prober


_ATTACKER: Final = "attacker@outrider.invalid"

_PYTHON_AGENT: Final = """
type = "python"
display_name = "Python"
command = ["python3", "-q", "-i", "-S"]
args = []
install = "apt install python3"
[[rules]]
name = "prompt"
status = "idle"
screen = '^>>>\\Z'
"""
"""An agent that every machine has; its status is asked for."""


class Bench(msgspec.Struct, frozen=True):
    """A service under attack.

    Attributes:
        victim: the program whose memory is watched.
        path: of the status that the other client asks for.
    """

    server: Server
    victim: Program
    path: str
    aim: Aim


@contextmanager
def _attacked_service(here: Stage, name: str) -> Iterator[Bench]:
    """Provide a service with a client whose machine answers, and an attacker with an account."""
    installation = Installation(here, name)
    server = installation.serve(installation.new_key(), SERVING)
    daemon_id, token = enroll(server, installation.new_code())
    machine = start_scripted_machine(here, server, daemon_id, token)
    key = installation.new_key(_ATTACKER)
    attacking_id, attacking_token = enroll(server, installation.new_code(_ATTACKER))
    aim = Aim(server.url, key, token=attacking_token, daemon_id=attacking_id)
    try:
        yield Bench(server, server.program, status_path(daemon_id), aim)
    finally:
        machine.end()
        server.program.end()


@contextmanager
def _attacked_machine(here: Stage, name: str) -> Iterator[Bench]:
    """Provide a service and a real machine agent with an agent; commands time out after 2 s."""
    installation = Installation(here, name, settings={"OUTRIDER_COMMAND_TIMEOUT": "2"})
    with machine_agent(
        installation, providers={"python": _PYTHON_AGENT}, service_cpus=LOADING, cpus=SERVING
    ) as machine:
        with suppress(BenchmarkError):  # it may outlive the time limit of commands
            machine.launch("python")

        def is_idle() -> bool:
            return any(agent.status()["status"] == "idle" for agent in machine.agents())

        machine.program.wait_until(is_idle, "ready with its agent", 60)
        target, server = machine.agents()[0].target, machine.server
        aim = Aim(server.url, server.key, daemon_id=machine.id, target=target)
        yield Bench(server, machine.program, f"/api/v1/shortcuts/{target}/status", aim)


_RECOVERY_SECONDS: Final = 60.0
_SETTLE_SECONDS: Final = 0.5
_MEGABYTE: Final = 1e6

_MEDIAN: Final = Target("at most", 3, of="ratio")
_LONGEST: Final = Target("at most", 1000)

_ATTACKS: Final[dict[str, Callable[[Stage, str], AbstractContextManager[Bench]]]] = {
    "trailer_lines": _attacked_service,
    "trailer_value": _attacked_service,
    "pings": _attacked_service,
    "sockets": _attacked_service,
    "titles": _attacked_service,
    "events": _attacked_service,
    "timeouts": _attacked_machine,
    "redaction": _attacked_machine,
}
"""Methods of `Attack`, and what each is aimed at."""


def benchmark(options: Options) -> Report:
    """Measure under each attack, or under those of `--only`; each on a service of its own."""
    chosen = [name for name in _ATTACKS if name in options.only] or list(_ATTACKS)
    sections = []
    with stage() as here:
        for name in chosen:
            with _ATTACKS[name](here, name) as target:
                sections.append(_measure(name, target, here, options))
    return Report(benchmark="hostile", sections=sections)


def _measure(name: str, target: Bench, here: Stage, options: Options) -> Section:
    peace: list[Prober] = []
    attacked: list[Prober] = []
    counts = Counter[str]()
    probe(target.server, target.path, 1)  # warm up
    before, _ = target.victim.memory()
    target.victim.reset_peak()
    for number in options.each_round(name):
        peace.append(probe(target.server, target.path, options.seconds))
        latencies, more = _under_attack(f"{name}-{number}", name, target, here, options.seconds)
        attacked.append(latencies)
        counts.update(more)
        # The next run begins at peace.
        target.server.program.wait_until(
            lambda: target.server.answers(target.path), "answering again", _RECOVERY_SECONDS
        )
        time.sleep(_SETTLE_SECONDS)
    peak = (target.victim.peak_memory() - before) / _MEGABYTE
    failed = sum(run.outcomes.total() - run.outcomes["status: 200"] for run in attacked)
    figures: dict[str, tuple[Callable[[list[float]], float], Target | None]] = {
        "median latency": (statistics.median, _MEDIAN),
        "99th percentile": (lambda latencies: percentile(latencies, 99), None),
        "longest": (max, _LONGEST),
    }
    description = (getattr(Attack, name).__doc__ or "").partition(".")[0]
    return Section(
        f"{name}: {description}",
        [
            *(
                compared(
                    figure,
                    "ms",
                    (attacked, peace),
                    lambda run, of=of: of(run.latencies) * 1000,  # type: ignore[misc]
                    limit,
                )
                for figure, (of, limit) in figures.items()
            ),
            Figure("requests of the other client that failed", "", [failed], target=NONE),
            Figure("memory, above the start at most", "MB", [peak]),
            *counted(counts, "the attack: "),
        ],
    )


def _under_attack(
    run: str, name: str, target: Bench, here: Stage, seconds: int
) -> tuple[Prober, Counter[str]]:
    """Probe while the attack runs; return what was seen, and the attack's counts."""
    result = here.directory / f"{run}.json"
    lasting = min(seconds + 1, MAX_SECONDS)
    program = here.start(
        run,
        ["-m", "benchmarks.programs.attacks", name, str(lasting), str(result)],
        {"AIM": msgspec.json.encode(target.aim).decode()},
        LOADING,
    )
    program.wait_until(result.exists, "under way")
    time.sleep(_SETTLE_SECONDS)
    found = probe(target.server, target.path, seconds)
    program.wait_for_success(_RECOVERY_SECONDS)
    return found, Counter(msgspec.json.decode(result.read_bytes(), type=dict[str, int]))
