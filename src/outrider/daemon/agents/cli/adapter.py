"""One agent in a terminal: looks at its screen and its record, and types for it.

The screen says at once that the agent is busy or asks something; that a turn is over is
believed when the agent's own record agrees (or, without one, when the screen has been quiet
for a while), so that a model which is only silent is not taken for one that has finished.
"""

import asyncio
import contextlib
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import structlog

from outrider.contract.commands import ChatInput
from outrider.contract.errors import ApiError, ErrorCode, bad_request, conflict
from outrider.contract.ids import derived_id, new_id
from outrider.contract.resources import ActionOption, Message, PendingAction, SummaryItem
from outrider.daemon.agents.adapter import Observation, Observer
from outrider.daemon.agents.cli import processes
from outrider.daemon.agents.cli.provider_file import ProviderFile
from outrider.daemon.agents.cli.screen import Judge, Question, Reading
from outrider.daemon.agents.cli.tmux import Pane, Snapshot, Tmux, TmuxError, TmuxGone, WindowGone
from outrider.daemon.agents.cli.transcripts.record import Guards, Transcript
from outrider.daemon.journal import Journal, SessionRecord

_log = structlog.get_logger(__name__)

LOOK_GAP: Final = 0.1
"""Seconds between two looks at a screen that keeps changing, at the least."""

UNSETTLED: Final = 0.06
"""Seconds between looks while screen and record do not agree yet."""

GENERATING_LOOK: Final = 1.0
IDLE_LOOK: Final = 5.0
"""Seconds after which an agent is looked at though nothing was heard from its terminal."""

TAKE_TIMEOUT: Final = 10.0
ENTER_AGAIN: Final = 1.5
ANSWER_TIMEOUT: Final = 5.0
PASTE_TIMEOUT: Final = 3.0
CLEAR_TIMEOUT: Final = 0.5
CALL_WAIT: Final = 0.3
UNKNOWN_QUESTION: Final = 1.5
QUIT_TIMEOUT: Final = 1.5
END_GRACE: Final = 1.0
_MAX_CLEAR: Final = 200
_TYPING: Final = "typing"
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


@dataclass(frozen=True)
class _Asked:
    """The question that stands on the screen, and the action that it was made into."""

    fingerprint: str
    call: str | None
    action: PendingAction


class CliAdapter:
    """A running agent in the window `pane`; None for one that is gone, whose chat remains.

    `started` tells that it has been ready before: what its screen shows is no start any more.
    """

    def __init__(
        self,
        file: ProviderFile,
        judge: Judge,
        tmux: Tmux,
        pane: Pane | None,
        *,
        transcript: Transcript | None,
        record: SessionRecord,
        journal: Journal,
        started: bool = False,
    ) -> None:
        self._file = file
        self._judge = judge
        self._tmux = tmux
        self._pane = pane
        self._transcript = transcript
        self._record = record
        self._journal = journal
        self._guards = Guards(
            file.input.guard_before, file.input.guard_behind, file.input.guard_mark
        )
        self._observer: Observer | None = None
        self._following: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._looking = asyncio.Lock()
        self._typing = asyncio.Lock()
        self._snapshot: Snapshot | None = None
        self._reading = Reading(None, None)
        self._seen = Observation(status="generating")
        self._asked: _Asked | None = None
        self._answered_calls: set[str] = set()
        self._prompts = 0
        self._started = started
        self._holding = False
        self._settled = False
        self._since: dict[str, float] = {}
        if pane is not None:
            tmux.watch(pane, self._changed.set)
        else:
            self._gone("The agent's terminal is gone: tmux or the machine was restarted")

    # The interface

    def observe(self, observer: Observer) -> None:
        """Begin to tell `observer` of changes, the present state first."""
        self._observer = observer
        observer(self._seen)
        if self._pane is not None:
            self._following = asyncio.create_task(self._follow(), name=f"follow {self._record.id}")
            self._following.add_done_callback(self._followed)

    async def submit(self, message_id: str, message: ChatInput) -> None:
        """Type a message and return once the agent has taken it."""
        text = _typeable(message.as_text())
        async with self._typing:
            pane = await self._ready_to_type()
            if self._seen.pending is not None:
                raise conflict(
                    "The agent waits for an approval: approve or reject that first",
                    ErrorCode.APPROVAL_PENDING,
                )
            if message_id in self._journal.message_ids(self._record.id).values():
                return  # taken already, by the daemon that ran before this one
            if self._typed_before(message_id, text):
                return
            after = 0 if self._transcript is None else self._transcript.prompts
            self._record.native[_TYPING] = f"{message_id} {after}"
            self._journal.save_session(self._record)
            self._holding = True
            try:
                typed = await self._type(pane, self._guards.add(text))
                await self._until_taken(pane, text, after, message_id, typed)
                self._tell(replace(self._idle(), status="generating"))
                self._prompts = 0 if self._transcript is None else self._transcript.prompts
            except TmuxError as error:
                raise ApiError(500, f"The agent did not take the message: {error}") from error
            finally:
                self._holding = False
                self._changed.set()

    async def answer(self, action: PendingAction, option: ActionOption) -> None:
        """Press the keys of `option` and return once the question is gone."""
        async with self._typing:
            try:
                pane = await self._ready_to_type()
                question, asked = self._reading.question, self._asked
                if question is None or asked is None or asked.action.id != action.id:
                    raise conflict("The agent asks something else by now, or nothing")
                offer = next((o for o in question.offers if o.option.id == option.id), None)
                if offer is None:
                    raise conflict(f"The agent does not offer the option {option.id!r} any more")
                self._holding = True
                if asked.call is not None:
                    self._answered_calls.add(asked.call)
                await self._tmux.press(pane, offer.keys)
                if not await self._poll(lambda: self._is_over(asked, question), ANSWER_TIMEOUT):
                    self._answered_calls.discard(asked.call or "")
                    raise ApiError(500, "The agent did not react to the answer: look at its screen")
                self._asked = None
            except TmuxError as error:
                raise ApiError(500, f"The agent could not be answered: {error}") from error
            finally:
                self._holding = False
                self._since.clear()
                with contextlib.suppress(TmuxError):
                    await self._look()
                self._tell(self._seen, again=True)
                self._changed.set()

    async def change(self, values: Mapping[str, str | bool]) -> None:
        """Refuse: a terminal shows nothing that could be changed this way."""
        names = ", ".join(values)
        raise bad_request(f"{self._file.display_name} has no controls: {names}", "controls")

    async def messages(self) -> Sequence[Message]:
        """Return the whole chat."""
        if self._transcript is None:
            return []
        self._transcript.poll()
        ids = self._journal.message_ids(self._record.id)
        return self._transcript.messages(ids, self._guards)

    async def close(self) -> None:
        """End the agent: by its own command if it listens, then whatever is left of it."""
        await self._stop_following()
        pane, self._pane = self._pane, None
        if pane is None:
            return
        self._tmux.unwatch(pane)
        family = await asyncio.to_thread(processes.family, pane.pid)
        if self._seen.status in {"idle", "error"} and self._file.input.quit:
            with contextlib.suppress(TmuxError):
                await self._tmux.press(pane, self._file.input.quit)
                await self._until_ended(pane)
        family += await asyncio.to_thread(processes.family, pane.pid)
        await processes.end(family, grace=END_GRACE)
        await self._tmux.kill(pane)

    async def detach(self) -> None:
        """Stop looking; the agent goes on in its window."""
        self._observer = None  # whatever is still under way: it is not told any more
        if self._pane is not None:
            self._tmux.unwatch(self._pane)
        await self._stop_following()

    def evidence(self) -> dict[str, Any]:
        """Return what the status was judged from."""
        transcript = self._transcript
        return {
            "rule": self._reading.rule,
            "screenStatus": self._reading.status,
            "recordActivity": None if transcript is None else transcript.activity(),
            "title": None if self._snapshot is None else self._snapshot.title,
            "screen": "" if self._snapshot is None else self._snapshot.text,
            "settled": self._settled,
        }

    async def until_ready(self) -> None:
        """Return once the agent takes a message, or asks something.

        Raises:
            ApiError: 500, it ended, cannot work, or did not get ready in time.
        """
        name, limit = self._file.display_name, self._file.ready_timeout
        if not await self._poll(
            lambda: self._seen.gone or self._seen.status != "generating", limit
        ):
            shown = _last_lines("" if self._snapshot is None else self._snapshot.text)
            raise ApiError(
                500, f"{name} was not ready within {limit:.0f} s; its screen ends with: {shown}"
            )
        if self._seen.status == "error":
            raise ApiError(500, self._seen.error or f"{name} did not start")

    # Looking

    async def _follow(self) -> None:
        while not self._seen.gone:
            if not self._settled:
                pause = UNSETTLED
            else:
                pause = GENERATING_LOOK if self._seen.status == "generating" else IDLE_LOOK
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), pause)
            self._changed.clear()
            await self._look()
            await asyncio.sleep(LOOK_GAP)

    def _followed(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("no longer following the agent", session=self._record.id, exc_info=error)
            self._tell(Observation(status="error", error=f"Outrider failed to follow: {error}"))

    async def look(self) -> Observation:
        """Look at the agent now and return what it is doing."""
        await self._look()
        return self._seen

    async def _look(self) -> None:
        pane = self._pane
        if pane is None or self._seen.gone:
            return
        async with self._looking:
            try:
                snapshot = await self._tmux.snapshot(pane)
            except TmuxGone:
                self._gone("The tmux server has ended, and the agent with it")
                left = await asyncio.to_thread(processes.orphans, self._record.native)
                await processes.end(left, grace=END_GRACE)
                return
            except WindowGone:
                self._gone("The agent's window was closed")
                return
            except TmuxError as error:
                _log.warning("could not look at the agent", session=pane.name, error=str(error))
                return
            if self._transcript is not None:
                self._transcript.poll()
            if snapshot != self._snapshot:
                self._snapshot = snapshot
                self._reading = self._judge.read(snapshot.text, snapshot.title)
            if snapshot.ended:
                self._gone(self._last_words(snapshot))
            elif not self._holding:
                self._decide()

    def _decide(self) -> None:
        """Tell what screen and record say together."""
        reading, transcript = self._reading, self._transcript
        self._settled = True
        if reading.question is not None:
            self._asks(reading.question)
            return
        self._asked = None
        self._since.pop("call", None)
        if not self._started and reading.status not in {"idle", "error"}:
            self._settled = False
            return  # it is still getting ready
        if not self._started and reading.status == "error":
            self._tell(self._idle(error=reading.error))
            return
        self._started = True
        if transcript is not None and transcript.prompts > self._prompts:
            self._prompts = transcript.prompts
            self._tell(self._generating())  # a turn, even if it is over by now
        if reading.status == "generating":
            self._since.clear()
            self._tell(self._generating())
            return
        match None if transcript is None else transcript.activity():
            case "busy":
                self._since.clear()
                self._unsettled(self._generating())
            case "waiting":
                self._waits_for_something()
            case "idle":
                self._since.clear()
                self._tell(self._idle(error=None if transcript is None else transcript.failure))
            case None if reading.status is None:
                self._settled = False
            case None if self._for_long("quiet", self._file.settle):
                error = reading.error if transcript is None else transcript.failure
                self._tell(self._idle(error=error))
            case None:
                self._settled = False

    def _asks(self, question: Question) -> None:
        """Make the question on the screen an action, the same one as long as it stands there."""
        calls = (
            []
            if self._transcript is None or not question.tool
            else [
                call
                for call in self._transcript.open_calls()
                if call.id not in self._answered_calls
            ]
        )
        call = calls[0] if calls else None
        asked = self._asked
        if (
            asked is None
            or asked.fingerprint != question.fingerprint
            or (asked.call is not None and (call is None or call.id != asked.call))
        ):
            if (
                question.tool
                and self._transcript is not None
                and call is None
                and (not self._for_long("call", CALL_WAIT))
            ):
                self._settled = False  # the record is about to name the call
                return
            action = PendingAction(
                id=new_id("act")
                if call is None
                else derived_id(
                    "act", call.started, self._record.id, call.id, question.fingerprint
                ),
                message=question.message,
                options=[offer.option for offer in question.offers],
            )
            asked = _Asked(question.fingerprint, None if call is None else call.id, action)
            self._asked = asked
        if self._transcript is not None:
            self._prompts = self._transcript.prompts
        self._tell(replace(self._idle(), status="waiting_approval", pending=asked.action))

    def _waits_for_something(self) -> None:
        """The agent says that it waits, and no rule knows for what: a person has to look."""
        if not self._for_long("unknown", UNKNOWN_QUESTION):
            self._unsettled(self._generating())
            return
        message = _last_lines("" if self._snapshot is None else self._snapshot.text, 20)
        if self._asked is None or self._asked.fingerprint != message:
            action = PendingAction(id=new_id("act"), message=message, options=[])
            self._asked = _Asked(message, None, action)
        pending = self._asked.action
        self._tell(replace(self._idle(), status="waiting_approval", pending=pending))

    def _generating(self) -> Observation:
        return replace(self._idle(), status="generating")

    def _idle(self, error: str | None = None) -> Observation:
        transcript = self._transcript
        model = self._record.model if transcript is None else transcript.model or self._record.model
        return Observation(
            status="idle" if error is None else "error",
            error=error,
            title=None if transcript is None else transcript.title,
            model=model,
            summary=() if model is None else (SummaryItem(id="model", label="Model", value=model),),
        )

    def _unsettled(self, observation: Observation) -> None:
        self._settled = False
        self._tell(observation)

    def _for_long(self, what: str, seconds: float) -> bool:
        """Tell whether `what` has been the case for that long, from the first time asked."""
        now = time.monotonic()
        return now - self._since.setdefault(what, now) >= seconds

    def _gone(self, error: str) -> None:
        self._tell(replace(self._idle(error=error), gone=True))

    def _tell(self, observation: Observation, *, again: bool = False) -> None:
        if observation == self._seen and not again:
            return
        self._seen = observation
        if self._observer is not None:
            self._observer(observation)

    def _last_words(self, snapshot: Snapshot) -> str:
        name = self._file.display_name
        if self._reading.status == "error" and self._reading.error:
            return self._reading.error
        shown = re.sub(r"\n?Pane is dead[^\n]*\s*$", "", snapshot.text)
        how = "by a signal" if snapshot.exit_status == -1 else f"with code {snapshot.exit_status}"
        return f"{name} has ended {how}; its screen ends with: {_last_lines(shown)}"

    # Typing

    async def _ready_to_type(self) -> Pane:
        await self._look()
        if self._pane is None or self._seen.gone:
            raise ApiError(500, f"{self._seen.error or 'The agent has ended'}. Launch it again")
        return self._pane

    async def _type(self, pane: Pane, text: str) -> Snapshot:
        """Type `text` and submit it; return what the screen was just before it was submitted."""
        await self._clear(pane)
        before = await self._tmux.snapshot(pane)
        await self._tmux.paste(pane, text)
        last = before
        deadline = time.monotonic() + PASTE_TIMEOUT
        while time.monotonic() < deadline:  # until it has been drawn: Enter must come after it
            await asyncio.sleep(0.03)
            shown = await self._tmux.snapshot(pane)
            if shown.text == last.text != before.text:
                break
            last = shown
        await asyncio.sleep(self._file.input.pause)
        await self._tmux.press(pane, self._file.input.submit)
        return last

    async def _clear(self, pane: Pane) -> None:
        """Take away what stands in the input; an agent may have put an old prompt back."""
        keys = self._file.input.clear
        shown = await self._tmux.snapshot(pane)
        for _ in range(_MAX_CLEAR):
            if not keys or self._judge.input_is_empty(shown.text):
                return
            await self._tmux.press(pane, keys)
            before = shown
            deadline = time.monotonic() + CLEAR_TIMEOUT
            while shown.text == before.text:
                if time.monotonic() > deadline:
                    return  # there is nothing that these keys take away
                await asyncio.sleep(0.02)
                shown = await self._tmux.snapshot(pane)

    async def _until_taken(
        self, pane: Pane, text: str, after: int, message_id: str, typed: Snapshot
    ) -> None:
        began = time.monotonic()
        again = False
        while time.monotonic() < began + TAKE_TIMEOUT:
            if self._taken(text, after, message_id, typed):
                return
            await asyncio.sleep(0.03)
            await self._look()
            if self._seen.gone:
                raise ApiError(500, f"{self._seen.error}. Launch it again")
            shown = "" if self._snapshot is None else self._snapshot.text
            untouched = shown == typed.text or self._reading.status in {"idle", "error"}
            if not again and time.monotonic() > began + ENTER_AGAIN and untouched:
                again = True
                if self._judge.input_is_empty(shown) is False:
                    await self._tmux.press(pane, self._file.input.submit)
        await self._clear(pane)
        raise ApiError(500, "The agent did not take the message: look at its screen, and try again")

    def _typed_before(self, message_id: str, text: str) -> bool:
        """Tell whether the daemon that ran before this one died just after it typed this."""
        typing, _, after = self._record.native.get(_TYPING, "").partition(" ")
        if typing != message_id or self._transcript is None:
            return False
        key = self._transcript.sent(text, int(after))
        if key is not None:
            self._journal.save_message_id(self._record.id, key, message_id)
        return key is not None

    def _taken(self, text: str, after: int, message_id: str, typed: Snapshot) -> bool:
        if self._transcript is None:
            return self._snapshot is not None and self._snapshot.text != typed.text
        self._transcript.poll()
        key = self._transcript.sent(text, after)
        if key is None:
            return False
        self._journal.save_message_id(self._record.id, key, message_id)
        return True

    def _is_over(self, asked: _Asked, question: Question) -> bool:
        """Tell whether the question that was answered has gone."""
        if self._seen.gone:
            return True
        shown = self._reading.question
        if shown is None or shown.fingerprint != question.fingerprint:
            return True
        transcript = self._transcript
        if asked.call is None or transcript is None:
            return False
        return all(call.id != asked.call for call in transcript.open_calls())

    async def _poll(self, done: Callable[[], bool], seconds: float) -> bool:
        """Look until `done`; tell whether it was within `seconds`."""
        deadline = time.monotonic() + seconds
        while True:
            await self._look()
            if done():
                return True
            if time.monotonic() > deadline:
                return False
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), UNSETTLED)
            self._changed.clear()

    async def _until_ended(self, pane: Pane) -> None:
        deadline = time.monotonic() + QUIT_TIMEOUT
        while time.monotonic() < deadline:
            if (await self._tmux.snapshot(pane)).ended:
                return
            await asyncio.sleep(UNSETTLED)

    async def _stop_following(self) -> None:
        if self._following is not None and not self._following.done():
            self._following.cancel()
            await asyncio.wait({self._following}, timeout=3)


def _typeable(text: str) -> str:
    """Return a message without the control characters that a terminal would act on."""
    return _CONTROL.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))


def _last_lines(text: str, count: int = 4) -> str:
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    return "\n".join(lines[-count:])[-2000:] or "(nothing)"
