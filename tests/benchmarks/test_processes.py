"""A benchmark that is ended ends what it has started."""

import os
import signal
import sys
from pathlib import Path

import psutil
import pytest

from tests.rig.processes import Program
from tests.rig.waiting import TIMEOUT, eventually

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.faults]

ROOT = Path(__file__).parents[2]
IN_BACKGROUND = ["-c", 'trap "" INT; exec "$0" "$@"', sys.executable]
"""How a shell starts a program in its background: with an ignored SIGINT."""


def started_in(directory: Path) -> list[psutil.Process]:
    """Return the processes whose home is below a directory, as a benchmark's programs' are."""
    found = []
    for process in psutil.process_iter():
        try:
            home = Path(process.environ().get("HOME", ""))
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
        if home.is_relative_to(directory):
            found.append(process)
    return found


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_its_programs_and_removes_its_files(
    tmp_path: Path, number: signal.Signals
) -> None:
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    env = {
        **{name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ},
        "PYTHONPATH": os.pathsep.join(paths),
        "TMPDIR": str(tmp_path),
    }
    # The service and a scripted machine, and requests to them for a minute.
    arguments = ["-m", "benchmarks", "sdk", "--seconds", "59"]
    try:
        async with Program(*IN_BACKGROUND, *arguments, env=env, python="/bin/sh") as benchmark:
            await eventually(lambda: len(started_in(tmp_path)) >= 2, within=3 * TIMEOUT)
            benchmark.signal(number)
            assert await benchmark.ends(within=2 * TIMEOUT) == 130
        assert started_in(tmp_path) == []
        assert os.listdir(tmp_path) == []  # noqa: PTH208
    finally:
        for process in started_in(tmp_path):
            process.kill()
