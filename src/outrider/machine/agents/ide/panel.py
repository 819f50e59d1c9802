"""The status of one agent, derived from what its page reports. Free of I/O; time is passed in.

A page is redrawn while it is read, so what is absent for a moment must not count as ended:

- a question that is absent ends after `REDRAW_GRACE`, at once if it was answered here;
- a chat or an input that is absent is an error only after `ABSENT_GRACE`;
- an agent that looks idle after work is idle only after `settle` seconds of that;
- after a message, it counts as generating until it shows work, asks a question, answers (which
  the reader of the chat notices) or `begin_timeout` has passed.
"""

from dataclasses import dataclass
from typing import Final

import msgspec

from outrider.contract.ids import derived_id
from outrider.contract.resources import (
    ActionOption,
    AgentStatus,
    Control,
    OptionKind,
    PendingAction,
)

ABSENT_GRACE: Final = 3.0
"""Seconds that a chat, or its input, may be absent (page load) before that is an error."""

REDRAW_GRACE: Final = 0.35
"""Seconds that a question may be absent, while the page redraws it, and still be the same one."""

ANSWER_CHECK_INTERVAL: Final = 0.2
"""Seconds between two checks whether an agent that shows no sign of work has answered."""

MAX_QUESTION: Final = 16 * 1024


class ReportedOption(msgspec.Struct, kw_only=True):
    """An answer that the page offers."""

    id: str
    label: str
    kind: OptionKind


class ReportedQuestion(msgspec.Struct, kw_only=True):
    """A question on the page, identified by `key`."""

    key: str
    message: str
    options: list[ReportedOption]


class ReportedControl(msgspec.Struct, kw_only=True):
    """A setting that the page shows."""

    id: str
    label: str
    options: list[str] = []
    value: str | bool | None = None


class PanelReport(msgspec.Struct, kw_only=True):
    """What a page reports of one agent (see `look` in watch.js).

    `shown`: its chat is visible; `input`: it has an input; `broken`: why the provider's script
    failed.
    """

    shown: bool
    input: bool
    busy: bool = False
    question: ReportedQuestion | None = None
    error: str | None = None
    title: str | None = None
    model: str | None = None
    controls: list[ReportedControl] = []
    broken: str | None = None


@dataclass(frozen=True)
class Judgement:
    """The status of an agent. `judge_at` is when (seconds) to judge it again, if at all."""

    status: AgentStatus
    pending: PendingAction | None = None
    error: str | None = None
    judge_at: float | None = None


class Panel:
    """One agent's chat panel.

    Args:
        session_id: with `created_at`, the source of the ids of its actions.
        name: the agent's name, for people.
        settle: seconds, as `begin_timeout`: see the provider spec.
        generating: whether an earlier daemon last observed it generating.
        answers: how many of its questions have ended before.
    """

    def __init__(
        self,
        session_id: str,
        created_at: int,
        kind: str,
        name: str,
        *,
        settle: float,
        begin_timeout: float,
        generating: bool,
        answers: int,
    ) -> None:
        self.kind = kind
        self.name = name
        self.answers = answers
        self.report: PanelReport | None = None
        self._session_id = session_id
        self._created_at = created_at
        self._settle = settle
        self._begin_timeout = begin_timeout
        self._status: AgentStatus = "generating" if generating else "idle"
        self._question: str | None = None
        self._pending: PendingAction | None = None
        self._answered = False
        self._question_absent_since: float | None = None
        self._sent_at: float | None = None
        self._quiet_since: float | None = None
        self._missing_since: float | None = None
        self.last = Judgement(self._status)

    @property
    def awaits_answer(self) -> bool:
        """Whether the agent has accepted a message and not begun to answer it."""
        return self._sent_at is not None

    def set_message_sent(self, now: float) -> None:
        """Record that the agent has accepted a message, with which a turn begins."""
        self._sent_at = now
        self._status = "generating"

    def set_answer_begun(self) -> None:
        """Record that the agent has begun to answer the message."""
        self._sent_at = None

    @property
    def question(self) -> str | None:
        """The key of the present question."""
        return self._question

    def is_asking(self, action_id: str) -> bool:
        """Return whether this is the present question; the page may be redrawing it."""
        return self._pending is not None and self._pending.id == action_id

    def set_answered(self, action_id: str) -> None:
        """Record that this question was answered: it ends as soon as it is absent."""
        self._answered = self.is_asking(action_id)

    def discard_question(self, action_id: str) -> None:
        """End this question: what the page shows in its place is another action."""
        if self.is_asking(action_id):
            self._end_question()

    def judge(self, report: PanelReport | None, now: float) -> Judgement:
        """Return the agent's status by this report; None means that there is no chat."""
        self.report = report
        self.last = self._judge(report, now)
        self._status = self.last.status
        return self.last

    def _judge(self, report: PanelReport | None, now: float) -> Judgement:
        if report is None:
            return self._absent(now, f"The chat of {self.name} is not there: open it in the IDE")
        if report.broken is not None:
            return self._absent(
                now, f"Outrider cannot read the chat of {self.name}: {report.broken[:300]}"
            )
        # Before the sign of work: pages keep their spinner while they ask.
        if report.question is not None:
            self._missing_since = self._sent_at = self._quiet_since = None
            return Judgement("waiting_approval", self._pending_action(report.question, now))
        if self._question is not None:
            self._question_absent_since = (
                now if self._question_absent_since is None else self._question_absent_since
            )
            if not self._question_ended(now):
                return Judgement(
                    "waiting_approval",
                    self._pending,
                    judge_at=self._question_absent_since + REDRAW_GRACE,
                )
            self._end_question()
        if report.busy:
            self._missing_since = self._sent_at = self._quiet_since = None
            return Judgement("generating")
        # Only now: an agent at work may hide its input.
        if not report.input:
            return self._absent(
                now, f"The input of {self.name} is not where this version of Outrider looks for it"
            )
        self._missing_since = None
        if self._sent_at is not None:
            return self._wait_for_answer(self._sent_at, now, report.error)
        # A page may show no sign of work between two steps of one turn.
        if self._status == "generating":
            self._quiet_since = now if self._quiet_since is None else self._quiet_since
            if now < self._quiet_since + self._settle:
                return Judgement("generating", judge_at=self._quiet_since + self._settle)
        self._quiet_since = None
        return Judgement("idle" if report.error is None else "error", error=report.error)

    def _wait_for_answer(self, sent: float, now: float, error: str | None) -> Judgement:
        if now < sent + self._begin_timeout:
            return Judgement("generating", judge_at=now + ANSWER_CHECK_INTERVAL)
        self._sent_at = None
        return Judgement(
            "error",
            error=error
            or f"{self.name} did not begin to answer within {self._begin_timeout:.0f} s",
        )

    def _absent(self, now: float, why: str) -> Judgement:
        self._missing_since = now if self._missing_since is None else self._missing_since
        # The page is loading or redrawn: what was judged last holds until then.
        if now < self._missing_since + ABSENT_GRACE:
            pending = self.last.pending if self._status == "waiting_approval" else None
            return Judgement(
                self._status, pending, self.last.error, judge_at=self._missing_since + ABSENT_GRACE
            )
        return Judgement("error", error=why)

    def _question_ended(self, now: float) -> bool:
        """Return whether the question has been absent for longer than a page takes to redraw it."""
        return self._question_absent_since is not None and (
            self._answered or now >= self._question_absent_since + REDRAW_GRACE
        )

    def _end_question(self) -> None:
        self._question = self._question_absent_since = self._pending = None
        self._answered = False
        self.answers += 1

    def _pending_action(self, question: ReportedQuestion, now: float) -> PendingAction:
        if self._question is not None and (
            question.key != self._question or self._question_ended(now)
        ):
            self._end_question()
        self._question, self._question_absent_since = question.key, None
        # The number of answers tells an equal question that is asked again from this one, and is
        # stored: the id is the same after a restart.
        self._pending = PendingAction(
            id=derived_id(
                "act", self._created_at, self._session_id, self.kind, question.key,
                str(self.answers),
            ),
            message=question.message[-MAX_QUESTION:],
            options=[
                ActionOption(id=option.id, label=option.label, kind=option.kind)
                for option in question.options
            ],
        )  # fmt: skip
        return self._pending

    def controls(self) -> tuple[Control, ...]:
        """Return the settings that the page shows."""
        return tuple(
            Control(
                id=control.id,
                label=control.label,
                type="toggle" if isinstance(control.value, bool) else "select",
                options=control.options,
                value=control.value,
            )
            for control in (self.report.controls if self.report is not None else ())
        )
