"""Look at an agent in its terminal, when something has changed there, and tell of it."""

import asyncio
import contextlib
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

import structlog

from outrider.daemon.agents.adapter import Observation, Observer
from outrider.daemon.agents.cli.control import TmuxError, TmuxGone, WindowGone
from outrider.daemon.agents.cli.decision import Decider
from outrider.daemon.agents.cli.screen import Judge, Reading
from outrider.daemon.agents.cli.scrollback import Scrollback
from outrider.daemon.agents.cli.state import CliState
from outrider.daemon.agents.cli.tmux import Pane, Snapshot, Tmux
from outrider.daemon.agents.cli.transcripts.record import Transcript, catch_up
from outrider.daemon.agents.failure import output_end
from outrider.daemon.session_record import SessionRecord

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

_log = structlog.get_logger(__name__)


class Watch:
    """What is seen of one agent. It has no `pane` where its terminal is gone.

    `seen` is what was told last, `snapshot` and `reading` what the screen showed last.
    """

    def __init__(
        self,
        tmux: Tmux,
        pane: Pane | None,
        *,
        judge: Judge,
        decider: Decider,
        transcript: Transcript | None,
        scrollback: Scrollback | None,
        record: SessionRecord,
    ) -> None:
        self.pane = pane
        self.seen = Observation(status="generating")
        self.snapshot: Snapshot | None = None
        self.reading = Reading(None, None)
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
        """The text of the screen, as it was seen last."""
        return "" if self.snapshot is None else self.snapshot.text

    def observe(self, observer: Observer) -> None:
        """Begin to follow the agent and to call `observer`, with the present state first."""
        self._observer = observer
        observer(self._record.type, self.seen)
        if self.pane is not None:
            self._following = asyncio.create_task(self._follow(), name=f"follow {self._record.id}")
            self._following.add_done_callback(self._followed)

    async def stop(self) -> None:
        """Look no more. Whatever is still under way: nobody is told any more."""
        self._observer = None
        if self.pane is not None:
            self._tmux.unwatch(self.pane)
        if self._following is not None and not self._following.done():
            self._following.cancel()
            await asyncio.wait({self._following}, timeout=3)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Look without telling while the block runs: keys are on their way to the agent."""
        self._held = True
        try:
            yield
        finally:
            self._held = False
            self._changed.set()

    def tell(self, observation: Observation) -> None:
        """Tell what the agent is seen to be doing."""
        self.seen = observation
        if self._observer is not None:
            self._observer(self._record.type, observation)

    async def look(self) -> Observation:
        """Look at the agent now and return what it is doing."""
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
        """Look until `done`; tell whether it was within `seconds`."""
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
        """Read what the screen shows, and tell what follows from it."""
        if self._transcript is not None:
            await catch_up(self._transcript)
        before, self.snapshot = self.snapshot, snapshot
        if snapshot != before:
            self.reading = self._judge.read(snapshot.text, snapshot.title)
        if snapshot.ended:
            await self._read_chat(pane, snapshot)
            self._gone(self._last_words(snapshot))
        elif not self._held:
            for observation in self._decider.decide(self.reading, snapshot.text):
                if observation.status == "idle" and not await self._read_chat(pane, snapshot):
                    self._decider.settled = False
                    return
                if observation.pending is not None:
                    await self._read_question(pane, snapshot, observation.pending.id)
                self.tell(observation)

    async def _read_chat(self, pane: Pane, snapshot: Snapshot) -> bool:
        """Read the chat off the screen where nothing else has it, before its turn is told over.

        Tell whether it could be read: the screen may have gone on since the snapshot.
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
        """Note where a question stands, so that the chat is without it."""
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


def _above(lines: list[str], rows: int) -> list[str]:
    """Return what stands above the last `rows` lines, blank ones not counted."""
    end = len(lines)
    while end and not lines[end - 1].strip():
        end -= 1
    while end and rows:
        end -= 1
        rows -= bool(lines[end].strip())
    return lines[:end]
