"""One session: what carries out the commands of its core (core.py), around its adapter.

The core decides; here are the tasks, the timer, the journal and the callers that wait. All
methods run on the event loop's thread.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

import structlog

from outrider.contract.commands import (
    Accepted,
    AgentState,
    Chat,
    Interrupt,
    Interrupted,
    Launched,
    Picture,
    Queue,
    QueuedMessage,
    ReadChat,
    ReadTurn,
    ResolveAction,
    Resolved,
    Result,
    Screen,
    Screenshot,
    SendChat,
    TurnState,
    Withdraw,
    Withdrawn,
)
from outrider.contract.errors import ApiError, bad_request
from outrider.contract.events import (
    MAX_EVENT_CONTROLS,
    TURN_EVENTS,
    AgentEvent,
    Answer,
    QueueEntry,
    Respondent,
)
from outrider.contract.ids import creation_time, derived_id, new_id
from outrider.contract.resources import EndReason, Message, Session, SummaryMetadata, Workspace
from outrider.machine.agents.adapter import Adapter, Observation
from outrider.machine.link.journal import Journal
from outrider.machine.sessions import state_events
from outrider.machine.sessions.chat_selection import messages_of_turn, parse_cursor, select_messages
from outrider.machine.sessions.core import AgentCore, already_sent
from outrider.machine.sessions.core_protocol import (
    Act,
    AnswerRequest,
    ChangeControls,
    Choose,
    CoreCommand,
    CoreEvent,
    Deliver,
    Dequeue,
    Done,
    Emit,
    Enqueue,
    Failed,
    InterruptAgent,
    InterruptRequest,
    Observed,
    Postpone,
    Prepare,
    Publish,
    Ready,
    Refuse,
    Reply,
    Request,
    Save,
    SetTimer,
    Stopping,
    SubmitRequest,
    Tick,
    WithdrawRequest,
)
from outrider.machine.sessions.deltas import Deltas, DeltaSink
from outrider.machine.sessions.record import SessionRecord
from outrider.machine.sessions.state_events import CurrentState, StateEvents
from outrider.machine.sessions.turn_spans import TurnSpans
from outrider.tracing import OFF, Tracing

MAX_RECENT: Final = 32
"""Events of a session that are kept for its debug bundle."""

_READ_TIMEOUT: Final = 5.0
"""Seconds that the chat of an agent that ends may take to be read."""

_STOP_TIMEOUT: Final = 5.0
"""Seconds that an act has to end when the session is closed."""

Clock = Callable[[], int]
"""Returns the time in epoch milliseconds."""

_log = structlog.get_logger(__name__)


class AgentSession:
    """One running agent, or an IDE with several.

    Args:
        record: what the journal knows of it.
        adapter: the running agent.
        daemon_id: this machine, for target ids.
        on_gone: called when the agent has ended by itself, with the reason; perhaps repeatedly.
        on_change: called after anything that `state` shows has changed.
        emit: takes each agent event, in order.
        deltas: takes the text of messages while they are written; None if it is not needed.
        tracing: begins the spans of turns.
    """

    def __init__(
        self,
        record: SessionRecord,
        adapter: Adapter,
        *,
        daemon_id: str,
        journal: Journal,
        clock: Clock,
        emit: Callable[[AgentEvent], None],
        on_change: Callable[["AgentSession"], None],
        on_gone: Callable[["AgentSession", EndReason], None],
        deltas: DeltaSink | None = None,
        tracing: Tracing = OFF,
    ) -> None:
        self.record = record
        self.adapter = adapter
        self._daemon_id = daemon_id
        self._journal = journal
        self._clock = clock
        self._emit = emit
        self._on_change = on_change
        self._on_gone = on_gone
        self._core = AgentCore(
            record,
            {kind: agent.name for kind, agent in adapter.agents.items()},
            queue=journal.queue(record.id),
            answer_timeout=adapter.answer_timeout,
            now=clock(),
        )
        self._state_events = StateEvents(record)
        self._turn_spans = TurnSpans(tracing, record.id, record.type)
        self._state_timer: asyncio.TimerHandle | None = None
        self._deltas = {
            kind: Deltas(record.id, agent.open_texts, deltas)
            for kind, agent in adapter.agents.items()
            if deltas is not None
        }
        self._chat_flushes: dict[str, asyncio.Handle] = {}
        self._respondents: dict[int, Respondent] = {}
        self._recent: deque[AgentEvent] = deque(maxlen=MAX_RECENT)
        self._requests: dict[int, asyncio.Future[Result | None]] = {}
        self._last_request = 0
        self._act_task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start to follow the agent."""
        self.adapter.observe_chats(self._on_chat_change)
        self.adapter.observe(self._on_observation)

    # What it shows

    @property
    def status(self) -> str:
        """What the agent is doing now."""
        return self._core.observation.status

    @property
    def target_id(self) -> str:
        """The id that names exactly this session."""
        return f"{self._daemon_id}:session:{self.record.id}"

    @property
    def workspace(self) -> Workspace:
        """The directory that the agent works in."""
        return self.record.workspace

    @property
    def recent_events(self) -> list[AgentEvent]:
        """The last events of its turns since this daemon was started, oldest first."""
        return list(self._recent)

    def describe(self) -> Session:
        """Return the session as the API shows it."""
        seen, record = self._core.observation, self.record
        return Session(
            id=record.id,
            target_id=self.target_id,
            kind=record.kind,
            type=record.type,
            name=record.name,
            status=seen.status,
            title=seen.title,
            workspace=self.workspace,
            model=seen.model or record.model,
            created_at=record.created_at,
            last_activity_at=record.last_activity_at,
            pending_action=seen.pending,
            error=seen.error,
            cdp_connected=seen.cdp_connected,
            agents=self._core.agents(),
            worktree=record.worktree,
        )

    def launched(self) -> Launched:
        """Return the result of the launch that made this session."""
        record = self.record
        return Launched(
            id=f"{self._daemon_id}:{record.kind}:{record.type}",
            session_id=record.id,
            session_target_id=self.target_id,
            kind=record.kind,
            type=record.type,
            status=self._core.observation.status,
        )

    def state(self, agent_type: str | None = None) -> AgentState:
        """Return what the agent is doing and what its provider shows about it.

        Raises:
            ApiError: 404, the session has no such agent.
        """
        agent = self._core.agent(agent_type)
        seen = self._core.observation_of(agent)
        return AgentState(
            id=self.target_id,
            session_id=self.record.id,
            agent_type=agent,
            status=seen.status,
            title=seen.title,
            summary_metadata=SummaryMetadata(items=list(seen.summary)),
            controls=list(seen.controls),
            workspace=self.workspace,
            pending_action=seen.pending,
            error=seen.error,
            updated_at=self._core.updated_at,
        )

    async def read(self, query: ReadChat) -> Chat:
        """Return the chat, with the messages that `select_messages` selects.

        Raises:
            ApiError: 400, the chat has no message with the id `after` or `before`; 404, no such
                agent.
        """
        agent = self._core.agent(query.agent_type)
        messages = list(await self.adapter.agents[agent].messages())
        seen = self._core.observation_of(agent)
        return Chat(
            id=self.target_id,
            session_id=self.record.id,
            agent_type=agent,
            title=seen.title,
            status=seen.status,
            messages=select_messages(messages, query),
            pending_action=seen.pending,
            total_messages=len(messages),
            type=self.record.type,
        )

    async def turn(self, query: ReadTurn) -> TurnState:
        """Return whether a turn has reached one of `query.until`, and its messages; do not wait.

        Raises:
            ApiError: 400, `query.after` is no cursor of this chat; 409, its message was taken
                back from the queue or dropped; 404, no such agent.
        """
        after = None if query.after is None else parse_cursor(query.after)
        turn = None if after is None or after.turn is None else self._core.turn(after.turn)
        agent = self._core.agent(query.agent_type) if turn is None else turn.agent
        seen = self._core.observation_of(agent)
        status = seen.status if turn is None else turn.status
        reason = None if status == "generating" or status not in query.until else status
        cursor, messages = query.after or "", list[Message]()
        if reason is not None or query.unfinished:
            chat = list(await self.adapter.agents[agent].messages())
            messages, cursor = messages_of_turn(chat, after, turn, status)
        return TurnState(
            session_id=self.record.id,
            reason=reason,
            cursor=cursor,
            status=seen.status,
            messages=messages,
            pending_action=seen.pending,
        )

    async def screenshot(self, request: Screenshot) -> Picture:
        """Return a picture of the IDE's window.

        Raises:
            ApiError: 400, this is no IDE; 409, its window is minimised or closed.
        """
        if self.adapter.camera is None:
            raise bad_request(
                f"Only IDEs have screenshots; {self.record.name} is not one", "target"
            )
        return await self.adapter.camera.screenshot(request.width)

    async def screen(self) -> Screen:
        """Return what the agent's terminal shows.

        Raises:
            ApiError: 400, the agent has no terminal; 409, its terminal is gone.
        """
        if self.adapter.terminal is None:
            raise bad_request(
                f"Only agents in a terminal have a screen; {self.record.name} is not one", "target"
            )
        return await self.adapter.terminal.screen()

    def queue(self) -> Queue:
        """Return the messages that the agent has not accepted yet, in order."""
        return Queue(
            messages=[
                QueuedMessage(
                    message_id=message_id,
                    text=message.as_text(),
                    created_at=creation_time(message_id),
                )
                for message_id, message in self._core.queue()
            ]
        )

    # Requests

    async def send(self, request: SendChat) -> Accepted:
        """Give the agent a message; while it is generating, do what `delivery` says.

        Controls are changed at once, before the message and whatever waits in the queue.

        Raises:
            ApiError: 400, no such control or value, or the agent takes no such message, or cannot
                be interrupted; 409, it waits for an approval, is generating (`AGENT_BUSY`), or the
                queue is full; 500, it is gone, did not take the message, or did not stop.
        """
        message = request.as_input() if request.has_message else None
        if message is not None:
            self.adapter.agents[self._core.agent(request.agent_type)].check(message)
        submit = SubmitRequest(
            self._next_request(),
            new_id("msg"),
            message,
            request.agent_type,
            request.controls,
            request.delivery,
        )
        self._turn_spans.submitted(submit.message_id)
        result = await self._handle_request(submit)
        assert isinstance(result, Accepted)
        return result

    async def resolve(self, request: ResolveAction, by: Respondent | None = None) -> Resolved:
        """Answer the pending action, once, whoever else tries at the same time.

        Args:
            by: who answers; None if the service does not say it.

        Raises:
            ApiError: 409, nothing is pending (`NO_PENDING_ACTION`), or the action has been
                answered; 400, the action has no such option.
        """
        number = self._next_request()
        if by is not None:
            self._respondents[number] = by
        try:
            result = await self._handle_request(AnswerRequest(number, request))
        finally:
            self._respondents.pop(number, None)
        assert isinstance(result, Resolved)
        return result

    async def interrupt(self, request: Interrupt) -> Interrupted:
        """Stop the current turn; when this returns, the agent is not generating.

        Raises:
            ApiError: 400, the agent cannot be interrupted; 409, there is no turn
                (`NOT_GENERATING`); 500, it did not react.
        """
        event = InterruptRequest(self._next_request(), request.agent_type)
        result = await self._handle_request(event)
        assert isinstance(result, Interrupted)
        return result

    async def withdraw(self, request: Withdraw) -> Withdrawn:
        """Take a message out of the queue.

        Raises:
            ApiError: 409, it was sent (`ALREADY_SENT`); 404, there is no such message.
        """
        message_id = request.message_id
        try:
            result = await self._handle_request(WithdrawRequest(self._next_request(), message_id))
        except ApiError as error:
            if error.status == 404 and await self._is_in_chat(message_id):
                raise already_sent(message_id) from None
            raise
        assert isinstance(result, Withdrawn)
        return result

    async def _is_in_chat(self, message_id: str) -> bool:
        """Return whether an agent has this message; the core forgets its id at a restart."""
        for agent in self.adapter.agents.values():
            if any(message.id == message_id for message in await agent.messages()):
                return True
        return False

    async def finish_act(self) -> None:
        """Wait for an act on an agent that is gone to fail, so that its caller gets the reason."""
        if self._act_task is not None and not self._act_task.done():
            await asyncio.wait({self._act_task}, timeout=_STOP_TIMEOUT)

    async def close(self) -> dict[str, list[Message]]:
        """End the agent; return the chats by agent type, without those that cannot be read.

        What still waits in its queue is dropped with it.
        """
        await self._stop()
        # The page of an IDE can be read only now, the last lines of a transcript only later.
        chats = await self._read_chats()
        self._emit_messages_of_all()
        await self.adapter.close()
        for agent, messages in (await self._read_chats()).items():
            if len(messages) >= len(chats.get(agent, ())):
                chats[agent] = messages
        return chats

    async def _read_chats(self) -> dict[str, list[Message]]:
        chats = {}
        for kind, agent in self.adapter.agents.items():
            try:
                async with asyncio.timeout(_READ_TIMEOUT):
                    chats[kind] = list(await agent.messages())
            except Exception:  # noqa: BLE001  # the session ends all the same
                _log.exception("chat of an ended session not read", session=self.record.id)
        return chats

    async def detach(self) -> None:
        """Leave the agent running and stop following it."""
        await self._stop()
        await self.adapter.detach()

    def _next_request(self) -> int:
        self._last_request += 1
        return self._last_request

    async def _handle_request(self, event: Request) -> Result | None:
        """Have the core handle a request; return what it replies."""
        reply: asyncio.Future[Result | None] = asyncio.get_running_loop().create_future()
        self._requests[event.request] = reply
        try:
            self._handle(event)
            return await reply
        finally:
            del self._requests[event.request]

    async def _stop(self) -> None:
        self._handle(Stopping())
        self._turn_spans.close()
        if self._state_timer is not None:
            self._state_timer.cancel()
        for flush in self._chat_flushes.values():
            flush.cancel()
        for deltas in self._deltas.values():
            deltas.stop()
        if self._act_task is not None and not self._act_task.done():
            self._act_task.cancel()
            await asyncio.wait({self._act_task}, timeout=_STOP_TIMEOUT)

    # Events and commands

    def _on_observation(self, agent: str, observation: Observation) -> None:
        if agent in self._deltas:
            self._deltas[agent].changed()
        # The messages of a turn are emitted before its end.
        self._emit_messages(agent, is_turn_over=observation.status in {"idle", "error"})
        self._handle(Observed(agent, observation))
        if observation.gone:
            self._on_gone(self, observation.end_reason)

    def _handle(self, event: CoreEvent) -> None:
        was_interrupting = self._core.is_interrupting  # this event may complete it
        for command in self._core.handle(event, self._clock()):
            self._carry_out(command)
        self._turn_spans.end_finished(self._core.turn)
        self._emit_state(interrupted=was_interrupting or self._core.is_interrupting)

    def _emit_state(self, *, interrupted: bool = False) -> None:
        """Emit the events that follow from the session's current state."""
        core, now = self._core, self._clock()
        if not core.has_observed:
            return
        if self._state_timer is not None:
            self._state_timer.cancel()
            self._state_timer = None
        answering = core.answering
        state = CurrentState(
            session=self.describe(),
            controls=core.observation.controls[:MAX_EVENT_CONTROLS],
            queue=tuple(
                QueueEntry(message_id=one.message_id, text=one.text, created_at=one.created_at)
                for one in self.queue().messages
            ),
            answering=None if answering is None else answering[0],
            interrupted=interrupted,
            gone=core.observation.gone,
        )
        has_emitted = False
        for event in self._state_events.update(state, now):
            self._emit_event(event)
            has_emitted = True
        if has_emitted:
            self._journal.save_session(self.record)
        if self._state_events.due is not None:
            delay = (self._state_events.due - now) / 1000
            loop = asyncio.get_running_loop()
            self._state_timer = loop.call_later(delay, self._emit_state)

    def _on_chat_change(self, agent: str) -> None:
        """Emit new messages soon, those of several changes together."""
        if agent in self._deltas:
            self._deltas[agent].changed()
        if agent not in self._chat_flushes:
            loop = asyncio.get_running_loop()
            self._chat_flushes[agent] = loop.call_soon(self._flush_chat, agent)

    def _flush_chat(self, agent: str) -> None:
        self._chat_flushes.pop(agent, None)
        status = self._core.observation_of(agent).status
        self._emit_messages(agent, is_turn_over=status in {"idle", "error"})

    def _emit_messages_of_all(self) -> None:
        for agent in self.adapter.agents:
            self._emit_messages(agent, is_turn_over=True)

    def _emit_messages(self, agent: str, *, is_turn_over: bool) -> None:
        """Emit the complete messages of a chat that have not been emitted."""
        record = self.record
        messages = self.adapter.agents[agent].completed_messages(
            state_events.first_unemitted(record, agent), is_turn_over=is_turn_over
        )
        if not messages:
            return
        title = self._core.observation_of(agent).title
        has_emitted = False
        for event in state_events.new_messages(record, agent, messages, title):
            self._emit_event(event)
            has_emitted = True
        if has_emitted:
            self._journal.save_session(record)

    def _carry_out(self, command: CoreCommand) -> None:
        match command:
            case Prepare() | Deliver() | Choose() | ChangeControls() | InterruptAgent():
                name = f"{type(command).__name__} {self.record.id}"
                self._act_task = asyncio.create_task(self._act(command), name=name)
            case SetTimer(seconds):
                self._set_timer(seconds)
            case Enqueue(message_id, message, is_first):
                self._journal.enqueue(self.record.id, message_id, message, is_first=is_first)
            case Dequeue(message_id):
                self._journal.dequeue(message_id)
            case Save():
                self._journal.save_session(self.record)
            case Emit():
                self._emit_event(command)
            case Publish():
                self._on_change(self)
            case Reply(request, result):
                if (reply := self._requests.get(request)) is not None and not reply.done():
                    reply.set_result(result)
            case Refuse(request, error):
                if (reply := self._requests.get(request)) is not None and not reply.done():
                    reply.set_exception(error)
            case Postpone(message_id, error):
                _log.warning(
                    "queued message not delivered",
                    session=self.record.id,
                    message=message_id,
                    error=error.message,
                )

    async def _act(self, command: Prepare | Act) -> None:
        """Have the adapter execute a command, and pass its outcome to the core."""
        if isinstance(command, Choose):
            self._record_answer(command)
        try:
            try:
                event = await self._call_adapter(command)
            except ApiError as error:
                event = Failed(error)
            if isinstance(command, Choose) and event != Done():
                self.record.answer = None  # the agent has not been given it
            self._handle(event)
        except Exception:  # noqa: BLE001  # the callers that wait must get a reply
            _log.exception("act failed", session=self.record.id, act=type(command).__name__)
            broken = ApiError(500, "The machine agent failed: its log on the machine tells why")
            self._handle(Failed(broken))

    async def _call_adapter(self, command: Prepare | Act) -> CoreEvent:
        agents = self.adapter.agents
        match command:
            case Prepare(agent, for_message):
                await agents[agent].ready()
                if for_message:
                    await agents[agent].show()
                return Ready()
            case Deliver(agent, message_id, message):
                with self._turn_spans.delivery(message_id):
                    await agents[agent].deliver(message_id, message)
            case Choose(agent, action, option):
                return Done(offered=await agents[agent].choose(action, option))
            case ChangeControls(agent, controls):
                await agents[agent].change(controls)
            case InterruptAgent(agent):
                await agents[agent].interrupt()
        return Done()

    def _record_answer(self, choice: Choose) -> None:
        """Save who answers a question: if the daemon is killed now, the agent may continue."""
        answering = self._core.answering
        respondent = None if answering is None else self._respondents.get(answering[1])
        self.record.answer = Answer(
            action="approve" if choice.option.kind.startswith("allow") else "reject",
            option_id=choice.option.id,
            by=respondent or Respondent(kind="user"),
        )
        self._journal.save_session(self.record)

    def _set_timer(self, seconds: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        due = None if seconds is None else loop.call_later(seconds, self._handle, Tick())
        self._timer = due

    def _emit_event(self, command: Emit) -> None:
        record, message = self.record, command.chat_message
        event = agent_event(
            command,
            record,
            daemon_id=self._daemon_id,
            event_id=new_id("evt")
            if message is None
            else derived_id("evt", message.timestamp, record.id, message.id),
            timestamp=self._core.updated_at if command.event in TURN_EVENTS else self._clock(),
        )
        if event.event in TURN_EVENTS:
            self._recent.append(event)
        self._emit(event)


def agent_event(
    command: Emit, record: SessionRecord, *, daemon_id: str, event_id: str, timestamp: int
) -> AgentEvent:
    """Return the event that a command emits for a session."""
    return AgentEvent(
        id=event_id,
        event=command.event,
        session_id=record.id,
        ide_id=f"{daemon_id}:{record.kind}:{record.type}",
        ide_type=record.type,
        chat_title=command.title,
        duration=command.duration,
        timestamp=timestamp,
        message=command.message,
        session=command.session,
        controls=None if command.controls is None else list(command.controls),
        chat_message=command.chat_message,
        action=command.action,
        answer=command.answer,
        queue=None if command.queue is None else list(command.queue),
    )
