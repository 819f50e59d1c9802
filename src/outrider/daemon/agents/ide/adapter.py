"""An IDE as a session drives it: a window with one agent or several."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog

from outrider.contract.commands import Picture
from outrider.contract.errors import conflict
from outrider.daemon.agents.adapter import Camera, Observation, Observer
from outrider.daemon.agents.ide.agent import IdeAgent
from outrider.daemon.agents.ide.chats import Chats
from outrider.daemon.agents.ide.controls import choose_model
from outrider.daemon.agents.ide.following import Following
from outrider.daemon.agents.ide.picture import take_picture, take_thumbnail
from outrider.daemon.agents.ide.provider_file import IdeFile
from outrider.daemon.agents.ide.running import Running
from outrider.daemon.agents.ide.window import Window, WindowError
from outrider.daemon.agents.session import Clock
from outrider.daemon.journal import Journal
from outrider.daemon.session_record import SessionRecord

_log = structlog.get_logger(__name__)

ANSWER_TIMEOUT: Final = 5.0
"""Seconds within which a question that was answered must be gone."""


class IdeAdapter:
    """A running IDE. The selected agent is the one that its record names.

    Args:
        folder: where its chats are kept.
        programs: what was started for it, the one to be ended first at the beginning; none
            for an IDE that was adopted.
        forget: called when the session is over.
    """

    answer_timeout = ANSWER_TIMEOUT

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
        self._following = Following(file, record, self._programs, self._looked)
        self._chats = Chats(self._following, record, folder, journal, clock)
        self.agents = {
            spec.type: IdeAgent(spec, self._following, self._chats) for spec in file.agents
        }
        self._observer: Observer | None = None
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
        window = await self._following.ready()
        try:
            await window.ask("prepare", self.selected, seconds * 700, seconds=seconds)
        except WindowError as error:
            _log.info("an IDE could not be prepared", ide=self._file.type, error=str(error))
        if model is not None:
            await choose_model(self._following, window, self._following.panel, model)

    # The interface

    def observe(self, observer: Observer) -> None:
        """Call `observer` with the present state of each agent, and after every change."""
        self._observer = observer
        self.look()

    def look(self) -> None:
        """Judge what is going on now."""
        self._following.look()

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
    def camera(self) -> Camera:
        """What takes pictures of its window."""
        return self

    @property
    def selected(self) -> str:
        """The type of the selected agent."""
        return self._following.selected

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
        if self._observer is not None:
            for agent in self.agents:
                self._observer(agent, self._following.observation(agent))
        if self._following.panel.awaits or self.observed.status != before:
            self._chats.catch_up()

    async def _shown(self, take: Callable[[Window], Awaitable[Picture]]) -> Picture:
        window = self._following.alive()
        try:
            return await take(window)
        except WindowError as error:
            raise conflict(
                f"{self._file.display_name} cannot be shown: {error}. Open it and try again"
            ) from error

    async def _let_go(self) -> None:
        self._observer = None
        await self._chats.stop()
        await self._following.stop()
