"""What an agent does in one request: take a message, show its chat and files, stop."""

from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

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
    Withdrawn,
    WorktreeRemoved,
)
from outrider.contract.errors import OutriderError
from outrider.contract.targets import parse_target
from outrider.contract.waiting import Waited
from outrider.sdk import operations
from outrider.sdk.asynchronous.transport import AsyncTransport
from outrider.sdk.decoding import directory_or_file
from outrider.sdk.errors import NotFound


class AsyncAgentRequests:
    """The methods of an agent that send one request each; `AsyncAgent` has its attributes."""

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
        return await self._send(operations.WITHDRAW, messageId=message_id)

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
        # The endpoint wants the type, which a target id of a session does not have.
        if self.type is None:
            self.type = (await self.chat(limit=1)).type
        body = {"type": self.type, "target": self.id, "removeWorktree": remove_worktree or None}
        try:
            return await self._transport.send(operations.STOP, body=body, daemonId=self.machine_id)
        # Stopped already, here or elsewhere: what was asked for is done. A chat is kept longer than
        # its session, so it tells an ended session from one that never was.
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
        **parameters: str,
    ) -> operations.T:
        return await self._transport.send(
            operation,
            query=query,
            body=body,
            timeout=timeout,
            is_login=False,
            ideId=self.id,
            **parameters,
        )
