"""A service with a fleet: the account, its machines, and the simulator that plays them."""

import resource
import time
from pathlib import Path
from typing import Final

from benchmarks.fleet.control import Connect, FleetStatus, SimulatorClient
from benchmarks.fleet.enrollment import enroll
from benchmarks.fleet.machine import Enrolled
from benchmarks.processes import BenchmarkError, Program, Stage, split_processors
from benchmarks.service import Installation, Server, status_path
from benchmarks.wrk import Request

EMAIL: Final = "fleet@outrider.invalid"

_FILES_BESIDE: Final = 500
_AT_ONCE: Final = 200
"""Machines that connect at the same time, where they are not a herd."""


class Fleet:
    """The simulator at work.

    Args:
        urls: where the machines connect.
        machines: what the simulator plays, written in `file`.
    """

    def __init__(self, here: Stage, machines: list[Enrolled], file: Path, urls: list[str]) -> None:
        self.machines = machines
        control = here.directory / "simulator.sock"
        control.unlink(missing_ok=True)
        self.program: Program = here.start(
            "simulator",
            ["-m", "benchmarks.fleet.simulator", str(file), str(control), *urls],
            {},
            split_processors()[1],
        )
        self.program.wait_until(lambda: SimulatorClient.is_listening(control), "listening")
        self.simulator = SimulatorClient(control)

    def connect(self, count: int, seconds: float = 300) -> tuple[float, FleetStatus]:
        """Connect machines until `count` are connected; return how long that took."""
        began = time.perf_counter()
        self.simulator.send(Connect(count, _AT_ONCE))
        status = self.simulator.wait_for(count, seconds)
        self.program.check()
        if status.connected < count:
            raise BenchmarkError(f"of {count} machines {status.connected} are connected: {status}")
        return time.perf_counter() - began, status

    def end(self) -> None:
        """End it."""
        self.simulator.close()
        self.program.end()


def started(here: Stage, count: int) -> tuple[Server, Fleet]:
    """Start a single node with SQLite, and the simulator of its machines, none connected yet."""
    raise_file_limit(count + _FILES_BESIDE)
    installation = Installation(here, "fleet")
    account, key = installation.new_account(EMAIL)
    file = here.directory / "machines.jsonl"
    database = f"sqlite+aiosqlite:///{here.directory / 'fleet' / 'outrider.db'}"
    machines = enroll(database, account, count, file)
    server = installation.serve(key, split_processors()[0])
    return server, Fleet(here, machines, file, [server.websocket_url])


def status_request(machines: list[Enrolled]) -> Request:
    """Return the request for the status of these machines' agents, in turns."""
    first, *others = (status_path(machine.daemon_id) for machine in machines)
    return Request("GET", first, others=tuple(others))


def raise_file_limit(wanted: int) -> None:
    """Let this process and those that it starts open so many files.

    Raises:
        BenchmarkError: the system does not let it.
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
