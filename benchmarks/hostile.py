"""The latency that other clients see while a service or a machine is attacked, and without."""

import asyncio
import statistics
import time
from collections import Counter
from contextlib import suppress
from typing import Final, NamedTuple

import msgspec
from tests.rig.memory import peak_rss, reset_peak_rss

from benchmarks.bench import Bench, Sections
from benchmarks.load import Clients
from benchmarks.machine_agent import machine_agent
from benchmarks.processes import LOADING, MEGABYTE, SERVING, Program
from benchmarks.programs.attacks import MAX_SECONDS, Aim, Attack
from benchmarks.report import NONE, Figure, Measure, Section, Target, counted, percentile
from benchmarks.service import Installation, Server, start_scripted_machine, status_path
from benchmarks.terminals import SHELL
from outrider.contract.errors import OutriderError

_INTERVAL: Final = 0.02
_TIMEOUT: Final = 30.0
"""Seconds after which an answer counts as failed."""

_RECOVERY_SECONDS: Final = 60.0
_SETTLE_SECONDS: Final = 0.5

_ON_SERVICE: Final = ("trailer_lines", "trailer_value", "pings", "sockets", "titles", "events")
_ON_MACHINE: Final = ("timeouts", "redaction")
"""Methods of `Attack`."""

_MEDIAN: Final = Target("at most", 3, of="ratio")
_LONGEST: Final = Target("at most", 1000)
_MEASURES: Final = (
    Measure("median latency", "ms", lambda run: statistics.median(run.latencies) * 1e3, _MEDIAN),
    Measure("99th percentile", "ms", lambda run: percentile(run.latencies, 99) * 1e3),
    Measure("longest", "ms", lambda run: max(run.latencies) * 1e3, _LONGEST),
)

_ATTACKER: Final = "attacker@outrider.invalid"


class _Attacked(NamedTuple):
    """A service under attack.

    Attributes:
        victim: the program whose memory is watched.
        path: of the status that the other client requests.
    """

    server: Server
    victim: Program
    path: str
    aim: Aim


def hostile(bench: Bench) -> Sections:
    """Measure under each attack, or under those of `--only`; each on a service of its own."""
    every = _ON_SERVICE + _ON_MACHINE
    for name in [name for name in every if name in bench.only] or every:
        if name in _ON_SERVICE:
            yield _attack_on_service(name, bench)
        else:
            yield _attack_on_machine(name, bench)


def _attack_on_service(name: str, bench: Bench) -> Section:
    """Measure with a client whose machine answers, and an attacker with an account."""
    installation = Installation(bench.stage, name)
    server = installation.serve(installation.new_account()[1], SERVING)
    daemon_id, token = server.enroll(installation.new_code())
    machine = start_scripted_machine(bench.stage, server, daemon_id, token)
    _, key = installation.new_account(_ATTACKER)
    attacking_id, attacking_token = server.enroll(installation.new_code(_ATTACKER))
    aim = Aim(server.url, key, token=attacking_token, daemon_id=attacking_id)
    section = _measure(name, _Attacked(server, server.program, status_path(daemon_id), aim), bench)
    machine.end()
    server.program.end()
    return section


def _attack_on_machine(name: str, bench: Bench) -> Section:
    """Measure with a real machine agent; commands time out after 2 s."""
    installation = Installation(bench.stage, name, settings={"OUTRIDER_COMMAND_TIMEOUT": "2"})
    with machine_agent(
        installation, providers={"shell": SHELL}, service_cpus=LOADING, cpus=SERVING
    ) as machine:
        with suppress(OutriderError):  # it may take longer than commands may
            machine.launch("shell")

        def is_idle() -> bool:
            return any(one.status == "idle" for one in machine.sessions())

        machine.program.wait_until(is_idle, "ready with its agent", 60)
        target, server = machine.sessions()[0].target_id, machine.server
        aim = Aim(server.url, server.key, daemon_id=machine.machine.id, target=target)
        path = f"/api/v1/shortcuts/{target}/status"
        return _measure(name, _Attacked(server, machine.program, path, aim), bench)


def _measure(name: str, target: _Attacked, bench: Bench) -> Section:
    server, pid = target.server, target.victim.process.pid
    counts = Counter[str]()

    def in_peace() -> Clients:
        # The run before may have been an attack.
        server.program.wait_until(
            lambda: server.answers(target.path), "answering again", _RECOVERY_SECONDS
        )
        time.sleep(_SETTLE_SECONDS)
        return _probe(target, bench.seconds)

    def attacked() -> Clients:
        result = bench.stage.directory / f"{name}-{time.monotonic_ns()}.json"
        lasting = min(bench.seconds + 1, MAX_SECONDS)
        program = bench.stage.start(
            name,
            ["-m", "benchmarks.programs.attacks", name, str(lasting), str(result)],
            {"AIM": msgspec.json.encode(target.aim).decode()},
            LOADING,
        )
        program.wait_until(result.exists, "under way")
        time.sleep(_SETTLE_SECONDS)
        found = _probe(target, bench.seconds)
        program.wait_for_success(_RECOVERY_SECONDS)
        counts.update(msgspec.json.decode(result.read_bytes(), type=dict[str, int]))
        return found

    _probe(target, 1)  # warm up
    before, _ = target.victim.memory()
    reset_peak_rss(pid)
    peace, attacks = bench.in_turns(name, in_peace, attacked)
    peak = peak_rss(pid) / MEGABYTE - before
    failed = sum(run.outcomes.total() - run.outcomes["status: 200"] for run in attacks)
    description = (getattr(Attack, name).__doc__ or "").partition(".")[0]
    return Section(
        f"{name}: {description}",
        [
            *(measure.of((attacks, peace)) for measure in _MEASURES),
            Figure("requests of the other client that failed", "", [failed], target=NONE),
            Figure("memory, above the start at most", "MB", [peak]),
            *counted(counts, "the attack: "),
        ],
    )


def _probe(target: _Attacked, seconds: float) -> Clients:
    """GET the path every 20 ms, for so many seconds; return the client with its latencies.

    A request that is due while an answer is outstanding is sent late, and its latency counts from
    when it was due: otherwise a service that stands still for a second would show in one request.
    """
    client = Clients(target.server, _TIMEOUT)

    async def request_when_due() -> None:
        begin = time.monotonic()
        for number in range(int(seconds / _INTERVAL)):
            due = begin + number * _INTERVAL
            await asyncio.sleep(due - time.monotonic())
            await client.request("status", "GET", target.path, due)
            if time.monotonic() - begin > seconds + _TIMEOUT:
                break

    client.run(request_when_due())
    return client
