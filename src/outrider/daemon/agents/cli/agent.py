"""One agent in a terminal, as the sessions drive it.

`watch` looks at it, `decision` says what it is doing, `keyboard` types for it; here is what a
session asks of it, one thing at a time.
"""

import asyncio
import contextlib
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from outrider.contract.commands import ChatInput
from outrider.contract.errors import ApiError, bad_request
from outrider.contract.resources import ActionOption, Message, PendingAction
from outrider.daemon.agents.adapter import Observation, Observer
from outrider.daemon.agents.cli.adapter_state import CliState, Delivery
from outrider.daemon.agents.cli.keyboard import MAX_LINES, Keyboard, lines_to_type, typeable
from outrider.daemon.agents.cli.screen import ScreenRules
from outrider.daemon.agents.cli.scrollback import Scrollback
from outrider.daemon.agents.cli.spec import CliSpec
from outrider.daemon.agents.cli.status import (
    END_GRACE,
    UNSETTLED,
    StatusDecider,
    StatusMonitor,
    Stillness,
)
from outrider.daemon.agents.cli.tmux import Pane, Snapshot, Tmux
from outrider.daemon.agents.cli.tmux_control import TmuxError
from outrider.daemon.agents.cli.transcripts.transcript import Transcript, catch_up
from outrider.daemon.agents.failure import output_end
from outrider.daemon.agents.guards import Guards
from outrider.daemon.journal import Journal
from outrider.daemon.processes import ProcessGroup
from outrider.daemon.session_record import SessionRecord

TAKE_TIMEOUT: Final = 40.0
"""Seconds within which a message must be taken: a busy machine makes agents slow.

One that is given up, and then taken all the same, would be there twice if it is sent again.
"""

ENTER_AGAIN: Final = 1.5
"""Seconds for which an agent must be still before a message in its input is submitted again.

One that is only slow would take the second Enter for an answer to its next question.
"""

ANSWER_TIMEOUT: Final = 30.0
"""Seconds within which a question that was answered must be gone: one that is given up can be
answered again, with keys that the agent's next question may take."""

QUIT_TIMEOUT: Final = 1.5

START_QUIET: Final = 0.4
"""Seconds for which an agent that starts must neither draw nor compute to be ready.

What looks like its input or a dialog may stand there before it takes keys, or before another
dialog comes.
"""

START_RESTLESS: Final = 4.0
"""Seconds after which one that never comes to rest is taken for ready all the same."""

ANSWER_LOOK: Final = 1.0
"""Seconds for which an agent is watched closely after an answer; most react at once."""


class CliAgent:
    """A running agent in the window `pane`; None for one that is gone, whose chat remains.

    Its chat is in its own record (`transcript`), or is read off its screen (`scrollback`).
    `started` tells that it has been ready before.
    """

    answer_timeout = ANSWER_TIMEOUT
    camera = None

    def __init__(
        self,
        file: CliSpec,
        judge: ScreenRules,
        tmux: Tmux,
        pane: Pane | None,
        *,
        transcript: Transcript | None,
        scrollback: Scrollback | None,
        record: SessionRecord,
        journal: Journal,
        started: bool = False,
    ) -> None:
        self._file = file
        self._judge = judge
        self._tmux = tmux
        self._transcript = transcript
        self._scrollback = scrollback
        self._record = record
        self._state = CliState(record)
        self.name = record.name
        self.agents = {record.type: self}
        self._journal = journal
        self._guards = Guards(
            file.input.guard_before, file.input.guard_behind, file.input.guard_mark
        )
        self._decider = StatusDecider(file, transcript, record, started=started)
        self._watch = StatusMonitor(
            tmux,
            pane,
            judge=judge,
            decider=self._decider,
            transcript=transcript,
            scrollback=scrollback,
            record=record,
        )

    def observe(self, observer: Observer) -> None:
        """Call `observer` with the present state, and after every change."""
        self._watch.observe(observer)

    async def ready(self) -> None:
        """Look at the agent."""
        await self._watch.look()

    async def show(self) -> None:
        """Do nothing: the agent's input is on its screen, and is cleared before a message."""

    def check(self, message: ChatInput) -> None:
        """Check that a message can be typed."""
        keys, name = self._file.input, self._file.display_name
        text = typeable(message.as_text())
        if not text.strip():
            raise bad_request("The message has nothing that can be typed", "message")
        lines = text.strip("\n").count("\n") + 1
        if keys.single_line and keys.multi_line is None and lines > 1:
            raise bad_request(f"{name} takes messages of one line: take out line breaks", "message")
        if keys.single_line and lines > MAX_LINES:
            raise bad_request(
                f"{name} takes a message line by line: send at most {MAX_LINES} lines", "message"
            )

    async def deliver(self, message_id: str, message: ChatInput) -> None:
        """Type a message and return once the agent has taken it."""
        text = typeable(message.as_text())
        self.check(message)
        if self._taken_before(message_id, text):
            return
        lines = lines_to_type(self._file.input, self._guards, message_id, text)
        if self._watch.unreadable is not None:  # it may ask something: the text would answer it
            raise ApiError(500, self._watch.unreadable)
        keyboard = self._keyboard()
        after = 0 if self._transcript is None else self._transcript.prompts
        self._state.delivery = Delivery(message_id, after)
        self._journal.save_session(self._record)
        with self._watch.held():
            try:
                typed = await keyboard.type(lines)
                await self._until_taken(keyboard, text, after, message_id, typed)
            except TmuxError as error:
                raise ApiError(500, f"The agent did not take the message: {error}") from error
            if self._scrollback is not None:
                self._scrollback.sent(message_id, text)
            self._watch.tell(self._decider.generating())
            self._decider.seen_prompts()

    async def choose(self, action: PendingAction, option: ActionOption) -> bool:
        """Press the keys of `option`; the question is observed until it is gone."""
        question, asked = self._watch.reading.question, self._decider.asked
        if question is None or asked is None or asked.action.id != action.id:
            return False
        offers = question.offers if asked.fingerprint == question.fingerprint else ()
        keys = next((offer.keys for offer in offers if offer.option.id == option.id), None)
        if keys is None:
            return False
        keyboard = self._keyboard()
        with self._decider.answering(asked):
            try:
                await keyboard.press(keys)
            except TmuxError as error:
                raise ApiError(500, f"The agent could not be answered: {error}") from error
        watch, decider = self._watch, self._decider
        await watch.until(lambda: watch.seen.gone or not decider.awaits_effect, ANSWER_LOOK)
        return True

    async def change(self, controls: Mapping[str, str | bool]) -> None:
        """Refuse: an agent in a terminal has no controls."""
        names = ", ".join(controls)
        raise bad_request(f"{self._file.display_name} has no controls: {names}", "controls")

    async def messages(self) -> Sequence[Message]:
        """Return the whole chat."""
        if self._transcript is None:
            return [] if self._scrollback is None else self._scrollback.messages()
        await catch_up(self._transcript)
        ids = self._journal.message_ids(self._record.id)
        return self._transcript.messages(ids, self._guards)

    async def close(self) -> None:
        """End the agent by its own command if it is idle, then kill what is left of it."""
        await self._watch.stop()
        pane, self._watch.pane = self._watch.pane, None
        if pane is not None:
            await self._end(pane)
        if self._scrollback is not None:
            self._scrollback.delete()

    async def detach(self) -> None:
        """Stop following; the agent keeps running in its window."""
        await self._watch.stop()

    def evidence(self) -> dict[str, Any]:
        """Return what the status was derived from."""
        watch, transcript = self._watch, self._transcript
        return {
            "rule": watch.reading.rule,
            "screenStatus": watch.reading.status,
            "recordActivity": None if transcript is None else transcript.activity(),
            "title": None if watch.snapshot is None else watch.snapshot.title,
            "screen": watch.screen,
            "settled": self._decider.settled,
        }

    async def look(self) -> Observation:
        """Look at the agent now and return what it is doing."""
        return await self._watch.look()

    async def until_ready(self) -> None:
        """Return once the agent accepts a message or asks a question.

        Raises:
            ApiError: 500, it ended, cannot work, or did not get ready in time.
        """
        name, limit, watch = self._file.display_name, self._file.ready_timeout, self._watch
        deadline = time.monotonic() + limit
        while watch.seen.status == "generating" and not watch.seen.gone:
            if not await watch.until(
                lambda: watch.seen.gone or watch.seen.status != "generating",
                deadline - time.monotonic(),
            ):
                raise ApiError(
                    500,
                    f"{name} was not ready within {limit:.0f} s; its screen ends with:\n"
                    f"{output_end(watch.screen)}",
                )
            await self._until_quiet()
        if watch.seen.status == "error":
            raise ApiError(500, watch.seen.error or f"{name} did not start")

    async def _until_quiet(self) -> None:
        """Wait until an agent that shows its input or a dialog has finished starting."""
        watch = self._watch
        stillness = Stillness(watch)
        end = time.monotonic() + START_RESTLESS
        while watch.pane is not None and watch.seen.status in {"idle", "waiting_approval"}:
            await asyncio.sleep(UNSETTLED)
            if await stillness.look() >= START_QUIET or time.monotonic() >= end:
                return

    # A message

    def _keyboard(self) -> Keyboard:
        """Return the keyboard of an agent that runs."""
        pane = self._watch.pane
        if pane is None:
            raise ApiError(500, "The agent has ended")
        return Keyboard(self._tmux, pane, self._judge, self._file.input)

    async def _until_taken(
        self, keyboard: Keyboard, text: str, after: int, message_id: str, typed: Snapshot
    ) -> None:
        watch, stillness = self._watch, Stillness(self._watch)
        end = time.monotonic() + TAKE_TIMEOUT
        while time.monotonic() < end:
            if self._taken(text, after, message_id, typed):
                return
            await asyncio.sleep(0.03)
            still = await stillness.look()
            if watch.seen.gone:
                raise ApiError(500, "The agent has ended")
            if still >= ENTER_AGAIN:
                stillness = Stillness(watch)
                rests = watch.reading.status in {"idle", "error"}
                if rests and self._judge.input_is_empty(watch.screen) is False:
                    await keyboard.submit()
        await keyboard.clear()
        raise ApiError(500, "The agent did not take the message: look at its screen, and try again")

    def _taken_before(self, message_id: str, text: str) -> bool:
        """Return whether an earlier daemon has delivered this message already.

        It may have been killed after it typed the message and before it recorded that.
        """
        if self._scrollback is not None:
            return message_id in self._scrollback
        if message_id in self._journal.message_ids(self._record.id).values():
            return True
        last = self._state.delivery
        if last is None or last.message_id != message_id or self._transcript is None:
            return False
        return self._recorded(text, last.prompts, message_id)

    def _taken(self, text: str, after: int, message_id: str, typed: Snapshot) -> bool:
        shown = self._watch.snapshot
        if self._transcript is None:
            return shown is not None and (shown, shown.cursor) != (typed, typed.cursor)
        self._transcript.poll()
        return self._recorded(text, after, message_id)

    def _recorded(self, text: str, after: int, message_id: str) -> bool:
        """Return whether the transcript has the message; save the message id for its key."""
        assert self._transcript is not None
        key = self._transcript.find_prompt(text, after)
        if key is not None:
            self._journal.save_message_id(self._record.id, key, message_id)
        return key is not None

    # The end

    async def _end(self, pane: Pane) -> None:
        group = ProcessGroup.of(pane.pid)
        known = await group.members()
        if self._watch.seen.status in {"idle", "error"} and self._file.input.quit:
            with contextlib.suppress(TmuxError):
                await self._tmux.press(pane, self._file.input.quit)
                await self._until_ended(pane)
        await group.end(END_GRACE, known)
        await self._tmux.kill(pane)

    async def _until_ended(self, pane: Pane) -> None:
        deadline = time.monotonic() + QUIT_TIMEOUT
        while time.monotonic() < deadline:
            if (await self._tmux.snapshot(pane)).ended:
                return
            await asyncio.sleep(UNSETTLED)
