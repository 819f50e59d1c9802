"""The acts of a session on its agents, and what follows from observations; free of I/O.

An act is an operation on an agent: `Deliver` a message, `Choose` an option, `ChangeControls`,
`InterruptAgent`. At most one is in progress; the others wait, ahead of the queue. Every act goes
through the same steps. The checks are between `Ready` and the act, so that they apply to the
agent's state at the moment of the act:

    Prepare ──▶ Ready ──▶ checks ──▶ the act ──▶ Done ──▶ its effect is observed ──▶ Reply
                 │          │           │                          │ Tick
                 └── Failed ┴───────────┴──────────────────────────┴──▶ Refuse, or Postpone
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from outrider.contract.commands import Accepted, ChatInput, Interrupted, Resolved, Withdrawn
from outrider.contract.errors import ApiError, ErrorCode, conflict
from outrider.machine.agents.adapter import Observation
from outrider.machine.sessions.core.agents import ObservedAgents
from outrider.machine.sessions.core.protocol import (
    Act,
    AnswerRequest,
    ChangeControls,
    Choose,
    CoreCommand,
    CoreEvent,
    Deliver,
    Done,
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
from outrider.machine.sessions.core.questions import Questions, question_changed
from outrider.machine.sessions.core.queue import MessageQueue
from outrider.machine.sessions.core.turn import Turn, Turns
from outrider.machine.sessions.record import SessionRecord

INTERRUPT_TIMEOUT: Final = 10.0
"""Seconds within which an interrupted agent must end its turn."""


@dataclass
class _Job:
    """An act that is waiting or in progress.

    Attributes:
        request: the request to reply to; None for a message from the queue.
        submit: the message to continue with after the controls were changed or the turn ended;
            of the delivery of a message that was not queued, that message.
        is_done: the act was executed, and its effect has not been observed yet.
    """

    act: Act
    request: int | None
    submit: SubmitRequest | None = None
    is_done: bool = False

    @property
    def message_id(self) -> str | None:
        """The message that this act delivers, or that follows it."""
        if isinstance(self.act, Deliver):
            return self.act.message_id
        return None if self.submit is None else self.submit.message_id


class AgentCore:
    """The state of one session.

    Longer than other classes, for one idea: only one act is in progress, and each kind of act
    passes through the same steps here.

    Args:
        record: the session's record; changed in place, written to the journal by `Save`.
        agents: the name of each agent by its type; the first is selected unless the record
            names another.
        queue: the queued messages from the journal, in order.
        answer_timeout: seconds within which an answered question must disappear.
        now: epoch milliseconds.

    Attributes:
        agents: the agents as they were observed, and which of them is selected.
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
        self._now = now
        self._turns = Turns(record)
        self.agents = ObservedAgents(record, agents, self._turns, now)
        self._queue = MessageQueue(queue)
        self._questions = Questions()
        self._jobs: deque[_Job] = deque()
        self._job: _Job | None = None
        self._answer_timeout = answer_timeout
        self._is_closed = False

    # State

    def queue(self) -> list[tuple[str, ChatInput]]:
        """Return the messages (id, input) that the agent has not accepted yet, in order."""
        return self._queue.entries()

    @property
    def is_interrupting(self) -> bool:
        """Whether a turn is being interrupted."""
        return self._job is not None and isinstance(self._job.act, InterruptAgent)

    @property
    def answering(self) -> str | None:
        """The id of the pending action that is being answered; None if there is none."""
        choices = (job.act for job in self._all_jobs if isinstance(job.act, Choose))
        return next((choice.action.id for choice in choices), None)

    def turn(self, message_id: str) -> Turn | None:
        """Return the turn that a message began; None if it is unknown.

        It is known from its acceptance until 64 others were delivered, or this daemon restarts;
        one in the queue is known after a restart as well. Its turn is over when the message was
        delivered and the agent is not generating, or another message was delivered since.

        Raises:
            ApiError: the message was withdrawn or dropped: it will not begin a turn.
        """
        is_in_job = any(job.message_id == message_id for job in self._all_jobs)
        if is_in_job or any(queued_id == message_id for queued_id, _ in self.queue()):
            seen = self.agents.observation
            is_blocked = seen.status == "waiting_approval" or seen.gone
            return Turn(self.agents.selected, seen.status if is_blocked else "generating")
        return self._turns.get(message_id, self.agents.observation_of)

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
            case AnswerRequest(request, answer):
                yield from self._select(answer.agent_type)
                pending = self.agents.observation.pending
                choice = self._questions.answer(self.agents.selected, pending, event)
                # The question disappears for clients at once, and comes back if the act fails.
                yield from self._update(
                    replace(self.agents.observation, status="generating", pending=None, error=None)
                )
                self._jobs.append(_Job(choice, request))
            case InterruptRequest(request, wanted):
                agent = self.agents.find(wanted)
                if not self.agents.is_at_work(agent):
                    name = self.agents.name(agent)
                    raise conflict(
                        f"{name} is not generating: there is nothing to interrupt",
                        ErrorCode.NOT_GENERATING,
                    )
                self._jobs.append(_Job(InterruptAgent(agent), request))
            case WithdrawRequest(request, message_id):
                is_in_progress = self._job is not None and self._job.message_id == message_id
                if is_in_progress or self._turns.was_delivered(message_id):
                    raise already_sent(message_id)
                yield from self._queue.withdraw(message_id)
                reason = conflict("The message was taken back from the queue")
                self._turns.cancel(message_id, reason)
                yield Reply(request, Withdrawn(message_id=message_id))

    def _observe(self, event: Observed) -> Iterator[CoreCommand]:
        if event.observation.assumed:
            return  # no event follows from what is not known, such as the start of a turn
        if self.agents.observe(event.agent, event.observation):
            self.agents.updated_at = self._now
            yield Publish()
        is_selected = event.agent == self.agents.selected
        if is_selected and not self._questions.is_answered(event.observation.pending):
            # Clients already see `generating` in place of an answered question.
            yield from self._update(event.observation)
        job = self._job
        if job is not None and job.is_done and self._has_effect(job.act):
            yield SetTimer(None)
            yield from self._complete(job)

    def _update(self, observation: Observation) -> Iterator[CoreCommand]:
        if (yield from self.agents.update(observation, self._now)):
            self._queue.is_postponed = False

    # Messages

    def _submit(self, event: SubmitRequest) -> Iterator[CoreCommand]:
        yield from self._select(event.agent)
        if event.message is not None:
            self._check_can_submit(event)
        if event.controls:
            change = ChangeControls(self.agents.selected, event.controls)
            self._jobs.append(_Job(change, event.request, submit=event))
        else:
            yield from self._accept_message(event)

    def _select(self, wanted: str | None) -> Iterator[CoreCommand]:
        """Select the agent that messages and answers go to."""
        agent = self.agents.find(wanted)
        if agent == self.agents.selected:
            return
        if self._queue or self._all_jobs or self.agents.is_at_work(self.agents.selected):
            raise conflict(
                f"{self.agents.selected_name} is at work in this IDE: wait until it is idle, or "
                "answer it, before you turn to another agent"
            )
        self.agents.selected = self.record.selected_agent = agent
        yield Save()
        yield from self._update(self.agents.observed(agent))

    def _accept_message(self, event: SubmitRequest) -> Iterator[CoreCommand]:
        """Deliver a message now, or queue it while the agent is generating."""
        if event.message is None:
            yield self._accepted(event.request, None)
            return
        self._check_can_submit(event)
        is_delivery_pending = bool(self._queue) or any(
            isinstance(job.act, Deliver) for job in self._all_jobs
        )
        if not is_delivery_pending and not self.agents.is_at_work(self.agents.selected):
            self._jobs.append(self._delivery(event, event.message))
        else:
            yield from self._accept_while_busy(event, event.message)

    def _accept_while_busy(
        self, event: SubmitRequest, message: ChatInput, *, is_first: bool = False
    ) -> Iterator[CoreCommand]:
        """Interrupt the turn for a message, refuse it, or queue it, as its `delivery` says."""
        if event.delivery == "interrupt":
            interrupt = InterruptAgent(self.agents.selected)
            self._jobs.append(_Job(interrupt, event.request, submit=event))
        elif event.delivery == "reject":
            raise conflict(
                f"{self.agents.selected_name} is generating: wait until it is idle, or "
                "interrupt it",
                ErrorCode.AGENT_BUSY,
            )
        else:
            yield from self._queue.add(event.message_id, message, is_first=is_first)
            yield self._accepted(event.request, event.message_id, queued=True)

    def _delivery(self, event: SubmitRequest, message: ChatInput) -> _Job:
        deliver = Deliver(self.agents.selected, event.message_id, message)
        return _Job(deliver, event.request, submit=event)

    def _accepted(self, request: int, message_id: str | None, *, queued: bool = False) -> Reply:
        return Reply(
            request,
            Accepted(
                message_id=message_id,
                session_id=self.record.id,
                status=self.agents.observation.status,
                queued=queued,
                cursor=message_id,
            ),
        )

    def _check_can_submit(self, event: SubmitRequest) -> None:
        if event.delivery == "interrupt":  # a question ends with the turn
            self.agents.check_runs()
        else:
            self.agents.check_can_send()

    # Acts

    @property
    def _all_jobs(self) -> list[_Job]:
        return [*([self._job] if self._job else []), *self._jobs]

    def _begin_next(self) -> Iterator[CoreCommand]:
        """Start the next act: requests first, then the oldest message of the queue."""
        if self._job is not None or self._is_closed:
            return
        if self._jobs:
            self._job = self._jobs.popleft()
        elif self._queue and self.agents.accepts_messages and not self._queue.is_postponed:
            self._job = _Job(Deliver(self.agents.selected, *self.queue()[0]), None)
        else:
            if not self.agents.observation.gone:
                yield from self._queue.set_timer()
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
                self.agents.check_can_send()
            elif not isinstance(act, InterruptAgent):
                self.agents.check_runs()
            if isinstance(act, Choose) and not self.agents.asks(act.agent, act.action):
                raise question_changed()
        except ApiError as error:
            yield from self._fail(error)
            return
        if isinstance(act, InterruptAgent) and not self.agents.is_at_work(act.agent):
            yield from self._complete(job)  # the turn has ended in the meantime
        elif isinstance(act, Deliver) and not self.agents.accepts_messages:
            yield from self._put_off(job, act.message)
        else:
            if isinstance(act, Deliver):
                self._turns.end(act, self.agents.observation.status)
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
            yield from self._fail(question_changed())
        elif self._has_effect(job.act):
            yield from self._complete(job)
        else:
            job.is_done = True
            self._queue.has_timer = False  # the effect of this act needs the timer now
            is_answer = isinstance(job.act, Choose)
            yield SetTimer(self._answer_timeout if is_answer else INTERRUPT_TIMEOUT)

    def _has_effect(self, act: Act) -> bool:
        """Return whether the effect of an executed act has been observed."""
        match act:
            case Choose():
                return not self.agents.asks(act.agent, act.action)
            case InterruptAgent(agent):
                return not self.agents.is_at_work(agent)
        return True

    def _complete(self, job: _Job) -> Iterator[CoreCommand]:
        """End an act whose effect was observed; reply, or continue with its message."""
        self._job = None
        act, submit, request = job.act, job.submit, job.request
        if isinstance(act, Deliver):
            self._turns.begin(act)
        if request is None:
            yield from self._queue.remove_oldest()
        elif isinstance(act, Deliver):
            yield self._accepted(request, act.message_id)
        elif isinstance(act, Choose):
            yield Reply(request, self._resolved(act))
        elif isinstance(act, InterruptAgent):
            if submit is not None and submit.message is not None:
                self._jobs.appendleft(self._delivery(submit, submit.message))
            else:
                yield Reply(
                    request, Interrupted(status=self.agents.observation_of(act.agent).status)
                )
        elif submit is None:
            yield Reply(request)
        else:
            try:
                yield from self._accept_message(submit)
            except ApiError as error:
                yield Refuse(request, error)

    def _resolved(self, choice: Choose) -> Resolved:
        return Resolved(
            action=choice.verdict,
            action_id=choice.action.id,
            option_id=choice.option.id,
            status=self.agents.observation.status,
        )

    def _fail(self, error: ApiError) -> Iterator[CoreCommand]:
        job, self._job = self._job, None
        if job is None:
            return
        if self.agents.observation.gone and error.status >= 500:
            error = self.agents.gone_error()
        if isinstance(job.act, Choose):
            self._questions.reopen(job.act)
            yield from self._update(self.agents.observed(job.act.agent))
        if job.request is not None:
            yield Refuse(job.request, error)
        elif isinstance(job.act, Deliver):
            yield from self._postpone(job.act.message_id, error)

    def _postpone(self, message_id: str, error: ApiError) -> Iterator[CoreCommand]:
        """Retry the oldest queued message later, or drop it if the agent will never accept it.

        Dropping it is an error, and makes room for the messages behind it.
        """
        if self._queue.postpone(error, is_gone=self.agents.observation.gone):
            yield Postpone(message_id, error)
            return
        yield from self._queue.remove_oldest()
        reason = f"A queued message was dropped: {error.message}"
        self._turns.cancel(message_id, conflict(reason))
        yield from self._update(replace(self.agents.observation, status="error", error=reason))

    def _time_out(self) -> Iterator[CoreCommand]:
        job = self._job
        if self._queue.time_out() or job is None or not job.is_done:
            return
        if isinstance(job.act, Choose):
            error = "The agent did not react to the answer: look at its screen or window"
        else:
            error = (
                f"{self.agents.name(job.act.agent)} did not react to the interruption, its turn "
                "goes on: look at its screen or window"
            )
        yield from self._fail(ApiError(500, error))

    def _close(self) -> Iterator[CoreCommand]:
        self._is_closed = True
        jobs, self._job = self._all_jobs, None
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
