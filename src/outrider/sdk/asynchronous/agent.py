"""One agent: talk to it, wait for it, answer it, see what it did."""

import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from inspect import isawaitable
from types import TracebackType
from typing import Any, Final, Self

from outrider.contract.commands import (
    Accepted,
    AgentState,
    Changes,
    Chat,
    ChatDebugged,
    ChatInput,
    DeliveryMode,
    Directory,
    FileContents,
    Interrupted,
    Launched,
    QueuedMessage,
    Resolved,
    Screen,
    Stopped,
    TurnEnd,
    Verdict,
    Withdrawn,
    WorktreeRemoved,
)
from outrider.contract.errors import OutriderError
from outrider.contract.event_stream import StreamHeartbeat, StreamReady
from outrider.contract.resources import Message, PendingAction
from outrider.contract.targets import Target, parse_target
from outrider.contract.waiting import Waited
from outrider.sdk import operations
from outrider.sdk.asynchronous.event_stream import frames
from outrider.sdk.asynchronous.transport import AsyncTransport
from outrider.sdk.decoding import directory_or_file
from outrider.sdk.errors import ApiError, ApprovalRequired, Conflict, NotFound, ResponseTimeout
from outrider.sdk.results import Delta, Event, Reply
from outrider.sdk.turn import STREAMED, StreamedTurn, Turn, answer_of, may_end_turn, wait_times

OnApproval = Callable[[PendingAction], str | Awaitable[str | None] | None] | Verdict
"""Answers an agent's questions: with `approve`, `reject` or the id of an option; with None, the
question stays open. A word in place of a function answers all of them."""

DEFAULT_TIMEOUT: Final = 600.0
"""Seconds that a turn may take, unless the caller says otherwise."""

_SETTLE_SECONDS: Final = 5


class AsyncAgent:
    """An agent of a machine, by its target id. Making one sends no request.

    As a context manager it stops the session at the end.

    Attributes:
        id: the target id. `<machine>:session:<session>` names one session exactly,
            `<machine>:cli:<type>` the one of that type which was used last.
        type: the agent's type, if it is known.
        agent_type: which agent of an IDE with several; without it, the one used last.
        launched: the response of the launch, if this is what `launch` returned.
    """

    def __init__(
        self,
        transport: AsyncTransport,
        target_id: str,
        *,
        type: str | None = None,  # noqa: A002  # the API's name
        agent_type: str | None = None,
        launched: Launched | None = None,
    ) -> None:
        self._transport = transport
        self.id = target_id
        self.type = type
        self.agent_type = agent_type
        self.launched = launched

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            await self.stop()
        except OutriderError:
            if error is None:  # otherwise it would hide what went wrong first
                raise

    @property
    def machine_id(self) -> str:
        """The id of the agent's machine."""
        return self.id.partition(":")[0]

    @property
    def session_id(self) -> str | None:
        """The session's id; None if the target id names a type."""
        target = parse_target(self.id)
        return target.name if target is not None and target.kind == "session" else None

    async def send(
        self,
        text: str | None = None,
        *,
        input: ChatInput | None = None,  # noqa: A002  # the API's name
        controls: Mapping[str, str | bool] | None = None,
        delivery: DeliveryMode = "queue",
    ) -> Accepted:
        """Send a message, and return once the agent has it, not once it has answered.

        Args:
            text: the message.
            input: the message in parts, with pictures, in place of `text`.
            controls: settings of the agent to change first, such as its mode; a message is then
                not required.
            delivery: while the agent is generating, `queue` the message, `interrupt` the turn, or
                `reject` the message.

        Raises:
            Conflict: `AGENT_BUSY` with `reject`; `APPROVAL_PENDING`: the agent asks a question.
        """
        body = {
            "message": text,
            "input": input,
            "controls": controls,
            "delivery": delivery,
            "agentType": self.agent_type,
        }
        return await self._send(operations.SEND, body=body)

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

    async def wait(
        self,
        *,
        after: str | None = None,
        until: list[TurnEnd] | None = None,
        timeout: int = 25,
    ) -> Waited:
        """Wait once, for up to 60 seconds. `ask` and `reply` wait until the turn is over.

        Args:
            after: the cursor of a message or of an earlier wait; without it, the present state.
            until: the statuses to wait for; all of them by default.
            timeout: seconds, from 0 to 60.
        """
        return await self._wait(after, until, timeout, timeout + 15.0)

    async def chat(
        self, *, limit: int | None = None, after: str | None = None, before: str | None = None
    ) -> Chat:
        """Read the chat, also of a session that has ended.

        Args:
            limit: how many messages, 1 to 1000: the last ones, or with `after` the first ones.
            after: the id of a message: only those behind it.
            before: the id of a message: only those before it.
        """
        query = {
            "limit": limit,
            "after": after,
            "before": before,
            "agentType": self.agent_type,
        }
        return await self._send(operations.READ_CHAT, query=query)

    async def status(self) -> AgentState:
        """Read what the agent is doing."""
        return await self._send(operations.STATUS, query={"agentType": self.agent_type})

    async def approve(
        self, *, action_id: str | None = None, option_id: str | None = None
    ) -> Resolved:
        """Approve what the agent asks.

        Args:
            action_id: the question, so that no other one is answered. Without it, the open one.
            option_id: the option to choose. Without it, the first that allows it once.

        Raises:
            Conflict: `NO_PENDING_ACTION`, or it was answered elsewhere.
        """
        return await self._answer("approve", action_id, option_id)

    async def reject(
        self, *, action_id: str | None = None, option_id: str | None = None
    ) -> Resolved:
        """Reject what the agent asks; as `approve`."""
        return await self._answer("reject", action_id, option_id)

    async def interrupt(self) -> Interrupted:
        """Stop the current turn.

        Raises:
            Conflict: `NOT_GENERATING`.
        """
        return await self._send(operations.INTERRUPT, body={"agentType": self.agent_type})

    async def queue(self) -> list[QueuedMessage]:
        """Return the messages that wait for the agent, in their order."""
        return (await self._send(operations.READ_QUEUE)).messages

    async def withdraw(self, message_id: str) -> Withdrawn:
        """Take a message out of the queue.

        Raises:
            Conflict: `ALREADY_SENT`.
        """
        operation = operations.WITHDRAW
        path = operation.url(ideId=self.id, messageId=message_id)
        return await self._transport.send(operation, path)

    async def diff(self, base: str | None = None) -> Changes:
        """Return the uncommitted and untracked changes in the session's directory.

        Args:
            base: the commit, branch or tag to compare with; `HEAD` by default. `start` is the
                commit at which the session began.

        Raises:
            Conflict: `NO_REPOSITORY`, or it is not known at which commit the session began.
        """
        return await self._send(operations.READ_DIFF, query={"base": base})

    async def files(self, path: str | None = None) -> Directory | FileContents:
        """List a directory or read a file of the session.

        Args:
            path: relative to the session's directory, which it is by default.
        """
        return directory_or_file(await self._send(operations.READ_FILES, query={"path": path}))

    async def screen(self) -> Screen:
        """Return what the terminal of a CLI agent shows."""
        return await self._send(operations.READ_SCREEN)

    async def debug(self, frontend_snapshot: Mapping[str, Any] | None = None) -> ChatDebugged:
        """Return the session's debug bundle, and the same as text for an issue report.

        Args:
            frontend_snapshot: what a client shows, to be added to the bundle.
        """
        if frontend_snapshot is None:
            return await self._send(operations.READ_DEBUG, query={"agentType": self.agent_type})
        body = {"frontendSnapshot": frontend_snapshot, "agentType": self.agent_type}
        return await self._send(operations.SEND_DEBUG, body=body)

    async def stop(self, *, remove_worktree: bool = False) -> Stopped:
        """Stop the session, leaving nothing of it running.

        A session that has ended already is no error: `stopped` is empty.

        Args:
            remove_worktree: whether to remove the session's git worktree too, also if the session
                has ended already.

        Raises:
            Conflict: `WORKTREE_DIRTY`: it has changes, and nothing was done.
            NotFound: there never was such a session.
        """
        if self.type is None:
            self.type = (await self.chat(limit=1)).type
        operation = operations.STOP
        body = {
            "type": self.type,
            "target": self.id,
            "removeWorktree": remove_worktree or None,
        }
        try:
            return await self._transport.send(
                operation, operation.url(daemonId=self.machine_id), body=body
            )
        except NotFound:
            if (await self.chat(limit=1)).state != "ended":
                raise
        if remove_worktree:
            with suppress(NotFound):  # it is removed already
                await self.remove_worktree()
        return Stopped(stopped=[])

    async def remove_worktree(self) -> WorktreeRemoved:
        """Remove the session's git worktree, after the session has ended. The branch stays.

        Raises:
            NotFound: Outrider created no worktree for it, or it is gone.
            Conflict: the session runs, or `WORKTREE_DIRTY`: the worktree has changes.
        """
        return await self._send(operations.REMOVE_WORKTREE)

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

    async def _wait(
        self, after: str | None, until: list[TurnEnd] | None, seconds: int, timeout: float
    ) -> Waited:
        query = {
            "after": after,
            "until": None if until is None else ",".join(until),
            "timeout": seconds,
            "agentType": self.agent_type,
        }
        return await self._send(operations.WAIT, query=query, timeout=timeout)

    async def _answer(self, action: str, action_id: str | None, option_id: str | None) -> Resolved:
        body = {
            "action": action,
            "actionId": action_id,
            "optionId": option_id,
            "agentType": self.agent_type,
        }
        return await self._send(operations.ANSWER, body=body)

    async def _send(
        self,
        operation: operations.Operation[operations.T],
        *,
        query: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
        timeout: float | None = None,
    ) -> operations.T:
        path = operation.url(ideId=self.id)
        return await self._transport.send(operation, path, query=query, body=body, timeout=timeout)

    def _exactly(self, session_id: str) -> "AsyncAgent":
        """Return this session: a target by type may name another one by now."""
        return self._at(str(Target(self.machine_id, "session", session_id)))

    def _at(self, target_id: str) -> "AsyncAgent":
        return type(self)(self._transport, target_id, type=self.type, agent_type=self.agent_type)
