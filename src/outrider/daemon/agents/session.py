"""One session: an agent behind its adapter, with what is the same for every kind.

The queue of messages, the approval that only one caller wins, the status and the events
that follow from it. All methods run on the event loop's thread.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import structlog

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
    ActionOption,
    Message,
    PendingAction,
    Session,
    SummaryMetadata,
    Workspace,
)
from outrider.daemon.agents.adapter import Adapter, Ide, Observation
from outrider.daemon.agents.turns import Turns
from outrider.daemon.journal import Journal, SessionRecord

MAX_QUEUED: Final = 16
"""Messages that may wait while an agent is generating."""

MAX_CHAT_BYTES: Final = 8 * 1024 * 1024
"""What one answer to read_chat holds of a chat at the most; older messages are left out."""

_log = structlog.get_logger(__name__)

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
        self._queue = deque(journal.queue(record.id))
        self._input = asyncio.Lock()
        self._draining: asyncio.Task[None] | None = None
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
            messages=_select(messages, query),
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
        busy = self._seen.status == "generating" or self._queue or self._input.locked()
        self._check_can_take()
        if busy:
            if len(self._queue) >= MAX_QUEUED:
                raise conflict(
                    f"{MAX_QUEUED} messages wait for this agent already: "
                    "wait until it has taken one, or stop it"
                )
            self._journal.enqueue(self.record.id, message_id, message)
            self._queue.append((message_id, message))
            self._drain_when_idle()
        else:
            async with self._input:
                await self._submit(message_id, message)
        return Accepted(
            message_id=message_id,
            session_id=self.record.id,
            status=self._seen.status,
            queued=bool(busy),
        )

    async def resolve(self, request: ResolveAction) -> Resolved:
        """Answer the pending action, once, whoever else tries at the same time.

        Raises:
            ApiError: 409, nothing is pending (`NO_PENDING_ACTION`), or the action has been
                answered; 400, the action has no such option.
        """
        await self._turn_to(request.agent_type)
        pending = self._seen.pending
        if request.action_id is not None and request.action_id in self._answered:
            raise conflict(f"The action {request.action_id} has been answered already")
        if pending is None:
            raise conflict(
                "The agent does not wait for an approval: nothing to approve or reject",
                ErrorCode.NO_PENDING_ACTION,
            )
        if request.action_id is not None and request.action_id != pending.id:
            raise conflict(
                f"The action {request.action_id} is not pending any more; "
                f"the agent now asks {pending.id}"
            )
        option = _choose(pending, request)
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
        await self._stop_draining()
        await self.adapter.close()

    async def detach(self) -> None:
        """Leave the agent running and stop following it."""
        await self._stop_draining()
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
        if self._rests and self._queue:
            self._drain_when_idle()

    async def _submit(self, message_id: str, message: ChatInput) -> None:
        self._check_can_take()
        self.record.last_activity_at = self._clock()
        await self.adapter.submit(message_id, message)

    @property
    def _rests(self) -> bool:
        """Whether the agent takes a message now: it is idle, or a turn failed and it still runs."""
        return self._seen.status == "idle" or (self._seen.status == "error" and not self._seen.gone)

    def _drain_when_idle(self) -> None:
        if self._draining is None or self._draining.done():
            self._draining = asyncio.create_task(self._drain(), name=f"queue {self.record.id}")

    async def _drain(self) -> None:
        """Give the agent what waits, one message for each time that it rests."""
        async with self._input:
            while self._queue and self._rests:
                message_id, message = self._queue[0]
                try:
                    await self._submit(message_id, message)
                except ApiError as error:
                    _log.warning(
                        "queued message not taken; it waits for the next idle",
                        session=self.record.id,
                        error=error.message,
                    )
                    return
                self._queue.popleft()
                self._journal.dequeue(message_id)

    async def _stop_draining(self) -> None:
        if self._draining is not None and not self._draining.done():
            self._draining.cancel()
            await asyncio.wait({self._draining}, timeout=5)

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


def _select(messages: list[Message], query: ReadChat) -> list[Message]:
    if query.after is not None:
        index = next((i for i, m in enumerate(messages) if m.id == query.after), None)
        if index is None:
            raise bad_request(f"This chat has no message {query.after!r}", "after")
        messages = messages[index + 1 :]
        return _within(messages[: query.limit] if query.limit else messages, newest=False)
    return _within(messages[-query.limit :] if query.limit else messages, newest=True)


def _within(messages: list[Message], *, newest: bool) -> list[Message]:
    """Return as many as fit into an answer, from the newest or from the oldest on."""
    room, kept = MAX_CHAT_BYTES, 0
    for message in reversed(messages) if newest else messages:
        room -= len(message.content.encode("utf-8", "surrogatepass")) + 256
        if room < 0 and kept:
            break
        kept += 1
    return messages[len(messages) - kept :] if newest else messages[:kept]


def _choose(pending: PendingAction, request: ResolveAction) -> ActionOption:
    wanted = "allow" if request.action == "approve" else "reject"
    if request.option_id is not None:
        for option in pending.options:
            if option.id == request.option_id:
                if not option.kind.startswith(wanted):
                    raise bad_request(
                        f"The option {option.id!r} ({option.label}) does not {request.action}",
                        "optionId",
                    )
                return option
        ids = ", ".join(repr(option.id) for option in pending.options)
        raise bad_request(f"The action has no option {request.option_id!r}, only {ids}", "optionId")
    for kind in (f"{wanted}_once", f"{wanted}_always"):
        for option in pending.options:
            if option.kind == kind:
                return option
    raise bad_request(f"The agent offers no way to {request.action} this", "action")
