"""The rules that are the same for every kind of agent, as playbooks: no I/O, no waiting."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.contract.commands import (
    Accepted,
    ChatInput,
    Interrupted,
    ResolveAction,
    Withdrawn,
)
from outrider.contract.errors import ApiError, ErrorCode, bad_request
from outrider.contract.events import EventName
from outrider.contract.resources import AgentStatus, AgentSummary
from outrider.machine.agents.adapter import Observation
from outrider.machine.sessions.core.agent_core import INTERRUPT_TIMEOUT, AgentCore
from outrider.machine.sessions.core.protocol import (
    AnswerRequest,
    ChangeControls,
    Choose,
    CoreCommand,
    CoreEvent,
    Deliver,
    Dequeue,
    Done,
    Emit,
    Enqueue,
    Failed,
    InterruptAgent,
    InterruptRequest,
    Postpone,
    Prepare,
    Publish,
    Ready,
    Refuse,
    Reply,
    Request,
    Save,
    SetTimer,
    Stopping,
    SubmitRequest,
    Tick,
    WithdrawRequest,
)
from outrider.machine.sessions.core.queue import MAX_ATTEMPTS, MAX_QUEUED, RETRY_AFTER
from outrider.machine.sessions.core.turn import Turn
from tests.machine.agents.playbook import (
    ANSWER_TIMEOUT,
    GENERATING,
    IDLE,
    OPTIONS,
    ROBOT,
    Emitted,
    Journal,
    Playbook,
    Refused,
    accepted,
    approve,
    asks,
    emitted,
    fails,
    pending,
    resolved,
    seconds,
    sees,
    submit,
    text,
)

CHANGED = (Save(), Publish())
STARTED, COMPLETED, WAITING, ERROR = (
    Emitted("generating_started"),
    Emitted("generating_completed"),
    Emitted("waiting_approval"),
    Emitted("error"),
)


def deliver(number: int, agent: str = ROBOT) -> Deliver:
    """Return the delivery of `submit(number)`."""
    return Deliver(agent, f"msg_{number}", text(f"message {number}"))


def interrupted(number: int, status: AgentStatus = "idle") -> Reply:
    """Return the reply to `InterruptRequest(number)`."""
    return Reply(number, Interrupted(status=status))


def for_message(agent: str = ROBOT) -> Prepare:
    return Prepare(agent, for_message=True)


@pytest.fixture
def idle() -> Playbook:
    """An agent that has been seen idle."""
    book = Playbook()
    assert book >> sees(IDLE) << Save() << Publish()
    return book


@pytest.fixture
def generating(idle: Playbook) -> Playbook:
    """An agent that is at work on the message 0."""
    assert (
        idle
        >> submit(0)
        << for_message()
        >> Ready()
        << deliver(0)
        >> sees(GENERATING)
        << [STARTED, *CHANGED]
        >> Done()
        << accepted(0)
    )
    return idle


@pytest.fixture
def waiting(generating: Playbook) -> Playbook:
    """An agent that asks the question act_1."""
    assert generating >> sees(asks("act_1")) << WAITING << Save() << Publish()
    return generating


# Messages


def test_a_message_is_accepted_once_the_agent_has_taken_it(idle: Playbook) -> None:
    assert (
        idle
        >> submit(1)
        << for_message()
        >> Ready()
        << deliver(1)
        >> sees(GENERATING)
        << [STARTED, *CHANGED]
        >> Done()
        << accepted(1)
    )


def test_a_message_that_is_not_taken_is_refused_and_nothing_is_left_of_it(idle: Playbook) -> None:
    assert (
        idle
        >> submit(1)
        << for_message()
        >> Ready()
        << deliver(1)
        >> Failed(ApiError(500, "look at its screen"))
        << Refused(1, 500, "look at its screen")
        >> sees(IDLE)
        << []
        >> submit(2)
        << for_message()
    )


def test_an_agent_that_cannot_be_reached(idle: Playbook) -> None:
    assert (
        idle
        >> submit(1)
        << for_message()
        >> Failed(ApiError(500, "its window is closed"))
        << Refused(1, 500, "its window is closed")
    )


def test_messages_wait_while_the_agent_is_generating_and_go_in_order(generating: Playbook) -> None:
    for number in (1, 2):
        assert (
            generating
            >> submit(number)
            << [Enqueue(f"msg_{number}", text(f"message {number}")), accepted(number, queued=True)]
        )
    for number in (1, 2):
        assert (
            generating
            >> sees(IDLE)
            << [COMPLETED, *CHANGED, for_message()]
            >> Ready()
            << deliver(number)
            >> sees(GENERATING)
            << [STARTED, *CHANGED]
            >> Done()
            << Dequeue(f"msg_{number}")
        )


def test_at_most_sixteen_messages_wait(generating: Playbook) -> None:
    generating.play(*(submit(number) for number in range(1, MAX_QUEUED + 1)))
    assert generating >> submit(99) << Refused(99, 409, "16 messages wait")


def test_a_message_waits_behind_one_that_is_being_delivered(idle: Playbook) -> None:
    assert (
        idle
        >> submit(1)
        << for_message()
        >> submit(2)
        << [Enqueue("msg_2", text("message 2")), accepted(2, status="idle", queued=True)]
        >> Ready()
        << deliver(1)
        >> Failed(ApiError(500, "not taken"))
        << [Refused(1, 500), for_message()]
        >> Ready()
        << deliver(2)
    )


def test_a_queued_message_that_is_not_taken_waits_for_the_next_change(generating: Playbook) -> None:
    error = ApiError(500, "not now")
    generating.play(submit(1), sees(IDLE), Ready())
    assert (
        generating
        >> Failed(error)
        << [Postpone("msg_1", error), SetTimer(RETRY_AFTER)]
        >> sees(IDLE)
        << []
        >> sees(GENERATING)
        << [STARTED, *CHANGED]
        >> sees(IDLE)
        << [COMPLETED, *CHANGED, for_message()]
    )


def test_a_queued_message_that_is_not_taken_is_tried_again_though_nothing_changes(
    generating: Playbook,
) -> None:
    generating.play(submit(1), sees(IDLE), Ready(), Failed(ApiError(500, "not now")))
    assert generating >> seconds(RETRY_AFTER) >> Tick() << for_message() >> Ready() << deliver(1)


def test_a_message_that_is_never_taken_is_an_error_and_the_next_has_its_turn(
    generating: Playbook,
) -> None:
    generating.play(submit(1), submit(2), sees(IDLE))
    for _ in range(MAX_ATTEMPTS - 1):
        generating.play(Ready(), Failed(ApiError(500, "not now")), Tick())
    assert (
        generating
        >> Ready()
        << deliver(1)
        >> Failed(ApiError(500, "not now"))
        << [Dequeue("msg_1"), ERROR, *CHANGED, for_message()]
        >> Ready()
        << deliver(2)
    )
    assert generating.core.agents.observation.error == "A queued message was dropped: not now"


def test_a_message_that_the_agent_cannot_take_is_dropped_at_once(generating: Playbook) -> None:
    generating.play(submit(1), sees(IDLE), Ready())
    assert generating >> Failed(bad_request("one line only")) << [Dequeue("msg_1"), ERROR, *CHANGED]


def test_a_question_is_no_attempt(generating: Playbook) -> None:
    """However often the agent asks something just when it is given a message."""
    generating.play(submit(1), sees(IDLE))
    for number in range(MAX_ATTEMPTS + 1):
        generating.play(sees(asks(f"act_{number}")), Ready(), sees(GENERATING), sees(IDLE))
    assert generating >> Ready() << deliver(1)


def test_the_next_message_has_as_many_attempts(generating: Playbook) -> None:
    generating.play(submit(1), submit(2), sees(IDLE))
    for _ in range(MAX_ATTEMPTS - 1):
        generating.play(Ready(), Failed(ApiError(500, "not now")), Tick())
    generating.play(Ready(), sees(GENERATING), Done(), sees(IDLE), Ready())
    error = ApiError(500, "not now")
    assert generating >> Failed(error) << [Postpone("msg_2", error), SetTimer(RETRY_AFTER)]


def test_an_answer_takes_the_timer_and_gives_it_back(generating: Playbook) -> None:
    generating.play(submit(1), sees(IDLE), Ready(), Failed(ApiError(500, "not now")))
    generating.play(sees(asks("act_1")), approve(2), Ready())
    assert (
        generating
        >> Done()
        << SetTimer(ANSWER_TIMEOUT)
        >> sees(IDLE)
        << [COMPLETED, *CHANGED, SetTimer(None), resolved(2, "act_1", status="idle")]
        << for_message()
    )


def test_another_message_has_a_postponed_one_tried_again_before_it(generating: Playbook) -> None:
    generating.play(submit(1), sees(IDLE), Failed(ApiError(500, "not now")))
    assert (
        generating
        >> submit(2)
        << [
            Enqueue("msg_2", text("message 2")),
            accepted(2, status="idle", queued=True),
            for_message(),
        ]
        >> Ready()
        << deliver(1)
    )


def test_the_queue_waits_for_the_end_of_a_turn_that_a_person_has_begun(
    generating: Playbook,
) -> None:
    generating.play(submit(1), sees(IDLE))
    assert (
        generating
        >> sees(GENERATING)
        << [STARTED, *CHANGED]
        >> Ready()
        << []
        >> sees(IDLE)
        << [COMPLETED, *CHANGED, for_message()]
    )


def test_after_a_failed_turn_the_agent_takes_messages(generating: Playbook) -> None:
    assert (
        generating
        >> submit(1)
        << [Enqueue("msg_1", text("message 1")), accepted(1, queued=True)]
        >> sees(fails("no credit"))
        << [ERROR, *CHANGED, for_message()]
    )


def test_no_message_while_the_agent_asks(waiting: Playbook) -> None:
    assert waiting >> submit(1) << Refused(1, 409, "approve or reject", ErrorCode.APPROVAL_PENDING)


def test_no_message_when_the_agent_is_found_asking(idle: Playbook) -> None:
    assert (
        idle
        >> submit(1)
        << for_message()
        >> sees(asks("act_1"))
        << [WAITING, *CHANGED]
        >> Ready()
        << Refused(1, 409, "approve or reject", ErrorCode.APPROVAL_PENDING)
    )


def test_no_message_when_the_agent_is_gone(idle: Playbook) -> None:
    idle.play(sees(fails("It has ended", gone=True)))
    assert idle >> submit(1) << Refused(1, 500, "It has ended. Launch it again")


def test_an_agent_that_goes_while_it_is_given_a_message(idle: Playbook) -> None:
    idle.play(submit(1), Ready(), sees(fails("It has ended.", gone=True)))
    assert idle >> Failed(ApiError(500, "broken pipe")) << Refused(1, 500, "ended. Launch it again")


def test_an_agent_that_goes_while_messages_wait_keeps_them(generating: Playbook) -> None:
    assert (
        generating
        >> submit(1)
        << [Enqueue("msg_1", text("message 1")), accepted(1, queued=True)]
        >> sees(fails("It has ended", gone=True))
        << [ERROR, *CHANGED]
    )
    assert [message_id for message_id, _ in generating.journal.queue] == ["msg_1"]


def test_refuse_rather_than_wait(generating: Playbook) -> None:
    refused = Refused(1, 409, "is generating", ErrorCode.AGENT_BUSY)
    assert generating >> submit(1, delivery="reject") << refused


def test_a_message_with_delivery_reject_goes_to_an_idle_agent(idle: Playbook) -> None:
    assert idle >> submit(1, delivery="reject") << for_message() >> Ready() << deliver(1)


def test_a_message_with_delivery_reject_is_not_typed_into_a_turn_that_began_meanwhile(
    idle: Playbook,
) -> None:
    idle.play(submit(1, delivery="reject"), sees(GENERATING))
    assert idle >> Ready() << Refused(1, 409, "is generating", ErrorCode.AGENT_BUSY)


def test_a_message_is_not_typed_into_a_turn_that_began_meanwhile(idle: Playbook) -> None:
    """It waits for the end of that turn, ahead of those that came while it was in preparation."""
    idle.play(submit(1), submit(2), sees(GENERATING))
    assert (
        idle
        >> Ready()
        << [Enqueue("msg_1", text("message 1"), is_first=True), accepted(1, queued=True)]
    )
    assert idle.core.turn("msg_1") == Turn(ROBOT, "generating")
    order = ["msg_1", "msg_2"]
    assert [message_id for message_id, _ in idle.core.queue()] == order
    assert [message_id for message_id, _ in idle.journal.queue] == order
    assert idle >> sees(IDLE) << [COMPLETED, *CHANGED, for_message()] >> Ready() << deliver(1)


def test_a_message_for_which_there_is_no_room_in_the_queue_by_then(idle: Playbook) -> None:
    idle.play(submit(0), *(submit(number) for number in range(1, MAX_QUEUED + 1)))
    idle.play(sees(GENERATING))
    assert idle >> Ready() << Refused(0, 409, "16 messages wait")


def test_a_turn_that_began_meanwhile_is_interrupted_for_a_message_with_delivery_interrupt(
    idle: Playbook,
) -> None:
    idle.play(submit(1, delivery="interrupt"), sees(GENERATING))
    assert idle >> Ready() << Prepare(ROBOT) >> Ready() << InterruptAgent(ROBOT)
    idle.play(Done(), sees(IDLE))
    assert idle >> Ready() << deliver(1)


def test_a_message_with_delivery_reject_while_another_is_delivered(idle: Playbook) -> None:
    idle.play(submit(1))
    refused = Refused(2, 409, code=ErrorCode.AGENT_BUSY)
    assert idle >> submit(2, delivery="reject") << refused


def test_a_message_with_delivery_reject_while_the_agent_asks(waiting: Playbook) -> None:
    refused = Refused(1, 409, code=ErrorCode.APPROVAL_PENDING)
    assert waiting >> submit(1, delivery="reject") << refused


# Taking messages back


def test_a_queued_message_can_be_taken_back(generating: Playbook) -> None:
    generating.play(submit(1), submit(2))
    assert (
        generating
        >> WithdrawRequest(3, "msg_1")
        << [Dequeue("msg_1"), Reply(3, Withdrawn(message_id="msg_1"))]
        >> WithdrawRequest(4, "msg_1")
        << Refused(4, 404, "No message 'msg_1' is in the queue")
        >> sees(IDLE)
        << [COMPLETED, *CHANGED, for_message()]
        >> Ready()
        << deliver(2)
    )


def test_a_message_that_is_being_delivered_cannot_be_taken_back(generating: Playbook) -> None:
    generating.play(submit(1), sees(IDLE))
    refused = Refused(2, 409, code=ErrorCode.ALREADY_SENT)
    assert [message_id for message_id, _ in generating.core.queue()] == ["msg_1"]
    assert generating >> WithdrawRequest(2, "msg_1") << refused >> Ready() << deliver(1)
    generating.play(sees(GENERATING), Done())
    assert generating.core.queue() == []
    assert generating >> WithdrawRequest(3, "msg_1") << replace(refused, request=3)


def test_a_message_that_was_not_queued_cannot_be_taken_back(generating: Playbook) -> None:
    refused = Refused(1, 409, code=ErrorCode.ALREADY_SENT)
    assert generating >> WithdrawRequest(1, "msg_0") << refused


def test_a_message_whose_delivery_failed_can_be_taken_back(generating: Playbook) -> None:
    generating.play(submit(1), sees(IDLE), Ready(), Failed(ApiError(500, "no terminal")))
    reply = Reply(2, Withdrawn(message_id="msg_1"))
    assert generating >> WithdrawRequest(2, "msg_1") << Dequeue("msg_1") << reply


# Turns


def test_a_turn_is_over_when_its_message_was_delivered_and_the_agent_is_idle(
    idle: Playbook,
) -> None:
    core = idle.core
    assert core.turn("msg_0") is None
    idle.play(submit(0))
    assert core.turn("msg_0") == Turn(ROBOT, "generating")  # the idle of before is not its end
    idle.play(Ready())
    assert core.turn("msg_0") == Turn(ROBOT, "generating")
    idle.play(sees(GENERATING), Done())
    assert core.turn("msg_0") == Turn(ROBOT, "generating")
    idle.play(sees(asks("act_1")))
    assert core.turn("msg_0") == Turn(ROBOT, "waiting_approval")
    idle.play(approve(1))
    assert core.turn("msg_0") == Turn(ROBOT, "generating")
    idle.play(Ready(), sees(GENERATING), Done(), sees(IDLE))
    assert core.turn("msg_0") == Turn(ROBOT, "idle")


@pytest.mark.parametrize("end", [IDLE, fails("no quota")])
def test_a_turn_stays_over_when_the_next_message_of_the_queue_begins_another(
    generating: Playbook, end: Observation
) -> None:
    core = generating.core
    generating.play(submit(1))
    assert core.turn("msg_1") == Turn(ROBOT, "generating")
    generating.play(sees(end))
    assert core.turn("msg_1") == Turn(ROBOT, "generating")
    generating.play(Ready(), sees(GENERATING), Done())
    assert core.turn("msg_0") == Turn(ROBOT, end.status, next_id="msg_1")
    assert core.turn("msg_1") == Turn(ROBOT, "generating")
    generating.play(sees(IDLE))
    assert core.turn("msg_0") == Turn(ROBOT, end.status, next_id="msg_1")
    assert core.turn("msg_1") == Turn(ROBOT, "idle")


def test_the_turn_of_a_message_that_follows_an_interruption_or_a_change(
    generating: Playbook,
) -> None:
    generating.play(submit(1, delivery="interrupt"), submit(2, controls={"mode": "plan"}))
    for number in (1, 2):
        assert generating.core.turn(f"msg_{number}") == Turn(ROBOT, "generating")


def test_a_message_in_the_queue_shows_what_holds_the_queue_up(generating: Playbook) -> None:
    generating.play(submit(1), sees(asks("act_1")))
    assert generating.core.turn("msg_1") == Turn(ROBOT, "waiting_approval")
    generating.play(sees(fails("it exited", gone=True)))
    assert generating.core.turn("msg_1") == Turn(ROBOT, "error")


def test_a_message_that_was_taken_back_or_dropped_begins_no_turn(generating: Playbook) -> None:
    generating.play(submit(1), submit(2), WithdrawRequest(3, "msg_2"), sees(IDLE))
    generating.play(Ready(), Failed(bad_request("no pictures")))
    for message_id, why in (("msg_2", "taken back"), ("msg_1", "dropped: no pictures")):
        with pytest.raises(ApiError, match=why) as refused:
            generating.core.turn(message_id)
        assert refused.value.status == 409


@pytest.mark.parametrize("then", [IDLE, GENERATING], ids=["idle", "generating"])
def test_no_turn_begins_or_ends_before_the_agent_is_observed(
    idle: Playbook, then: Observation
) -> None:
    """A restarted machine agent does not know yet what the agent is doing."""
    idle.restart()
    assert idle >> sees(replace(GENERATING, assumed=True))
    assert not idle.core.agents.has_observed
    if then is IDLE:
        assert idle >> sees(IDLE) << Save() << Publish()
    else:
        assert idle >> sees(GENERATING) << STARTED << Save() << Publish()


def test_the_turn_of_a_message_in_the_queue_after_a_restart(generating: Playbook) -> None:
    generating.play(submit(1))
    generating.restart()
    assert generating.core.turn("msg_1") == Turn(ROBOT, "generating")
    assert generating.core.turn("msg_0") is None


def test_the_turn_of_an_agent_that_is_not_selected_any_more() -> None:
    book = Playbook("robot", "android")
    book.play(sees(IDLE), sees(IDLE, "android"), submit(1), Ready(), sees(GENERATING), Done())
    book.play(sees(IDLE), submit(2, "android"), Ready(), sees(GENERATING, "android"), Done())
    assert book.core.turn("msg_1") == Turn("robot", "idle")
    assert book.core.turn("msg_2") == Turn("android", "generating")


def test_turns_that_are_remembered_are_bounded(generating: Playbook) -> None:
    for number in range(1, 200):
        generating.play(submit(number), sees(IDLE), Ready(), sees(GENERATING), Done())
    assert generating.core.turn("msg_1") is None
    assert generating.core.turn("msg_198") == Turn(ROBOT, "idle", next_id="msg_199")


# Controls


def test_controls_are_changed_before_the_message(idle: Playbook) -> None:
    assert (
        idle
        >> submit(1, controls={"model": "big"})
        << Prepare(ROBOT)
        >> Ready()
        << ChangeControls(ROBOT, {"model": "big"})
        >> Done()
        << for_message()
        >> Ready()
        << deliver(1)
    )


def test_controls_without_a_message(generating: Playbook) -> None:
    accepted_ = Accepted(message_id=None, session_id="session_1", status="generating", queued=False)
    assert (
        generating
        >> SubmitRequest(1, "msg_1", None, controls={"mode": "plan"})
        << Prepare(ROBOT)
        >> Ready()
        << ChangeControls(ROBOT, {"mode": "plan"})
        >> Done()
        << Reply(1, accepted_)
    )


def test_controls_are_changed_at_once_though_messages_wait(generating: Playbook) -> None:
    generating.play(submit(1))
    assert (
        generating
        >> submit(2, controls={"mode": "plan"})
        << Prepare(ROBOT)
        >> Ready()
        << ChangeControls(ROBOT, {"mode": "plan"})
        >> Done()
        << [Enqueue("msg_2", text("message 2")), accepted(2, queued=True)]
    )


def test_a_control_that_there_is_not_stops_the_message(idle: Playbook) -> None:
    idle.play(submit(1, controls={"model": "huge"}), Ready())
    assert idle >> Failed(bad_request("no such model")) << Refused(1, 400, "no such model")


def test_a_question_that_comes_while_controls_are_changed_stops_the_message(idle: Playbook) -> None:
    idle.play(submit(1, controls={"mode": "plan"}), Ready(), sees(asks("act_1")))
    assert idle >> Done() << Refused(1, 409, code=ErrorCode.APPROVAL_PENDING)


def test_one_act_at_a_time(idle: Playbook) -> None:
    idle.play(SubmitRequest(1, "msg_1", None, controls={"mode": "plan"}))
    assert idle >> submit(2) << [] >> Ready() << ChangeControls(ROBOT, {"mode": "plan"})
    idle.play(Done())
    assert idle >> Ready() << deliver(2)


# Answers


def test_an_answer(waiting: Playbook) -> None:
    assert (
        waiting
        >> approve(1)
        << [*CHANGED, Prepare(ROBOT)]
        >> Ready()
        << Choose(ROBOT, pending("act_1"), OPTIONS[0])
        >> Done()
        << SetTimer(ANSWER_TIMEOUT)
        >> sees(asks("act_1"))  # older than the answer
        << []
        >> sees(GENERATING)
        << [SetTimer(None), resolved(1, "act_1")]
        >> sees(IDLE)
        << [COMPLETED, *CHANGED]
    )


def test_a_question_that_is_gone_when_the_answer_is_done(waiting: Playbook) -> None:
    waiting.play(approve(1), Ready())
    assert waiting >> sees(GENERATING) << [] >> Done() << resolved(1, "act_1")


def test_of_two_answers_at_once_one_wins(waiting: Playbook) -> None:
    waiting.play(approve(1))
    assert (
        waiting
        >> approve(2)
        << Refused(2, 409, code=ErrorCode.NO_PENDING_ACTION)
        >> approve(3, "act_1")
        << Refused(3, 409, "answered already")
        >> Ready()
        << Choose(ROBOT, pending("act_1"), OPTIONS[0])
        >> approve(4)
        << Refused(4, 409, code=ErrorCode.NO_PENDING_ACTION)
    )


def test_a_screen_that_is_older_than_the_answer_changes_nothing(waiting: Playbook) -> None:
    waiting.play(approve(1), Ready(), Done(), sees(GENERATING), sees(IDLE))
    assert waiting >> sees(asks("act_1")) << [] >> sees(IDLE) << []
    assert waiting.core.agents.observation == IDLE


def test_the_next_question_comes_at_once(waiting: Playbook) -> None:
    waiting.play(approve(1), Ready())
    assert (
        waiting
        >> sees(asks("act_2"))
        << [WAITING, *CHANGED]
        >> Done()
        << resolved(1, "act_1", status="waiting_approval")
        >> approve(2, "act_1")
        << Refused(2, 409, "answered already")
        >> approve(3, "act_2")
        << [*CHANGED, Prepare(ROBOT)]
    )


def test_an_answer_without_effect_can_be_given_again(waiting: Playbook) -> None:
    waiting.play(approve(1), Ready(), Done())
    assert (
        waiting
        >> seconds(ANSWER_TIMEOUT)
        >> Tick()
        << [*CHANGED, Refused(1, 500, "did not react to the answer")]
    )
    assert waiting.core.agents.observation == asks("act_1")
    waiting.play(approve(2), Ready(), Done())
    assert waiting >> sees(GENERATING) << SetTimer(None) << resolved(2, "act_1")


def test_an_answer_that_failed_shows_what_was_observed_meanwhile(waiting: Playbook) -> None:
    ended = fails("It has ended", gone=True)
    waiting.play(approve(1), sees(ended))
    assert waiting >> Failed(ApiError(500, "no terminal")) << Refused(1, 500, "Launch it again")
    assert waiting.core.agents.observation == ended


def test_an_answer_never_goes_to_another_question(waiting: Playbook) -> None:
    waiting.play(approve(1), sees(asks("act_2")))
    assert waiting >> Ready() << Refused(1, 409, "no longer asks")
    assert waiting.core.agents.observation == asks("act_2")


def test_an_option_that_the_agent_does_not_offer_any_more(waiting: Playbook) -> None:
    waiting.play(approve(1), Ready())
    assert waiting >> Done(offered=False) << [*CHANGED, Refused(1, 409, "no longer asks")]
    assert waiting.core.agents.observation == asks("act_1")


def test_an_answer_that_ends_the_agent(waiting: Playbook) -> None:
    waiting.play(approve(1), Ready(), Done())
    assert (
        waiting
        >> sees(fails("It has ended", gone=True))
        << [ERROR, *CHANGED, SetTimer(None), resolved(1, "act_1", status="error")]
    )


@pytest.mark.parametrize(
    ("answer", "status", "words"),
    [
        (ResolveAction(action="approve", option_id="3"), 400, "does not approve"),
        (ResolveAction(action="approve", option_id="9"), 400, "has no option '9', only '1'"),
        (ResolveAction(action="approve", action_id="act_0"), 409, "the agent now asks act_1"),
        (ResolveAction(action="approve", agent_type="other"), 404, "no agent 'other', only"),
    ],
)
def test_answers_that_do_not_fit(
    waiting: Playbook, answer: ResolveAction, status: int, words: str
) -> None:
    assert waiting >> AnswerRequest(1, answer) << Refused(1, status, words)


@pytest.mark.parametrize(
    ("answer", "option"),
    [
        (ResolveAction(action="approve"), 0),
        (ResolveAction(action="approve", option_id="2"), 1),
        (ResolveAction(action="reject"), 2),
    ],
)
def test_the_option_that_is_chosen(waiting: Playbook, answer: ResolveAction, option: int) -> None:
    waiting.play(AnswerRequest(1, answer))
    assert waiting >> Ready() << Choose(ROBOT, pending("act_1"), OPTIONS[option])


def test_a_question_without_options(idle: Playbook) -> None:
    question = asks("act_1")
    assert question.pending is not None
    question.pending.options = []
    idle.play(sees(question))
    assert idle >> approve(1) << Refused(1, 400, "no way to approve")


def test_a_message_that_is_sent_while_an_answer_is_given_waits(waiting: Playbook) -> None:
    waiting.play(approve(1))
    assert (
        waiting
        >> submit(2)
        << [Enqueue("msg_2", text("message 2")), accepted(2, queued=True)]
        >> Failed(ApiError(500, "no terminal"))
        << [*CHANGED, Refused(1, 500)]
    )  # and goes on waiting, as the question stands again


# Interrupting


def test_an_interruption(generating: Playbook) -> None:
    assert (
        generating
        >> InterruptRequest(1)
        << Prepare(ROBOT)
        >> Ready()
        << InterruptAgent(ROBOT)
        >> Done()
        << SetTimer(INTERRUPT_TIMEOUT)
        >> sees(IDLE)
        << [COMPLETED, *CHANGED, SetTimer(None), interrupted(1)]
    )


def test_an_interruption_that_is_seen_before_it_is_done(generating: Playbook) -> None:
    generating.play(InterruptRequest(1), Ready(), sees(IDLE))
    assert generating >> Done() << interrupted(1)


def test_an_interruption_without_effect(generating: Playbook) -> None:
    generating.play(InterruptRequest(1), Ready(), Done())
    assert generating >> Tick() << Refused(1, 500, "did not react to the interruption")


def test_an_agent_that_cannot_be_interrupted(generating: Playbook) -> None:
    generating.play(InterruptRequest(1), Ready())
    assert generating >> Failed(bad_request("has no keys")) << Refused(1, 400, "has no keys")


@pytest.mark.parametrize("status", [IDLE, fails("no credit"), fails("it ended", gone=True)])
def test_nothing_to_interrupt(idle: Playbook, status: Observation) -> None:
    idle.play(sees(status))
    refused = Refused(1, 409, "nothing to interrupt", ErrorCode.NOT_GENERATING)
    assert idle >> InterruptRequest(1) << refused


def test_a_turn_that_ends_by_itself_before_it_is_interrupted(generating: Playbook) -> None:
    generating.play(InterruptRequest(1), sees(IDLE))
    assert generating >> Ready() << interrupted(1)


def test_an_agent_that_ends_when_it_is_interrupted(generating: Playbook) -> None:
    generating.play(InterruptRequest(1), Ready(), Done())
    assert generating.play(sees(fails("it ended", gone=True)))[-1] == interrupted(1, "error")


def test_an_interruption_ends_the_question_and_the_turn(waiting: Playbook) -> None:
    waiting.play(InterruptRequest(1), Ready(), Done())
    assert waiting >> sees(GENERATING) << [*CHANGED]  # the agent notes that nobody answered
    assert waiting.play(sees(IDLE))[-2:] == [SetTimer(None), interrupted(1)]


def test_what_waits_is_sent_after_an_interruption(generating: Playbook) -> None:
    generating.play(submit(1), InterruptRequest(2), Ready(), Done())
    assert (
        generating
        >> sees(IDLE)
        << [COMPLETED, *CHANGED, SetTimer(None), interrupted(2), for_message()]
        >> Ready()
        << deliver(1)
    )


def test_of_two_interruptions_one_is_made(generating: Playbook) -> None:
    generating.play(InterruptRequest(1), InterruptRequest(2), Ready(), Done())
    assert (
        generating
        >> sees(IDLE)
        << [COMPLETED, *CHANGED, SetTimer(None), interrupted(1), Prepare(ROBOT)]
        >> Ready()
        << interrupted(2)
    )


def test_an_agent_that_is_not_selected_is_interrupted_by_its_name() -> None:
    book = Playbook(ROBOT, "android")
    book.play(sees(IDLE), sees(GENERATING, "android"))
    assert (
        book
        >> InterruptRequest(1, "android")
        << Prepare("android")
        >> Ready()
        << InterruptAgent("android")
        >> Done()
        << SetTimer(INTERRUPT_TIMEOUT)
    )
    assert book.play(sees(IDLE, "android"))[-1] == interrupted(1)
    refused = Refused(2, 409, code=ErrorCode.NOT_GENERATING)
    assert (
        book
        >> InterruptRequest(2, "android")
        << refused
        >> InterruptRequest(3, "nobody")
        << Refused(3, 404)
    )


def test_interrupt_and_send(generating: Playbook) -> None:
    generating.play(submit(1), submit(2, delivery="interrupt"), Ready(), Done())
    assert (
        generating
        >> sees(IDLE)
        << [COMPLETED, *CHANGED, SetTimer(None), for_message()]
        >> Ready()
        << deliver(2)  # before what waits
        >> sees(GENERATING)
        << [STARTED, *CHANGED]
        >> Done()
        << accepted(2)
    )


def test_interrupt_a_question_and_send(waiting: Playbook) -> None:
    assert (
        waiting >> submit(1, delivery="interrupt") << Prepare(ROBOT) >> Ready()
        << InterruptAgent(ROBOT) >> Done() << SetTimer(INTERRUPT_TIMEOUT)
    )  # fmt: skip
    assert waiting.play(sees(IDLE))[-2:] == [SetTimer(None), for_message()]
    assert waiting >> Ready() << deliver(1)


def test_interrupt_and_send_to_an_idle_agent(idle: Playbook) -> None:
    assert idle >> submit(1, delivery="interrupt") << for_message() >> Ready() << deliver(1)


def test_a_message_is_not_sent_when_the_interruption_has_no_effect(generating: Playbook) -> None:
    generating.play(submit(1, delivery="interrupt"), Ready(), Done())
    refused = Refused(1, 500, "did not react to the interruption")
    assert generating >> Tick() << refused >> sees(IDLE) << [COMPLETED, *CHANGED]


# Events


def test_repeated_observations_are_removed(generating: Playbook) -> None:
    assert generating >> sees(GENERATING) << [] >> sees(GENERATING) << []


def test_a_change_that_is_no_change_of_status_is_only_published(generating: Playbook) -> None:
    assert generating >> sees(Observation(status="generating", title="Fix it")) << Publish()


def test_the_duration_of_a_turn(generating: Playbook) -> None:
    assert (
        generating
        >> seconds(2.5)
        >> sees(Observation(status="idle", title="Fix it"))
        << [Emit(EventName.GENERATING_COMPLETED, "Fix it", duration=2.5), *CHANGED]
    )
    assert generating.core.agents.updated_at == 2500


def test_a_turn_with_approvals_in_it_is_one_turn(waiting: Playbook) -> None:
    steps = [GENERATING, asks("act_2"), asks("act_2", "drawn again"), GENERATING, IDLE]
    assert emitted(waiting.play(*map(sees, steps))) == ["waiting_approval", "generating_completed"]


def test_an_error_is_told_once_and_ends_the_turn(generating: Playbook) -> None:
    titled = Observation(status="error", error="no credit", title="new")
    steps = [fails("no credit"), titled, fails("logged out"), IDLE, fails("logged out")]
    assert emitted(generating.play(*map(sees, steps))) == ["error", "error", "error"]


def test_an_agent_that_is_first_seen_generating(idle: Playbook) -> None:
    assert emitted(Playbook().play(sees(GENERATING))) == ["generating_started"]
    assert emitted(Playbook().play(sees(IDLE))) == []


def fail(book: Playbook, event: CoreEvent, number: int) -> None:
    """Let an event happen whose command of this number cannot be executed: the disk is full."""
    commands = book.core.handle(event, book.now)
    for _ in range(number + 1):
        next(commands)


def test_an_event_that_could_not_be_emitted_is_when_the_agent_is_observed_again(
    generating: Playbook,
) -> None:
    fail(generating, sees(IDLE), 0)
    assert generating >> sees(IDLE) << [COMPLETED, *CHANGED] >> sees(IDLE) << []


def test_a_record_that_could_not_be_saved_is_when_the_agent_is_observed_again(
    generating: Playbook,
) -> None:
    fail(generating, sees(IDLE), 1)
    assert generating >> sees(IDLE) << [*CHANGED] >> sees(IDLE) << []


def test_an_event_that_could_not_be_emitted_is_though_the_title_has_changed_meanwhile(
    generating: Playbook,
) -> None:
    fail(generating, sees(IDLE), 0)
    assert generating >> sees(replace(IDLE, title="Fix it")) << [COMPLETED, *CHANGED]


OBSERVATIONS = st.one_of(
    st.just(IDLE),
    st.just(GENERATING),
    st.sampled_from(["act_1", "act_2", "act_3"]).map(asks),
    st.sampled_from(["out of credit", "logged out"]).map(fails),
)


def events_of(seen: list[Observation], *, restart: bool = False) -> list[Emit]:
    """Return the events of an agent seen so, a second apart; `restart` after each of them."""
    book = Playbook()
    events: list[Emit] = []
    for observation in seen:
        events += [command for command in book.play(sees(observation)) if isinstance(command, Emit)]
        book.play(seconds(1))
        if restart:
            book.restart()
    return events


@given(st.lists(OBSERVATIONS, max_size=30))
def test_no_event_twice_and_none_missed(seen: list[Observation]) -> None:
    events = events_of(seen)
    generating = False
    ends = {EventName.GENERATING_COMPLETED, EventName.ERROR}
    for event in events:
        if event.event == EventName.GENERATING_STARTED:
            assert not generating
            generating = True
        elif event.event == EventName.GENERATING_COMPLETED:
            assert generating
        if event.event in ends:
            generating = False
    names = [event.event for event in events]
    questions = [observation.pending.id for observation in seen if observation.pending is not None]
    changes = [q for before, q in zip([None, *questions], questions, strict=False) if q != before]
    assert names.count(EventName.WAITING_APPROVAL) == len(changes)
    errors = [observation.error for observation in seen]
    changed = [e for before, e in zip([None, *errors], errors, strict=False) if e and e != before]
    assert names.count(EventName.ERROR) == len(changed)
    if generating:
        assert seen[-1].status in ("generating", "waiting_approval")


@given(st.lists(OBSERVATIONS, max_size=30))
def test_a_restart_changes_nothing(seen: list[Observation]) -> None:
    assert events_of(seen, restart=True) == events_of(seen)


@given(st.lists(st.tuples(OBSERVATIONS, st.integers(1, 3)), max_size=20))
def test_what_is_seen_again_is_told_once(seen: list[tuple[Observation, int]]) -> None:
    repeated = [observation for observation, times in seen for _ in range(times)]
    names = [event.event for event in events_of(repeated)]
    assert names == [event.event for event in events_of([observation for observation, _ in seen])]


# Several agents


def test_a_message_for_another_agent_selects_it() -> None:
    ide = Playbook("claude", "codex")
    ide.play(sees(IDLE, "claude"), sees(Observation(status="idle", title="Other"), "codex"))
    assert (
        ide
        >> submit(1, "codex")
        << [*CHANGED, for_message("codex")]
        >> Ready()
        << deliver(1, "codex")
    )
    assert ide.core.agents.observation.title == "Other"
    ide.restart()
    assert ide.core.agents.selected == "codex"


@pytest.mark.parametrize("named", ["codex", "Codex"])
def test_an_agent_by_its_type_or_name(named: str) -> None:
    ide = Playbook("claude", "codex")
    assert ide.core.agents.find(named) == "codex"
    assert ide.core.agents.find(None) == ide.core.agents.find("Robot") == "claude"
    with pytest.raises(ApiError, match="has no agent 'gemini', only 'claude', 'codex'"):
        ide.core.agents.find("gemini")


@pytest.mark.parametrize("at_work", [GENERATING, asks("act_1")])
def test_no_message_for_another_agent_while_one_is_at_work(at_work: Observation) -> None:
    ide = Playbook("claude", "codex")
    ide.play(sees(at_work, "claude"), sees(IDLE, "codex"))
    assert ide >> submit(1, "codex") << Refused(1, 409, "Claude is at work")


def test_no_message_for_another_agent_while_messages_wait() -> None:
    ide = Playbook("claude", "codex")
    ide.play(sees(GENERATING, "claude"), submit(1), sees(IDLE, "claude"))
    ide.play(Failed(ApiError(500, "not now")))
    assert ide >> submit(2, "codex") << Refused(2, 409, "Claude is at work")


def test_an_answer_for_another_agent_selects_it() -> None:
    ide = Playbook("claude", "codex")
    ide.play(sees(IDLE, "claude"), sees(asks("act_1"), "codex"))
    assert (
        ide
        >> approve(1, agent_type="codex")
        << [Save(), WAITING, *CHANGED, STARTED, *CHANGED, Prepare("codex")]
        >> Ready()
        << Choose("codex", pending("act_1"), OPTIONS[0])
    )


def test_only_the_selected_agent_has_events_and_all_are_listed() -> None:
    ide = Playbook("claude", "codex")
    listed = Observation(status="idle", listed=True)
    assert (
        ide
        >> sees(listed, "claude")
        << [*CHANGED]
        >> sees(IDLE, "codex")
        << []
        >> sees(Observation(status="generating", listed=True), "codex")
        << Publish()
        >> sees(Observation(status="generating", listed=True, title="more"), "codex")
        << []
    )
    assert ide.core.agents.listed() == [
        AgentSummary(type="claude", name="Claude", status="idle"),
        AgentSummary(type="codex", name="Codex", status="generating"),
    ]
    assert ide.core.agents.observation_of("codex").title == "more"


# The end of a daemon, or of a session


def test_close_refuses_who_waits_and_begins_nothing(idle: Playbook) -> None:
    idle.play(submit(1), SubmitRequest(2, "msg_2", None, controls={"mode": "plan"}))
    assert (
        idle
        >> Stopping()
        << [SetTimer(None), Refused(1, 500, "stopped"), Refused(2, 500, "stopped")]
        >> Ready()
        << []
        >> Done()
        << []
        >> Failed(ApiError(500, "too late"))
        << []
        >> Tick()
        << []
    )


@pytest.mark.parametrize(
    "request_",
    [submit(3), approve(3), InterruptRequest(3), WithdrawRequest(3, "msg_1")],
    ids=lambda request: type(request).__name__,
)
def test_a_request_to_a_session_that_is_ending_is_refused(
    waiting: Playbook, request_: Request
) -> None:
    waiting.play(Stopping())
    assert waiting >> request_ << Refused(3, 500, "stopped")
    assert waiting.core.agents.observation == asks("act_1")


def test_a_queue_goes_on_after_a_restart(generating: Playbook) -> None:
    generating.play(submit(1), submit(2))
    generating.restart()
    assert (
        generating
        >> sees(IDLE)
        << [COMPLETED, *CHANGED, for_message()]
        >> Ready()
        << deliver(1)
        >> Done()  # the agent had taken it: it is not typed again, and no turn begins
        << [Dequeue("msg_1"), for_message()]
        >> Ready()
        << deliver(2)
    )


class KillableDaemon:
    """An agent that takes messages and asks, driven by a core, with a daemon that can be killed.

    `budget` counts the commands until the daemon is killed. What the agent has taken and the
    journal outlive it.
    """

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.taken: list[str] = []
        self.accepted: list[str] = []
        self.events: list[str] = []
        self.status = IDLE
        self.journal = Journal(Playbook().journal.record)
        self.kills = 0

    def boot(self) -> None:
        self.core: AgentCore = Playbook(journal=self.journal).core
        self.act: CoreCommand | None = None
        self.handle(sees(self.status))

    def handle(self, event: CoreEvent) -> None:
        for command in self.core.handle(event, 0):
            if self.budget == 0:
                raise Killed
            self.budget -= 1
            self.journal.take(command, self.core.record)
            match command:
                case Prepare() | Deliver():
                    self.act = command
                case Emit(event=name):
                    self.events.append(name)
                case Reply(result=Accepted(message_id=str(message_id))):
                    self.accepted.append(message_id)
                case Refuse(error=error):
                    raise error

    def work(self) -> None:
        """Carry out the acts, and end the turns, until nothing is left to do."""
        while self.act is not None or self.status != IDLE:
            act, self.act = self.act, None
            match act:
                case Prepare():
                    self.handle(Ready())
                case Deliver(message_id=message_id):
                    if message_id not in self.taken:
                        self.taken.append(message_id)
                        self.status = GENERATING
                        self.handle(sees(self.status))
                    self.handle(Done())
                case _:
                    self.status = IDLE
                    self.handle(sees(self.status))

    def script(self) -> Iterator[None]:
        for number in (1, 2, 3):
            self.handle(submit(number))
            if number == 1:
                while not self.accepted:  # the others come while it is generating
                    act, self.act = self.act, None
                    self.handle(Ready())
                    assert isinstance(act, Prepare)
                    self.taken.append("msg_1")
                    self.status = GENERATING
                    self.handle(sees(self.status))
                    self.act = None
                    self.handle(Done())
            yield
        self.work()


class Killed(Exception):
    """The daemon was killed."""


@pytest.mark.parametrize("budget", range(45))
def test_a_daemon_that_is_killed_at_any_moment_loses_and_repeats_no_message(budget: int) -> None:
    daemon = KillableDaemon(budget)
    try:
        daemon.boot()
        for _ in daemon.script():
            pass
    except Killed:
        daemon.kills = 1
    daemon.budget = 1000
    daemon.boot()
    daemon.work()
    assert daemon.taken == sorted(set(daemon.taken))
    assert set(daemon.accepted) <= set(daemon.taken)
    assert daemon.journal.queue == []
    assert daemon.events.count("agent:generating_started") >= len(daemon.taken) - 1
    if not daemon.kills:
        assert daemon.taken == daemon.accepted == ["msg_1", "msg_2", "msg_3"]
        assert len(daemon.events) == 6


def test_an_input_may_be_more_than_text() -> None:
    book = Playbook()
    book.play(sees(IDLE))
    message = ChatInput(text_fallback="a picture")
    assert (
        book
        >> SubmitRequest(1, "msg_1", message)
        << for_message()
        >> Ready()
        << Deliver(ROBOT, "msg_1", message)
    )
