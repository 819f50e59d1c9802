"""The adapter of an agent in a terminal: implements `Adapter` and `Agent` for one agent.

`StatusMonitor` observes the agent, `StatusDecider` derives its status, `Keyboard` types; this
module combines them into the operations of a session, of which one runs at a time.
"""

import asyncio
import contextlib
import math
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from outrider.contract.commands import ChatInput, Screen
from outrider.contract.errors import ApiError, bad_request, conflict
from outrider.contract.resources import ActionOption, EndReason, Message, PendingAction
from outrider.machine.agents.adapter import Observation, Observer, SingleAgentAdapter
from outrider.machine.agents.cli.adapter_state import CliState, TypedMessage
from outrider.machine.agents.cli.chat import ChatSource
from outrider.machine.agents.cli.keyboard import MAX_LINES, Keyboard, lines_to_type, typeable
from outrider.machine.agents.cli.screen import ScreenRules
from outrider.machine.agents.cli.spec import CliSpec
from outrider.machine.agents.cli.status import (
    END_GRACE,
    UNSETTLED_INTERVAL,
    StatusDecider,
    StatusMonitor,
    Stillness,
)
from outrider.machine.agents.failure import output_end
from outrider.machine.agents.pane import Pane
from outrider.machine.link.journal import Journal
from outrider.machine.sessions.record import SessionRecord
from outrider.machine.system.processes import ProcessGroup
from outrider.machine.tmux.control import TmuxError, TmuxGone, WindowGone
from outrider.machine.tmux.server import PaneSnapshot, Tmux

DELIVERY_TIMEOUT: Final = 40.0
"""Seconds within which an agent must accept a message; it is slow on a busy machine.

The limit is long, because a message that is accepted after it would be there twice if the client
sends it again.
"""

RESUBMIT_AFTER: Final = 1.5
"""Seconds without output or computation after which a message in the input is submitted again.

An agent that is only slow would take the second Enter as the answer to its next question.
"""

ANSWER_TIMEOUT: Final = 30.0
"""Seconds within which an answered question must disappear. After that it can be answered again,
with keys that the agent's next question may receive."""

QUIT_TIMEOUT: Final = 1.5

START_QUIET: Final = 0.4
"""Seconds without output or computation after which a starting agent is ready.

Its input or a dialog may be shown before the agent reads keys, or before another dialog replaces
it.
"""

START_QUIET_TIMEOUT: Final = 4.0
"""Seconds after which an agent that is never quiet is treated as ready."""

ANSWER_EFFECT_TIMEOUT: Final = 1.0
"""Seconds to wait for the effect of an answer before returning; most agents react at once."""


INTERRUPT_PAUSE: Final = 0.3
"""Seconds between two keys that interrupt: read at once, Escape and another key are one key."""

INTERRUPT_AGAIN: Final = 3.0
"""Seconds without the end of the turn after which the keys are pressed again.

An agent may drop a key while it starts a turn."""

INTERRUPT_ATTEMPTS: Final = 3


class CliAgent(SingleAgentAdapter):
    """An agent in the window `pane`; None if its window is gone and only its chat remains.

    `source` is where its chat comes from. `lost` says why its window is gone. `was_ready` is true
    for an agent that has been ready before, after a restart of the daemon.
    """

    answer_timeout = ANSWER_TIMEOUT

    def __init__(
        self,
        spec: CliSpec,
        rules: ScreenRules,
        tmux: Tmux,
        pane: Pane | None,
        *,
        source: ChatSource,
        record: SessionRecord,
        journal: Journal,
        was_ready: bool = False,
        lost: EndReason = "machine_restarted",
    ) -> None:
        super().__init__(record)
        self.terminal = self
        self._spec = spec
        self._rules = rules
        self._tmux = tmux
        self._source = source
        source.on_change = partial(self._chat_changed, record.type)
        self._state = CliState(record)
        self._journal = journal
        self._interrupted_at = -math.inf
        self._is_closed = False
        self._decider = StatusDecider(spec, source.transcript, record, was_ready=was_ready)
        self._monitor = StatusMonitor(
            tmux,
            pane,
            rules=rules,
            decider=self._decider,
            source=source,
            record=record,
            lost=lost,
            notify=self._notify,
        )

    def observe(self, observer: Observer) -> None:
        """Begin to follow the agent, and call `observer` now and after every change."""
        super().observe(observer)
        self._monitor.follow()

    def _observation(self) -> Observation:
        return self._monitor.observation

    async def ready(self) -> None:
        """Take a snapshot of the agent."""
        await self._monitor.poll()

    def check(self, message: ChatInput) -> None:
        """Check that a message can be typed."""
        keys, name = self._spec.input, self._spec.display_name
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
        if self._source.was_delivered(message_id, text):
            return
        lines = lines_to_type(self._spec.input, self._spec.input.guards(), message_id, text)
        # The unreadable screen may show a question, which the text would answer.
        if self._monitor.screen_error is not None:
            raise ApiError(500, self._monitor.screen_error)
        keyboard = self._keyboard()
        after = self._source.prompts
        # Saved before the first key: if the daemon is killed from here on, `was_delivered` looks
        # for the message behind the first `after` prompts, and it is not typed twice.
        #
        #     save last_typed ─▶ type ─▶ agent records it ─▶ save its key ─▶ Done (dequeued)
        #                        └────── killed here: found by `last_typed` ────┘
        self._state.last_typed = TypedMessage(message_id, after)
        self._journal.save_session(self._record)
        with self._monitor.pause(), self._source.delivering(text):
            try:
                before = await keyboard.type(lines)
                await self._wait_until_accepted(keyboard, text, after, message_id, before)
            except TmuxError as error:
                raise ApiError(500, f"The agent did not take the message: {error}") from error
            self._source.add_delivered(message_id, text)
            self._monitor.publish(self._decider.generating())
            self._decider.mark_prompts_observed()

    async def choose(self, action: PendingAction, option: ActionOption) -> bool:
        """Press the keys of `option`; the question is observed until it is gone."""
        question, pending = self._monitor.reading.question, self._decider.pending
        if question is None or pending is None or pending.action.id != action.id:
            return False
        offers = question.offers if pending.fingerprint == question.fingerprint else ()
        keys = next((offer.keys for offer in offers if offer.option.id == option.id), None)
        if keys is None:
            return False
        keyboard = self._keyboard()
        with self._decider.answering(pending):
            try:
                await keyboard.press(keys)
            except TmuxError as error:
                raise ApiError(500, f"The agent could not be answered: {error}") from error
        monitor, decider = self._monitor, self._decider
        await monitor.wait_until(
            lambda: monitor.observation.gone or not decider.awaits_effect, ANSWER_EFFECT_TIMEOUT
        )
        return True

    async def interrupt(self) -> None:
        """Press the keys that interrupt until the agent is seen to be neither busy nor asking."""
        keys, monitor = self._spec.input.interrupt, self._monitor
        if not keys:
            raise bad_request(
                f"{self._spec.display_name} cannot be interrupted: its provider file has no "
                "`interrupt` keys in `[input]`"
            )
        interval = self._spec.input.interrupt_interval
        early = self._interrupted_at + interval - time.monotonic()
        if early > 0 and await monitor.wait_until(self._is_turn_over, early):
            return
        try:
            for _ in range(1 if interval else INTERRUPT_ATTEMPTS):
                for key in keys:
                    await self._keyboard().press([key])
                    if await monitor.wait_until(self._is_turn_over, INTERRUPT_PAUSE):
                        return
                if await monitor.wait_until(self._is_turn_over, INTERRUPT_AGAIN):
                    return
        except TmuxError as error:
            raise ApiError(500, f"The agent was not interrupted: {error}") from error
        finally:
            self._interrupted_at = time.monotonic()

    def _is_turn_over(self) -> bool:
        return self._monitor.observation.status in {"idle", "error"}

    async def screen(self) -> Screen:
        """Return what the agent's terminal shows."""
        pane = self._monitor.pane
        try:
            if pane is not None:
                return await self._tmux.screen(pane)
        except (WindowGone, TmuxGone):
            pass
        except TmuxError as error:
            raise ApiError(500, f"The screen could not be read: {error}") from error
        raise conflict(f"The terminal of {self.name} is gone: there is no screen")

    async def messages(self) -> Sequence[Message]:
        """Return the whole chat."""
        is_over = self._is_closed or self._monitor.observation.gone
        return await self._source.messages(is_turn_over=is_over)

    def open_texts(self) -> Mapping[str, str]:
        """Return the text that the screen shows of the message that the agent is writing."""
        screen, rows = self._monitor.screen, self._monitor.reading.rows
        return self._source.open_texts(screen, rows, is_turn_over=self._is_turn_over())

    def completed_messages(self, start: int, *, is_turn_over: bool) -> Sequence[Message] | None:
        """Return the messages from index `start` on that will not change."""
        return self._source.completed_messages(start, is_turn_over=is_turn_over)

    async def close(self) -> None:
        """End the agent by its own command if it is idle, then kill what is left of it.

        Call it again if it is cancelled.
        """
        await self.detach()
        pane, self._monitor.pane = self._monitor.pane, None
        if pane is not None:
            try:
                await self._end(pane)
            except BaseException:
                self._monitor.pane = pane
                raise
        self._is_closed = True
        self._source.save()

    async def detach(self) -> None:
        """Stop following; the agent keeps running in its window."""
        self._observer = self._chat_observer = None
        await self._monitor.stop()

    @property
    def window(self) -> Pane | None:
        """The window that the agent runs in, None once it has ended."""
        return None if self._monitor.observation.gone else self._monitor.pane

    def evidence(self) -> dict[str, Any]:
        """Return what the status was derived from."""
        monitor, transcript = self._monitor, self._source.transcript
        return {
            "rule": monitor.reading.rule,
            "screenStatus": monitor.reading.status,
            "recordActivity": None if transcript is None else transcript.activity(),
            "title": None if monitor.snapshot is None else monitor.snapshot.title,
            "screen": monitor.screen,
            "settled": self._decider.is_settled,
        }

    async def poll(self) -> Observation:
        """Take a snapshot now and return what it is doing."""
        return await self._monitor.poll()

    async def wait_until_ready(self) -> None:
        """Return once the agent accepts a message or asks a question.

        Raises:
            ApiError: 500, it ended, has failed, or was not ready in time.
        """
        name, limit, monitor = self._spec.display_name, self._spec.ready_timeout, self._monitor
        deadline = time.monotonic() + limit
        while monitor.observation.status == "generating" and not monitor.observation.gone:
            if not await monitor.wait_until(
                lambda: monitor.observation.gone or monitor.observation.status != "generating",
                deadline - time.monotonic(),
            ):
                raise ApiError(
                    500,
                    f"{name} was not ready within {limit:.0f} s; its screen ends with:\n"
                    f"{output_end(monitor.screen)}",
                )
            await self._wait_until_quiet()
        if monitor.observation.status == "error":
            raise ApiError(500, monitor.observation.error or f"{name} did not start")

    async def _wait_until_quiet(self) -> None:
        """Wait until an agent that shows its input or a dialog has finished starting."""
        monitor = self._monitor
        stillness = Stillness(monitor)
        end = time.monotonic() + START_QUIET_TIMEOUT
        while monitor.pane is not None and monitor.observation.status in {
            "idle",
            "waiting_approval",
        }:
            await asyncio.sleep(UNSETTLED_INTERVAL)
            if await stillness.measure() >= START_QUIET or time.monotonic() >= end:
                return

    # Messages

    def _keyboard(self) -> Keyboard:
        """Return the keyboard of the agent. Raises ApiError (500) if the agent has ended."""
        pane = self._monitor.pane
        if pane is None:
            raise ApiError(500, "The agent has ended")
        return Keyboard(self._tmux, pane, self._rules, self._spec.input)

    async def _wait_until_accepted(
        self, keyboard: Keyboard, text: str, after: int, message_id: str, before: PaneSnapshot
    ) -> None:
        monitor, stillness = self._monitor, Stillness(self._monitor)
        end = time.monotonic() + DELIVERY_TIMEOUT
        while time.monotonic() < end:
            shown = monitor.snapshot
            is_drawn = shown is not None and (shown, shown.cursor) != (before, before.cursor)
            if self._source.is_accepted(message_id, text, after, is_drawn=is_drawn):
                return
            await asyncio.sleep(0.03)
            still_seconds = await stillness.measure()
            if monitor.observation.gone:
                raise ApiError(500, "The agent has ended")
            if still_seconds >= RESUBMIT_AFTER:
                stillness = Stillness(monitor)
                is_ready = monitor.reading.status in {"idle", "error"}
                if is_ready and self._rules.input_is_empty(monitor.screen) is False:
                    await keyboard.submit()
        await keyboard.clear()
        raise ApiError(500, "The agent did not take the message: look at its screen, and try again")

    # The end

    async def _end(self, pane: Pane) -> None:
        group = ProcessGroup.of(pane.pid)
        members = await group.members()
        if self._monitor.observation.status in {"idle", "error"} and self._spec.input.quit:
            deadline = time.monotonic() + QUIT_TIMEOUT
            with contextlib.suppress(TmuxError):
                await self._tmux.press(pane, self._spec.input.quit)
                while time.monotonic() < deadline and not (await self._tmux.snapshot(pane)).ended:  # noqa: ASYNC110
                    await asyncio.sleep(UNSETTLED_INTERVAL)
        await group.end(END_GRACE, members)
        await self._tmux.kill(pane)
