"""An IDE as a session sees it: one of its agents is selected, the others are summed up."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog

from outrider.contract.commands import ChatInput, Picture
from outrider.contract.errors import ApiError, ErrorCode, conflict, not_found
from outrider.contract.resources import ActionOption, Message, PendingAction
from outrider.daemon.agents.adapter import Observation, Observer
from outrider.daemon.agents.ide import controls, writing
from outrider.daemon.agents.ide.chats import Chats
from outrider.daemon.agents.ide.following import Following
from outrider.daemon.agents.ide.panel import REDRAWN, Panel
from outrider.daemon.agents.ide.picture import take_picture, take_thumbnail
from outrider.daemon.agents.ide.provider_file import Agent, IdeFile
from outrider.daemon.agents.ide.running import Running
from outrider.daemon.agents.ide.window import Window, WindowError
from outrider.daemon.agents.session import Clock
from outrider.daemon.journal import Journal, SessionRecord

_log = structlog.get_logger(__name__)

ANSWER_TIMEOUT: Final = 5.0


class IdeAdapter:
    """A running IDE.

    Args:
        folder: where its chats are kept.
        programs: what was started for it, the one to be ended first at the beginning; none
            for an IDE that was adopted.
        forget: called when the session is over.
    """

    def __init__(
        self,
        file: IdeFile,
        record: SessionRecord,
        journal: Journal,
        folder: Path,
        clock: Clock,
        *,
        programs: Sequence[Running],
        forget: Callable[[], None],
    ) -> None:
        self._file = file
        self._record = record
        self._programs = list(programs)
        self._forget = forget
        self._agents = {agent.type: agent for agent in file.agents}
        self._following = Following(file, record, self._programs, self._looked)
        self._chats = Chats(self._following, record, folder, journal, clock)
        self._observer: Observer | None = None
        self._told: Observation | None = None
        self._acting = asyncio.Lock()
        self.observed = Observation(status=self._following.panel.last.status)

    # Beginning

    def attach(self, window: Window | None, url: str | None = None) -> None:
        """Begin to follow the window; a new browser's empty page is sent to `url`.

        Without a window (an IDE that has no debugging port), it can only be stopped.
        """
        self._following.start(window, url)

    def lost(self, why: str) -> None:
        """Count as gone from the start."""
        self._following.gone = why
        self.look()

    def begin(self) -> bool:
        """Tell whether a chat can be used; where the selected agent has none, another is."""
        return self._following.select_usable()

    async def prepare(self, model: str | None, seconds: float) -> None:
        """Do what the IDE needs before the first message; choose the model of the launch.

        Args:
            model: of those that the IDE shows; None for the one that it has chosen.
            seconds: how long the IDE may take; its page is told 0.7 of it, in milliseconds.

        Raises:
            ApiError: 400, the IDE shows no such model.
        """
        async with self._acting:
            window, agent, panel = await self._ready()
            try:
                await window.ask("prepare", agent.type, seconds * 700, seconds=seconds)
            except WindowError as error:
                _log.info("an IDE could not be prepared", ide=self._file.type, error=str(error))
            if model is not None:
                await controls.choose_model(self._following, window, panel, model)

    # The interface

    def observe(self, observer: Observer) -> None:
        """Begin to tell `observer` of changes, the present state first."""
        self._observer = observer
        self._told = None
        self.look()

    def look(self) -> None:
        """Judge what is going on now."""
        self._following.look()

    async def submit(self, message_id: str, message: ChatInput) -> None:
        """Write a message into the agent's input and return once it stands in the chat."""
        async with self._acting:
            window, agent, panel = await self._ready()
            chat = self._chats[agent.type]
            if message_id in chat:
                return  # taken already, by the daemon that ran before this one

            async def read() -> None:
                await self._chats.read(agent.type)

            try:
                await writing.show(self._following, window, agent)
                if panel.last.pending is not None:
                    raise conflict(
                        "The agent waits for an approval: approve or reject that first",
                        ErrorCode.APPROVAL_PENDING,
                    )
                await read()
                await writing.write(
                    window, agent, chat, read, message_id=message_id, text=message.as_text()
                )
            except WindowError as error:
                raise ApiError(
                    500, f"{self._file.display_name} did not take the message: {error}"
                ) from error
            panel.sent(time.monotonic())
            self.look()

    async def answer(self, action: PendingAction, option: ActionOption) -> None:
        """Click the option and return once the question is gone.

        One that the page draws anew just then is waited for; another question is never answered.
        """
        async with self._acting:
            try:
                window, agent, panel = await self._ready()
                if not panel.asks(action.id) or not await window.ask(
                    "choose", agent.type, panel.question, option.id, REDRAWN * 1000
                ):
                    panel.refused(action.id)
                    raise conflict("The agent asks something else by now, or nothing")
                panel.answered(action.id)
                self.look()
                if not await self._following.until(
                    lambda: panel.last.pending is None or panel.last.pending.id != action.id,
                    ANSWER_TIMEOUT,
                ):
                    raise ApiError(500, "The agent did not react to the answer: look at its window")
            except WindowError as error:
                raise ApiError(500, f"The agent could not be answered: {error}") from error
            finally:
                self._told = None
                self.look()

    async def change(self, values: Mapping[str, str | bool]) -> None:
        """Change what the agent's panel shows as settings."""
        async with self._acting:
            window, _, panel = await self._ready()
            await controls.change(self._following, window, panel, values)

    async def messages(self) -> Sequence[Message]:
        """Return the chat with the selected agent."""
        return await self.messages_of(self.selected)

    async def close(self) -> None:
        """End what was started for this session; an IDE that was adopted goes on."""
        await self._let_go()
        await asyncio.gather(*(program.end() for program in self._programs))
        await asyncio.to_thread(self._forget)

    async def detach(self) -> None:
        """Stop looking; the IDE goes on."""
        await self._let_go()
        self._chats.save()

    def evidence(self) -> dict[str, Any]:
        """Return what the status was judged from."""
        window = self._following.window
        return {
            "pid": self._programs[-1].pid if self._programs else None,
            "endpoint": None if window is None else window.endpoint,
            "page": None if window is None else window.state,
            "trouble": None if window is None else window.trouble,
            "adopted": not self._programs,
            "selected": self.selected,
            "agents": {
                kind: {
                    "seen": None if panel.seen is None else msgspec.to_builtins(panel.seen),
                    "judged": panel.last.status,
                    "awaits": panel.awaits,
                }
                for kind, panel in self._following.panels.items()
            },
        }

    # What an IDE has besides

    @property
    def selected(self) -> str:
        """The type of the selected agent."""
        return self._following.selected

    def named(self, agent: str) -> str:
        """Return the type of the agent of this type or name."""
        for kind, part in self._agents.items():
            if agent in (kind, part.name):
                return kind
        known = ", ".join(repr(kind) for kind in self._agents)
        raise not_found(f"{self._file.display_name} has no agent {agent!r}, only {known}")

    async def select(self, agent: str) -> None:
        """Make `agent` the selected one."""
        async with self._acting:
            if agent == self.selected:
                return
            if self.observed.status in {"generating", "waiting_approval"}:
                raise conflict(
                    f"{self._following.panel.name} is at work in this IDE: wait until it "
                    "is idle, or answer it, before you turn to another agent"
                )
            self._following.select(agent)
            self.look()

    def observation(self, agent: str) -> Observation:
        """Return what `agent` is doing now."""
        return self._following.observation(agent)

    async def messages_of(self, agent: str) -> Sequence[Message]:
        """Return the chat with `agent`; what was read before, where its page is not there."""
        try:
            await self._chats.read(agent)
        except WindowError as error:
            _log.info("a chat cannot be read now", session=self._record.id, error=str(error))
        return self._chats[agent].messages()

    async def screenshot(self, width: int | None) -> Picture:
        """Return a picture of the window."""
        return await self._shown(lambda window: take_picture(window.page, width))

    async def thumbnail(self) -> Picture:
        """Return a picture of the window that is small enough for a debug bundle."""
        return await self._shown(lambda window: take_thumbnail(window.page))

    # Parts

    def _looked(self) -> None:
        before = self.observed.status
        self.observed = self._following.observation(self.selected)
        if self.observed != self._told and self._observer is not None:
            self._told = self.observed
            self._observer(self.observed)
        if self._following.panel.awaits or self.observed.status != before:
            self._chats.catch_up()

    async def _shown(self, take: Callable[[Window], Awaitable[Picture]]) -> Picture:
        window = self._alive()
        try:
            return await take(window)
        except WindowError as error:
            raise conflict(
                f"{self._file.display_name} cannot be shown: {error}. Open it and try again"
            ) from error

    def _alive(self) -> Window:
        name, window = self._file.display_name, self._following.window
        if self._following.gone is not None:
            raise ApiError(500, f"{self._following.gone}. Launch it again")
        if window is None:
            raise conflict(
                f"{name} was launched without its debugging port: launch it with enableCdp true"
            )
        return window

    async def _ready(self) -> tuple[Window, Agent, Panel]:
        """Return what there is to act on; a window that is about to be back is waited for."""
        window = self._alive()
        self.look()
        if window.state in {"lost", "none"}:
            await self._following.until(lambda: window.state == "there", self._following.grace)
        if window.state != "there":
            why = self.observed.error or "its window is not there yet"
            raise ApiError(500, f"{self._file.display_name} cannot be reached: {why}")
        return window, self._agents[self.selected], self._following.panel

    async def _let_go(self) -> None:
        self._observer = None
        await self._chats.stop()
        await self._following.stop()
