"""Runs one session: executes the commands of its core on its adapter.

The core decides; here are the tasks, the timer, the journal and the callers that wait. All
methods run on the event loop's thread.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar

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
from outrider.contract.events import AgentEvent, Answer, Respondent
from outrider.contract.ids import creation_time, new_id
from outrider.contract.resources import EndReason, Message, Session, SummaryMetadata
from outrider.machine.agents.adapter import Adapter, Observation
from outrider.machine.link.journal import Journal
from outrider.machine.sessions.chat_selection import messages_of_turn, parse_cursor, select_messages
from outrider.machine.sessions.clock import Clock
from outrider.machine.sessions.core import protocol
from outrider.machine.sessions.core.agent_core import AgentCore, already_sent
from outrider.machine.sessions.deltas import DeltaSink
from outrider.machine.sessions.event_emitter import EventEmitter
from outrider.machine.sessions.record import SessionRecord
from outrider.machine.sessions.turn_spans import TurnSpans
from outrider.tracing import OFF, Tracing

_READ_TIMEOUT: Final = 5.0
"""Seconds that the chat of an agent that ends may take to be read."""

_STOP_TIMEOUT: Final = 5.0
"""Seconds that an act has to end when the session is closed."""

ResultT = TypeVar("ResultT", bound=Result)

_log = structlog.get_logger(__name__)


class AgentSession:
    """One running agent, or an IDE with several.

    Longer than other classes, for one idea: it is the only place where the core of a session, its
    adapter and its callers meet.

    Args:
        record: what the journal has of it.
        adapter: the running agent.
        daemon_id: this machine, for target ids.
        on_gone: called when the agent has ended by itself, with the reason; perhaps repeatedly.
        on_change: called after anything that `state` shows has changed.
        emit, deltas: see `EventEmitter`.
        tracing: begins the spans of turns.

    Attributes:
        events: emits the events of the session.
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
        on_gone: Callable[["AgentSession", EndReason], object],
        deltas: DeltaSink | None = None,
        tracing: Tracing = OFF,
    ) -> None:
        self.record = record
        self.adapter = adapter
        self._daemon_id = daemon_id
        self._journal = journal
        self._clock = clock
        self._on_gone = on_gone
        self._core = AgentCore(
            record,
            {kind: agent.name for kind, agent in adapter.agents.items()},
            queue=journal.queue(record.id),
            answer_timeout=adapter.answer_timeout,
            now=clock(),
        )
        self.events = EventEmitter(
            record,
            adapter,
            self._core,
            daemon_id=daemon_id,
            journal=journal,
            clock=clock,
            describe=self.describe,
            emit=emit,
            deltas=deltas,
        )
        self._turn_spans = TurnSpans(tracing, record.id, record.type)
        self._requests: dict[int, asyncio.Future[Result | None]] = {}
        self._last_request = 0
        self._act_task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._executors: dict[type[protocol.CoreCommand], Callable[[Any], object]] = {
            protocol.Prepare: self._start_act,
            protocol.Deliver: self._start_act,
            protocol.Choose: self._start_act,
            protocol.ChangeControls: self._start_act,
            protocol.InterruptAgent: self._start_act,
            protocol.SetTimer: self._set_timer,
            protocol.Enqueue: self._enqueue,
            protocol.Dequeue: lambda command: journal.dequeue(command.message_id),
            protocol.Save: lambda _: journal.save_session(record),
            protocol.Emit: self.events.emit,
            protocol.Publish: lambda _: on_change(self),
            protocol.Reply: self._reply,
            protocol.Refuse: self._refuse,
            protocol.Postpone: self._log_postponed,
        }

    def start(self) -> None:
        """Start to follow the agent."""
        self.adapter.observe_chats(self.events.chat_changed)
        self.adapter.observe(self._on_observation)

    # What it shows

    @property
    def status(self) -> str:
        """What the agent is doing now."""
        return self._core.agents.observation.status

    @property
    def target_id(self) -> str:
        """The id that names exactly this session."""
        return f"{self._daemon_id}:session:{self.record.id}"

    def describe(self) -> Session:
        """Return the session as the API shows it."""
        seen, record = self._core.agents.observation, self.record
        return Session(
            id=record.id,
            target_id=self.target_id,
            kind=record.kind,
            type=record.type,
            name=record.name,
            status=seen.status,
            title=seen.title,
            workspace=self.record.workspace,
            model=seen.model or record.model,
            created_at=record.created_at,
            last_activity_at=record.last_activity_at,
            pending_action=seen.pending,
            error=seen.error,
            cdp_connected=seen.cdp_connected,
            agents=self._core.agents.listed(),
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
            status=self._core.agents.observation.status,
        )

    def state(self, agent_type: str | None = None) -> AgentState:
        """Return what the agent is doing. Raises ApiError: 404, it has no such agent."""
        agent = self._core.agents.find(agent_type)
        seen = self._core.agents.observation_of(agent)
        return AgentState(
            id=self.target_id,
            session_id=self.record.id,
            agent_type=agent,
            status=seen.status,
            title=seen.title,
            summary_metadata=SummaryMetadata(items=list(seen.summary)),
            controls=list(seen.controls),
            workspace=self.record.workspace,
            pending_action=seen.pending,
            error=seen.error,
            updated_at=self._core.agents.updated_at,
        )

    async def read(self, query: ReadChat) -> Chat:
        """Return the chat, with the messages that `select_messages` selects.

        Raises:
            ApiError: 400, the chat has no message with the id `after` or `before`; 404, no such
                agent.
        """
        agent = self._core.agents.find(query.agent_type)
        messages = list(await self.adapter.agents[agent].messages())
        seen = self._core.agents.observation_of(agent)
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
        agent = self._core.agents.find(query.agent_type) if turn is None else turn.agent
        seen = self._core.agents.observation_of(agent)
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
            self.adapter.agents[self._core.agents.find(request.agent_type)].check(message)
        message_id = new_id("msg")
        self._turn_spans.submitted(message_id)
        submit = partial(
            protocol.SubmitRequest,
            message_id=message_id,
            message=message,
            agent=request.agent_type,
            controls=request.controls,
            delivery=request.delivery,
        )
        return await self._request(Accepted, submit)

    async def resolve(self, request: ResolveAction, by: Respondent | None = None) -> Resolved:
        """Answer the pending action, once, whoever else tries at the same time.

        Args:
            by: who answers; None if the service does not say it.

        Raises:
            ApiError: 409, nothing is pending (`NO_PENDING_ACTION`), or the action has been
                answered; 400, the action has no such option.
        """
        return await self._request(Resolved, partial(protocol.AnswerRequest, answer=request, by=by))

    async def interrupt(self, request: Interrupt) -> Interrupted:
        """Stop the current turn; when this returns, the agent is not generating.

        Raises:
            ApiError: 400, the agent cannot be interrupted; 409, there is no turn
                (`NOT_GENERATING`); 500, it did not react.
        """
        return await self._request(
            Interrupted, partial(protocol.InterruptRequest, agent=request.agent_type)
        )

    async def withdraw(self, request: Withdraw) -> Withdrawn:
        """Take a message out of the queue.

        Raises:
            ApiError: 409, it was sent (`ALREADY_SENT`); 404, there is no such message.
        """
        message_id = request.message_id
        try:
            withdraw = partial(protocol.WithdrawRequest, message_id=message_id)
            return await self._request(Withdrawn, withdraw)
        except ApiError as error:
            # The core forgets at a restart what was delivered; the chats of the agents do not.
            if error.status == 404 and await self._is_in_chat(message_id):
                raise already_sent(message_id) from None
            raise

    async def _is_in_chat(self, message_id: str) -> bool:
        for agent in self.adapter.agents.values():
            if any(message.id == message_id for message in await agent.messages()):
                return True
        return False

    async def _request(
        self, kind: type[ResultT], event: Callable[[int], protocol.Request]
    ) -> ResultT:
        """Have the core handle a request with a new number; return its reply."""
        self._last_request += 1
        number = self._last_request
        reply = self._requests[number] = asyncio.get_running_loop().create_future()
        try:
            self._handle(event(number))
            result = await reply
        finally:
            del self._requests[number]
        assert isinstance(result, kind)
        return result

    # Its end

    async def close(self) -> dict[str, list[Message]]:
        """End the agent; return the chats by agent type, without those that cannot be read.

        What still waits in its queue is dropped with it.
        """
        await self._stop()
        # The page of an IDE can be read only now, the last lines of a transcript only later.
        chats = await self._read_chats()
        for agent in self.adapter.agents:
            self.events.emit_messages(agent, is_turn_over=True)
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

    async def finish_act(self) -> None:
        """Wait for an act on an agent that is gone to fail, so that its caller gets the reason."""
        if self._act_task is not None and not self._act_task.done():
            await asyncio.wait({self._act_task}, timeout=_STOP_TIMEOUT)

    async def _stop(self) -> None:
        self._handle(protocol.Stopping())
        self._turn_spans.close()
        self.events.stop()
        if self._act_task is not None:
            self._act_task.cancel()
            await self.finish_act()

    # Events of the core

    def _on_observation(self, agent: str, observation: Observation) -> None:
        self.events.texts_changed(agent)
        # The messages of a turn are emitted before its end.
        self.events.emit_messages(agent, is_turn_over=observation.status in {"idle", "error"})
        self._handle(protocol.Observed(agent, observation))
        if observation.gone:
            self._on_gone(self, observation.end_reason)

    def _handle(self, event: protocol.CoreEvent) -> None:
        was_interrupting = self._core.is_interrupting  # this event may complete it
        for command in self._core.handle(event, self._clock()):
            self._executors[type(command)](command)
        self._turn_spans.end_finished(self._core.turn)
        self.events.state_changed(is_interrupted=was_interrupting or self._core.is_interrupting)

    # Commands of the core

    def _start_act(self, command: protocol.Prepare | protocol.Act) -> None:
        # The core waits for the outcome of an act before the next one: one task at a time.
        name = f"{type(command).__name__} {self.record.id}"
        self._act_task = asyncio.create_task(self._act(command), name=name)

    async def _act(self, command: protocol.Prepare | protocol.Act) -> None:
        """Have the adapter execute a command, and pass its outcome to the core."""
        if isinstance(command, protocol.Choose):
            # Saved before the act: if the daemon is killed now, the agent may continue.
            self.record.answer = Answer(
                action=command.verdict,
                option_id=command.option.id,
                by=command.by or Respondent(kind="user"),
            )
            self._journal.save_session(self.record)
        try:
            try:
                event = await self._call_adapter(command)
            except ApiError as error:
                event = protocol.Failed(error)
            if isinstance(command, protocol.Choose) and event != protocol.Done():
                self.record.answer = None  # the agent has not been given it
            self._handle(event)
        except Exception:  # noqa: BLE001  # the callers that wait must get a reply
            _log.exception("act failed", session=self.record.id, act=type(command).__name__)
            broken = ApiError(500, "The machine agent failed: its log on the machine tells why")
            self._handle(protocol.Failed(broken))

    async def _call_adapter(self, command: protocol.Prepare | protocol.Act) -> protocol.CoreEvent:
        agents = self.adapter.agents
        match command:
            case protocol.Prepare(agent, for_message):
                await agents[agent].ready()
                if for_message:
                    await agents[agent].show()
                return protocol.Ready()
            case protocol.Deliver(agent, message_id, message):
                with self._turn_spans.delivery(message_id):
                    await agents[agent].deliver(message_id, message)
            case protocol.Choose(agent, action, option):
                return protocol.Done(offered=await agents[agent].choose(action, option))
            case protocol.ChangeControls(agent, controls):
                await agents[agent].change(controls)
            case protocol.InterruptAgent(agent):
                await agents[agent].interrupt()
        return protocol.Done()

    def _set_timer(self, command: protocol.SetTimer) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if command.seconds is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(command.seconds, self._handle, protocol.Tick())

    def _enqueue(self, command: protocol.Enqueue) -> None:
        self._journal.enqueue(
            self.record.id, command.message_id, command.message, is_first=command.is_first
        )

    def _reply(self, command: protocol.Reply) -> None:
        # Its caller may have been cancelled; the act goes on, as for every change.
        if (reply := self._requests.get(command.request)) is not None and not reply.done():
            reply.set_result(command.result)

    def _refuse(self, command: protocol.Refuse) -> None:
        if (reply := self._requests.get(command.request)) is not None and not reply.done():
            reply.set_exception(command.error)

    def _log_postponed(self, command: protocol.Postpone) -> None:
        _log.warning(
            "queued message not delivered",
            session=self.record.id,
            message=command.message_id,
            error=command.error.message,
        )
