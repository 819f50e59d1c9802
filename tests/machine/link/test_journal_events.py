"""The journal's events: numbers that a service can rely on."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from outrider.contract.events import Refused
from outrider.contract.link.outbox import Outbox
from outrider.machine.link.journal import Journal
from tests.contract.link.memory_log import agent_event


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


@pytest.fixture
def journal(path: Path) -> Iterator[Journal]:
    journal = Journal(path)
    yield journal
    journal.close()


def add(journal: Journal, *names: str) -> None:
    for name in names:
        journal.add_event(agent_event(name))


def refused(target: str) -> Refused:
    return Refused(session_id="s", action="a", target=target, timestamp=1)


def waiting(journal: Journal, after: int = 0, limit: int = 100) -> list[tuple[int, str]]:
    return [(seq, kept.id) for seq, kept in journal.events(after, limit)]


def test_numbers_go_on_after_acknowledgement_and_restart(journal: Journal, path: Path) -> None:
    Outbox(journal).resume(0)
    add(journal, "a", "b")
    journal.acknowledge_events(2)
    journal.close()
    again = Journal(path)
    add(again, "c")
    assert waiting(again) == [(3, "c")]
    assert again.last_event() == 3
    again.close()


def test_the_oldest_events_are_dropped_when_they_have_too_many_bytes(path: Path) -> None:
    with closing(Journal(path, max_events_bytes=20_000)) as journal:
        for number in range(100):
            event = agent_event(str(number))
            event.message = "x" * 1_000
            journal.add_event(event)
        kept = journal.events(0, 1_000)
        assert 10 <= len(kept) <= 20
        assert [event.id for _, event in kept] == [str(n) for n in range(100 - len(kept), 100)]
        journal.acknowledge_events(95)
        add(journal, "last")
        assert [seq for seq, _ in journal.events(0, 1_000)] == [96, 97, 98, 99, 100, 101]


def test_events_are_read_in_pages(journal: Journal) -> None:
    add(journal, "a", "b", "c")
    assert waiting(journal, after=1, limit=1) == [(2, "b")]


def test_what_the_service_has_is_forgotten(journal: Journal) -> None:
    Outbox(journal).resume(0)
    add(journal, "a", "b", "c")
    Outbox(journal).resume(2)
    assert waiting(journal) == [(3, "c")]


@pytest.mark.parametrize("acknowledged", [1, 2, 500])
def test_a_new_journal_goes_on_behind_the_service(journal: Journal, acknowledged: int) -> None:
    add(journal, "a", "b", "c")
    Outbox(journal).resume(acknowledged)
    assert waiting(journal) == [
        (acknowledged + 1, "a"),
        (acknowledged + 2, "b"),
        (acknowledged + 3, "c"),
    ]
    add(journal, "d")
    assert waiting(journal, after=acknowledged + 3) == [(acknowledged + 4, "d")]


def test_a_journal_that_lost_its_newest_goes_on_behind_the_service(journal: Journal) -> None:
    Outbox(journal).resume(0)
    add(journal, "a")
    Outbox(journal).resume(5)
    assert waiting(journal) == [(6, "a")]


def test_the_oldest_are_dropped_beyond_the_bound(path: Path) -> None:
    with closing(Journal(path, max_events=2)) as journal:
        add(journal, "a", "b", "c")
        assert waiting(journal) == [(2, "b"), (3, "c")]


def test_the_oldest_refusals_are_dropped_beyond_the_bound(path: Path) -> None:
    with closing(Journal(path, max_refusals=2)) as journal:
        for target in ("/a", "/b", "/c"):
            journal.add_refusal(refused(target))
        assert journal.refusals(0, 9) == [(2, refused("/b")), (3, refused("/c"))]


def test_numbers_of_refusals_continue_after_acknowledgement_and_restart(
    journal: Journal, path: Path
) -> None:
    journal.add_refusal(refused("/a"))
    journal.acknowledge_refusals(1)
    journal.close()
    with closing(Journal(path)) as again:
        again.add_refusal(refused("/b"))
        assert again.refusals(0, 9) == [(2, refused("/b"))]


def test_nobody_else_may_read_the_file(journal: Journal, path: Path) -> None:
    add(journal, "a")
    assert {file.stat().st_mode & 0o777 for file in path.parent.iterdir()} == {0o600}
