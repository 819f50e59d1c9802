"""Two servers side by side: the service and what it is compared with, each with a machine."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import msgspec

from benchmarks.command import Options
from benchmarks.processes import SERVING, Stage
from benchmarks.service import Installation, Server, enroll, start_scripted_machine, status_path
from benchmarks.wrk import Request, Run, load


class Account(msgspec.Struct, frozen=True):
    """An account of both sides, its key, and its machine."""

    id: str
    key: str
    daemon_id: str


class Sides(msgspec.Struct, frozen=True):
    """What is compared, each with a machine of its own connected."""

    outrider: Server
    baseline: Server
    requests: dict[str, Request]
    """The requests to measure, by the name that the report gives them."""

    def in_turns(
        self, name: str, connections: int, options: Options
    ) -> tuple[list[Run], list[Run]]:
        """Measure a request on both sides, run by run."""

        def run(server: Server, seconds: int = options.seconds) -> Run:
            return load(server, self.requests[name], connections=connections, seconds=seconds)

        for server in (self.outrider, self.baseline):
            run(server, 1)  # warm up
        return options.in_turns(
            f"{name}, connections: {connections}",
            lambda: run(self.outrider),
            lambda: run(self.baseline),
        )


@contextmanager
def side_by_side(
    here: Stage, start_baseline: Callable[[Installation, Account, bytes], Server]
) -> Iterator[Sides]:
    """Start the service, and what it is compared with; end both behind the block.

    Args:
        start_baseline: given the service's installation and its answer to `GET /daemons`, return
            the other side, ready.
    """
    installation = Installation(here, "outrider")
    account, key = installation.new_account()
    with ExitStack() as running:
        outrider = installation.serve(key, SERVING)
        running.callback(outrider.program.end)
        daemon_id, token = enroll(outrider, installation.new_code())
        running.callback(start_scripted_machine(here, outrider, daemon_id, token).end)
        daemons = "/api/v1/daemons"
        baseline = start_baseline(
            installation, Account(account, key, daemon_id), outrider.get(daemons)
        )
        running.callback(baseline.program.end)
        running.callback(start_scripted_machine(here, baseline, daemon_id, token).end)
        command = f"{daemons}/{daemon_id}/command"
        requests = {
            "GET …/status": Request("GET", status_path(daemon_id)),
            "POST …/command read_chat": Request(
                "POST", command, '{"type":"read_chat","payload":{}}'
            ),
            "GET /daemons": Request("GET", daemons),
        }
        yield Sides(outrider, baseline, requests)
