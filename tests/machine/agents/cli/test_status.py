"""StatusDecider: the screen and the transcript of an agent seldom change at the same time."""

from outrider.contract.resources import ActionOption
from outrider.machine.agents.cli.adapter_state import CliState
from outrider.machine.agents.cli.screen import Offer, Question, Reading
from outrider.machine.agents.cli.status import (
    CALL_WAIT,
    DISMISS_GRACE,
    DRAW_WAIT,
    RECORD_WAIT,
    StatusDecider,
)
from outrider.machine.agents.cli.transcripts.transcript import Activity, ToolCall, Transcript
from outrider.machine.agents.provider_spec import BUILT_IN_DIRECTORY
from outrider.machine.sessions.record import SessionRecord
from tests.machine.agents.cli.test_spec import read_cli_specs

OFFERS = (
    Offer(ActionOption(id="1", label="Yes", kind="allow_once"), ("1",)),
    Offer(ActionOption(id="3", label="No", kind="reject_once"), ("3",)),
)
ASKS = Reading("waiting_approval", "permission", Question("touch x?", OFFERS, tool=True))
TRUST = Reading("waiting_approval", "dialog", Question("Trust it?", OFFERS, tool=False))
RESTS = Reading("idle", "input")
WORKS = Reading("generating", "busy")
PIECE = Reading("waiting_approval", "permission", Question("", OFFERS[:1], tool=True))
HALF_DRAWN = Reading(None, None)
DRAWN = 1.1 * DRAW_WAIT


class ScriptedTranscript(Transcript):
    """An agent's transcript whose content the test sets."""

    prompts = 1
    does: Activity | None = None

    def __init__(self, asks: list[str]) -> None:
        super().__init__({}, "conversation")
        self.asks = asks

    def poll(self) -> bool:
        return False

    def activity(self) -> Activity | None:
        return self.does

    def open_calls(self) -> list[ToolCall]:
        return [ToolCall(name, 1000) for name in self.asks]


class Case:
    """A decider over a transcript, at a time that the test sets."""

    def __init__(self, *asks: str, resumed_after: int | None = None) -> None:
        self.now = 100.0
        self.transcript = ScriptedTranscript(list(asks))
        (file,) = (f for f in read_cli_specs([BUILT_IN_DIRECTORY]) if f.type == "gemini-cli")
        known = SessionRecord(
            id="session_x", kind="cli", type="gemini-cli", name="Gemini CLI", path="/", model=None,
            created_at=1, last_activity_at=1,
        )  # fmt: skip
        if resumed_after is not None:
            CliState(known).set_resumed(now=1, prompts=resumed_after)
        self.decider = StatusDecider(
            file, self.transcript, known, was_ready=True, clock=lambda: self.now
        )

    def sees(self, reading: Reading) -> str | None:
        """Return the id of the action that is reported of a screen that stays, None without one."""
        list(self.decider.decide(reading, ""))
        self.now += DRAWN
        pendings = [seen.pending for seen in self.decider.decide(reading, "")]
        return pendings[-1].id if pendings and pendings[-1] is not None else None

    def status(self, reading: Reading) -> list[str]:
        """Return what is reported of the agent, in order."""
        return [seen.status for seen in self.decider.decide(reading, "")]

    def answers(self) -> None:
        """Answer the question that stands there."""
        pending = self.decider.pending
        assert pending is not None
        with self.decider.answering(pending):
            pass


def test_a_question_whose_call_has_ended_is_not_reported_again_while_it_is_shown() -> None:
    case = Case("first/0")
    assert case.sees(ASKS)
    case.transcript.asks = ["first/1"]  # Gemini notes a refusal down, then draws
    case.answers()
    assert case.sees(ASKS) is None
    assert not case.decider.is_settled  # it is looked at again soon
    case.now += DISMISS_GRACE * 0.9
    assert case.sees(ASKS) is None
    assert case.sees(WORKS) is None


def test_a_question_answered_in_the_terminal_is_not_reported_again() -> None:
    case = Case("first/0")
    assert case.sees(ASKS)
    case.transcript.asks = ["first/1"]
    assert case.sees(ASKS) is None


def test_an_answered_question_that_is_still_shown_is_followed_by_generating() -> None:
    case = Case("first/0")
    assert case.sees(ASKS)
    case.answers()
    assert case.status(ASKS) == []
    assert not case.decider.is_settled
    case.transcript.asks = []
    assert case.status(ASKS) == ["generating"]


def test_an_answered_question_that_is_drawn_again_is_not_reported() -> None:
    case = Case("first/0")
    assert case.sees(ASKS)
    case.answers()
    assert case.sees(HALF_DRAWN) is None
    assert case.sees(ASKS) is None
    case.now += CALL_WAIT * 2
    assert case.sees(ASKS) is None


def test_a_piece_of_a_dialog_that_is_being_removed_is_not_a_question() -> None:
    case = Case("first/0")
    assert case.sees(ASKS)
    case.answers()
    case.transcript.asks = ["first/1"]  # which it could be about
    assert case.status(PIECE) == []
    assert not case.decider.is_settled
    assert case.status(WORKS) == ["generating"]


def test_a_half_drawn_dialog_is_reported_once_it_is_complete() -> None:
    case = Case("first/0")
    assert case.status(WORKS) == ["generating", "generating"]
    assert case.status(PIECE) == []
    case.now += DRAWN
    assert case.status(ASKS) == []
    case.now += DRAWN
    assert case.status(ASKS) == ["waiting_approval"]


def test_the_question_of_a_restored_agent_is_reported_at_the_first_poll() -> None:
    assert Case("first/0").status(ASKS) == ["waiting_approval"]


def test_an_equal_question_after_the_grace_period_is_a_new_action() -> None:
    case = Case("first/0")
    first = case.sees(ASKS)
    case.transcript.asks = ["first/1"]
    case.answers()
    case.sees(ASKS)
    case.now += DISMISS_GRACE
    second = case.sees(ASKS)
    assert second not in {None, first}
    assert case.sees(ASKS) == second


def test_an_equal_question_in_the_next_turn_is_reported_at_once() -> None:
    case = Case("first/0")
    first = case.sees(ASKS)
    case.answers()
    case.sees(WORKS)
    case.decider.mark_prompts_observed()  # a message was sent
    case.transcript.asks = ["second/1"]
    assert case.sees(ASKS) not in {None, first}


def test_a_question_keeps_its_id_after_a_half_drawn_screen() -> None:
    case = Case()
    first = case.sees(TRUST)
    assert first is not None
    assert case.sees(HALF_DRAWN) is None
    assert case.sees(TRUST) == first


def test_a_typed_turn_is_over_once_the_transcript_has_its_message() -> None:
    case = Case()
    case.transcript.does = "idle"
    assert case.status(RESTS)[-1] == "idle"
    assert case.status(WORKS) == ["generating"]
    assert case.status(RESTS) == []  # Claude Code writes its transcript a little later
    assert not case.decider.is_settled
    case.transcript.prompts += 1
    assert case.status(RESTS) == ["generating", "idle"]


def test_a_turn_without_a_message_is_over_after_the_wait_for_the_transcript() -> None:
    case = Case()
    case.transcript.does = "idle"
    case.status(RESTS)
    case.status(WORKS)
    assert case.status(RESTS) == []
    case.now += RECORD_WAIT
    assert case.status(RESTS) == ["idle"]
    assert case.status(RESTS) == ["idle"]


def test_a_turn_whose_message_is_in_the_transcript_is_over_at_once() -> None:
    case = Case()
    case.transcript.does = "idle"
    case.status(RESTS)
    case.transcript.prompts += 1
    case.decider.mark_prompts_observed()  # a message was sent
    assert case.status(WORKS) == ["generating"]
    assert case.status(RESTS) == ["idle"]


def test_quiet_before_a_message_does_not_end_its_turn() -> None:
    """Claude Code writes no end of a turn that was interrupted; only the quiet screen tells."""
    case = Case()
    assert case.status(WORKS)[-1] == "generating"
    assert case.status(RESTS) == []
    case.now += 1
    assert case.status(RESTS) == ["idle"]
    case.transcript.prompts += 1
    case.decider.mark_prompts_observed()  # a message was delivered
    assert case.status(RESTS) == []
    case.now += 1
    assert case.status(RESTS) == ["idle"]


def test_a_failure_before_a_resume_is_not_reported_after_it() -> None:
    case = Case(resumed_after=1)
    case.transcript.does, case.transcript.failure = "idle", "the model was away"
    assert case.status(RESTS)[-1] == "idle"
    case.transcript.prompts = 2
    assert case.status(RESTS)[-1] == "error"
