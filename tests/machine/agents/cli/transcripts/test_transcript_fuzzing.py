"""Records of any content, read while they grow: never a traceback, what was read stays."""

import itertools
import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.contract.resources import Message
from outrider.machine.sessions.guards import Guards
from tests.machine.agents.cli.transcripts.records import CONVERSATION, KINDS, TIME, RecordKind

pytestmark = pytest.mark.fuzz

TIMES = [TIME, "2026-11-20T22:35:53", "0001-01-01T00:00:00", "9999-12-31T23:59:59+00:00", "x"]
GUARDS = Guards(r"^[\s/?]", r"\\\Z", "\u2060")
APPENDED = {"codex", "gemini"}
"""Records of which a longer one begins with all that a shorter one tells."""


def values(kind: RecordKind) -> st.SearchStrategy[Any]:
    """Return a strategy for JSON that has the names and values of this kind of record."""
    words = st.sampled_from([*kind.words.split(), *TIMES, CONVERSATION])
    scalars = (
        words
        | st.none()
        | st.booleans()
        | st.integers(-(2**70), 2**70)
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(max_size=8)
    )
    return st.recursive(
        scalars,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(words, inner, max_size=8),
        max_leaves=24,
    )


def mutated(kind: RecordKind) -> st.SearchStrategy[Any]:
    """Return a strategy for entries of this kind, with some of their values replaced."""
    entry = st.builds(lambda n, text: kind.answer(n, text)[0], st.integers(0, 9), st.text())

    @st.composite
    def change(draw: st.DrawFn) -> Any:
        changed = draw(entry)
        for _ in range(draw(st.integers(0, 3))):
            place: Any = changed
            while isinstance(place, dict | list) and place:
                keys = sorted(place) if isinstance(place, dict) else list(range(len(place)))
                key = draw(st.sampled_from(keys))
                if not isinstance(place[key], dict | list) or draw(st.booleans()):
                    place[key] = draw(values(kind))
                    break
                place = place[key]
        return changed

    return change()


def lines(kind: RecordKind) -> st.SearchStrategy[Any]:
    """Return a strategy for what stands in a record of this kind."""
    if kind.name == "opencode":
        keys = st.sampled_from(["m1", "m2", "m3", "m4"])
        at = st.integers(-(2**40), 2**63 - 1) | st.text(max_size=3) | st.none()
        data = values(kind).map(json.dumps) | st.text() | st.binary() | st.none()
        session = st.just(f"ses_{CONVERSATION}")
        return (
            st.tuples(st.just("message"), keys, session, at, at, data)
            | st.tuples(st.just("part"), keys, keys, session, at, at, data)
            | st.tuples(st.just("session"), session, st.text() | st.binary() | st.none())
        )
    if kind.name == "aider":
        words = st.sampled_from([*kind.words.split(" "), " ", "  ", "\n", "\n\n", "\r\n"])
        text = st.lists(words | st.text(max_size=6), max_size=30).map(" ".join)
        return text.map(lambda said: said.encode("utf-8", "replace")) | st.binary()
    return values(kind) | mutated(kind) | st.binary().map(lambda raw: raw + b"\n")


@contextmanager
def folder() -> Iterator[Path]:
    """A HOME of its own for each example."""
    made = Path(tempfile.mkdtemp(prefix="outrider-fuzz-"))
    try:
        yield made
    finally:
        shutil.rmtree(made)


def identity(message: Message) -> tuple[int, str, int]:
    return message.index, message.id, message.timestamp


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@given(data=st.data())
def test_any_record_can_be_read(kind: RecordKind, data: st.DataObject) -> None:
    batches = data.draw(st.lists(st.lists(lines(kind), max_size=6), max_size=4))
    with folder() as home:
        kind.begin(home)
        reader = kind.reader(home)
        chat: list[Message] = []
        for batch in batches:
            kind.append(home, *batch)
            for _ in itertools.takewhile(bool, iter(reader.poll, None)):
                pass
            reader.activity()
            assert all(call.id is not None for call in reader.open_calls())
            reader.find_prompt("text", 0)
            before, chat = chat, reader.messages({}, GUARDS)
            msgspec.json.encode(chat)
            assert [message.index for message in chat] == list(range(len(chat)))
            if kind.name in APPENDED:
                assert chat[: len(before)] == before
        if kind.name in APPENDED:
            again = kind.reader(home)
            again.poll()
            assert again.messages({}, GUARDS) == chat
