"""What an agent is doing: decided from its screen and its record together.

The screen says at once that the agent is busy or asks something; that a turn is over is
believed when the agent's own record agrees (or, without one, when the screen has been quiet
for a while), so that a model which is only silent is not taken for one that has finished.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

from outrider.contract.ids import derived_id, new_id
from outrider.contract.resources import PendingAction, SummaryItem
from outrider.daemon.agents.adapter import Observation
from outrider.daemon.agents.cli.provider_file import ProviderFile
from outrider.daemon.agents.cli.screen import Question, Reading
from outrider.daemon.agents.cli.transcripts.record import ToolCall, Transcript
from outrider.daemon.agents.failure import output_end
from outrider.daemon.session_record import SessionRecord

CALL_WAIT: Final = 0.3
"""Seconds that a question about a tool waits for the record to name the call."""

UNRECORDED: Final = 1.0
"""Seconds that the end of a turn waits for the record to have the message that it began with.

What was sent through Outrider is there before its turn begins; what a person typed may be late.
"""

LEAVING: Final = 1.5
"""Seconds for which a question that is over may still stand on the screen.

An agent may note down what came of a call before it takes the dialog away, and a busy machine
draws late. Until then the same question there is not a new one.
"""

UNKNOWN_QUESTION: Final = 1.5
"""Seconds that an agent says that it waits before a question that no rule knows is believed."""


@dataclass(frozen=True)
class Asked:
    """The question that stands on the screen, and the action that it was made into."""

    fingerprint: str
    call: str | None
    action: PendingAction


class Decider:
    """Decides what one agent is doing.

    `asked` is the question that stands there. `settled` tells whether screen and record agree:
    where they do not yet, one has to look again soon. `started` tells that the agent has been
    ready before: what its screen shows is no start any more.
    """

    def __init__(
        self,
        file: ProviderFile,
        transcript: Transcript | None,
        record: SessionRecord,
        *,
        started: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.asked: Asked | None = None
        self.settled = False
        self._file = file
        self._transcript = transcript
        self._record = record
        self._started = started
        self._clock = clock
        self._leaving: tuple[str, float] | None = None
        self._rested = self._unrecorded = False
        self._answered: Asked | None = None
        self._answered_calls: set[str] = set()
        self._prompts = 0
        self._since: dict[str, float] = {}
        self._screen = ""
        self._drawn_at = clock()

    def decide(self, reading: Reading, screen: str) -> Iterator[Observation]:
        """Return what to tell of it now, in order: nothing, where it is not decided yet."""
        if screen != self._screen:
            self._screen, self._drawn_at = screen, self._clock()
        if not self._is_silent(reading):
            yield from self._judge(reading, screen)
            return
        self.settled = True
        yield self.idle(
            error=f"The agent has shown nothing new for {self._file.silence:.0f} s; "
            f"its screen ends with:\n{output_end(screen)}"
        )

    def _is_silent(self, reading: Reading) -> bool:
        """Tell whether only the screen could show that it is at work, and has not for too long."""
        if self._transcript is not None or not self._started:
            return False
        at_work = reading.question is None and reading.status in {None, "generating"}
        return at_work and self._clock() - self._drawn_at >= self._file.silence

    def _judge(self, reading: Reading, screen: str) -> Iterator[Observation]:
        self.settled = True
        if self._answered is not None:
            if not self._is_gone(self._answered, reading.question):
                self.settled = False
                return
            if self._answered.call is not None:
                self._answered_calls.add(self._answered.call)
            self._over(self._answered)
            self._answered = None
            self._since.clear()
        if reading.question is not None:
            yield from self._asks(reading.question)
            return
        if reading.status is not None:
            self.asked = None  # a screen that no rule fits may be one that is half drawn
        self._since.pop("call", None)
        if not self._started and reading.status not in {"idle", "error"}:
            self.settled = False
            return  # it is still getting ready
        if not self._started and reading.status == "error":
            yield self.idle(error=reading.error)
            return
        self._started = True
        if self._transcript is not None and self._transcript.prompts > self._prompts:
            self.seen_prompts()
            yield self.generating()  # a turn, even if it is over by now
        if reading.status == "generating":
            self._since.clear()
            self._unrecorded = self._unrecorded or self._rested
            self._rested = False
            yield self.generating()
        else:
            yield from self._rests(reading, screen)

    def idle(self, error: str | None = None) -> Observation:
        """Return what is told of an agent that does nothing, because it failed with `error`."""
        transcript = self._transcript
        model = self._record.model if transcript is None else transcript.model or self._record.model
        return Observation(
            status="idle" if error is None else "error",
            error=error,
            title=None if transcript is None else transcript.title,
            model=model,
            summary=() if model is None else (SummaryItem(id="model", label="Model", value=model),),
        )

    def generating(self) -> Observation:
        """Return what is told of an agent at work."""
        return replace(self.idle(), status="generating")

    def seen_prompts(self) -> None:
        """The messages that the record holds have been told of. What was asked before is past."""
        self._leaving = None
        self._rested = self._unrecorded = False
        self._drawn_at = self._clock()
        self._prompts = 0 if self._transcript is None else self._transcript.prompts

    @property
    def awaits_effect(self) -> bool:
        """Whether a question that was answered has not gone yet."""
        return self._answered is not None

    @contextmanager
    def answering(self, asked: Asked) -> Iterator[None]:
        """Press the keys that answer a question; nothing else is decided until it is gone.

        Where the block fails, the question stands as before.
        """
        self._answered = asked
        try:
            yield
        except BaseException:
            self._answered = None
            raise

    def _is_gone(self, asked: Asked, shown: Question | None) -> bool:
        """Tell whether a question that was answered has gone; `shown` is what stands there."""
        if shown is None or shown.fingerprint != asked.fingerprint:
            return True
        if asked.call is None or self._transcript is None:
            return False
        return all(call.id != asked.call for call in self._transcript.open_calls())

    def _over(self, asked: Asked) -> None:
        """Take it that this question is over, though it may still be drawn."""
        self.asked = None
        self._leaving = (asked.fingerprint, self._clock() + LEAVING)

    def _rests(self, reading: Reading, screen: str) -> Iterator[Observation]:
        """No sign of work is on the screen: what does the record say?"""
        transcript = self._transcript
        match None if transcript is None else transcript.activity():
            case "busy":
                self._since.clear()
                self.settled = False
                yield self.generating()
            case "waiting":
                yield self._waits_for_something(screen)
            case "idle" if self._unrecorded and not self._for_long("unrecorded", UNRECORDED):
                self.settled = False
            case "idle":
                self._since.clear()
                self._rested, self._unrecorded = True, False
                yield self.idle(error=None if transcript is None else transcript.failure)
            case None if reading.status is None:
                self.settled = False
            case None if self._for_long("quiet", self._file.settle):
                yield self.idle(error=reading.error if transcript is None else transcript.failure)
            case None:
                self.settled = False

    def _asks(self, question: Question) -> Iterator[Observation]:
        """Make the question on the screen an action, the same one as long as it stands there."""
        call = self._call() if question.tool else None
        asked = self.asked
        if asked is not None and asked.fingerprint != question.fingerprint:
            asked = self.asked = None
        if asked is not None and asked.call is not None and (call is None or call.id != asked.call):
            self._over(asked)
            asked = None
        if asked is None:
            if self._is_leaving(question):
                self.settled = False
                if question.tool:  # in the midst of a turn, which goes on
                    yield self.generating()
                return
            if not self._is_named(question, call):
                self.settled = False
                return
            asked = self.asked = self._made(question, call)
        self.seen_prompts()
        yield replace(self.idle(), status="waiting_approval", pending=asked.action)

    def _is_leaving(self, question: Question) -> bool:
        """Tell whether this is one that is over, and that the agent is about to take away."""
        if self._leaving is None:
            return False
        fingerprint, until = self._leaving
        return question.fingerprint == fingerprint and self._clock() < until

    def _is_named(self, question: Question, call: ToolCall | None) -> bool:
        """Tell whether the record names the call that is asked about, as far as it ever will."""
        if not question.tool or self._transcript is None or call is not None:
            return True
        return self._for_long("call", CALL_WAIT)

    def _call(self) -> ToolCall | None:
        """Return the tool call that the agent may be asking about."""
        calls = () if self._transcript is None else self._transcript.open_calls()
        return next((call for call in calls if call.id not in self._answered_calls), None)

    def _made(self, question: Question, call: ToolCall | None) -> Asked:
        if call is None:
            own = new_id("act")
        else:
            own = derived_id("act", call.started, self._record.id, call.id, question.fingerprint)
        options = [offer.option for offer in question.offers]
        action = PendingAction(id=own, message=question.message, options=options)
        return Asked(question.fingerprint, None if call is None else call.id, action)

    def _waits_for_something(self, screen: str) -> Observation:
        """The agent says that it waits, and no rule knows for what: a person has to look."""
        if not self._for_long("unknown", UNKNOWN_QUESTION):
            self.settled = False
            return self.generating()
        message = last_lines(screen, 20)
        if self.asked is None or self.asked.fingerprint != message:
            action = PendingAction(id=new_id("act"), message=message, options=[])
            self.asked = Asked(message, None, action)
        return replace(self.idle(), status="waiting_approval", pending=self.asked.action)

    def _for_long(self, what: str, seconds: float) -> bool:
        """Tell whether `what` has been the case for that long, from the first time asked."""
        now = self._clock()
        return now - self._since.setdefault(what, now) >= seconds


def last_lines(text: str, count: int = 4) -> str:
    """Return the last lines of a screen that are not blank, for a person to read."""
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    return "\n".join(lines[-count:])[-2000:] or "(nothing)"
