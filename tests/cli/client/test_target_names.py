"""Which session a word names."""

import pytest

from outrider.cli.client.target_names import fitting
from outrider.contract.resources import Session

FIRST = "session_01aaaa"
SECOND = "session_01aabb"


def session(session_id: str, kind: str) -> Session:
    return Session(
        id=session_id,
        target_id=f"machine_1:session:{session_id}",
        kind="acp",
        type=kind,
        name=kind,
        status="idle",
        created_at=1,
        last_activity_at=1,
    )


SESSIONS = [session(FIRST, "demo"), session(SECOND, "codex"), session("session_01aa", "codex")]


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        (FIRST, [FIRST]),
        ("session_01aaa", [FIRST]),
        ("01aab", [SECOND]),
        ("session_01aa", ["session_01aa"]),  # a whole id, although others begin with it
        ("demo", [FIRST]),
        ("codex", [SECOND, "session_01aa"]),
        ("machine_1:session:session_01aab", [SECOND]),
        ("session_", [FIRST, SECOND, "session_01aa"]),
        ("dem", []),
        ("", []),
    ],
)
def test_a_word_names_sessions(word: str, expected: list[str]) -> None:
    assert [match.id for match in fitting(SESSIONS, word)] == expected
