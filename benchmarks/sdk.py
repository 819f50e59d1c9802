"""What the Python client costs beyond a bare request: `agent.status()` against httpx2."""

import statistics
import time
from collections.abc import Callable
from typing import Final

import httpx2

from benchmarks.command import Options
from benchmarks.processes import SERVING, stage
from benchmarks.report import Figure, Report, Section, Target
from benchmarks.service import Installation, enroll, start_scripted_machine, status_path
from outrider.sdk import Outrider

_OVERHEAD: Final = Target("at most", 1.3, of="ratio")
_WARM_UP: Final = 50


def benchmark(options: Options) -> Report:
    """Measure both against the same service and scripted machine, one request at a time."""
    with stage() as here:
        installation = Installation(here, "sdk")
        _, key = installation.new_account()
        server = installation.serve(key, SERVING)
        daemon_id, token = enroll(server, installation.new_code())
        machine = start_scripted_machine(here, server, daemon_id, token)
        path = status_path(daemon_id)
        headers = {"Authorization": f"Bearer {key}"}
        with httpx2.Client(headers=headers) as bare, Outrider(server.url, key) as client:
            agent = client.agent(path.split("/")[-2])
            ours, baseline = options.in_turns(
                "agent.status()",
                lambda: _median(agent.status, options.seconds),
                lambda: _median(lambda: bare.get(server.url + path).json(), options.seconds),
            )
        machine.end()
        server.program.end()
    figure = Figure("agent.status(), median", "us", ours, baseline=baseline, target=_OVERHEAD)
    return Report(benchmark="sdk", sections=[Section("The Python client", [figure])])


def _median(call: Callable[[], object], seconds: int) -> float:
    """Return the median of a call in microseconds."""
    for _ in range(_WARM_UP):
        call()
    taken: list[float] = []
    end = time.perf_counter() + seconds
    while (began := time.perf_counter()) < end:
        call()
        taken.append((time.perf_counter() - began) * 1e6)
    return statistics.median(taken)
