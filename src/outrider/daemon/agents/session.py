"""One session: an agent behind its adapter, with what is the same for every kind.

The messages that it is given, the approval that only one caller wins, the status and the
events that follow from it. All methods run on the event loop's thread.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import replace

from outrider.contract.commands import (
    Accepted,
    AgentState,
    Chat,
    ChatInput,
    Launched,
    Picture,
    ReadChat,
    ResolveAction,
    Resolved,
    Screenshot,
    SendChat,
)
from outrider.contract.errors import ApiError, ErrorCode, bad_request, conflict, not_found
from outrider.contract.events import AgentEvent
from outrider.contract.ids import new_id
from outrider.contract.resources import (
    Session,
    SummaryMetadata,
    Workspace,
)
from outrider.daemon.agents.adapter import Adapter, Ide, Observation
from outrider.daemon.agents.approvals import to_answer
from outrider.daemon.agents.queue import MessageQueue
from outrider.daemon.agents.reading import select
from outrider.daemon.agents.turns import Turns
from outrider.daemon.journal import Journal, SessionRecord

Clock = Callable[[], int]
"""Returns the time in epoch milliseconds."""


class AgentSession:
    """One running agent.

    Args:
        record: what the journal knows of it.
        adapter: the running agent.
        daemon_id: this machine, for target ids.
        on_change: called after anything that `state` shows has changed.
        turns: told of every change of status; makes the events.
    """

    def __init__(
        self,
        record: SessionRecord,
        adapter: Adapter,
        *,
        daemon_id: str,
        journal: Journal,
        clock: Clock,
        turns: Turns,
        on_change: Callable[["AgentSession"], None],
    ) -> None:
        self.record = record
        self.adapter = adapter
        self._daemon_id = daemon_id
        self._journal = journal
        self._clock = clock
        self._turns = turns
        self._on_change = on_change
        self._seen = Observation(status="generating")
        self._followed = False
        self._answered: deque[str] = deque(maxlen=64)
        self._queue = MessageQueue(record.id, journal, give=self._submit, rests=lambda: self._rests)
        self.updated_at = clock()

    def start(self) -> None:
        """Begin to follow the agent."""
        self.adapter.observe(self._observed)

    # What it shows

    @property
    def status(self) -> str:
        """What the agent is doing now."""
        return self._seen.status

    @property
    def target_id(self) -> str:
        """The id that names exactly this session."""
        return f"{self._daemon_id}:session:{self.record.id}"

    @property
    def workspace(self) -> Workspace:
        """The directory that the agent works in."""
        path = self.record.path
        return Workspace(path=path, name=path.rstrip("/").rpartition("/")[2] or path)

    def describe(self) -> Session:
        """Return the session as the API shows it."""
        seen, record = self._seen, self.record
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
            agents=list(seen.agents),
        )

    def launched(self) -> Launched:
        """Return the answer to the launch that made this session."""
        record = self.record
        return Launched(
            id=f"{self._daemon_id}:{record.kind}:{record.type}",
            session_id=record.id,
            session_target_id=self.target_id,
            kind=record.kind,
            type=record.type,
            status=self._seen.status,
        )

    def state(self, agent_type: str | None = None) -> AgentState:
        """Return what the agent is doing and what its provider shows about it."""
        seen = self._seen_of(agent_type)
        return AgentState(
            id=self.target_id,
            session_id=self.record.id,
            agent_type=self._agent_type(agent_type),
            status=seen.status,
            title=seen.title,
            summary_metadata=SummaryMetadata(items=list(seen.summary)),
            controls=list(seen.controls),
            workspace=self.workspace,
            pending_action=seen.pending,
            error=seen.error,
            updated_at=self.updated_at,
        )

    async def read(self, query: ReadChat) -> Chat:
        """Return the chat: what follows `after`, or the last `limit` messages.

        Raises:
            ApiError: 400, the chat has no message with the id `after`.
        """
        agent = self._agent_type(query.agent_type)
        if isinstance(self.adapter, Ide):
            messages = list(await self.adapter.messages_of(agent))
        else:
            messages = list(await self.adapter.messages())
        seen = self._seen_of(query.agent_type)
        return Chat(
            id=self.target_id,
            session_id=self.record.id,
            agent_type=agent,
            title=seen.title,
            status=seen.status,
            messages=select(messages, query),
            pending_action=seen.pending,
            total_messages=len(messages),
        )

    @property
    def recent_events(self) -> list[AgentEvent]:
        """The session's last events since this daemon was started, oldest first."""
        return list(self._turns.recent)

    # What it is told

    async def send(self, request: SendChat) -> Accepted:
        """Give the agent a message, or queue it while the agent is generating.

        Controls are changed at once, before the message and whatever waits in the queue.

        Raises:
            ApiError: 400, no such control or value; 409, the agent waits for an approval, or
                the queue is full; 500, the agent is gone or did not take it.
        """
        await self._turn_to(request.agent_type)
        if request.has_message:
            self._check_can_take()
        if request.controls:
            await self.adapter.change(request.controls)
        if not request.has_message:
            return Accepted(
                message_id=None,
                session_id=self.record.id,
                status=self._seen.status,
                queued=False,
            )
        message_id, message = new_id("msg"), request.as_input()
        busy = self._seen.status == "generating" or self._queue.busy
        self._check_can_take()
        if busy:
            self._queue.add(message_id, message)
        else:
            await self._queue.pass_by(message_id, message)
        return Accepted(
            message_id=message_id,
            session_id=self.record.id,
            status=self._seen.status,
            queued=busy,
        )

    async def resolve(self, request: ResolveAction) -> Resolved:
        """Answer the pending action, once, whoever else tries at the same time.

        Raises:
            ApiError: 409, nothing is pending (`NO_PENDING_ACTION`), or the action has been
                answered; 400, the action has no such option.
        """
        await self._turn_to(request.agent_type)
        pending, option = to_answer(request, self._seen.pending, self._answered)
        before = self._seen
        self._answered.append(pending.id)  # from here on every other caller is refused
        self._set(replace(before, status="generating", pending=None, error=None))
        try:
            await self.adapter.answer(pending, option)
        except ApiError as error:
            if error.status != 409:
                self._answered.remove(pending.id)
                self._set(before)
            raise
        return Resolved(
            action=request.action,
            action_id=pending.id,
            option_id=option.id,
            status=self._seen.status,
        )

    async def screenshot(self, request: Screenshot) -> Picture:
        """Return a picture of the IDE's window.

        Raises:
            ApiError: 400, this is no IDE; 409, its window is minimised or closed.
        """
        if not isinstance(self.adapter, Ide):
            raise bad_request(
                f"Only IDEs have screenshots; {self.record.name} is not one", "target"
            )
        return await self.adapter.screenshot(request.width)

    async def close(self) -> None:
        """End the agent. What still waits in its queue is dropped with it."""
        await self._queue.stop()
        await self.adapter.close()

    async def detach(self) -> None:
        """Leave the agent running and stop following it."""
        await self._queue.stop()
        await self.adapter.detach()

    # What happens

    def _observed(self, observation: Observation) -> None:
        pending = observation.pending
        if pending is not None and pending.id in self._answered:
            return  # the screen is older than the answer
        self._set(observation)

    def _set(self, observation: Observation) -> None:
        if observation == self._seen and self._followed:
            return
        previous, self._seen = self._seen, observation
        now = self._clock()
        self.updated_at = now
        moved = observation.status != previous.status or observation.pending != previous.pending
        if moved or not self._followed:
            self._followed = True
            self.record.last_activity_at = now
            self._turns.moved(self.record, observation, now)
            self._journal.save_session(self.record)
        self._on_change(self)
        if self._rests:
            self._queue.drain()

    async def _submit(self, message_id: str, message: ChatInput) -> None:
        self._check_can_take()
        self.record.last_activity_at = self._clock()
        await self.adapter.submit(message_id, message)

    @property
    def _rests(self) -> bool:
        """Whether the agent takes a message now: it is idle, or a turn failed and it still runs."""
        return self._seen.status == "idle" or (self._seen.status == "error" and not self._seen.gone)

    def _check_can_take(self) -> None:
        seen = self._seen
        if seen.gone:
            raise ApiError(500, f"{seen.error or 'The agent has ended'}. Launch it again")
        if seen.pending is not None:
            raise conflict(
                "The agent waits for an approval: approve or reject that first",
                ErrorCode.APPROVAL_PENDING,
            )

    def _agent_type(self, wanted: str | None) -> str:
        """Return the agent that is meant: in an IDE, without a name, the one used last."""
        adapter = self.adapter
        own = wanted is None or wanted in (self.record.type, self.record.name)
        if isinstance(adapter, Ide):
            return adapter.selected if own or wanted is None else adapter.named(wanted)
        if not own:
            raise not_found(f"This session has no agent {wanted!r}, only {self.record.type!r}")
        return self.record.type

    def _seen_of(self, wanted: str | None) -> Observation:
        agent = self._agent_type(wanted)
        if isinstance(self.adapter, Ide) and agent != self.adapter.selected:
            return self.adapter.observation(agent)
        return self._seen

    async def _turn_to(self, wanted: str | None) -> None:
        """Make the agent that is meant the one that a message or an answer goes to."""
        agent = self._agent_type(wanted)
        if isinstance(self.adapter, Ide):
            await self.adapter.select(agent)
