"""How reports of a page become a status: no page, no waiting."""

from typing import Any

from outrider.machine.agents.ide.panel import (
    ABSENT_GRACE,
    REDRAW_GRACE,
    Panel,
    PanelReport,
    ReportedOption,
    ReportedQuestion,
)

SETTLE = 0.25


def panel(*, generating: bool = False, answers: int = 0) -> Panel:
    return Panel(
        "session_1", 1, "alpha", "Alpha",
        settle=SETTLE, begin_timeout=2.0, generating=generating, answers=answers,
    )  # fmt: skip


def report(**more: Any) -> PanelReport:
    return PanelReport(**{"shown": True, "input": True} | more)


def question(key: str) -> ReportedQuestion:
    option = ReportedOption(id="1", label="Yes", kind="allow_once")
    return ReportedQuestion(key=key, message=key, options=[option])


def test_a_busy_sign_counts_at_once_and_its_end_after_a_while() -> None:
    judged = panel()
    assert judged.judge(report(busy=True), 0.0).status == "generating"
    quiet = judged.judge(report(), 1.0)
    assert (quiet.status, quiet.judge_at) == ("generating", 1.0 + SETTLE)
    assert judged.judge(report(busy=True), 1.1).status == "generating"
    assert judged.judge(report(), 1.2).status == "generating"
    assert judged.judge(report(), 1.3).status == "generating"  # quiet since 1.2 only
    assert judged.judge(report(), 1.2 + SETTLE).status == "idle"


def test_a_message_is_a_turn_until_something_comes_of_it() -> None:
    judged = panel()
    judged.set_message_sent(0.0)
    assert judged.judge(report(), 1.0).status == "generating"
    judged.set_answer_begun()
    judged.judge(report(), 1.1)
    assert judged.judge(report(), 1.1 + SETTLE).status == "idle"
    judged.set_message_sent(2.0)
    late = judged.judge(report(), 4.0)
    assert (late.status, late.error) == ("error", "Alpha did not begin to answer within 2 s")


def test_a_question_comes_before_the_busy_sign() -> None:
    judged = panel()
    asks = judged.judge(report(busy=True, question=question("one")), 0.0)
    assert asks.status == "waiting_approval"
    assert judged.judge(report(busy=True, question=question("one")), 1.0) == asks


def test_the_same_question_again_is_another_action_and_stays_itself_over_a_restart() -> None:
    judged = panel()
    first = judged.judge(report(question=question("same")), 0.0).pending
    judged.judge(report(), 1.0)
    second = judged.judge(report(question=question("same")), 2.0).pending
    assert first is not None
    assert second is not None
    assert first.id != second.id
    again = panel(answers=judged.answers).judge(report(question=question("same")), 0.0).pending
    assert again == second


def test_a_question_that_is_drawn_anew_is_the_same_one() -> None:
    judged = panel()
    first = judged.judge(report(question=question("one")), 0.0)
    away = judged.judge(report(busy=True), 1.0)
    assert (away.pending, away.judge_at) == (first.pending, 1.0 + REDRAW_GRACE)
    assert judged.judge(report(question=question("one")), 1.2) == first
    judged.judge(report(busy=True), 2.0)  # away for too long, though nobody looked meanwhile
    late = judged.judge(report(question=question("one")), 2.0 + REDRAW_GRACE).pending
    assert late is not None
    assert first.pending is not None
    assert late.id != first.pending.id
    judged.judge(report(), 3.0)
    assert judged.judge(report(), 3.0 + REDRAW_GRACE).status == "idle"


def test_a_question_that_was_answered_is_gone_when_it_is_away() -> None:
    judged = panel()
    first = judged.judge(report(question=question("one")), 0.0).pending
    assert first is not None
    judged.set_answered(first.id)
    assert judged.judge(report(question=question("one")), 0.1).pending == first  # drawn still
    assert judged.judge(report(busy=True), 0.2).status == "generating"
    second = judged.judge(report(question=question("one")), 0.3).pending
    assert second is not None
    assert second.id != first.id
    judged.discard_question(first.id)  # no effect: it has ended
    assert judged.judge(report(question=question("one")), 0.4).pending == second
    judged.discard_question(second.id)
    third = judged.judge(report(question=question("one")), 0.5).pending
    assert third is not None
    assert third.id != second.id


def test_a_chat_that_is_away_for_a_moment_changes_nothing() -> None:
    judged = panel()
    asks = judged.judge(report(question=question("one")), 0.0)
    away = judged.judge(None, 1.0)
    assert (away.status, away.pending) == ("waiting_approval", asks.pending)
    missed = judged.judge(None, 1.0 + ABSENT_GRACE)
    assert missed.status == "error"
    assert "open it" in (missed.error or "")
    assert judged.judge(report(question=question("one")), 9.0).pending == asks.pending


def test_a_missing_input_and_a_broken_script_are_errors_in_words() -> None:
    for seen, words in ((report(input=False), "input of Alpha"), (report(broken="oops"), "oops")):
        judged = panel()
        assert judged.judge(seen, 0.0).status == "idle"
        late = judged.judge(seen, ABSENT_GRACE)
        assert late.status == "error"
        assert words in (late.error or "")


def test_an_agent_at_work_needs_no_input() -> None:
    assert panel().judge(report(input=False, busy=True), 0.0).status == "generating"


def test_what_was_at_work_before_a_restart_is_so_until_it_looks_idle() -> None:
    judged = panel(generating=True)
    assert judged.judge(report(), 0.0).status == "generating"
    assert judged.judge(report(), SETTLE).status == "idle"
