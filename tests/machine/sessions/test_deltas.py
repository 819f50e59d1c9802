"""What is sent of messages that agents are writing."""

from outrider.contract.frames import Delta
from outrider.machine.sessions.deltas import Deltas
from tests.machine.agents.machine import until


class Sink:
    """Keeps deltas, as an outbox whose service asks for them."""

    def __init__(self) -> None:
        self.watch: int | None = 1
        self.has_room = True
        self.tried = 0
        self.sent: list[Delta] = []

    def delta_watch(self, session_id: str) -> int | None:
        return self.watch

    def delta(self, delta: Delta) -> bool:
        self.tried += 1
        if self.has_room:
            self.sent.append(delta)
        return self.has_room

    def told(self) -> list[tuple[int, str, str]]:
        return [(delta.revision, delta.op, delta.text) for delta in self.sent]


async def test_what_is_added_and_what_is_replaced() -> None:
    sink, texts = Sink(), {"msg_1": "a"}
    deltas = Deltas("session_1", lambda: dict(texts), sink)
    for number, text in enumerate(["a", "ab", "abc", "x"], start=1):
        texts["msg_1"] = text
        deltas.changed()
        await until(lambda n=number: len(sink.sent) == n)  # type: ignore[misc]
    assert sink.told() == [
        *((0, "append", "a"), (1, "append", "b"), (2, "append", "c"), (3, "replace", "x")),
    ]


async def test_who_begins_to_watch_gets_the_text_so_far() -> None:
    """So does everybody after a delta for which there was no room."""
    sink, texts = Sink(), {"msg_1": "a"}
    deltas = Deltas("session_1", lambda: dict(texts), sink)
    deltas.changed()
    await until(lambda: sink.tried == 1)
    sink.watch, texts["msg_1"] = 2, "ab"
    deltas.changed()
    await until(lambda: sink.tried == 2)
    sink.has_room, texts["msg_1"] = False, "abc"
    deltas.changed()
    await until(lambda: sink.tried == 3)
    sink.has_room = True
    deltas.changed()
    await until(lambda: sink.tried == 4)
    assert sink.told() == [(0, "append", "a"), (1, "replace", "ab"), (3, "replace", "abc")]


async def test_nothing_is_sent_while_nobody_asks() -> None:
    sink = Sink()
    sink.watch = None
    asked = False

    def texts() -> dict[str, str]:
        nonlocal asked
        asked = True
        return {"msg_1": "a"}

    other = Sink()
    Deltas("session_1", texts, sink).changed()
    Deltas("session_2", lambda: {"msg_2": "b"}, other).changed()
    await until(lambda: other.sent != [])  # its timer is the later one
    assert (sink.sent, asked) == ([], False)
