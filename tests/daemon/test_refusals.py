"""What agents were kept from is told, and a flood of it is told as one."""

import pytest

from outrider.contract.events import MAX_REFUSED_TARGET, Refused
from outrider.daemon.refusals import TOLD_A_MINUTE, RefusalSink


class Clock:
    def __init__(self) -> None:
        self.now = 1_000

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def told() -> list[Refused]:
    return []


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def refusals(told: list[Refused], clock: Clock) -> RefusalSink:
    return RefusalSink(told.append, clock)


def test_a_refusal_is_told_with_a_bound(refusals: RefusalSink, told: list[Refused]) -> None:
    refusals.note("session_1", "agent.fs_read_refused", "/" + "x" * 5000)
    (one,) = told
    assert (one.session_id, one.action, one.timestamp) == (
        "session_1",
        "agent.fs_read_refused",
        1_000,
    )
    assert len(one.target) == MAX_REFUSED_TARGET


def test_a_flood_is_counted(refusals: RefusalSink, told: list[Refused]) -> None:
    for index in range(10_000):
        refusals.note("session_1", "agent.fs_read_refused", str(index))
    assert [one.target for one in told[:TOLD_A_MINUTE]] == [str(i) for i in range(TOLD_A_MINUTE)]
    assert [(int(one.target) + 1, one.untold) for one in told[TOLD_A_MINUTE:]] == [
        (count, count // 2 - 1) for count in (64, 128, 256, 512, 1024, 2048, 4096, 8192)
    ]


def test_a_flood_hides_no_other_session(refusals: RefusalSink, told: list[Refused]) -> None:
    for _ in range(1000):
        refusals.note("session_1", "agent.fs_read_refused", "/etc/shadow")
    refusals.note("session_2", "agent.fs_write_refused", "/etc/hosts")
    assert told[-1].session_id == "session_2"


def test_the_next_minute_tells_how_many_there_were(
    refusals: RefusalSink, told: list[Refused], clock: Clock
) -> None:
    for _ in range(100):
        refusals.note("session_1", "agent.fs_read_refused", "/etc/shadow")
    clock.now += 60_000
    refusals.note("session_1", "agent.fs_read_refused", "/etc/passwd")
    assert (told[-1].target, told[-1].untold) == ("/etc/passwd", 36)


def test_what_is_kept_of_sessions_is_bounded(refusals: RefusalSink, told: list[Refused]) -> None:
    for index in range(3_000):
        refusals.note(f"session_{index}", "agent.fs_read_refused", "/")
    assert len(told) == 3_000
    assert len(refusals._minutes) == 1_000
