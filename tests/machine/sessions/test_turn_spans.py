"""When the spans of a turn begin and end, and how."""

import pytest

from outrider.contract.errors import conflict
from outrider.contract.resources import AgentStatus
from outrider.machine.sessions.core.turn import Turn
from outrider.machine.sessions.turn_spans import TurnSpans
from tests.rig.spans import RecordedSpan, RecordedTracing

TURN = "agent turn"
DELIVERY = "deliver message"


class Bench:
    """The spans of a session, and those of the command that sends it a message."""

    def __init__(self) -> None:
        self.tracing = RecordedTracing()
        self.spans = TurnSpans(self.tracing, "session_1", "demo")

    def submits(self, message_id: str) -> RecordedSpan:
        """Submit a message within the span of a command; return that."""
        with self.tracing.start("execute send_chat", "server", None, {}):
            self.spans.submitted(message_id)
        return self.tracing.spans[-1]

    def named(self, name: str) -> list[RecordedSpan]:
        """Return the spans of a name, in order."""
        return [span for span in self.tracing.spans if span.name == name]

    def turn(self, status: AgentStatus) -> None:
        """Say that every turn has this status."""
        self.spans.end_finished(lambda _: Turn("demo", status))


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.mark.parametrize("outcome", ["idle", "waiting_approval", "error"])
def test_a_turn_lasts_from_its_delivery_to_its_outcome(bench: Bench, outcome: AgentStatus) -> None:
    command = bench.submits("msg_1")
    with bench.spans.delivery("msg_1"):
        (turn,), (delivery,) = bench.named(TURN), bench.named(DELIVERY)
        assert (turn.parent, delivery.parent) == (command.id, turn.id)
        assert not delivery.has_ended()
    assert delivery.has_ended()
    bench.turn("generating")
    assert not turn.has_ended()
    bench.turn(outcome)
    assert turn.has_ended()
    assert turn.attributes == {
        "outrider.session.id": "session_1",
        "outrider.agent.type": "demo",
        "outrider.message.id": "msg_1",
        "outrider.turn.outcome": outcome,
    }
    assert turn.failure == ("error" if outcome == "error" else None)


def _refuse() -> None:
    raise ValueError("busy")


def test_each_attempt_of_a_queued_message_has_a_span(bench: Bench) -> None:
    bench.submits("msg_1")
    with pytest.raises(ValueError, match="busy"), bench.spans.delivery("msg_1"):
        _refuse()
    with bench.spans.delivery("msg_1"):
        pass
    failed, second = bench.named(TURN)
    assert (failed.has_ended(), failed.failure) == (True, "not delivered")
    assert (second.has_ended(), second.failure) == (False, None)


def test_a_message_without_a_trace_has_none(bench: Bench) -> None:
    bench.spans.submitted("msg_1")
    with bench.spans.delivery("msg_1"):
        pass
    bench.turn("idle")
    bench.spans.close()
    assert bench.tracing.spans == []


def test_a_turn_ends_with_its_session_or_its_message(bench: Bench) -> None:
    for message_id in ("msg_1", "msg_2"):
        bench.submits(message_id)
        with bench.spans.delivery(message_id):
            pass

    def turn_of(message_id: str) -> Turn | None:
        if message_id == "msg_1":
            raise conflict("The message was taken back from the queue")
        return Turn("demo", "generating")

    bench.spans.end_finished(turn_of)
    first, second = bench.named(TURN)
    assert (first.has_ended(), second.has_ended()) == (True, False)
    bench.spans.close()
    assert second.has_ended()
    assert second.attributes["outrider.turn.outcome"] == "stopped"
