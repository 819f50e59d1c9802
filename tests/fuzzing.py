"""Running tests marked `fuzz` for as long as one likes.

A fuzz test is a hypothesis test with the mark `fuzz`. Without `OUTRIDER_FUZZ_SECONDS` it runs once,
with the same examples each time. With it, all selected fuzz tests share that many seconds evenly:
each is run at least once, and again with new random examples until its share is used up. A failure
ends the test at once; hypothesis stores the example in `.hypothesis/` and begins with it the next
time.
"""

import math
import os
import time
from collections.abc import Generator
from typing import Final

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.database import DirectoryBasedExampleDatabase

_LONGEST_PASS: Final = 120
"""Seconds that one run of a fuzz test may take, on top of its share."""

_SHARE: Final = pytest.StashKey[float]()

settings.register_profile(
    "outrider",
    deadline=None,  # no test asserts a duration
    derandomize=True,  # the same examples each time; `make fuzz` and `make test-security` vary them
    max_examples=10,
    print_blob=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


# A test is repeated while its share of the time lasts, so a pass must be short.
settings.register_profile(
    "repeated",
    settings.get_profile("outrider"),
    derandomize=False,
    database=DirectoryBasedExampleDatabase(".hypothesis/examples"),
    max_examples=30,
)


def load_profile() -> None:
    """Set hypothesis' defaults; call this before test modules are imported."""
    settings.load_profile("repeated" if _seconds() else "outrider")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Divide the seconds among the fuzz tests that are left after deselection."""
    total = _seconds()
    fuzz_tests = [item for item in session.items if item.get_closest_marker("fuzz")]
    if not total or not fuzz_tests:
        return
    # Each process of pytest-xdist collects all tests and runs its part of them. Where there are
    # fewer tests than processes, some have nothing to fuzz.
    workers = min(int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")), len(fuzz_tests))
    for item in fuzz_tests:
        item.stash[_SHARE] = total * workers / len(fuzz_tests)
        item.add_marker(pytest.mark.timeout(math.ceil(item.stash[_SHARE]) + _LONGEST_PASS))


def _seconds() -> float:
    return float(os.environ.get("OUTRIDER_FUZZ_SECONDS", "0"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """Run a fuzz test again until its share of the time is used up."""
    end = time.monotonic() + item.stash.get(_SHARE, 0.0)
    yield
    while time.monotonic() < end:
        item.runtest()
