"""Refused requests of agents are reported; a flood of them is suppressed and counted."""

import pytest

from outrider.contract.events import MAX_REFUSED_TARGET, Refused
from outrider.machine.system.refusals import MAX_SESSIONS, REPORTED_PER_MINUTE, RefusalSink


class Clock:
    def __init__(self) -> None:
        self.now = 1_000

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def reported() -> list[Refused]:
    return []


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def refusals(reported: list[Refused], clock: Clock) -> RefusalSink:
    return RefusalSink(reported.append, clock)


def test_a_refusal_is_reported_with_a_bounded_target(
    refusals: RefusalSink, reported: list[Refused]
) -> None:
    refusals.note("session_1", "agent.fs_read_refused", "/" + "x" * 5000)
    (one,) = reported
    assert (one.session_id, one.action, one.timestamp) == (
        "session_1",
        "agent.fs_read_refused",
        1_000,
    )
    assert len(one.target) == MAX_REFUSED_TARGET


def test_a_flood_is_counted(refusals: RefusalSink, reported: list[Refused]) -> None:
    for index in range(10_000):
        refusals.note("session_1", "agent.fs_read_refused", str(index))
    assert [one.target for one in reported[:REPORTED_PER_MINUTE]] == [
        str(i) for i in range(REPORTED_PER_MINUTE)
    ]
    assert [(int(one.target) + 1, one.suppressed) for one in reported[REPORTED_PER_MINUTE:]] == [
        (count, count // 2 - 1) for count in (64, 128, 256, 512, 1024, 2048, 4096, 8192)
    ]


def test_a_flood_hides_no_other_session(refusals: RefusalSink, reported: list[Refused]) -> None:
    for _ in range(1000):
        refusals.note("session_1", "agent.fs_read_refused", "/etc/shadow")
    refusals.note("session_2", "agent.fs_write_refused", "/etc/hosts")
    assert reported[-1].session_id == "session_2"


def test_the_next_minute_reports_how_many_were_suppressed(
    refusals: RefusalSink, reported: list[Refused], clock: Clock
) -> None:
    for _ in range(100):
        refusals.note("session_1", "agent.fs_read_refused", "/etc/shadow")
    clock.now += 60_000
    refusals.note("session_1", "agent.fs_read_refused", "/etc/passwd")
    assert (reported[-1].target, reported[-1].suppressed) == ("/etc/passwd", 36)


def test_at_most_max_sessions_are_counted(refusals: RefusalSink, reported: list[Refused]) -> None:
    """A session that is no longer counted starts again: its 33rd refusal is reported."""

    def refuse(session: str) -> None:
        refusals.note(session, "agent.fs_read_refused", "/")

    for _ in range(REPORTED_PER_MINUTE + 1):
        refuse("session_0")
    assert len(reported) == REPORTED_PER_MINUTE
    for index in range(1, MAX_SESSIONS):
        refuse(f"session_{index}")
    refuse("session_0")
    assert reported[-1].session_id == f"session_{MAX_SESSIONS - 1}", "it is still counted"
    refuse("one_more")
    refuse("session_0")
    assert reported[-1].session_id == "session_0"
