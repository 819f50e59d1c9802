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


def test_a_question_whose_call_is_over_before_it_is_off_the_screen_is_not_asked_again() -> None:
    case = Case("first/0")
    assert case.sees(ASKS)
    case.transcript.asks = ["first/1"]  # Gemini notes a refusal down, then draws
    case.answers()
    assert case.sees(ASKS) is None
    assert not case.decider.is_settled  # it is looked at again soon
    case.now += DISMISS_GRACE * 0.9
    assert case.sees(ASKS) is None
    assert case.sees(WORKS) is None


def test_nor_is_one_that_a_person_has_answered_in_the_terminal() -> None:
    case = Case("first/0")
    assert case.sees(ASKS)
    case.transcript.asks = ["first/1"]
    assert case.sees(ASKS) is None


def test_while_it_is_on_its_way_off_the_screen_the_turn_goes_on() -> None:
    case = Case("first/0")
    assert case.sees(ASKS)
    case.answers()
    assert case.status(ASKS) == []
    assert not case.decider.is_settled
    case.transcript.asks = []
    assert case.status(ASKS) == ["generating"]


def test_nor_is_one_that_is_drawn_once_more_on_its_way() -> None:
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


def test_nor_is_one_of_a_dialog_that_is_being_drawn() -> None:
    case = Case("first/0")
    assert case.status(WORKS) == ["generating", "generating"]
    assert case.status(PIECE) == []
    case.now += DRAWN
    assert case.status(ASKS) == []
    case.now += DRAWN
    assert case.status(ASKS) == ["waiting_approval"]


def test_the_question_of_a_restored_agent_is_told_at_the_first_look() -> None:
    assert Case("first/0").status(ASKS) == ["waiting_approval"]


def test_one_that_stays_is_another_one_with_the_same_words() -> None:
    case = Case("first/0")
    first = case.sees(ASKS)
    case.transcript.asks = ["first/1"]
    case.answers()
    case.sees(ASKS)
    case.now += DISMISS_GRACE
    second = case.sees(ASKS)
    assert second not in {None, first}
    assert case.sees(ASKS) == second


def test_the_same_one_in_the_next_turn_is_told_at_once() -> None:
    case = Case("first/0")
    first = case.sees(ASKS)
    case.answers()
    case.sees(WORKS)
    case.decider.mark_prompts_observed()  # a message was sent
    case.transcript.asks = ["second/1"]
    assert case.sees(ASKS) not in {None, first}


def test_a_question_is_the_same_one_after_a_screen_that_was_half_drawn() -> None:
    case = Case()
    first = case.sees(TRUST)
    assert first is not None
    assert case.sees(HALF_DRAWN) is None
    assert case.sees(TRUST) == first


def test_a_turn_is_over_once_the_record_has_what_a_person_typed() -> None:
    case = Case()
    case.transcript.does = "idle"
    assert case.status(RESTS)[-1] == "idle"
    assert case.status(WORKS) == ["generating"]
    assert case.status(RESTS) == []  # Claude Code writes its transcript a little later
    assert not case.decider.is_settled
    case.transcript.prompts += 1
    assert case.status(RESTS) == ["generating", "idle"]


def test_nor_does_it_wait_for_ever_for_what_is_no_message() -> None:
    case = Case()
    case.transcript.does = "idle"
    case.status(RESTS)
    case.status(WORKS)
    assert case.status(RESTS) == []
    case.now += RECORD_WAIT
    assert case.status(RESTS) == ["idle"]
    assert case.status(RESTS) == ["idle"]


def test_a_turn_that_the_record_knew_of_is_over_at_once() -> None:
    case = Case()
    case.transcript.does = "idle"
    case.status(RESTS)
    case.transcript.prompts += 1
    case.decider.mark_prompts_observed()  # a message was sent
    assert case.status(WORKS) == ["generating"]
    assert case.status(RESTS) == ["idle"]


def test_the_quiet_after_a_turn_does_not_end_the_next_one() -> None:
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


def test_a_turn_that_failed_before_a_resume_is_no_error_of_the_resumed_agent() -> None:
    case = Case(resumed_after=1)
    case.transcript.does, case.transcript.failure = "idle", "the model was away"
    assert case.status(RESTS)[-1] == "idle"
    case.transcript.prompts = 2
    assert case.status(RESTS)[-1] == "error"
