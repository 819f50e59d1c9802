"""What a node holds at a moment: memory, tasks, sockets, files and rows."""

import sqlite3
import statistics
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import msgspec
import psutil

from benchmarks.processes import BenchmarkError
from benchmarks.service import Server

_TASKS = "outrider_tasks "


class Sample(msgspec.Struct, frozen=True):
    """Figures of one moment; `seconds` is its `time.monotonic`."""

    seconds: float
    memory: float
    tasks: float
    sockets: float
    files: float


class Sampler:
    """Reads the figures of a node that stores in a SQLite file."""

    def __init__(self, server: Server, database: Path) -> None:
        self._server = server
        self._process = psutil.Process(server.program.pid)
        self._database = database

    def take(self) -> Sample:
        """Return the figures of now; memory is in bytes.

        Raises:
            BenchmarkError: the node has ended.
        """
        self._server.program.check()
        metrics = self._server.get("/metrics").decode()
        tasks = next(line for line in metrics.splitlines() if line.startswith(_TASKS))
        return Sample(
            time.monotonic(),
            self._process.memory_info().rss,
            float(tasks.removeprefix(_TASKS)),
            len(self._process.net_connections()),
            self._process.num_fds(),
        )

    def rows(self) -> dict[str, int]:
        """Return the number of rows of every table."""
        with closing(sqlite3.connect(f"file:{self._database}?mode=ro", uri=True)) as database:
            names = database.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
            ).fetchall()
            return {
                name: database.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0]
                for (name,) in names
                if not name.startswith(("sqlite_", "alembic_"))
            }


def typical(samples: Sequence[Sample]) -> Sample:
    """Return the medians of these samples, of the memory the least.

    Checking a password takes 64 MiB for a moment, so the median of the memory says how many of them
    were under way. What leaks is in the least too.

    Raises:
        BenchmarkError: there are none.
    """
    if not samples:
        raise BenchmarkError("there are no samples of a minute: the computer is too busy")
    medians = Sample(
        *(
            statistics.median(getattr(sample, field) for sample in samples)
            for field in Sample.__struct_fields__
        )
    )
    return msgspec.structs.replace(medians, memory=min(sample.memory for sample in samples))
