"""Judge what a page reports of an agent. Pure: reports and the time in, a status out."""

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
"""Seconds that a chat, or its input, may be away (a page being loaded) before it is missed."""

REDRAWN: Final = 0.35
"""Seconds that a question may be away, while the page draws it anew, and still be the same one."""

BEGUN_CHECK: Final = 0.2
"""Seconds between two looks whether an agent that shows no sign of work has answered."""

MAX_QUESTION: Final = 16 * 1024


class SeenOption(msgspec.Struct, kw_only=True):
    """An answer that the page offers."""

    id: str
    label: str
    kind: OptionKind


class SeenQuestion(msgspec.Struct, kw_only=True):
    """A question on the page. `key` tells it from another one."""

    key: str
    message: str
    options: list[SeenOption]


class SeenControl(msgspec.Struct, kw_only=True):
    """A setting that the page shows."""

    id: str
    label: str
    options: list[str] = []
    value: str | bool | None = None


class Seen(msgspec.Struct, kw_only=True):
    """What a page reports of one agent (see `look` in watch.js).

    `shown` tells that a person could see its chat, `input` that it has one, `broken` why the
    provider's script could not look.
    """

    shown: bool
    input: bool
    busy: bool = False
    question: SeenQuestion | None = None
    error: str | None = None
    title: str | None = None
    model: str | None = None
    controls: list[SeenControl] = []
    broken: str | None = None


@dataclass(frozen=True)
class Judgement:
    """What an agent is doing. `again` is when (seconds) it must be judged again, if at all."""

    status: AgentStatus
    pending: PendingAction | None = None
    error: str | None = None
    again: float | None = None


class Panel:
    """One agent's chat panel.

    Args:
        session_id: with `created_at`, what the ids of its actions are derived from.
        name: the agent, for a person.
        settle: with `begin_timeout`, seconds: see the provider's file.
        generating: whether it was at work when it was last seen, by an earlier daemon.
        answers: how many of its questions were answered before.
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
        self.seen: Seen | None = None
        self._session_id = session_id
        self._created_at = created_at
        self._settle = settle
        self._begin_timeout = begin_timeout
        self._status: AgentStatus = "generating" if generating else "idle"
        self._question: str | None = None
        self._pending: PendingAction | None = None
        self._answered = False
        self._away: float | None = None
        self._sent: float | None = None
        self._quiet: float | None = None
        self._missed: float | None = None
        self.last = Judgement(self._status)

    @property
    def awaits(self) -> bool:
        """Whether a message was taken and nothing has come of it yet."""
        return self._sent is not None

    def sent(self, now: float) -> None:
        """Note that a message was taken: it is a turn from here on."""
        self._sent = now
        self._status = "generating"

    def begun(self) -> None:
        """Note that the agent has dealt with the message."""
        self._sent = None

    @property
    def question(self) -> str | None:
        """The key of the question that is asked now."""
        return self._question

    def asks(self, action_id: str) -> bool:
        """Tell whether this question is asked now, though it may just be drawn anew."""
        return self._pending is not None and self._pending.id == action_id

    def answered(self, action_id: str) -> None:
        """Note that this question was answered: when it is away, it is gone."""
        self._answered = self.asks(action_id)

    def refused(self, action_id: str) -> None:
        """Note that this question is none any more: what stands there now is another action."""
        if self.asks(action_id):
            self._over()

    def judge(self, seen: Seen | None, now: float) -> Judgement:
        """Return what the agent is doing by this report, None where there is no chat."""
        self.seen = seen
        self.last = self._judge(seen, now)
        self._status = self.last.status
        return self.last

    def _judge(self, seen: Seen | None, now: float) -> Judgement:
        if seen is None:
            return self._missing(now, f"The chat of {self.name} is not there: open it in the IDE")
        if seen.broken is not None:
            return self._missing(
                now, f"Outrider cannot read the chat of {self.name}: {seen.broken[:300]}"
            )
        if seen.question is not None:
            self._missed = self._sent = self._quiet = None
            return Judgement("waiting_approval", self._asked(seen.question, now))
        if self._question is not None:
            self._away = now if self._away is None else self._away
            if not self._is_gone(now):
                return Judgement("waiting_approval", self._pending, again=self._away + REDRAWN)
            self._over()
        if seen.busy:
            self._missed = self._sent = self._quiet = None
            return Judgement("generating")
        if not seen.input:
            return self._missing(
                now, f"The input of {self.name} is not where this version of Outrider looks for it"
            )
        self._missed = None
        if self._sent is not None:
            return self._begins(self._sent, now, seen.error)
        if self._status == "generating":
            self._quiet = now if self._quiet is None else self._quiet
            if now < self._quiet + self._settle:
                return Judgement("generating", again=self._quiet + self._settle)
        self._quiet = None
        return Judgement("idle" if seen.error is None else "error", error=seen.error)

    def _begins(self, sent: float, now: float, error: str | None) -> Judgement:
        if now < sent + self._begin_timeout:
            return Judgement("generating", again=now + BEGUN_CHECK)
        self._sent = None
        return Judgement(
            "error",
            error=error
            or f"{self.name} did not begin to answer within {self._begin_timeout:.0f} s",
        )

    def _missing(self, now: float, why: str) -> Judgement:
        self._missed = now if self._missed is None else self._missed
        if now < self._missed + ABSENT_GRACE:
            pending = self.last.pending if self._status == "waiting_approval" else None
            return Judgement(
                self._status, pending, self.last.error, again=self._missed + ABSENT_GRACE
            )
        return Judgement("error", error=why)

    def _is_gone(self, now: float) -> bool:
        """Tell whether the question has been away for longer than a page needs to draw it anew."""
        return self._away is not None and (self._answered or now >= self._away + REDRAWN)

    def _over(self) -> None:
        self._question = self._away = self._pending = None
        self._answered = False
        self.answers += 1

    def _asked(self, question: SeenQuestion, now: float) -> PendingAction:
        if self._question is not None and (question.key != self._question or self._is_gone(now)):
            self._over()
        self._question, self._away = question.key, None
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
            for control in (self.seen.controls if self.seen is not None else ())
        )
