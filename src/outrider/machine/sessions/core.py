"""The state machine of one session, free of I/O: it takes events and yields commands.

An IDE has several agents, one of which is selected; any other session has one. This module alone
has the rules that all kinds of agents share: the queue, who may answer a question, one act at a
time, which observations are repeated or outdated, and the events that follow from a status.

    adapter, requests, timer ─ events ─▶ AgentCore.handle ─ commands ─▶ AgentSession (session.py)

`handle` takes an event and yields commands. The caller executes each command before it requests
the next one, exhausts the iterator, and does not call `handle` while it executes a command. The
time is an argument. The `SessionRecord` and the journal's queue are all that survives a restart.

An act is an operation on an agent: `Deliver` a message, `Choose` an option, `ChangeControls`,
`InterruptAgent`. At most one is in progress; the others wait, ahead of the queue. Every act goes
through the same steps. The checks are between `Ready` and the act, so that they apply to the
agent's state at the moment of the act:

    Prepare ──▶ Ready ──▶ checks ──▶ the act ──▶ Done ──▶ its effect is observed ──▶ Reply
                 │          │           │                          │ Tick
                 └── Failed ┴───────────┴──────────────────────────┴──▶ Refuse, or Postpone

Invariants, if the daemon is killed at any moment:

- A queued message is in the journal (`Enqueue`) before its sender gets the reply, and is removed
  (`Dequeue`) only after the agent has accepted it, or after `MAX_ATTEMPTS` failed deliveries; then
  an error is emitted. If the daemon is killed in between, the message is delivered again after the
  restart under the same id, and `Agent.deliver` skips a message that the agent has accepted
  already. So it is delivered exactly once and never lost.
- The reply to a message that is not queued is sent only after the agent has accepted it. If the
  daemon is killed before that, its sender gets no reply, and the message is not sent again.
- An event is emitted before it is recorded as emitted (`Emit`, then `Save`). If the daemon is
  killed in between, the next one emits it again: at least once. After `Save` it is not repeated.
- An interrupted turn is over when the reply is sent: its agent was observed neither generating nor
  waiting. The queue is not interrupted: its oldest message is delivered after that.
- Answers are not in the journal. If the daemon is killed before the agent has received one, the
  question is pending again after the restart; after that, the agent has continued. The adapter
  derives the id of a question from its content, so that it keeps its id, and its event is not
  repeated.
"""

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from outrider.contract.commands import (
    Accepted,
    ChatInput,
    Interrupted,
    ResolveAction,
    Resolved,
    Withdrawn,
)
from outrider.contract.errors import ApiError, ErrorCode, bad_request, conflict, not_found
from outrider.contract.events import EventName
from outrider.contract.resources import ActionOption, AgentStatus, AgentSummary, PendingAction
from outrider.machine.agents.adapter import Observation
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
from outrider.machine.sessions.record import SessionRecord

MAX_QUEUED: Final = 16
"""Messages that may wait while an agent is generating."""

INTERRUPT_TIMEOUT: Final = 10.0
"""Seconds within which an interrupted agent must end its turn."""

RETRY_AFTER: Final = 30.0
"""Seconds after which a failed delivery of a queued message is retried; at once on a change."""

MAX_ATTEMPTS: Final = 5
"""Failed deliveries of a queued message, after which it is dropped with an error."""

_MAX_ANSWERED: Final = 64
"""Ids of answered actions that are kept, so that outdated observations of them are ignored."""

_MAX_TURNS: Final = 64
"""Messages whose turns are remembered. Of older ones, `turn` returns the agent's status."""


@dataclass
class _Job:
    """An act that is waiting or in progress.

    Attributes:
        request: the request to reply to; None for a message from the queue.
        submit: the message to continue with after the controls were changed or the turn ended;
            of the delivery of a message that was not queued, that message.
        done: the act was executed, and its effect has not been observed yet.
    """

    act: Act
    request: int | None
    submit: SubmitRequest | None = None
    done: bool = False

    @property
    def message_id(self) -> str | None:
        """The message that this act delivers, or that follows it."""
        if isinstance(self.act, Deliver):
            return self.act.message_id
        return None if self.submit is None else self.submit.message_id


@dataclass
class Turn:
    """The turn that a message began, or will begin.

    Attributes:
        agent: the type of the agent that the message is for.
        status: `generating` until the turn is over. A message in the queue has the status of the
            turn before it while only a person can end that: while an approval is pending, or the
            agent is gone.
        next_id: the message that began the next turn, once there is one.
    """

    agent: str
    status: AgentStatus
    next_id: str | None = None


class AgentCore:
    """The state of one session.

    Args:
        record: the session's record; changed in place, written to the journal by `Save`.
        agents: the name of each agent by its type; the first is selected unless the record
            names another.
        queue: the queued messages from the journal, in order.
        answer_timeout: seconds within which an answered question must disappear.
        now: epoch milliseconds.

    Attributes:
        selected: the type of the agent that messages and answers go to.
        observation: the state of the selected agent, as clients see it.
        updated_at: time of its last change in epoch milliseconds.
    """

    def __init__(
        self,
        record: SessionRecord,
        agents: Mapping[str, str],
        *,
        queue: Iterable[tuple[str, ChatInput]] = (),
        answer_timeout: float,
        now: int,
    ) -> None:
        self.record = record
        known = record.selected_agent
        self.selected = known if known and known in agents else next(iter(agents))
        self.observation = Observation(status="generating", assumed=True)
        self.updated_at = self._now = now
        self._agents = dict(agents)
        self._observations: dict[str, Observation] = {}
        self._is_first = True  # this daemon has observed nothing yet
        self._is_saved = True  # the events of `observation` were emitted and the record saved
        self._queue = deque(queue)
        self._retry_on_change = False  # a delivery from the queue failed: retry after a change
        self._retry_timer = False  # the current timer is for that retry
        self._attempts = 0  # failed deliveries of the oldest queued message
        self._jobs: deque[_Job] = deque()
        self._job: _Job | None = None
        self._answered_ids: deque[str] = deque(maxlen=_MAX_ANSWERED)
        self._turns: OrderedDict[str, Turn | ApiError] = OrderedDict()  # an error: never delivered
        self._current: dict[str, str] = {}  # by agent, the message delivered last
        self._answer_timeout = answer_timeout
        self._is_closed = False

    # State

    def agent(self, wanted: str | None) -> str:
        """Return the type of the agent with this type or name; for None, of the selected one.

        Raises:
            ApiError: 404, the session has no such agent.
        """
        if wanted is None or wanted in (self.record.type, self.record.name):
            return self.selected
        for kind, name in self._agents.items():
            if wanted in (kind, name):
                return kind
        known = ", ".join(repr(kind) for kind in self._agents)
        raise not_found(f"{self.record.name} has no agent {wanted!r}, only {known}")

    def observation_of(self, agent: str) -> Observation:
        """Return the state of the agent of this type."""
        if agent == self.selected:
            return self.observation
        return self._observations.get(agent, Observation(status="idle"))

    def queue(self) -> list[tuple[str, ChatInput]]:
        """Return the messages (id, input) that the agent has not accepted yet, in order."""
        return list(self._queue)

    @property
    def has_observed(self) -> bool:
        """Whether this daemon has observed the selected agent."""
        return not self._is_first

    @property
    def is_interrupting(self) -> bool:
        """Whether a turn is being interrupted."""
        return self._job is not None and isinstance(self._job.act, InterruptAgent)

    @property
    def answering(self) -> tuple[str, int] | None:
        """The pending action that is being answered and its request; None if there is none."""
        for job in [*([self._job] if self._job else []), *self._jobs]:
            if isinstance(job.act, Choose) and job.request is not None:
                return job.act.action.id, job.request
        return None

    def agents(self) -> list[AgentSummary]:
        """Return the agents that the session lists; empty for a session with a single agent."""
        return [
            AgentSummary(type=kind, name=name, status=self.observation_of(kind).status)
            for kind, name in self._agents.items()
            if self.observation_of(kind).listed
        ]

    def turn(self, message_id: str) -> Turn | None:
        """Return the turn that a message began; None if the message is not known.

        A message is known from its acceptance until 64 others were delivered, or this daemon
        restarts; one in the queue is known after a restart as well.

        Its turn is over when the message was delivered and the agent is not generating, or
        another message was delivered since (see `Agent.deliver`).

        Raises:
            ApiError: the message was withdrawn or dropped: it will not begin a turn.
        """
        jobs = [*([self._job] if self._job else []), *self._jobs]
        waiting = {job.message_id for job in jobs} | {queued_id for queued_id, _ in self._queue}
        if message_id in waiting:
            seen = self.observation
            is_blocked = seen.status == "waiting_approval" or seen.gone
            return Turn(self.selected, seen.status if is_blocked else "generating")
        known = self._turns.get(message_id)
        if known is None:
            return None
        if isinstance(known, ApiError):
            raise known
        if self._current.get(known.agent) != message_id:
            return known
        return replace(known, status=self.observation_of(known.agent).status)

    # Events

    def handle(self, event: CoreEvent, now: int) -> Iterator[CoreCommand]:
        """Process an event at `now` (epoch milliseconds); yield the commands to execute, in order.

        Errors of requests become `Refuse` commands; nothing is raised.
        """
        self._now = now
        match event:
            case Observed():
                yield from self._observe(event)
            case SubmitRequest() | AnswerRequest() | InterruptRequest() | WithdrawRequest():
                try:
                    yield from self._request(event)
                except ApiError as error:
                    yield Refuse(event.request, error)
            case Ready():
                yield from self._act_if_valid()
            case Done(offered):
                yield from self._done(offered=offered)
            case Failed(error):
                yield from self._fail(error)
            case Tick():
                yield from self._time_out()
            case Stopping():
                yield from self._close()
        yield from self._begin_next()

    def _request(self, event: Request) -> Iterator[CoreCommand]:
        if self._is_closed:
            raise _session_stopped()
        match event:
            case SubmitRequest():
                yield from self._submit(event)
            case AnswerRequest():
                yield from self._answer(event)
            case InterruptRequest():
                agent = self.agent(event.agent)
                if not self._is_at_work(agent):
                    raise conflict(
                        f"{self._agents[agent]} is not generating: there is nothing to interrupt",
                        ErrorCode.NOT_GENERATING,
                    )
                self._jobs.append(_Job(InterruptAgent(agent), event.request))
            case WithdrawRequest():
                yield from self._withdraw(event)

    # Observations

    def _observe(self, event: Observed) -> Iterator[CoreCommand]:
        if event.observation.assumed:
            return  # no event follows from what is not known, such as the start of a turn
        agent, observation, agents_before = event.agent, event.observation, self.agents()
        self._observations[agent] = observation
        if agent != self.selected:
            if self.agents() != agents_before:
                self.updated_at = self._now
                yield Publish()
        elif observation.pending is None or observation.pending.id not in self._answered_ids:
            # An observation of a question that was answered was made before the answer took
            # effect. Clients already see `generating`, so it is kept, but not published.
            yield from self._update(observation)
        job = self._job
        if job is not None and job.done and self._has_effect(job):
            yield SetTimer(None)
            yield from self._complete(job)

    def _update(self, observation: Observation) -> Iterator[CoreCommand]:
        """Set the selected agent's state; yield the events that follow from the change."""
        if observation == self.observation and self._is_saved and not self._is_first:
            return
        before, self.observation = self.observation, observation
        self.updated_at = self._now
        changed = (observation.status, observation.pending, observation.error) != (
            before.status,
            before.pending,
            before.error,
        )
        if changed or self._is_first or not self._is_saved:
            # If a command fails, as on a full disk, the next observation repeats what is missing.
            self._is_first = self._is_saved = False
            self.record.last_activity_at = self._now
            yield from self._events(observation)
            yield Save()
            self._is_saved = True
        self._retry_on_change = False
        yield Publish()

    def _events(self, observation: Observation) -> Iterator[CoreCommand]:
        """Yield the events of a status and record that they were emitted.

        A turn begins when an agent starts to generate and ends when it is idle again or fails; an
        approval in between is part of it. So each turn has one `generating_started` and one
        `generating_completed` or `error`, and each question has one `waiting_approval`.

        The record is changed after each `yield`, that is, after the event was emitted: `Save` must
        never persist an event that is not in the outbox.
        """
        record, title, pending = self.record, observation.title, observation.pending
        if observation.status != "error":
            record.emitted_error = None
        match observation.status:
            case "generating" if record.generating_since is None:
                yield Emit(EventName.GENERATING_STARTED, title)
                record.generating_since = self._now
            case "waiting_approval" if pending and pending.id != record.emitted_action:
                yield Emit(EventName.WAITING_APPROVAL, title, message=pending.message)
                record.emitted_action = pending.id
            case "error":
                error = observation.error or ""
                if record.emitted_error != error:
                    yield Emit(EventName.ERROR, title, message=observation.error)
                record.generating_since, record.emitted_error = None, error
            case "idle" if record.generating_since is not None:
                duration = max(0, self._now - record.generating_since) / 1000
                yield Emit(EventName.GENERATING_COMPLETED, title, duration=duration)
                record.generating_since = None

    @property
    def _accepts_messages(self) -> bool:
        """Whether the agent accepts a message: it is idle, or its turn failed but it is running."""
        return self.observation.status in {"idle", "error"} and not self.observation.gone

    def _is_at_work(self, agent: str) -> bool:
        """Whether a turn of this agent is in progress; a question is part of its turn."""
        return self.observation_of(agent).status in {"generating", "waiting_approval"}

    @property
    def _name(self) -> str:
        return self._agents[self.selected]

    # Messages

    def _submit(self, event: SubmitRequest) -> Iterator[CoreCommand]:
        yield from self._select(event.agent)
        if event.message is not None:
            self._check_can_submit(event)
        if event.controls:
            change = ChangeControls(self.selected, event.controls)
            self._jobs.append(_Job(change, event.request, submit=event))
        else:
            yield from self._accept_message(event)

    def _select(self, wanted: str | None) -> Iterator[CoreCommand]:
        """Select the agent that messages and answers go to."""
        agent = self.agent(wanted)
        if agent == self.selected:
            return
        if self._is_busy or self.observation.status in {"generating", "waiting_approval"}:
            raise conflict(
                f"{self._name} is at work in this IDE: wait until it is idle, or answer it, "
                "before you turn to another agent"
            )
        self.selected = self.record.selected_agent = agent
        yield Save()
        yield from self._update(self._observations.get(agent, Observation(status="idle")))

    def _accept_message(self, event: SubmitRequest) -> Iterator[CoreCommand]:
        """Deliver a message now, or queue it while the agent is generating."""
        if event.message is None:
            yield self._accepted(event.request, None)
            return
        self._check_can_submit(event)
        if not self._has_pending_delivery and not self._is_at_work(self.selected):
            self._jobs.append(self._delivery_job(event, event.message))
        else:
            yield from self._accept_while_busy(event, event.message)

    def _accept_while_busy(
        self, event: SubmitRequest, message: ChatInput, *, is_first: bool = False
    ) -> Iterator[CoreCommand]:
        """Interrupt the turn for a message, refuse it, or queue it, as its `delivery` says.

        `is_first` queues it ahead of the messages that are in the queue.
        """
        if event.delivery == "interrupt":
            interrupt = InterruptAgent(self.selected)
            self._jobs.append(_Job(interrupt, event.request, submit=event))
        elif event.delivery == "reject":
            raise self._busy_error()
        else:
            yield from self._enqueue(event, message, is_first=is_first)

    def _check_can_submit(self, event: SubmitRequest) -> None:
        if event.delivery == "interrupt":  # a question ends with the turn
            self._check_runs()
        else:
            self._check_can_send()

    def _busy_error(self) -> ApiError:
        return conflict(
            f"{self._name} is generating: wait until it is idle, or interrupt it",
            ErrorCode.AGENT_BUSY,
        )

    def _delivery_job(self, event: SubmitRequest, message: ChatInput) -> _Job:
        deliver = Deliver(self.selected, event.message_id, message)
        return _Job(deliver, event.request, submit=event)

    def _enqueue(
        self, event: SubmitRequest, message: ChatInput, *, is_first: bool
    ) -> Iterator[CoreCommand]:
        if len(self._queue) >= MAX_QUEUED:
            raise conflict(
                f"{MAX_QUEUED} messages wait for this agent already: "
                "wait until it has taken one, or stop it"
            )
        yield Enqueue(event.message_id, message, is_first=is_first)
        if is_first:
            self._queue.appendleft((event.message_id, message))
        else:
            self._queue.append((event.message_id, message))
        self._retry_on_change = False
        yield self._accepted(event.request, event.message_id, queued=True)

    def _withdraw(self, event: WithdrawRequest) -> Iterator[CoreCommand]:
        """Remove a message from the queue, unless its delivery is in progress."""
        is_in_progress = self._job is not None and self._job.message_id == event.message_id
        if is_in_progress or isinstance(self._turns.get(event.message_id), Turn):
            raise already_sent(event.message_id)
        found = next((entry for entry in self._queue if entry[0] == event.message_id), None)
        if found is None:
            raise not_found(f"No message {event.message_id!r} is in the queue")
        if found is self._queue[0]:
            self._attempts = 0
        self._queue.remove(found)
        yield Dequeue(event.message_id)
        self._remember(event.message_id, conflict("The message was taken back from the queue"))
        yield Reply(event.request, Withdrawn(message_id=event.message_id))

    def _accepted(self, request: int, message_id: str | None, *, queued: bool = False) -> Reply:
        return Reply(
            request,
            Accepted(
                message_id=message_id,
                session_id=self.record.id,
                status=self.observation.status,
                queued=queued,
                cursor=message_id,
            ),
        )

    def _check_runs(self) -> None:
        if self.observation.gone:
            raise self._gone_error()

    def _gone_error(self) -> ApiError:
        why = (self.observation.error or "The agent has ended").rstrip(".")
        return ApiError(500, f"{why}. Launch it again")

    def _check_can_send(self) -> None:
        self._check_runs()
        if self.observation.pending is not None:
            raise conflict(
                "The agent waits for an approval: approve or reject that first",
                ErrorCode.APPROVAL_PENDING,
            )

    @property
    def _is_busy(self) -> bool:
        return bool(self._queue or self._jobs or self._job)

    @property
    def _has_pending_delivery(self) -> bool:
        """Whether another message is ahead of a new one: it is queued or being delivered."""
        acts = [*self._jobs, *([self._job] if self._job else [])]
        return bool(self._queue) or any(isinstance(job.act, Deliver) for job in acts)

    # Answers

    def _answer(self, event: AnswerRequest) -> Iterator[CoreCommand]:
        yield from self._select(event.answer.agent_type)
        pending, option = self._find_answer(event.answer)
        # From here on other answers are refused. The question disappears for clients at once, and
        # comes back if the act fails (`_fail`).
        self._answered_ids.append(pending.id)
        yield from self._update(
            replace(self.observation, status="generating", pending=None, error=None)
        )
        self._jobs.append(_Job(Choose(self.selected, pending, option), event.request))

    def _find_answer(self, answer: ResolveAction) -> tuple[PendingAction, ActionOption]:
        """Return the pending action of an answer, and the chosen option."""
        wanted, pending = answer.action_id, self.observation.pending
        if wanted is not None and wanted in self._answered_ids:
            raise conflict(f"The action {wanted} has been answered already")
        if pending is None:
            raise conflict(
                "The agent does not wait for an approval: nothing to approve or reject",
                ErrorCode.NO_PENDING_ACTION,
            )
        if wanted is not None and wanted != pending.id:
            raise conflict(
                f"The action {wanted} is not pending any more; the agent now asks {pending.id}"
            )
        return pending, _choose_option(pending, answer)

    # Acts

    def _begin_next(self) -> Iterator[CoreCommand]:
        """Start the next act: requests first, then the oldest message of the queue."""
        if self._job is not None or self._is_closed:
            return
        if self._jobs:
            self._job = self._jobs.popleft()
        elif self._queue and self._accepts_messages and not self._retry_on_change:
            self._job = _Job(Deliver(self.selected, *self._queue[0]), None)
        else:
            if self._retry_on_change and not self._retry_timer and not self.observation.gone:
                self._retry_timer = True
                yield SetTimer(RETRY_AFTER)
            return
        act = self._job.act
        yield Prepare(act.agent, for_message=isinstance(act, Deliver))

    def _act_if_valid(self) -> Iterator[CoreCommand]:
        """Yield the act if it is still valid; the agent has just been observed again."""
        job = self._job
        if job is None:
            return
        act = job.act
        try:
            if isinstance(act, Deliver):
                self._check_can_send()
            elif not isinstance(act, InterruptAgent):
                self._check_runs()
            if isinstance(act, Choose) and not self._is_pending(act):
                raise _question_changed()
        except ApiError as error:
            yield from self._fail(error)
            return
        if isinstance(act, InterruptAgent) and not self._is_at_work(act.agent):
            yield from self._complete(job)  # the turn has ended in the meantime
        elif isinstance(act, Deliver) and not self._accepts_messages:
            yield from self._put_off(job, act.message)
        else:
            if isinstance(act, Deliver):
                self._end_turn(act)
            yield act

    def _put_off(self, job: _Job, message: ChatInput) -> Iterator[CoreCommand]:
        """Treat a message as one that came during a turn: a person has just started one."""
        self._job = None
        if job.submit is None:
            return  # it stays at the head of the queue
        try:
            # What is in the queue came later, while this message was in preparation.
            yield from self._accept_while_busy(job.submit, message, is_first=True)
        except ApiError as error:
            yield Refuse(job.submit.request, error)

    def _done(self, *, offered: bool) -> Iterator[CoreCommand]:
        job = self._job
        if job is None:
            return
        if not offered:
            yield from self._fail(_question_changed())
        elif self._has_effect(job):
            yield from self._complete(job)
        else:
            job.done = True
            is_answer = isinstance(job.act, Choose)
            self._retry_timer = False
            yield SetTimer(self._answer_timeout if is_answer else INTERRUPT_TIMEOUT)

    def _has_effect(self, job: _Job) -> bool:
        """Return whether the effect of an executed act has been observed."""
        match job.act:
            case Choose() as choice:
                return not self._is_pending(choice)
            case InterruptAgent():
                return not self._is_at_work(job.act.agent)
        return True

    def _is_pending(self, choice: Choose) -> bool:
        observation = self._observations.get(choice.agent)
        pending = None if observation is None else observation.pending
        return pending is not None and pending.id == choice.action.id

    def _complete(self, job: _Job) -> Iterator[CoreCommand]:
        """End an act whose effect was observed; reply, or continue with its message."""
        self._job = None
        act, submit, request = job.act, job.submit, job.request
        if isinstance(act, Deliver):
            self._current[act.agent] = act.message_id
            self._remember(act.message_id, Turn(act.agent, "generating"))
        if request is None:
            message_id, _ = self._queue.popleft()
            self._attempts = 0
            yield Dequeue(message_id)
        elif isinstance(act, Deliver):
            yield self._accepted(request, act.message_id)
        elif isinstance(act, Choose):
            yield Reply(request, self._resolved(act))
        elif isinstance(act, InterruptAgent):
            if submit is not None and submit.message is not None:
                self._jobs.appendleft(self._delivery_job(submit, submit.message))
            else:
                yield Reply(request, Interrupted(status=self.observation_of(act.agent).status))
        elif submit is None:
            yield Reply(request)
        else:
            try:
                yield from self._accept_message(submit)
            except ApiError as error:
                yield Refuse(request, error)

    def _end_turn(self, delivery: Deliver) -> None:
        """Record how the turn before a delivery ended: the agent is idle, or its turn failed."""
        turn = self._turns.get(self._current.get(delivery.agent, ""))
        if isinstance(turn, Turn):
            turn.status = "error" if self.observation.status == "error" else "idle"
            turn.next_id = delivery.message_id

    def _remember(self, message_id: str, turn: Turn | ApiError) -> None:
        self._turns[message_id] = turn
        if len(self._turns) > _MAX_TURNS:
            self._turns.popitem(last=False)

    def _resolved(self, choice: Choose) -> Resolved:
        return Resolved(
            action="approve" if choice.option.kind.startswith("allow") else "reject",
            action_id=choice.action.id,
            option_id=choice.option.id,
            status=self.observation.status,
        )

    def _fail(self, error: ApiError) -> Iterator[CoreCommand]:
        job, self._job = self._job, None
        if job is None:
            return
        if self.observation.gone and error.status >= 500:
            error = self._gone_error()
        if isinstance(job.act, Choose):  # undo `_answer`: the question can be answered again
            self._answered_ids.remove(job.act.action.id)
            yield from self._update(self._observations[job.act.agent])
        if job.request is not None:
            yield Refuse(job.request, error)
        elif isinstance(job.act, Deliver):
            yield from self._postpone(job.act.message_id, error)

    def _postpone(self, message_id: str, error: ApiError) -> Iterator[CoreCommand]:
        """Retry the oldest queued message later, or drop it if the agent will never accept it.

        Dropping it is an error, and makes room for the messages behind it. A conflict (409) or an
        agent that is gone does not count as an attempt.
        """
        if error.status != 409 and not self.observation.gone:
            self._attempts += 1
        if self._attempts < MAX_ATTEMPTS and (error.status == 409 or error.status >= 500):
            self._retry_on_change = True
            yield Postpone(message_id, error)
            return
        self._attempts = 0
        self._queue.popleft()
        yield Dequeue(message_id)
        dropped = f"A queued message was dropped: {error.message}"
        self._remember(message_id, conflict(dropped))
        yield from self._update(replace(self.observation, status="error", error=dropped))

    def _time_out(self) -> Iterator[CoreCommand]:
        if self._retry_timer:
            self._retry_timer = self._retry_on_change = False
            return
        job = self._job
        if job is None or not job.done:
            return
        if isinstance(job.act, Choose):
            error = "The agent did not react to the answer: look at its screen or window"
        else:
            error = (
                f"{self._agents[job.act.agent]} did not react to the interruption, its turn goes "
                "on: look at its screen or window"
            )
        yield from self._fail(ApiError(500, error))

    def _close(self) -> Iterator[CoreCommand]:
        self._is_closed = True
        jobs = [*([self._job] if self._job else []), *self._jobs]
        self._job = None
        self._jobs.clear()
        yield SetTimer(None)
        for job in jobs:
            if job.request is not None:
                yield Refuse(job.request, _session_stopped())


def already_sent(message_id: str) -> ApiError:
    """Return the error for a message that cannot be withdrawn any more."""
    return conflict(
        f"The message {message_id} was sent to the agent already", ErrorCode.ALREADY_SENT
    )


def _session_stopped() -> ApiError:
    return ApiError(500, "The session was stopped")


def _question_changed() -> ApiError:
    return conflict("The agent no longer asks this question")


def _choose_option(pending: PendingAction, answer: ResolveAction) -> ActionOption:
    """Return the option that an answer names; without one, `…_once` before `…_always`."""
    wanted = "allow" if answer.action == "approve" else "reject"
    if answer.option_id is not None:
        for option in pending.options:
            if option.id == answer.option_id:
                if not option.kind.startswith(wanted):
                    raise bad_request(
                        f"The option {option.id!r} ({option.label}) does not {answer.action}",
                        "optionId",
                    )
                return option
        ids = ", ".join(repr(option.id) for option in pending.options)
        raise bad_request(f"The action has no option {answer.option_id!r}, only {ids}", "optionId")
    for kind in (f"{wanted}_once", f"{wanted}_always"):
        for option in pending.options:
            if option.kind == kind:
                return option
    raise bad_request(f"The agent offers no way to {answer.action} this", "action")
