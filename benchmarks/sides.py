"""Two servers side by side: the service and what it is compared with, each with a machine."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import msgspec

from benchmarks.command import Options
from benchmarks.processes import LOADING, SERVING, Stage
from benchmarks.service import Installation, Server, enroll, start_scripted_machine, status_path
from benchmarks.wrk import Load, Request, load


class Account(msgspec.Struct, frozen=True):
    """An account of both sides, its key, and its machine."""

    id: str
    key: str
    daemon_id: str


class Sides(msgspec.Struct, frozen=True):
    """What is compared, each with a machine of its own connected."""

    outrider: Server
    baseline: Server
    daemon_id: str

    def requests(self) -> dict[str, Request]:
        """Return the requests to measure, by the name that the report gives them."""
        return {
            "GET …/status": Request("GET", status_path(self.daemon_id)),
            "POST …/command read_chat": Request(
                "POST",
                f"/api/v1/daemons/{self.daemon_id}/command",
                '{"type":"read_chat","payload":{}}',
            ),
            "GET /daemons": Request("GET", "/api/v1/daemons"),
        }


class Run(msgspec.Struct):
    """One run: what wrk saw, and the processor time that the server used meanwhile."""

    load: Load
    cpu_seconds: float

    @property
    def cpu_per_request(self) -> float:
        """Microseconds of a processor for each request, in all threads of the server."""
        return self.cpu_seconds * 1e6 / self.load.requests


@contextmanager
def side_by_side(
    here: Stage, start_baseline: Callable[[Stage, Installation, Account], Server]
) -> Iterator[Sides]:
    """Start the service, and what it is compared with; end both behind the block.

    Args:
        start_baseline: given the service's installation, return the other side, ready.
    """
    installation = Installation(here, "outrider")
    account, key = installation.new_account()
    with ExitStack() as running:
        outrider = installation.serve(key, SERVING)
        running.callback(outrider.program.end)
        daemon_id, token = enroll(outrider, installation.new_code())
        baseline = start_baseline(here, installation, Account(account, key, daemon_id))
        running.callback(baseline.program.end)
        sides = Sides(outrider, baseline, daemon_id)
        for server in (outrider, baseline):
            running.callback(start_scripted_machine(here, server, daemon_id, token).end)
        yield sides


def in_turns(
    name: str, sides: Sides, connections: int, options: Options
) -> tuple[list[Run], list[Run]]:
    """Measure a request on both sides, run by run."""
    request = sides.requests()[name]
    for server in (sides.outrider, sides.baseline):
        _run(server, request, connections, seconds=1)  # warm up
    return options.in_turns(
        f"{name}, connections: {connections}",
        lambda: _run(sides.outrider, request, connections, options.seconds),
        lambda: _run(sides.baseline, request, connections, options.seconds),
    )


def _run(server: Server, request: Request, connections: int, seconds: int) -> Run:
    before = server.program.cpu_seconds()
    seen = load(server, request, connections=connections, seconds=seconds, cpus=LOADING)
    return Run(seen, server.program.cpu_seconds() - before)
