"""What an agent is doing: polls its terminal and decides from its screen and its transcript.

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
from outrider.contract.resources import EndReason, PendingAction, SummaryItem
from outrider.machine.agents.adapter import Observation
from outrider.machine.agents.cli.adapter_state import CliState
from outrider.machine.agents.cli.chat import ChatSource
from outrider.machine.agents.cli.screen import Question, Reading, ScreenRules
from outrider.machine.agents.cli.spec import CliSpec
from outrider.machine.agents.cli.transcripts.transcript import ToolCall, Transcript
from outrider.machine.agents.failure import output_end
from outrider.machine.agents.pane import Pane
from outrider.machine.agents.patterns import PatternTimeout
from outrider.machine.sessions.record import SessionRecord
from outrider.machine.tmux.control import TmuxError, TmuxGone, WindowGone
from outrider.machine.tmux.server import PaneSnapshot, Tmux

CALL_WAIT: Final = 0.3
"""Seconds that a question about a tool call waits for the transcript to name the call."""

DRAW_WAIT: Final = 0.05
"""Seconds for which a question must be on the screen before it is reported.

Agents draw and remove a dialog in pieces, and a piece reads like another question: one of Codex's
had no message, and the option to allow the command from then on as its only one. The question that
a restored agent shows at the first poll is reported at once: it has been there since before.
"""

RECORD_WAIT: Final = 1.0
"""Seconds that the end of a turn waits for the transcript to have the message that started it.

A message that was sent through Outrider is in the transcript before its turn begins; one that a
person typed may be recorded later.
"""

DISMISS_GRACE: Final = 1.5
"""Seconds for which a dismissed question may still be on the screen.

An agent may record the result of a call before it removes the dialog, and a busy machine draws
late. Until then, the same question on the screen is not a new one.
"""

UNKNOWN_QUESTION: Final = 1.5
"""Seconds for which the transcript must say `waiting` before an unknown question is reported."""

MIN_INTERVAL: Final = 0.1
"""Minimum seconds between two snapshots of a screen that keeps changing."""

UNSETTLED_INTERVAL: Final = 0.06
"""Seconds between snapshots while screen and transcript disagree."""

GENERATING_INTERVAL: Final = 1.0
IDLE_INTERVAL: Final = 5.0
"""Seconds after which a snapshot is taken without any sign of change from the terminal."""

END_GRACE: Final = 1.0
"""Seconds between terminating an agent's processes and killing them."""

_DEAD: Final = "Pane is dead"

_MAX_POLL_CREDIT: Final = 0.1
"""Seconds that one poll adds to the stillness, at most. If polls come later, the machine is too
busy: the agent's output may only be late."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class PendingQuestion:
    """The question on the screen, the tool call that it is about, and its pending action."""

    fingerprint: str
    call: str | None
    action: PendingAction


class StatusDecider:
    """Decides what one agent is doing.

    `pending` is the question on the screen. `is_settled` is false while screen and transcript
    disagree: the caller takes another snapshot soon. `was_ready` is true for a restored agent,
    which has been ready before: its screen does not show its start.
    """

    def __init__(
        self,
        spec: CliSpec,
        transcript: Transcript | None,
        record: SessionRecord,
        *,
        was_ready: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.pending: PendingQuestion | None = None
        self.is_settled = False
        self._spec = spec
        self._transcript = transcript
        self._record = record
        self._was_ready = self._is_just_restored = was_ready
        self._clock = clock
        self._dismissed: tuple[str, float] | None = None
        self._was_idle = self._awaits_record = False
        self._answered_question: PendingQuestion | None = None
        self._answered_calls: set[str] = set()
        self._prompts = 0
        self._wait_starts: dict[str, float] = {}
        self._screen = ""
        self._changed_at = clock()

    def decide(self, reading: Reading, screen: str) -> Iterator[Observation]:
        """Return the observations that follow, in order; none while it is undecided."""
        if screen != self._screen:
            self._screen, self._changed_at = screen, self._clock()
        if not self._is_silent(reading):
            yield from self._apply_reading(reading, screen)
            self._is_just_restored = False
            return
        self.is_settled = True
        yield self.idle(
            error=f"The agent has shown nothing new for {self._spec.silence:.0f} s; "
            f"its screen ends with:\n{output_end(screen)}"
        )

    def _is_silent(self, reading: Reading) -> bool:
        """Return whether an agent without a transcript has shown nothing new for `silence`."""
        if self._transcript is not None or not self._was_ready:
            return False
        at_work = reading.question is None and reading.status in {None, "generating"}
        return at_work and self._clock() - self._changed_at >= self._spec.silence

    def _apply_reading(self, reading: Reading, screen: str) -> Iterator[Observation]:
        self.is_settled = True
        if self._answered_question is not None:
            if not self._is_gone(self._answered_question, reading.question):
                self.is_settled = False
                return
            if self._answered_question.call is not None:
                self._answered_calls.add(self._answered_question.call)
            self._dismiss(self._answered_question)
            self._answered_question = None
            self._wait_starts.clear()
        if reading.question is not None:
            yield from self._decide_question(reading.question)
            return
        if reading.status is not None:
            # Only here: a screen that no rule matches may be a half-drawn one, after which the
            # same question keeps its id.
            self.pending = None
        self._wait_starts.pop("call", None)
        if not self._was_ready and reading.status not in {"idle", "error"}:
            self.is_settled = False
            return  # the agent is still starting
        if not self._was_ready and reading.status == "error" and not self._shows_earlier_failure():
            yield self.idle(error=reading.error)
            return
        self._was_ready = True
        if self._transcript is not None and self._transcript.prompts > self._prompts:
            self.mark_prompts_observed()
            yield self.generating()  # a turn began, even if it has ended since
        if reading.status == "generating":
            self._wait_starts.clear()
            self._awaits_record = self._awaits_record or self._was_idle
            self._was_idle = False
            yield self.generating()
        else:
            yield from self._decide_by_transcript(reading, screen)

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

    def mark_prompts_observed(self) -> None:
        """Mark every message in the transcript as observed; earlier questions are over.

        What has lasted was the turn before: the quiet at its end is none of the turn that begins.
        """
        self._dismissed = None
        self._wait_starts.clear()
        self._was_idle = self._awaits_record = False
        self._changed_at = self._clock()
        self._prompts = 0 if self._transcript is None else self._transcript.prompts

    @property
    def awaits_effect(self) -> bool:
        """Whether the screen still shows a question that was answered."""
        return self._answered_question is not None

    @contextmanager
    def answering(self, pending: PendingQuestion) -> Iterator[None]:
        """Suspend decisions while the block answers a question, and until it is gone.

        If the block fails, the question is pending as before.
        """
        self._answered_question = pending
        try:
            yield
        except BaseException:
            self._answered_question = None
            raise

    def _is_gone(self, pending: PendingQuestion, shown: Question | None) -> bool:
        """Return whether an answered question is gone; `shown` is the question on the screen."""
        if shown is None or shown.fingerprint != pending.fingerprint:
            return True
        if pending.call is None or self._transcript is None:
            return False
        return all(call.id != pending.call for call in self._transcript.open_calls())

    def _dismiss(self, pending: PendingQuestion) -> None:
        """Mark a question as over, although the screen may still show it."""
        self.pending = None
        self._dismissed = (pending.fingerprint, self._clock() + DISMISS_GRACE)

    def _decide_by_transcript(self, reading: Reading, screen: str) -> Iterator[Observation]:
        """Decide by the transcript: the screen shows no sign of work."""
        transcript = self._transcript
        match None if transcript is None else transcript.activity():
            case "busy":
                self._wait_starts.clear()
                self.is_settled = False
                yield self.generating()
            case "waiting":
                yield self._unknown_question(screen)
            case "idle" if self._awaits_record and not self._has_lasted("unrecorded", RECORD_WAIT):
                self.is_settled = False
            case "idle":
                self._wait_starts.clear()
                self._was_idle, self._awaits_record = True, False
                yield self.idle(error=self._failure())
            case None if reading.status is None:
                self.is_settled = False
            case None if self._has_lasted("quiet", self._spec.settle):
                yield self.idle(error=reading.error if transcript is None else self._failure())
            case None:
                self.is_settled = False

    def _shows_earlier_failure(self) -> bool:
        """Return whether an error on the screen may be that of a turn before the resume.

        A resumed Codex shows its whole chat, with the error that ended the last turn.
        """
        transcript = self._transcript
        return transcript is not None and transcript.failure is not None and not self._failure()

    def _failure(self) -> str | None:
        """Return the error that ended the newest turn, unless the agent was resumed after it."""
        transcript = self._transcript
        if transcript is None:
            return None
        earlier = CliState(self._record).prompts_before_resume
        return transcript.failure if transcript.prompts > earlier or not earlier else None

    def _decide_question(self, question: Question) -> Iterator[Observation]:
        """Make the question a pending action, which keeps its id while the question is shown."""
        call = self._open_call() if question.tool else None
        pending = self.pending
        if pending is not None and pending.fingerprint != question.fingerprint:
            pending = self.pending = None
        if (
            pending is not None
            and pending.call is not None
            and (call is None or call.id != pending.call)
        ):
            self._dismiss(pending)
            pending = None
        if pending is None:
            if self._is_dismissed(question):
                self.is_settled = False
                if question.tool:  # the turn continues after the answer
                    yield self.generating()
                return
            is_drawn = self._is_just_restored or self._has_lasted(question.fingerprint, DRAW_WAIT)
            if not self._is_call_known(question, call) or not is_drawn:
                self.is_settled = False
                return
            pending = self.pending = self._new_question(question, call)
        self.mark_prompts_observed()
        yield replace(self.idle(), status="waiting_approval", pending=pending.action)

    def _is_dismissed(self, question: Question) -> bool:
        """Return whether this question is over and only not yet removed from the screen."""
        if self._dismissed is None:
            return False
        fingerprint, deadline = self._dismissed
        return question.fingerprint == fingerprint and self._clock() < deadline

    def _is_call_known(self, question: Question, call: ToolCall | None) -> bool:
        """Return whether the transcript names the tool call, or the wait for that is over."""
        if not question.tool or self._transcript is None or call is not None:
            return True
        return self._has_lasted("call", CALL_WAIT)

    def _open_call(self) -> ToolCall | None:
        """Return the oldest open tool call that has not been answered."""
        calls = () if self._transcript is None else self._transcript.open_calls()
        return next((call for call in calls if call.id not in self._answered_calls), None)

    def _new_question(self, question: Question, call: ToolCall | None) -> PendingQuestion:
        if call is None:
            action_id = new_id("act")
        else:
            action_id = derived_id(
                "act", call.started, self._record.id, call.id, question.fingerprint
            )
        options = [offer.option for offer in question.offers]
        action = PendingAction(id=action_id, message=question.message, options=options)
        return PendingQuestion(question.fingerprint, None if call is None else call.id, action)

    def _unknown_question(self, screen: str) -> Observation:
        """Return an action without options: the agent waits, and no rule knows for what."""
        if not self._has_lasted("unknown", UNKNOWN_QUESTION):
            self.is_settled = False
            return self.generating()
        message = last_lines(screen, 20)
        if self.pending is None or self.pending.fingerprint != message:
            action = PendingAction(id=new_id("act"), message=message, options=[])
            self.pending = PendingQuestion(message, None, action)
        return replace(self.idle(), status="waiting_approval", pending=self.pending.action)

    def _has_lasted(self, what: str, seconds: float) -> bool:
        """Return whether `what` has held for `seconds`, counted from the first call."""
        now = self._clock()
        return now - self._wait_starts.setdefault(what, now) >= seconds


class StatusMonitor:
    """Observes one agent; `pane` is None if its terminal is gone, for the reason `lost`.

    `observation` is the last one that was published, `snapshot` and `reading` are of the newest
    screen; `screen_error` says why that screen could not be read, None if it was.
    `notify` is called after each new observation.
    """

    def __init__(
        self,
        tmux: Tmux,
        pane: Pane | None,
        *,
        rules: ScreenRules,
        decider: StatusDecider,
        source: ChatSource,
        record: SessionRecord,
        lost: EndReason,
        notify: Callable[[], None],
    ) -> None:
        self.pane = pane
        self.observation = Observation(status="generating", assumed=True)
        self.snapshot: PaneSnapshot | None = None
        self.reading = Reading(None, None)
        self.screen_error: str | None = None
        self._tmux = tmux
        self._rules = rules
        self._decider = decider
        self._source = source
        self._record = record
        self._notify = notify
        self._task: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._poll_lock = asyncio.Lock()
        self._is_paused = False
        if pane is not None:
            tmux.subscribe(pane, self._changed.set)
        else:
            self._mark_gone(
                "The agent's terminal is gone: tmux or the machine was restarted",
                lost,
            )

    @property
    def screen(self) -> str:
        """The text of the newest snapshot."""
        return "" if self.snapshot is None else self.snapshot.text

    def follow(self) -> None:
        """Begin to poll the agent until it is gone."""
        if self.pane is not None:
            self._task = asyncio.create_task(self._follow(), name=f"follow {self._record.id}")

    async def stop(self) -> None:
        """Stop following, within 3 s."""
        if self.pane is not None:
            self._tmux.unsubscribe(self.pane)
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=3)

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Suspend observations while the block types: half a message is not a state."""
        self._is_paused = True
        try:
            yield
        finally:
            self._is_paused = False
            self._changed.set()

    def publish(self, observation: Observation) -> None:
        """Make this the current observation, and pass it on."""
        before, self.observation = self.observation, observation
        try:
            self._notify()
        except BaseException:
            self.observation = before  # also of an agent that is gone: the next poll repeats it
            raise

    async def poll(self) -> Observation:
        """Take a snapshot now and return the observation that follows."""
        pane = self.pane
        if pane is None or self.observation.gone:
            return self.observation
        async with self._poll_lock:
            try:
                await self._process(pane, await self._tmux.snapshot(pane))
            except TmuxGone:
                self._mark_gone("The tmux server has ended, and the agent with it")
                await CliState(self._record).end_orphan(END_GRACE)
            except WindowGone:
                self._mark_gone("The agent's window was closed")
            except TmuxError as error:
                _log.warning("agent not observed", session=pane.name, error=str(error))
        return self.observation

    async def wait_until(self, done: Callable[[], bool], seconds: float) -> bool:
        """Poll until `done`; return whether that was within `seconds`."""
        deadline = time.monotonic() + seconds
        while True:
            await self.poll()
            if done():
                return True
            if time.monotonic() > deadline:
                return False
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(UNSETTLED_INTERVAL):
                    await self._changed.wait()
            self._changed.clear()

    async def _follow(self) -> None:
        """Poll until the agent is gone; a poll that fails, as on a full disk, is repeated."""
        has_failed = False
        while not self.observation.gone:
            if has_failed:
                interval = GENERATING_INTERVAL
            elif not self._decider.is_settled:
                interval = UNSETTLED_INTERVAL
            elif self.observation.status == "generating":
                interval = GENERATING_INTERVAL
            else:
                interval = IDLE_INTERVAL
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(interval):
                    await self._changed.wait()
            self._changed.clear()
            try:
                await self.poll()
                has_failed = False
            except Exception as error:  # noqa: BLE001  # nobody else would follow the agent
                if has_failed:  # not at once: an event of the turn must not become an error
                    self._publish_failure(error)
                else:
                    _log.exception("agent not observed", session=self._record.id)
                has_failed = True
            await asyncio.sleep(MIN_INTERVAL)

    def _publish_failure(self, error: Exception) -> None:
        with contextlib.suppress(Exception):  # most probably for the same reason
            self.publish(Observation(status="error", error=f"Outrider failed to follow: {error}"))

    async def _process(self, pane: Pane, snapshot: PaneSnapshot) -> None:
        """Read a snapshot and pass on the observations that follow from it."""
        await self._source.read()
        before, self.snapshot = self.snapshot, snapshot
        if snapshot != before or self.screen_error is not None:
            self._read_screen(snapshot)
        if snapshot.ended:
            await self._read_chat(pane, snapshot)
            self._end_turn()
            exited = snapshot.exit_status == 0
            self._mark_gone(self._exit_error(snapshot), "exited" if exited else "crashed")
        elif self.screen_error is not None:
            self.publish(self._decider.idle(error=self.screen_error))
        elif not self._is_paused:
            for observation in self._decider.decide(self.reading, snapshot.text):
                # The chat must have the turn's last message before `idle` is published. If the
                # screen has changed meanwhile, the snapshot is outdated: decide again.
                if observation.status == "idle" and not await self._read_chat(pane, snapshot):
                    self._decider.is_settled = False
                    return
                if observation.pending is not None:
                    await self._source.read_question(
                        pane, snapshot, self.reading, observation.pending.id
                    )
                if observation.status in {"idle", "error"}:
                    self._end_turn()
                self.publish(observation)

    def _end_turn(self) -> None:
        """Report the end of a turn; the transcript was read after the screen that shows it."""
        if self._source.transcript is not None:
            self._source.transcript.end_turn()

    def _read_screen(self, snapshot: PaneSnapshot) -> None:
        try:
            self.reading = self._rules.read(snapshot.text, snapshot.title)
            self.screen_error = None
        except PatternTimeout as error:  # retried with the next snapshot
            self.reading = Reading(None, None)
            self.screen_error = str(error)

    async def _read_chat(self, pane: Pane, snapshot: PaneSnapshot) -> bool:
        """Read the chat before a turn ends; return whether the snapshot was still the screen."""
        outcome = await self._source.read_turn(pane, snapshot, self.reading)
        if outcome == "typed":
            self.publish(self._decider.generating())  # a turn, even if it is over by now
        return outcome != "outdated"

    def _mark_gone(self, error: str, end_reason: EndReason = "crashed") -> None:
        observation = self._decider.idle(error=error)
        self.publish(replace(observation, gone=True, end_reason=end_reason))

    def _exit_error(self, snapshot: PaneSnapshot) -> str:
        if self.reading.status == "error" and self.reading.error:
            return self.reading.error
        shown = re.sub(rf"\n?{_DEAD}[^\n]*\s*$", "", snapshot.text)
        how = "by a signal" if snapshot.exit_status == -1 else f"with code {snapshot.exit_status}"
        return f"{self._record.name} has ended {how}; its screen ends with:\n{output_end(shown)}"


class Stillness:
    """Measures for how long an agent has neither drawn nor computed, from its creation on."""

    def __init__(self, monitor: StatusMonitor) -> None:
        self._monitor = monitor
        self._measured_at = time.monotonic()
        self._seconds = 0.0

    async def measure(self) -> float:
        """Poll the agent and return for how many seconds at least it has been still."""
        before = self._monitor.snapshot
        await self._monitor.poll()
        pane, now = self._monitor.pane, time.monotonic()
        elapsed, self._measured_at = now - self._measured_at, now
        if (
            pane is None
            or self._monitor.snapshot != before
            or await asyncio.to_thread(_is_running, pane.pid)
        ):
            self._seconds = 0.0
        else:
            self._seconds += min(elapsed, _MAX_POLL_CREDIT)
        return self._seconds


def last_lines(text: str, count: int) -> str:
    """Return the last lines of a screen that are not blank."""
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    return "\n".join(lines[-count:])[-2000:] or "(nothing)"


def _is_running(pid: int) -> bool:
    """Return whether the process or a descendant is running, not waiting for input."""
    try:
        root = psutil.Process(pid)
        return any(
            process.status() in {psutil.STATUS_RUNNING, psutil.STATUS_DISK_SLEEP}
            for process in [root, *root.children(recursive=True)]
        )
    except psutil.NoSuchProcess:
        return False
