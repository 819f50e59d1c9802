"""An IDE as a session drives it: a window with one agent or several."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog

from outrider.contract.commands import ChatInput, Picture
from outrider.contract.errors import ApiError, bad_request, conflict
from outrider.contract.resources import ActionOption, Message, PendingAction
from outrider.machine.agents.adapter import Adapter, Agent, Observation
from outrider.machine.agents.ide import controls
from outrider.machine.agents.ide.chat import Chats, show_chat, write_message
from outrider.machine.agents.ide.panel import REDRAW_GRACE
from outrider.machine.agents.ide.program import Program
from outrider.machine.agents.ide.screenshot import take_screenshot, take_thumbnail
from outrider.machine.agents.ide.spec import AgentSpec, IdeSpec
from outrider.machine.agents.ide.status import StatusMonitor
from outrider.machine.agents.ide.window import Window, WindowError
from outrider.machine.link.journal import Journal
from outrider.machine.sessions.clock import Clock
from outrider.machine.sessions.record import SessionRecord

_log = structlog.get_logger(__name__)


STOP_TIMEOUT: Final = 3.0
"""Seconds within which an agent at work must show its control to stop."""


class IdeAgent(Agent):
    """One agent of an IDE: its panel, its input and its chat."""

    def __init__(self, spec: AgentSpec, monitor: StatusMonitor, chats: Chats) -> None:
        self.name = spec.name
        self._spec = spec
        self._kind = spec.type
        self._monitor = monitor
        self._panel = monitor.panels[spec.type]
        self._chats = chats

    async def ready(self) -> None:
        """Return once the window can be used."""
        await self._monitor.ready()

    async def show(self) -> None:
        """Open and select the agent's chat, so that it accepts a message."""
        try:
            await show_chat(self._monitor, self._monitor.require_window(), self._spec)
        except WindowError as error:
            raise self._delivery_error(error) from error

    async def deliver(self, message_id: str, message: ChatInput) -> None:
        """Write a message into the agent's input and return once the chat shows it."""
        chat = self._chats[self._kind]
        if message_id in chat:
            return  # an earlier daemon delivered it, and was killed before it could record that

        async def read() -> None:
            await self._chats.read(self._kind)

        window, text = self._monitor.require_window(), message.as_text()
        try:
            await read()
            await write_message(window, self._spec, chat, read, message_id=message_id, text=text)
        except WindowError as error:
            raise self._delivery_error(error) from error
        self._panel.set_message_sent(time.monotonic())
        self._monitor.refresh()

    async def choose(self, action: PendingAction, option: ActionOption) -> bool:
        """Click the option; wait for a question that the page redraws at that moment."""
        panel, window = self._panel, self._monitor.require_window()
        try:
            offered = panel.is_asking(action.id) and await window.call(
                "choose", self._kind, panel.question, option.id, REDRAW_GRACE * 1000
            )
        except WindowError as error:
            raise ApiError(500, f"The agent could not be answered: {error}") from error
        if offered:
            panel.set_answered(action.id)
        else:
            panel.discard_question(action.id)
        self._monitor.refresh()
        return bool(offered)

    async def interrupt(self) -> None:
        """Click the control that stops the turn; wait for it while the turn begins."""
        if self._spec.stop is None:
            raise bad_request(
                f"{self.name} cannot be interrupted: the provider file of {self._monitor.name} "
                "names no `stop` control for it"
            )
        window = self._monitor.require_window()
        try:
            clicked = await window.call("interrupt", self._kind, STOP_TIMEOUT * 1000)
        except WindowError as error:
            raise ApiError(500, f"The agent could not be interrupted: {error}") from error
        if clicked:
            self._panel.set_answer_begun()  # a turn that was stopped may have no answer
        self._monitor.refresh()

    async def change(self, values: Mapping[str, str | bool]) -> None:
        """Change settings that the agent's panel shows."""
        await controls.change(self._monitor, self._monitor.require_window(), self._panel, values)

    async def messages(self) -> Sequence[Message]:
        """Return the chat; without a page, what was read of it before."""
        try:
            await self._chats.read(self._kind)
        except WindowError as error:
            _log.info("chat read failed", agent=self._kind, error=str(error))
        return self._chats[self._kind].messages()

    def completed_messages(self, start: int, *, is_turn_over: bool) -> Sequence[Message]:
        """Return the messages from index `start` on that will not change, as last read."""
        return self._chats.completed_messages(self._kind, start, is_turn_over=is_turn_over)

    def _delivery_error(self, error: WindowError) -> ApiError:
        return ApiError(500, f"{self._monitor.name} did not take the message: {error}")


class IdeAdapter(Adapter):
    """A running IDE. The selected agent is the one that its record names.

    Args:
        folder: the directory of its chats.
        programs: the programs that were started for it, the newest first; empty for an IDE that
            was adopted.
        delete_files: called (on a thread) when the session ends.

    Attributes:
        monitor: derives the status of the agents.
        observed: what was observed of the selected agent last.
    """

    def __init__(
        self,
        spec: IdeSpec,
        record: SessionRecord,
        journal: Journal,
        folder: Path,
        clock: Clock,
        *,
        programs: Sequence[Program],
        delete_files: Callable[[], None],
    ) -> None:
        super().__init__()
        self.camera = self
        self._spec = spec
        self._record = record
        self.programs = list(programs)
        self._delete_files = delete_files
        self.monitor = StatusMonitor(spec, record, self.programs, self._status_changed)
        self._chats = Chats(
            self.monitor, record, folder, journal, clock, on_read=self._chat_changed
        )
        self.agents = {
            agent.type: IdeAgent(agent, self.monitor, self._chats) for agent in spec.agents
        }
        self.observed = Observation(status=self.monitor.panel.last.status)

    # Start

    def attach(self, window: Window | None, url: str | None = None) -> None:
        """Begin to follow the window; the empty page of a new browser is navigated to `url`.

        Without a window (the IDE has no debugging port), the session can only be stopped.
        """
        self.monitor.start(window, url)

    def set_ended(self, reason: str) -> None:
        """Mark the IDE as ended from the start."""
        self.monitor.end_message, self.monitor.end_reason = reason, "machine_restarted"
        self.refresh()

    def select_usable(self) -> bool:
        """Return whether a chat is usable; select another agent if the selected one has none."""
        return self.monitor.select_usable()

    async def prepare(self, model: str | None, seconds: float) -> None:
        """Prepare the IDE for the first message and choose the model of the launch.

        Args:
            model: one that the IDE shows; None for the one that is selected there.
            seconds: how long the IDE may take; its page gets 0.7 of it, in milliseconds, so that
                it gives up before the call does.

        Raises:
            ApiError: 400, the IDE shows no such model.
        """
        window = await self.monitor.ready()
        try:
            await window.call("prepare", self.selected, seconds * 700, seconds=seconds)
        except WindowError as error:
            _log.info("ide preparation failed", ide=self._spec.type, error=str(error))
        if model is not None:
            await controls.choose_model(self.monitor, window, self.monitor.panel, model)

    # The interface of a session

    def refresh(self) -> None:
        """Derive the status of every agent again."""
        self.monitor.refresh()

    def _notify(self) -> None:
        self.refresh()

    async def close(self) -> None:
        """End the programs of this session; an IDE that was adopted keeps running."""
        await self._stop()
        await asyncio.gather(*(program.end() for program in self.programs))
        await asyncio.to_thread(self._delete_files)

    async def detach(self) -> None:
        """Stop following; the IDE keeps running."""
        await self._stop()
        self._chats.save()

    def evidence(self) -> dict[str, Any]:
        """Return what the status was derived from."""
        window = self.monitor.window
        return {
            "pid": self.programs[-1].pid if self.programs else None,
            "endpoint": None if window is None else window.endpoint,
            "page": None if window is None else window.state,
            "trouble": None if window is None else window.connection_error,
            "adopted": not self.programs,
            "selected": self.selected,
            "agents": {
                kind: {
                    "seen": None if panel.report is None else msgspec.to_builtins(panel.report),
                    "judged": panel.last.status,
                    "awaits": panel.awaits_answer,
                }
                for kind, panel in self.monitor.panels.items()
            },
        }

    # Pictures

    @property
    def selected(self) -> str:
        """The type of the selected agent."""
        return self.monitor.selected

    async def screenshot(self, width: int | None) -> Picture:
        """Return a picture of the window."""
        return await self._take_picture(lambda window: take_screenshot(window.page, width))

    async def thumbnail(self) -> Picture:
        """Return a picture of the window that is small enough for a debug bundle."""
        return await self._take_picture(lambda window: take_thumbnail(window.page))

    # Parts

    def _status_changed(self) -> None:
        before = self.observed.status
        self.observed = self.monitor.observation(self.selected)
        if self._observer is not None:
            for agent in self.agents:
                self._observer(agent, self.monitor.observation(agent))
        if self.monitor.panel.awaits_answer or self.observed.status != before:
            self._chats.catch_up()

    async def _take_picture(self, take: Callable[[Window], Awaitable[Picture]]) -> Picture:
        window = self.monitor.require_window()
        try:
            return await take(window)
        except WindowError as error:
            raise conflict(
                f"{self._spec.display_name} cannot be shown: {error}. Open it and try again"
            ) from error

    async def _stop(self) -> None:
        self._observer = self._chat_observer = None
        await self._chats.stop()
        await self.monitor.stop()
