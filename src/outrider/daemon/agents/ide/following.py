"""What the agents of an IDE are doing: judged from its window, its programs and the time."""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Final

from outrider.contract.errors import ApiError, conflict
from outrider.contract.resources import SummaryItem
from outrider.daemon.agents.adapter import Observation
from outrider.daemon.agents.ide.panel import Judgement, Panel
from outrider.daemon.agents.ide.provider_file import IdeFile
from outrider.daemon.agents.ide.running import Running
from outrider.daemon.agents.ide.state import IdeState
from outrider.daemon.agents.ide.window import Window
from outrider.daemon.session_record import SessionRecord

LOST_GRACE: Final = 2.0
"""Seconds that a connection may be away before that is an error."""

CONNECT_GRACE: Final = 10.0
"""Seconds that the first connection may take: a daemon that starts again has much to do."""

ALIVE: Final = 1.0
"""Seconds between two looks whether the IDE's programs still run."""


class Following:
    """Follows an IDE: a panel for each of its agents, one of which is selected.

    Args:
        record: what is remembered over a restart of the daemon is written into it.
        programs: what was started for the IDE; if one ends, the IDE has ended.
        changed: called when something may be seen to be different.

    `grace` is how long (seconds) the window may be away now before that is an error, `name` the
    IDE's, for people.
    """

    def __init__(
        self,
        file: IdeFile,
        record: SessionRecord,
        programs: Sequence[Running],
        changed: Callable[[], None],
    ) -> None:
        self.window: Window | None = None
        self.gone: str | None = None
        self.name = file.display_name
        self._file = file
        self._record = record
        self._state = IdeState(record)
        self._programs = programs
        self._changed = changed
        kinds = [agent.type for agent in file.agents]
        if record.selected_agent not in kinds:
            record.selected_agent = kinds[0]
        working = None if record.generating_since is None else self.selected
        self.panels = {
            agent.type: Panel(
                record.id,
                record.created_at,
                agent.type,
                agent.name,
                settle=file.settle,
                begin_timeout=file.begin_timeout,
                generating=agent.type == working,
                answers=self._state.answers(agent.type),
            )
            for agent in file.agents
        }
        if (awaits := self._state.awaits) in self.panels:
            self.panels[awaits].sent(time.monotonic())
        self._lost_since: float | None = time.monotonic()
        self.grace = CONNECT_GRACE
        self._timer: asyncio.TimerHandle | None = None
        self._watching: asyncio.Task[None] | None = None
        self._moved = asyncio.Event()

    @property
    def selected(self) -> str:
        """The type of the selected agent."""
        return self._record.selected_agent or next(iter(self.panels))

    @property
    def panel(self) -> Panel:
        """The selected agent's."""
        return self.panels[self.selected]

    def select_usable(self) -> bool:
        """Tell whether a chat can be used; where the selected agent has none, another is."""
        seen = {} if self.window is None else self.window.seen()
        usable = [kind for kind in self.panels if kind in seen and seen[kind].input]
        if usable and self.selected not in usable:
            self._record.selected_agent = usable[0]
        return bool(usable)

    def start(self, window: Window | None, url: str | None) -> None:
        """Begin to follow the window, if there is one, and the programs."""
        self.window = window
        if window is not None:
            window.start(url)
        self._watching = asyncio.create_task(self._watch(), name=f"watch {self._record.id}")

    async def stop(self) -> None:
        """Stop following; nothing is told after that."""
        self._changed = _nothing
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait({self._watching}, timeout=1)
        if self.window is not None:
            await self.window.stop()
        if self._timer is not None:
            self._timer.cancel()

    def alive(self) -> Window:
        """Return the window.

        Raises:
            ApiError: 500, the IDE is gone; 409, it has no debugging port.
        """
        if self.gone is not None:
            raise ApiError(500, f"{self.gone}. Launch it again")
        if self.window is None:
            raise conflict(
                f"{self.name} was launched without its debugging port: "
                "launch it with enableCdp true"
            )
        return self.window

    async def ready(self) -> Window:
        """Return the window; one that is about to be back is waited for.

        Raises:
            ApiError: as `alive` does; 500, the window cannot be reached.
        """
        window = self.alive()
        self.look()
        if window.state in {"lost", "none"}:
            await self.until(lambda: window.state == "there", self.grace)
        if window.state != "there":
            why = self.observation(self.selected).error or "its window is not there yet"
            raise ApiError(500, f"{self.name} cannot be reached: {why}")
        return window

    async def until(self, done: Callable[[], bool], seconds: float) -> bool:
        """Return whether `done` holds within so many seconds, which the IDE lives to see."""
        deadline = time.monotonic() + seconds
        while not done():
            left = deadline - time.monotonic()
            if left <= 0 or self.gone is not None:
                return done()
            self._moved.clear()
            try:
                await asyncio.wait_for(self._moved.wait(), min(left, 0.5))
            except TimeoutError:
                self.look()
        return True

    def look(self) -> None:
        """Judge every panel by the newest reports."""
        now = time.monotonic()
        window = self.window
        if window is not None and window.state == "there":
            self._lost_since = None
            self.grace = LOST_GRACE
            reports = window.seen()
            judged = [
                panel.judge(reports.get(kind), now)
                for kind, panel in self.panels.items()
                if kind == self.selected or kind in reports or panel.seen is not None
            ]
            self._remember()
            self._look_again(judged, now)
        else:
            self._lost_since = now if self._lost_since is None else self._lost_since
            self._look_again([Judgement("idle", again=self._lost_since + self.grace)], now)
        self._changed()
        self._moved.set()

    def _remember(self) -> None:
        for kind, panel in self.panels.items():
            if panel.answers:
                self._state.set_answers(kind, panel.answers)
        self._state.awaits = next((k for k, panel in self.panels.items() if panel.awaits), None)

    def _look_again(self, judged: Sequence[Judgement], now: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = [judgement.again for judgement in judged if judgement.again is not None]
        if due and min(due) + 0.01 > now:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(min(due) - now + 0.01, self.look)

    def observation(self, kind: str) -> Observation:
        """Return what the agent of this type was judged to be doing."""
        panel, window = self.panels[kind], self.window
        judged = self._beyond(panel.last)
        seen = panel.seen
        model = self._record.model if seen is None else seen.model or self._record.model
        return Observation(
            status=judged.status,
            pending=judged.pending,
            error=judged.error,
            title=None if seen is None else seen.title,
            model=model,
            gone=self.gone is not None,
            cdp_connected=window is not None and window.connected,
            listed=seen is not None,
            summary=() if model is None else (SummaryItem(id="model", label="Model", value=model),),
            controls=panel.controls(),
        )

    def _beyond(self, judged: Judgement) -> Judgement:
        """Return what the state of the IDE and its window make of an agent's own."""
        name = self._file.display_name
        if self.gone is not None:
            return Judgement("error", error=self.gone)
        if self.window is None or self._lost_since is None:
            return judged if self.window is not None else Judgement("idle")
        match self.window.state:
            case "crashed":
                return Judgement(
                    "error", error=f"The page of {name} has crashed: reload it in its window"
                )
            case "silent":
                return Judgement(
                    "error", error=f"The page of {name} does not answer: look at its window"
                )
        if time.monotonic() < self._lost_since + self.grace:
            return judged
        if self.window.state == "none":
            return Judgement(
                "error", error=f"The window of {name} was closed: open it, or launch it again"
            )
        return Judgement(
            "error",
            error=f"The connection to {name} is lost; it is tried again and again "
            f"({self.window.trouble or 'no answer'})",
        )

    async def _watch(self) -> None:
        """Notice when a program of the IDE ends."""
        while self.gone is None:
            if not all(program.runs for program in self._programs):
                self.gone = f"{self._file.display_name} has ended (closed by hand, or crashed)"
                if self.window is not None:
                    await self.window.stop()
                self.look()
                return
            await asyncio.sleep(ALIVE)


def _nothing() -> None:
    pass
