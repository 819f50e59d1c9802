"""Measures the service with and without its access layer, in turns."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

import msgspec
from rich.console import Console

from benchmarks.access import stages
from benchmarks.command import Effort
from benchmarks.processes import Stage, split_processors, stage
from benchmarks.report import Figure, Report, Section, Target
from benchmarks.roundtrip.wrk import Request, load, require_wrk
from benchmarks.service import Installation, Server, enrol

CONNECTIONS: Final = 32

_EMAIL: Final = "bench@outrider.invalid"
_TARGET: Final = Target("at least", 0.85, of="ratio")


class _Sides(msgspec.Struct, frozen=True):
    """The service as it is, and the same build with the access layer bypassed."""

    guarded: Server
    bypassed: Server
    daemon_id: str

    def requests(self) -> dict[str, Request]:
        return {
            "GET …/status": Request(
                "GET", f"/api/v1/shortcuts/{self.daemon_id}:cli:claude-code/status"
            ),
            "POST …/command read_chat": Request(
                "POST",
                f"/api/v1/daemons/{self.daemon_id}/command",
                '{"type":"read_chat","payload":{}}',
            ),
        }


def benchmark(effort: Effort, progress: Console) -> Report:
    """Measure the throughput that the access layer leaves, then each of its stages."""
    require_wrk()
    with stage() as here:
        with _sides(here) as sides:
            compared = [
                _compare(name, request, sides, effort, progress)
                for name, request in sides.requests().items()
            ]
        costs = stages.measure(here.directory, effort.rounds)
    return Report(
        benchmark="access",
        sections=[
            Section(title="With the access layer; the baseline is without it", figures=compared),
            Section(title="Its stages, each alone", figures=costs),
        ],
    )


@contextmanager
def _sides(here: Stage) -> Iterator[_Sides]:
    served, loading = split_processors()
    installation = Installation(here, "guarded")
    account, key = installation.new_account(_EMAIL)
    with ExitStack() as running:
        guarded = installation.serve(key, served)
        running.callback(guarded.program.end)
        daemon_id, token = enrol(guarded, installation.new_code(_EMAIL))
        other = Installation(here, "bypassed", copy_of=installation)
        bypassed = Server(
            here.start(
                "bypassed",
                ["-m", "benchmarks.access.bypassed", "serve"],
                {**other.settings, "ACCOUNT": account},
                served,
            ),
            other.url,
            key,
        )
        running.callback(bypassed.program.end)
        bypassed.program.wait_until(lambda: bypassed.answers("/readyz"), "ready")
        sides = _Sides(guarded, bypassed, daemon_id)
        path = sides.requests()["GET …/status"].path
        for server in (guarded, bypassed):
            machine = here.start(
                "scripted machine",
                ["-m", "benchmarks.scripted_machine", server.websocket_url],
                {"TOKEN": token},
                loading,
            )
            running.callback(machine.end)
            machine.wait_until(lambda server=server: server.answers(path), "connected")  # type: ignore[misc]
        yield sides


def _compare(
    name: str, request: Request, sides: _Sides, effort: Effort, progress: Console
) -> Figure:
    runs: dict[str, list[float]] = {"guarded": [], "bypassed": []}
    _, loading = split_processors()
    for number in range(-1, effort.rounds):  # the first round warms up
        progress.print(f"{name}, round {number + 1} of {effort.rounds}", style="dim")
        for side, server in (("guarded", sides.guarded), ("bypassed", sides.bypassed)):
            seen = load(
                server, request, connections=CONNECTIONS, seconds=effort.seconds, cpus=loading
            )
            if number >= 0:
                runs[side].append(seen.per_second)
    return Figure(
        name=f"{name}, {CONNECTIONS} connections",
        unit="requests/s",
        runs=runs["guarded"],
        baseline=runs["bypassed"],
        target=_TARGET,
    )
