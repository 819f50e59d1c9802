"""Turns of an agent: send a message, wait for the reply or stream it, answer its questions."""

import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from inspect import isawaitable
from typing import Final

from outrider.contract.commands import Accepted, DeliveryMode, Verdict
from outrider.contract.event_stream import StreamHeartbeat, StreamReady
from outrider.contract.resources import Message, PendingAction
from outrider.contract.targets import Target
from outrider.sdk.asynchronous.agent_requests import AsyncAgentRequests
from outrider.sdk.asynchronous.event_stream import frames
from outrider.sdk.errors import ApiError, ApprovalRequired, Conflict, NotFound, ResponseTimeout
from outrider.sdk.results import Delta, Event, Reply
from outrider.sdk.turn import STREAMED, StreamedTurn, Turn, answer_of, may_end_turn, wait_times

OnApproval = Callable[[PendingAction], str | Awaitable[str | None] | None] | Verdict
"""Answers an agent's questions: with `approve`, `reject` or the id of an option; with None, the
question stays open. A word in place of a function answers all of them."""

DEFAULT_TIMEOUT: Final = 600.0
"""Seconds that a turn may take, unless the caller says otherwise."""

_SETTLE_SECONDS: Final = 5


class AsyncAgent(AsyncAgentRequests):
    """An agent of a machine, by its target id. Making one sends no request.

    `ask`, `reply` and `stream` take a whole turn; the methods that it inherits send one request
    each. As a context manager it stops the session at the end.

    Attributes:
        id: the target id. `<machine>:session:<session>` names one session exactly,
            `<machine>:cli:<type>` the one of that type which was used last.
        type: the agent's type, if it is known.
        agent_type: which agent of an IDE with several; without it, the one used last.
        launched: the response of the launch, if this is what `launch` returned.
    """

    async def ask(
        self,
        text: str,
        *,
        timeout: float = DEFAULT_TIMEOUT,
        delivery: DeliveryMode = "queue",
        on_approval: OnApproval | None = None,
    ) -> Reply:
        """Send a message and wait for the reply.

        Args:
            timeout: seconds, including those in the agent's queue and in `on_approval`.
            delivery: see `send`.
            on_approval: answers what the agent asks meanwhile. It is called with the question, a
                `PendingAction`, and returns `"approve"`, `"reject"` or the id of an option, or
                None to leave the question open. `"approve"` or `"reject"` in its place answers
                every question so.

        Raises:
            ApprovalRequired: the agent asks a question that `on_approval` does not answer; answer
                it and call `reply(error.cursor)`.
            AskTimeout: the turn was not over in time; it goes on.
            MachineOffline: the machine went offline.
            SessionEnded: the session was stopped, or the agent ended.
        """
        deadline = time.monotonic() + timeout
        accepted = await self.send(text, delivery=delivery)
        # A target by type may name a session that is started meanwhile: wait for this one alone.
        exact = self._exactly(accepted.session_id)
        return await exact._reply(accepted.cursor, deadline, timeout, on_approval)

    async def reply(
        self,
        cursor: str | None = None,
        *,
        timeout: float = DEFAULT_TIMEOUT,
        on_approval: OnApproval | None = None,
    ) -> Reply:
        """Wait for the reply to a message that was sent.

        Args:
            cursor: the `cursor` of `send`, of an `ApprovalRequired` or of an `AskTimeout`. Without
                it, the present turn.
            timeout: seconds.
            on_approval: see `ask`.

        Raises:
            OutriderError: as `ask`.
        """
        return await self._reply(cursor, time.monotonic() + timeout, timeout, on_approval)

    async def stream(
        self,
        text: str,
        *,
        timeout: float = DEFAULT_TIMEOUT,
        delivery: DeliveryMode = "queue",
        on_approval: OnApproval | None = None,
    ) -> AsyncGenerator[Delta | Message, None]:
        """Send a message and yield the reply as it comes, until the turn is over.

        Yields `Delta` while the agent writes, and each `Message` when it is complete. The deltas of
        a text, applied in their order, give exactly the message that follows; an agent that has no
        deltas gets one for the whole text. The message is sent when the iteration begins.

        Args:
            timeout: seconds for the whole turn, checked at least every 10 seconds; while the
                connection is lost, after each attempt to connect again.
            delivery: see `send`.
            on_approval: see `ask`.

        Raises:
            OutriderError: as `ask`, after what was said until then.
        """
        deadline = time.monotonic() + timeout
        exact = self if self.session_id is not None else self._at((await self.status()).id)
        query = {"events": ",".join(STREAMED), "target": exact.id, "deltas": "true"}
        accepted: Accepted | None = None
        turn, streamed = Turn(None), StreamedTurn(None)
        # The order: open the stream, send the message at its first frame, read on. Sent earlier,
        # the message would lose its first deltas.
        events = frames(self._transport, query, deadline=deadline)
        async with aclosing(events) as received:
            async for frame in received:
                if accepted is None:
                    # The stream has begun, so that nothing of the reply is missed.
                    accepted = await exact.send(text, delivery=delivery)
                    turn, streamed = Turn(accepted.cursor), StreamedTurn(accepted)
                    continue
                if not isinstance(frame, StreamReady | StreamHeartbeat):
                    for part in streamed.receive(frame):
                        yield part
                left = deadline - time.monotonic()
                if may_end_turn(frame) or left <= 0:
                    # An event of its own turn: the agent is idle at once, or in a moment.
                    is_event = isinstance(frame, Event) and streamed.is_in_chat
                    seconds = min(_SETTLE_SECONDS, max(0, int(left))) if is_event else 0
                    try:
                        waited = await exact.wait(after=accepted.cursor, timeout=seconds)
                    except NotFound as error:
                        raise turn.ended() from error  # it was there when the message was sent
                    action = waited.pending_action
                    if (
                        waited.reason == "waiting_approval"
                        and action is not None
                        and await exact._answered(action, on_approval)
                    ):
                        continue
                    if waited.reason != "timeout":
                        for part in streamed.rest(waited.messages, exact.id):
                            yield part
                        turn.receive(waited)
                        return
                    if left <= 0:
                        break
        raise turn.timed_out(timeout)

    async def _reply(
        self, cursor: str | None, deadline: float, timeout: float, on_approval: OnApproval | None
    ) -> Reply:
        turn = Turn(cursor)
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                raise turn.timed_out(timeout)
            times = wait_times(left)
            try:
                waited = await self._wait(turn.cursor, None, times.service, times.client)
            # Within the last second the client ends the request itself, and the turn has timed
            # out; before that the service has not answered a wait that it should have.
            except ResponseTimeout:
                if times.client < left:
                    raise
                continue
            except NotFound as error:
                if cursor is None:
                    raise
                raise turn.ended() from error  # it was there when the message was sent
            try:
                reply = turn.receive(waited)
            except ApprovalRequired as question:
                if question.action is None or not await self._answered(
                    question.action, on_approval
                ):
                    raise
                continue
            if reply is None:
                continue
            if reply.status == "error":
                reply = turn.failed(reply, await self._error())
            return reply

    async def _answered(self, action: PendingAction, on_approval: OnApproval | None) -> bool:
        """Have a question answered; return False if it stays open."""
        answer = on_approval(action) if callable(on_approval) else on_approval
        if isawaitable(answer):  # asynchronous only
            answer = await answer  # asynchronous only
        if answer is None:
            return False
        verdict, option_id = answer_of(action, answer)
        try:
            await self._answer(verdict, action.id, option_id)
        except Conflict:
            pending = (await self.status()).pending_action
            if pending is not None and pending.id == action.id:
                raise
            # Somebody else was faster: the turn goes on.
        return True

    async def _error(self) -> str | None:
        """Return why the agent is in error, as far as it says it."""
        try:
            return (await self.status()).error
        except ApiError:  # it has ended meanwhile
            return None

    def _exactly(self, session_id: str) -> "AsyncAgent":
        """Return this session: a target by type may name another one by now."""
        return self._at(str(Target(self.machine_id, "session", session_id)))

    def _at(self, target_id: str) -> "AsyncAgent":
        return type(self)(self._transport, target_id, type=self.type, agent_type=self.agent_type)
