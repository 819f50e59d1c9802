"""An IDE as a session sees it: one of its agents is selected, the others are summed up."""

import asyncio
import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog

from outrider.contract.commands import ChatInput, Picture
from outrider.contract.errors import ApiError, ErrorCode, bad_request, conflict, not_found
from outrider.contract.resources import (
    ActionOption,
    AgentSummary,
    Message,
    PendingAction,
    SummaryItem,
)
from outrider.daemon.agents.adapter import Observation, Observer
from outrider.daemon.agents.ide.chat import GUARD, Chat, Row
from outrider.daemon.agents.ide.panel import Judgement, Panel
from outrider.daemon.agents.ide.picture import take_picture
from outrider.daemon.agents.ide.provider_file import Agent, IdeFile
from outrider.daemon.agents.ide.running import Running
from outrider.daemon.agents.ide.window import Window, WindowError
from outrider.daemon.agents.session import Clock
from outrider.daemon.agents.transcript import Transcript
from outrider.daemon.journal import Journal, SessionRecord

_log = structlog.get_logger(__name__)

TAKE_TIMEOUT: Final = 10.0
OPEN_TIMEOUT: Final = 5.0
TYPE_TIMEOUT: Final = 3.0
ANSWER_TIMEOUT: Final = 5.0
LOST_GRACE: Final = 2.0
"""Seconds that a connection may be away before that is an error."""

ALIVE: Final = 1.0
"""Seconds between two looks whether the IDE's programs still run."""

_POLL: Final = 0.05
_SELECTED: Final = "agent"
_ANSWERS: Final = "answers:"


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
        self._journal = journal
        self._folder = folder
        self._programs = list(programs)
        self._forget = forget
        self._agents = {agent.type: agent for agent in file.agents}
        self.selected = record.native.get(_SELECTED, file.agents[0].type)
        if self.selected not in self._agents:
            self.selected = file.agents[0].type
        generating = record.generating_since is not None
        self._panels = {
            agent.type: Panel(
                record.id,
                record.created_at,
                agent.type,
                agent.name,
                settle=file.settle,
                begin_timeout=file.begin_timeout,
                generating=generating and agent.type == self.selected,
                answers=int(record.native.get(_ANSWERS + agent.type, "0")),
            )
            for agent in file.agents
        }
        self._chats = {
            agent.type: Chat(
                record.id, agent.type, Transcript(folder / f"{agent.type}.jsonl", clock), journal
            )
            for agent in file.agents
        }
        self._window: Window | None = None
        self._observer: Observer | None = None
        self._told: Observation | None = None
        self._gone: str | None = None
        self._lost_since: float | None = time.monotonic()
        self._acting = asyncio.Lock()
        self._reading = asyncio.Lock()
        self._timer: asyncio.TimerHandle | None = None
        self._checking: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._moved = asyncio.Event()
        self.observed = Observation(status="generating" if generating else "idle")

    def attach(self, window: Window | None, url: str | None = None) -> None:
        """Begin to follow the window; a new browser's empty page is sent to `url`.

        Without a window (an IDE that has no debugging port), it can only be stopped.
        """
        self._window = window
        if window is not None:
            window.start(url)
        self._watching = asyncio.create_task(self._watch(), name=f"watch {self._record.id}")

    def lost(self, why: str) -> None:
        """Count as gone from the start."""
        self._gone = why
        self.look()

    # The interface

    def observe(self, observer: Observer) -> None:
        """Begin to tell `observer` of changes, the present state first."""
        self._observer = observer
        self._told = None
        self.look()

    async def submit(self, message_id: str, message: ChatInput) -> None:
        """Write a message into the agent's input and return once it stands in the chat."""
        async with self._acting:
            window, agent, panel = self._ready()
            chat = self._chats[agent.type]
            if message_id in chat:
                return  # taken already, by the daemon that ran before this one
            try:
                await self._show(window, agent, panel)
                if panel.last.pending is not None:
                    raise conflict(
                        "The agent waits for an approval: approve or reject that first",
                        ErrorCode.APPROVAL_PENDING,
                    )
                await self._read(agent.type)
                await self._write(window, agent, message.as_text(), message_id)
            except WindowError as error:
                raise ApiError(
                    500, f"{self._file.display_name} did not take the message: {error}"
                ) from error
            panel.sent(time.monotonic())
            self.look()

    async def answer(self, action: PendingAction, option: ActionOption) -> None:
        """Click the option and return once the question is gone."""
        async with self._acting:
            try:
                window, agent, panel = self._ready()
                question = None if panel.seen is None else panel.seen.question
                pending = panel.last.pending
                if question is None or pending is None or pending.id != action.id:
                    raise conflict("The agent asks something else by now, or nothing")
                clicked = await window.ask("choose", agent.type, question.key, option.id)
                if not clicked:
                    raise conflict("The agent asks something else by now, or nothing")
                if not await self._until(
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
            window, agent, panel = self._ready()
            shown = {control.id: control for control in panel.controls()}
            for name, value in values.items():
                if name not in shown:
                    raise bad_request(
                        f"{panel.name} shows no control {name!r}; it has: "
                        f"{', '.join(shown) or 'none'}",
                        f"controls.{name}",
                    )
                if isinstance(value, str) and value not in shown[name].options:
                    raise bad_request(
                        f"{name!r} cannot be {value!r}; it is one of "
                        f"{', '.join(shown[name].options)}",
                        f"controls.{name}",
                    )
            try:
                for name, value in values.items():
                    await window.ask("change", agent.type, name, value)
            except WindowError as error:
                raise ApiError(500, f"{panel.name} did not react: {error}") from error

            def changed() -> bool:
                now = {control.id: control.value for control in panel.controls()}
                return all(now.get(name) == value for name, value in values.items())

            if not await self._until(changed, ANSWER_TIMEOUT):
                raise ApiError(500, f"{panel.name} did not take the change: look at its window")

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
        for chat in self._chats.values():
            chat.save()

    def evidence(self) -> dict[str, Any]:
        """Return what the status was judged from."""
        window = self._window
        return {
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
                for kind, panel in self._panels.items()
            },
        }

    # What an IDE has besides

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
                    f"{self._panels[self.selected].name} is at work in this IDE: wait until it "
                    "is idle, or answer it, before you turn to another agent"
                )
            self.selected = self._record.native[_SELECTED] = agent
            self.look()

    def observation(self, agent: str) -> Observation:
        """Return what `agent` is doing now."""
        return self._observation(agent)

    async def messages_of(self, agent: str) -> Sequence[Message]:
        """Return the chat with `agent`; what was read before, where its page is not there."""
        try:
            await self._read(agent)
        except WindowError as error:
            _log.info("a chat cannot be read now", session=self._record.id, error=str(error))
        return self._chats[agent].messages()

    async def screenshot(self, width: int | None) -> Picture:
        """Return a picture of the window."""
        window = self._alive()
        try:
            return await take_picture(window.page, width)
        except WindowError as error:
            raise conflict(
                f"{self._file.display_name} cannot be shown: {error}. Open it and try again"
            ) from error

    # Judging

    def begin(self) -> bool:
        """Tell whether a chat can be used; where the selected agent has none, another is."""
        seen = {} if self._window is None else self._window.seen()
        usable = [kind for kind in self._agents if kind in seen and seen[kind].input]
        if usable and self.selected not in usable:
            self.selected = self._record.native[_SELECTED] = usable[0]
        return bool(usable)

    def look(self) -> None:
        """Judge every panel by the newest reports, and tell what has changed."""
        now = time.monotonic()
        window = self._window
        if window is not None and window.state == "there":
            self._lost_since = None
            reports = window.seen()
            judged = [
                panel.judge(reports.get(kind), now)
                for kind, panel in self._panels.items()
                if kind == self.selected or kind in reports or panel.seen is not None
            ]
            for kind, panel in self._panels.items():
                if panel.answers:
                    self._record.native[_ANSWERS + kind] = str(panel.answers)
            self._judge_again(judged, now)
        else:
            self._lost_since = now if self._lost_since is None else self._lost_since
            self._judge_again([Judgement("idle", again=self._lost_since + LOST_GRACE)], now)
        before = self.observed.status
        self._tell(self._observation(self.selected))
        if self._panels[self.selected].awaits or self.observed.status != before:
            self._catch_up()
        self._moved.set()

    def _judge_again(self, judged: Sequence[Judgement], now: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = [judgement.again for judgement in judged if judgement.again is not None]
        if due and min(due) + 0.01 > now:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(min(due) - now + 0.01, self.look)

    def _catch_up(self) -> None:
        """Read the chat in the background, so that what came is dated and outlives the window.

        An agent that shows no sign of work after a message may have answered already.
        """
        panel = self._panels[self.selected]
        if self._checking is not None and not self._checking.done():
            return

        async def check() -> None:
            try:
                await self._read(panel.kind)
            except WindowError:
                return
            if panel.awaits and self._chats[panel.kind].answered:
                panel.begun()
                asyncio.get_running_loop().call_soon(self.look)

        self._checking = asyncio.create_task(check(), name=f"read {self._record.id}")

    def _observation(self, kind: str) -> Observation:
        panel, window = self._panels[kind], self._window
        connected = window is not None and window.connected
        judged = self._beyond(panel.last)
        seen = panel.seen
        model = self._record.model if seen is None else seen.model or self._record.model
        return Observation(
            status=judged.status,
            pending=judged.pending,
            error=judged.error,
            title=None if seen is None else seen.title,
            model=model,
            gone=self._gone is not None,
            cdp_connected=connected,
            agents=tuple(
                AgentSummary(type=name, name=other.name, status=self._beyond(other.last).status)
                for name, other in self._panels.items()
                if other.seen is not None
            ),
            summary=() if model is None else (SummaryItem(id="model", label="Model", value=model),),
            controls=panel.controls(),
        )

    def _beyond(self, judged: Judgement) -> Judgement:
        """Return what the state of the IDE and its window make of an agent's own."""
        name = self._file.display_name
        if self._gone is not None:
            return Judgement("error", error=self._gone)
        if self._window is None:
            return Judgement("idle")
        lost = self._lost_since
        if lost is None:
            return judged
        match self._window.state:
            case "crashed":
                return Judgement(
                    "error", error=f"The page of {name} has crashed: reload it in its window"
                )
            case "silent":
                return Judgement(
                    "error", error=f"The page of {name} does not answer: look at its window"
                )
        if time.monotonic() < lost + LOST_GRACE:
            return judged
        if self._window.state == "none":
            return Judgement(
                "error", error=f"The window of {name} was closed: open it, or launch it again"
            )
        return Judgement(
            "error",
            error=f"The connection to {name} is lost; it is tried again and again "
            f"({self._window.trouble or 'no answer'})",
        )

    def _tell(self, observation: Observation) -> None:
        self.observed = observation
        if observation == self._told or self._observer is None:
            return
        self._told = observation
        self._observer(observation)

    async def _watch(self) -> None:
        """Notice when a program of the IDE ends."""
        while self._gone is None:
            ended = [program for program in self._programs if not program.runs]
            if ended:
                self._gone = f"{self._file.display_name} has ended (closed by hand, or crashed)"
                if self._window is not None:
                    await self._window.stop()
                self.look()
                return
            await asyncio.sleep(ALIVE)

    # Acting

    def _alive(self) -> Window:
        name = self._file.display_name
        if self._gone is not None:
            raise ApiError(500, f"{self._gone}. Launch it again")
        if self._window is None:
            raise conflict(
                f"{name} was launched without its debugging port: launch it with enableCdp true"
            )
        return self._window

    def _ready(self) -> tuple[Window, Agent, Panel]:
        window = self._alive()
        self.look()
        if window.state != "there":
            why = self.observed.error or "its window is not there yet"
            raise ApiError(500, f"{self._file.display_name} cannot be reached: {why}")
        return window, self._agents[self.selected], self._panels[self.selected]

    async def _show(self, window: Window, agent: Agent, panel: Panel) -> None:
        """Make the agent's chat one that takes a message."""

        def shown() -> bool:
            return panel.seen is not None and panel.seen.shown and panel.seen.input

        if not shown():
            await window.ask("open", agent.type)
            if not await self._until(shown, OPEN_TIMEOUT):
                raise WindowError(panel.last.error or f"the chat of {agent.name} is hidden")
        await window.ask("select", agent.type)

    async def _write(self, window: Window, agent: Agent, text: str, message_id: str) -> None:
        """Type and send a message; return once it stands in the chat."""
        chat = self._chats[agent.type]
        guarded = agent.guard_before is not None and re.search(agent.guard_before, text)
        wanted = GUARD + text if guarded else text
        chat.offer(message_id, text)
        try:
            await window.type(agent.type, agent.input, wanted, keys=agent.typing == "keys")
            await self._typed(window, agent, wanted)
            await self._send(window, agent)
            await self._taken(chat, agent)
        except BaseException:
            chat.withdraw()
            raise

    async def _send(self, window: Window, agent: Agent) -> None:
        if agent.submit is None:
            await window.press(agent.submit_key)
        elif not await window.ask("submit", agent.type):
            raise WindowError("its button to send is not there")

    async def _taken(self, chat: Chat, agent: Agent) -> None:
        deadline = time.monotonic() + TAKE_TIMEOUT
        while not chat.taken:
            if time.monotonic() > deadline:
                raise WindowError("the message did not appear in the chat")
            await asyncio.sleep(_POLL)
            await self._read(agent.type)

    async def _typed(self, window: Window, agent: Agent, text: str) -> None:
        """Wait until the text stands in the input, where that can be told."""
        deadline = time.monotonic() + TYPE_TIMEOUT
        while True:
            stands = await window.ask("typed", agent.type)
            if stands is None or " ".join(str(stands).split()) == " ".join(text.split()):
                return
            if time.monotonic() > deadline:
                raise WindowError("its input did not take the text")
            await asyncio.sleep(_POLL)

    async def _read(self, kind: str) -> None:
        window = self._window
        if self._gone is not None or window is None or window.state != "there":
            return
        async with self._reading:
            rows = await window.ask("read", kind)
            try:
                self._chats[kind].merge(msgspec.convert(rows, list[Row]))
            except msgspec.ValidationError as error:
                raise WindowError(f"its chat cannot be read: {error}") from error

    async def _until(self, done: Callable[[], bool], seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while not done():
            left = deadline - time.monotonic()
            if left <= 0 or self._gone is not None:
                return done()
            self._moved.clear()
            try:
                await asyncio.wait_for(self._moved.wait(), min(left, 0.5))
            except TimeoutError:
                self.look()
        return True

    async def _let_go(self) -> None:
        self._observer = None
        if self._timer is not None:
            self._timer.cancel()
        tasks = {task for task in (self._checking, self._watching) if task is not None}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=1)
        if self._window is not None:
            await self._window.stop()
        if self._timer is not None:
            self._timer.cancel()
