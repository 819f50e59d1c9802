"""Fuzz tests repeat for their share of the seconds; all others run once."""

import os
import subprocess
import sys
from pathlib import Path

from tests.rig.processes import PROCESS_TIMEOUT

ROOT = Path(__file__).parents[1]

CONFTEST = """
import itertools
from types import SimpleNamespace

from tests import fuzzing
from tests.fuzzing import pytest_collection_finish, pytest_runtest_call

fuzzing.time = SimpleNamespace(monotonic=itertools.count().__next__)
fuzzing.load_profile()
"""
"""With a clock on which each look takes a second: how fast the machine is does not count."""

TESTS = """
import asyncio
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

def count(name):
    with Path(name).open("a") as file:
        file.write("x")

@pytest.mark.fuzz
@given(st.binary(min_size=8))
@settings(max_examples=5)
def test_values(value):
    count("values")

@pytest.mark.fuzz
@given(st.binary(min_size=8))
@settings(max_examples=5)
async def test_coroutine(value):
    await asyncio.sleep(0)
    count("coroutine")

@pytest.mark.fuzz
def test_failing():
    count("failing")
    assert len(Path("failing").read_text()) < 2

def test_other():
    count("other")
"""

INI = """
[pytest]
asyncio_mode = auto
markers = fuzz
"""


def _run(directory: Path, **environment: str) -> dict[str, int]:
    """Run `TESTS`; return how often each ran, and how many of them failed."""
    directory.mkdir()
    (directory / "conftest.py").write_text(CONFTEST)
    (directory / "test_it.py").write_text(TESTS)
    (directory / "pytest.ini").write_text(INI)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=directory,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "PYTEST_XDIST_WORKER_COUNT": "1",  # not those of this run
            **environment,
        },
        capture_output=True,
        text=True,
        timeout=2 * PROCESS_TIMEOUT,
        check=False,
    )
    names = ("values", "coroutine", "failing", "other")
    return {name: len((directory / name).read_text()) for name in names} | {"exit": done.returncode}


def test_without_seconds_every_test_runs_once(tmp_path: Path) -> None:
    ran = _run(tmp_path / "it")
    assert ran == {"values": 5, "coroutine": 5, "failing": 1, "other": 1, "exit": 0}


def test_with_seconds_fuzz_tests_repeat_until_they_fail(tmp_path: Path) -> None:
    ran = _run(tmp_path / "it", OUTRIDER_FUZZ_SECONDS="9", CI="true")
    # Three fuzz tests share the nine seconds. The profile `repeated` varies the examples.
    assert ran == {"values": 15, "coroutine": 15, "failing": 2, "other": 1, "exit": 1}
