"""What an agent is doing: looks at its terminal and decides from its screen and its transcript.

    tmux ─ changed ─▶ StatusMonitor ─ snapshot ─▶ ScreenRules ─ reading ─▶ StatusDecider
                           │                                                  │
                           └──────────── observer ◀───── observations ────────┘

`StatusDecider` is pure: the screen says at once that the agent is busy or asks something; that a
turn is over is believed only when the agent's own transcript agrees (or, without one, when the
screen has been quiet for a while), so that a silent model is not mistaken for one that has
finished. `StatusMonitor` does the I/O. `Stillness` measures how long an agent has done nothing.
"""

import asyncio
import contextlib
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

import psutil
import structlog

from outrider.contract.ids import derived_id, new_id
from outrider.contract.resources import PendingAction, SummaryItem
from outrider.daemon.agents.adapter import Observation, Observer
from outrider.daemon.agents.cli.adapter_state import CliState
from outrider.daemon.agents.cli.screen import Question, Reading, ScreenRules
from outrider.daemon.agents.cli.scrollback import Scrollback
from outrider.daemon.agents.cli.spec import CliSpec
from outrider.daemon.agents.cli.tmux import Pane, Snapshot, Tmux
from outrider.daemon.agents.cli.tmux_control import TmuxError, TmuxGone, WindowGone
from outrider.daemon.agents.cli.transcripts.transcript import ToolCall, Transcript, catch_up
from outrider.daemon.agents.failure import output_end
from outrider.daemon.agents.patterns import PatternTimeout
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

LOOK_GAP: Final = 0.1
"""Seconds between two looks at a screen that keeps changing, at the least."""

UNSETTLED: Final = 0.06
"""Seconds between looks while screen and record do not agree yet."""

GENERATING_LOOK: Final = 1.0
IDLE_LOOK: Final = 5.0
"""Seconds after which an agent is looked at though nothing was heard from its terminal."""

END_GRACE: Final = 1.0
"""Seconds between asking an agent's processes to end and killing them."""

_DEAD: Final = "Pane is dead"

_BETWEEN_LOOKS: Final = 0.1
"""Seconds that a look vouches for. Where they come later than that the machine is too busy to
tell: what has not been drawn by then may only be late."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Asked:
    """The question that stands on the screen, and the action that it was made into."""

    fingerprint: str
    call: str | None
    action: PendingAction


class StatusDecider:
    """Decides what one agent is doing.

    `asked` is the question that stands there. `settled` tells whether screen and record agree:
    where they do not yet, one has to look again soon. `started` tells that the agent has been
    ready before: what its screen shows is no start any more.
    """

    def __init__(
        self,
        file: CliSpec,
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
        """Return the observations that follow, in order; none while it is undecided."""
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
        """Return whether an agent without a transcript has shown nothing new for `silence`."""
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
        """Return the observation of an idle agent, or with `error` of one whose turn failed."""
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
        """Return the observation of an agent at work."""
        return replace(self.idle(), status="generating")

    def seen_prompts(self) -> None:
        """Mark every message in the transcript as observed; earlier questions are over."""
        self._leaving = None
        self._rested = self._unrecorded = False
        self._drawn_at = self._clock()
        self._prompts = 0 if self._transcript is None else self._transcript.prompts

    @property
    def awaits_effect(self) -> bool:
        """Whether the screen still shows a question that was answered."""
        return self._answered is not None

    @contextmanager
    def answering(self, asked: Asked) -> Iterator[None]:
        """Suspend decisions while the block answers a question, and until it is gone.

        If the block fails, the question is pending as before.
        """
        self._answered = asked
        try:
            yield
        except BaseException:
            self._answered = None
            raise

    def _is_gone(self, asked: Asked, shown: Question | None) -> bool:
        """Return whether an answered question is gone; `shown` is the question on the screen."""
        if shown is None or shown.fingerprint != asked.fingerprint:
            return True
        if asked.call is None or self._transcript is None:
            return False
        return all(call.id != asked.call for call in self._transcript.open_calls())

    def _over(self, asked: Asked) -> None:
        """Mark a question as over, although the screen may still show it."""
        self.asked = None
        self._leaving = (asked.fingerprint, self._clock() + LEAVING)

    def _rests(self, reading: Reading, screen: str) -> Iterator[Observation]:
        """Decide by the transcript: the screen shows no sign of work."""
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
        """Make the question an action, which keeps its id while the question is shown."""
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
        """Return whether this question is over and only not yet removed from the screen."""
        if self._leaving is None:
            return False
        fingerprint, until = self._leaving
        return question.fingerprint == fingerprint and self._clock() < until

    def _is_named(self, question: Question, call: ToolCall | None) -> bool:
        """Return whether the transcript names the tool call, or the wait for that is over."""
        if not question.tool or self._transcript is None or call is not None:
            return True
        return self._for_long("call", CALL_WAIT)

    def _call(self) -> ToolCall | None:
        """Return the oldest open tool call that has not been answered."""
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
        """Return an action without options: the agent waits, and no rule knows for what."""
        if not self._for_long("unknown", UNKNOWN_QUESTION):
            self.settled = False
            return self.generating()
        message = last_lines(screen, 20)
        if self.asked is None or self.asked.fingerprint != message:
            action = PendingAction(id=new_id("act"), message=message, options=[])
            self.asked = Asked(message, None, action)
        return replace(self.idle(), status="waiting_approval", pending=self.asked.action)

    def _for_long(self, what: str, seconds: float) -> bool:
        """Return whether `what` has held for `seconds`, counted from the first call."""
        now = self._clock()
        return now - self._since.setdefault(what, now) >= seconds


class StatusMonitor:
    """What is seen of one agent. It has no `pane` where its terminal is gone.

    `seen` is what was told last, `snapshot` and `reading` what the screen showed last;
    `unreadable` is why the screen could not be read, None if it could.
    """

    def __init__(
        self,
        tmux: Tmux,
        pane: Pane | None,
        *,
        judge: ScreenRules,
        decider: StatusDecider,
        transcript: Transcript | None,
        scrollback: Scrollback | None,
        record: SessionRecord,
    ) -> None:
        self.pane = pane
        self.seen = Observation(status="generating")
        self.snapshot: Snapshot | None = None
        self.reading = Reading(None, None)
        self.unreadable: str | None = None
        self._tmux = tmux
        self._judge = judge
        self._decider = decider
        self._transcript = transcript
        self._scrollback = scrollback
        self._taken: Snapshot | None = None
        self._noted: str | None = None
        self._record = record
        self._observer: Observer | None = None
        self._following: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._looking = asyncio.Lock()
        self._held = False
        if pane is not None:
            tmux.watch(pane, self._changed.set)
        else:
            self._gone("The agent's terminal is gone: tmux or the machine was restarted")

    @property
    def screen(self) -> str:
        """The text of the newest snapshot."""
        return "" if self.snapshot is None else self.snapshot.text

    def observe(self, observer: Observer) -> None:
        """Follow the agent; `observer` is called at once with the current state."""
        self._observer = observer
        observer(self._record.type, self.seen)
        if self.pane is not None:
            self._following = asyncio.create_task(self._follow(), name=f"follow {self._record.id}")
            self._following.add_done_callback(self._followed)

    async def stop(self) -> None:
        """Stop following, within 3 s; the observer is not called again."""
        self._observer = None
        if self.pane is not None:
            self._tmux.unwatch(self.pane)
        if self._following is not None and not self._following.done():
            self._following.cancel()
            await asyncio.wait({self._following}, timeout=3)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Suspend observations while the block runs, because it is typing."""
        self._held = True
        try:
            yield
        finally:
            self._held = False
            self._changed.set()

    def tell(self, observation: Observation) -> None:
        """Pass an observation to the observer."""
        self.seen = observation
        if self._observer is not None:
            self._observer(self._record.type, observation)

    async def look(self) -> Observation:
        """Take a snapshot now and return the observation that follows."""
        pane = self.pane
        if pane is None or self.seen.gone:
            return self.seen
        async with self._looking:
            try:
                await self._take(pane, await self._tmux.snapshot(pane))
            except TmuxGone:
                self._gone("The tmux server has ended, and the agent with it")
                await CliState(self._record).end_orphan(END_GRACE)
            except WindowGone:
                self._gone("The agent's window was closed")
            except TmuxError as error:
                _log.warning("could not look at the agent", session=pane.name, error=str(error))
        return self.seen

    async def until(self, done: Callable[[], bool], seconds: float) -> bool:
        """Look until `done`; return whether that was within `seconds`."""
        deadline = time.monotonic() + seconds
        while True:
            await self.look()
            if done():
                return True
            if time.monotonic() > deadline:
                return False
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), UNSETTLED)
            self._changed.clear()

    async def _follow(self) -> None:
        while not self.seen.gone:
            if not self._decider.settled:
                pause = UNSETTLED
            else:
                pause = GENERATING_LOOK if self.seen.status == "generating" else IDLE_LOOK
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), pause)
            self._changed.clear()
            await self.look()
            await asyncio.sleep(LOOK_GAP)

    def _followed(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("no longer following the agent", session=self._record.id, exc_info=error)
            self.tell(Observation(status="error", error=f"Outrider failed to follow: {error}"))

    async def _take(self, pane: Pane, snapshot: Snapshot) -> None:
        """Read a snapshot and pass on the observations that follow from it."""
        if self._transcript is not None:
            await catch_up(self._transcript)
        before, self.snapshot = self.snapshot, snapshot
        if snapshot != before or self.unreadable is not None:
            self._read_screen(snapshot)
        if snapshot.ended:
            await self._read_chat(pane, snapshot)
            self._gone(self._last_words(snapshot))
        elif self.unreadable is not None:
            self.tell(self._decider.idle(error=self.unreadable))
        elif not self._held:
            for observation in self._decider.decide(self.reading, snapshot.text):
                if observation.status == "idle" and not await self._read_chat(pane, snapshot):
                    self._decider.settled = False
                    return
                if observation.pending is not None:
                    await self._read_question(pane, snapshot, observation.pending.id)
                self.tell(observation)

    def _read_screen(self, snapshot: Snapshot) -> None:
        try:
            self.reading = self._judge.read(snapshot.text, snapshot.title)
            self.unreadable = None
        except PatternTimeout as error:  # read again at the next look
            self.reading = Reading(None, None)
            self.unreadable = str(error)

    async def _read_chat(self, pane: Pane, snapshot: Snapshot) -> bool:
        """Read the chat off the terminal, if there is no transcript, before a turn ends.

        Return whether it was read: the screen may have changed since the snapshot.
        """
        if self._scrollback is None or snapshot == self._taken:
            return True
        shown, lines = await self._tmux.history(pane)
        if not snapshot.ended and shown != snapshot.text:
            return False
        if snapshot.ended:
            lines = [line for line in lines if not line.startswith(_DEAD)]
        if self._scrollback.take(_above(lines, 0 if snapshot.ended else self.reading.rows)):
            self.tell(self._decider.generating())  # a turn, even if it is over by now
        self._taken = snapshot
        return True

    async def _read_question(self, pane: Pane, snapshot: Snapshot, action_id: str) -> None:
        """Record the lines of a question, which are left out of the chat."""
        question = self.reading.question
        if self._scrollback is None or question is None or action_id == self._noted:
            return
        shown, lines = await self._tmux.history(pane)
        if shown == snapshot.text:
            self._scrollback.asked(lines, question.drawn)
            self._noted = action_id

    def _gone(self, error: str) -> None:
        self.tell(replace(self._decider.idle(error=error), gone=True))

    def _last_words(self, snapshot: Snapshot) -> str:
        if self.reading.status == "error" and self.reading.error:
            return self.reading.error
        shown = re.sub(rf"\n?{_DEAD}[^\n]*\s*$", "", snapshot.text)
        how = "by a signal" if snapshot.exit_status == -1 else f"with code {snapshot.exit_status}"
        return f"{self._record.name} has ended {how}; its screen ends with:\n{output_end(shown)}"


class Stillness:
    """Measure for how long an agent has neither drawn nor computed, from now on."""

    def __init__(self, watch: StatusMonitor) -> None:
        self._watch = watch
        self._looked = time.monotonic()
        self._seconds = 0.0

    async def look(self) -> float:
        """Look at the agent and return for how many seconds at least it has been still."""
        before = self._watch.snapshot
        await self._watch.look()
        pane, now = self._watch.pane, time.monotonic()
        passed, self._looked = now - self._looked, now
        if (
            pane is None
            or self._watch.snapshot != before
            or await asyncio.to_thread(_at_work, pane.pid)
        ):
            self._seconds = 0.0
        else:
            self._seconds += min(passed, _BETWEEN_LOOKS)
        return self._seconds


def last_lines(text: str, count: int = 4) -> str:
    """Return the last lines of a screen that are not blank."""
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    return "\n".join(lines[-count:])[-2000:] or "(nothing)"


def _above(lines: list[str], rows: int) -> list[str]:
    """Return the lines above the last `rows` lines, not counting blank ones."""
    end = len(lines)
    while end and not lines[end - 1].strip():
        end -= 1
    while end and rows:
        end -= 1
        rows -= bool(lines[end].strip())
    return lines[:end]


def _at_work(pid: int) -> bool:
    """Tell whether the process, or what descends from it, is running and not waiting for input."""
    try:
        root = psutil.Process(pid)
        return any(
            process.status() in {psutil.STATUS_RUNNING, psutil.STATUS_DISK_SLEEP}
            for process in [root, *root.children(recursive=True)]
        )
    except psutil.NoSuchProcess:
        return False
