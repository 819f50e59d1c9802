"""The status of all agents of an IDE, from its window, its programs and the time.

A panel derives its agent's status from the reports of the page (panel.py). A missing window or an
IDE that has ended takes precedence over that, after a grace period in which connections return.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Final

from outrider.contract.errors import ApiError, conflict
from outrider.contract.resources import EndReason, SummaryItem
from outrider.machine.agents.adapter import Observation
from outrider.machine.agents.ide.adapter_state import IdeState
from outrider.machine.agents.ide.panel import Judgement, Panel
from outrider.machine.agents.ide.program import Program
from outrider.machine.agents.ide.spec import IdeSpec
from outrider.machine.agents.ide.window import Window
from outrider.machine.sessions.record import SessionRecord

LOST_GRACE: Final = 2.0
"""Seconds that a connection may be lost before that is an error."""

CONNECT_GRACE: Final = 10.0
"""Seconds that the first connection may take: a daemon that starts has many to make."""

PROGRAM_CHECK_INTERVAL: Final = 1.0
"""Seconds between two checks whether the IDE's programs still run."""


class StatusMonitor:
    """Follows an IDE: a panel for each of its agents, one of which is selected.

    Args:
        record: gets what a restarted daemon needs to know.
        programs: the programs of the IDE; if one ends, the IDE has ended.
        on_change: called when an observation may have changed.

    Attributes:
        end_message: why the IDE can no longer be used, for a person; None while it can.
        end_reason: the same in the words of the API. How an IDE's program ended is not known.
        grace: seconds that the window may be missing now before that is an error.
        name: the IDE's name, for people.
    """

    def __init__(
        self,
        spec: IdeSpec,
        record: SessionRecord,
        programs: Sequence[Program],
        on_change: Callable[[], None],
    ) -> None:
        self.window: Window | None = None
        self.end_message: str | None = None
        self.end_reason: EndReason = "crashed"
        self.name = spec.display_name
        self._spec = spec
        self._record = record
        self._state = IdeState(record)
        self._programs = programs
        self._on_change = on_change
        kinds = [agent.type for agent in spec.agents]
        if record.selected_agent not in kinds:
            record.selected_agent = kinds[0]
        working = None if record.generating_since is None else self.selected
        self.panels = {
            agent.type: Panel(
                record.id,
                record.created_at,
                agent.type,
                agent.name,
                settle=spec.settle,
                begin_timeout=spec.begin_timeout,
                generating=agent.type == working,
                answers=self._state.answers(agent.type),
            )
            for agent in spec.agents
        }
        if (awaits := self._state.awaiting_agent) in self.panels:
            self.panels[awaits].set_message_sent(time.monotonic())
        self._lost_since: float | None = time.monotonic()
        self.grace = CONNECT_GRACE
        self._timer: asyncio.TimerHandle | None = None
        self._watch_task: asyncio.Task[None] | None = None
        self._updated = asyncio.Event()

    @property
    def selected(self) -> str:
        """The type of the selected agent."""
        return self._record.selected_agent or next(iter(self.panels))

    @property
    def panel(self) -> Panel:
        """The panel of the selected agent."""
        return self.panels[self.selected]

    def select_usable(self) -> bool:
        """Return whether a chat is usable; select another agent if the selected one has none."""
        reports = {} if self.window is None else self.window.reports()
        usable = [kind for kind in self.panels if kind in reports and reports[kind].input]
        if usable and self.selected not in usable:
            self._record.selected_agent = usable[0]
        return bool(usable)

    def start(self, window: Window | None, url: str | None) -> None:
        """Begin to follow the window, if there is one, and the programs."""
        self.window = window
        if window is not None:
            window.start(url)
        self._watch_task = asyncio.create_task(self._watch(), name=f"watch {self._record.id}")

    async def stop(self) -> None:
        """Stop following; `on_change` is not called after that."""
        # First: what is stopped below reports changes, which concern nobody any more.
        self._on_change = _ignore
        if self._watch_task is not None:
            self._watch_task.cancel()
            await asyncio.wait({self._watch_task}, timeout=1)
        if self.window is not None:
            await self.window.stop()
        if self._timer is not None:
            self._timer.cancel()

    def require_window(self) -> Window:
        """Return the window.

        Raises:
            ApiError: 500, the IDE has ended; 409, it has no debugging port.
        """
        if self.end_message is not None:
            raise ApiError(500, f"{self.end_message}. Launch it again")
        if self.window is None:
            raise conflict(
                f"{self.name} was launched without its debugging port: "
                "launch it with enableCdp true"
            )
        return self.window

    async def ready(self) -> Window:
        """Return the window; wait for one whose connection is being restored.

        Raises:
            ApiError: as `require_window` does; 500, the window cannot be reached.
        """
        window = self.require_window()
        self.refresh()
        if window.state in {"lost", "none"}:
            await self.wait_until(lambda: window.state == "there", self.grace)
        if window.state != "there":
            reason = self.observation(self.selected).error or "its window is not there yet"
            raise ApiError(500, f"{self.name} cannot be reached: {reason}")
        return window

    async def wait_until(self, done: Callable[[], bool], seconds: float) -> bool:
        """Wait until `done` holds, at most so many seconds and while the IDE runs.

        Returns whether it holds.
        """
        deadline = time.monotonic() + seconds
        while not done():
            left = deadline - time.monotonic()
            if left <= 0 or self.end_message is not None:
                return done()
            self._updated.clear()
            try:
                # Judgements change with time alone, too: look again even without an update.
                async with asyncio.timeout(min(left, 0.5)):
                    await self._updated.wait()
            except TimeoutError:
                self.refresh()
        return True

    def refresh(self) -> None:
        """Judge every panel by the newest reports, and schedule the next time if one is due."""
        now = time.monotonic()
        window = self.window
        if window is not None and window.state == "there":
            self._lost_since = None
            # Connected once: from now on a loss counts sooner than a slow first connection.
            self.grace = LOST_GRACE
            reports = window.reports()
            judged = [
                panel.judge(reports.get(kind), now)
                for kind, panel in self.panels.items()
                if kind == self.selected or kind in reports or panel.report is not None
            ]
            self._save_state()
            self._schedule_refresh(judged, now)
        else:
            self._lost_since = now if self._lost_since is None else self._lost_since
            self._schedule_refresh([Judgement("idle", judge_at=self._lost_since + self.grace)], now)
        self._on_change()
        self._updated.set()

    def _save_state(self) -> None:
        for kind, panel in self.panels.items():
            if panel.answers:
                self._state.set_answers(kind, panel.answers)
        self._state.awaiting_agent = next(
            (k for k, panel in self.panels.items() if panel.awaits_answer), None
        )

    def _schedule_refresh(self, judged: Sequence[Judgement], now: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = [judgement.judge_at for judgement in judged if judgement.judge_at is not None]
        # A little later than due: a timer that fires early would judge as before.
        if due and min(due) + 0.01 > now:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(min(due) - now + 0.01, self.refresh)

    def observation(self, kind: str) -> Observation:
        """Return the status of the agent of this type."""
        panel, window = self.panels[kind], self.window
        judged = self._with_window_state(panel.last)
        report = panel.report
        model = self._record.model if report is None else report.model or self._record.model
        return Observation(
            status=judged.status,
            pending=judged.pending,
            error=judged.error,
            title=None if report is None else report.title,
            model=model,
            gone=self.end_message is not None,
            end_reason=self.end_reason,
            cdp_connected=window is not None and window.connected,
            listed=report is not None,
            summary=() if model is None else (SummaryItem(id="model", label="Model", value=model),),
            controls=panel.controls(),
        )

    def _with_window_state(self, judged: Judgement) -> Judgement:
        """Return the status, overridden by a lost window or the end of the IDE."""
        name = self._spec.display_name
        if self.end_message is not None:
            return Judgement("error", error=self.end_message)
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
            f"({self.window.connection_error or 'no answer'})",
        )

    async def _watch(self) -> None:
        """Detect the end of a program of the IDE."""
        while self.end_message is None:
            if not all(program.is_running for program in self._programs):
                self.end_message = (
                    f"{self._spec.display_name} has ended (closed by hand, or crashed)"
                )
                if self.window is not None:
                    await self.window.stop()
                self.refresh()
                return
            await asyncio.sleep(PROGRAM_CHECK_INTERVAL)


def _ignore() -> None:
    pass
