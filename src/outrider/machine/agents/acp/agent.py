"""One agent over the Agent Client Protocol, as a session drives it.

The protocol reports everything explicitly, so no status is inferred: it follows from what is open
(an approval, a turn, a failure). Every wait has a bound, except that for the end of a turn.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from acp import RequestError
from acp.schema import PromptResponse, ToolCallUpdate

from outrider.contract.commands import ChatInput
from outrider.contract.errors import ApiError, bad_request
from outrider.contract.resources import (
    ActionOption,
    AgentStatus,
    FileDiff,
    Message,
    PendingAction,
)
from outrider.machine.agents.acp.chat import AcpChat, SessionUpdates
from outrider.machine.agents.acp.client import AgentFiles, Approvals, Client
from outrider.machine.agents.acp.connection import AgentConnection
from outrider.machine.agents.acp.content import error_text
from outrider.machine.agents.acp.controls import Controls, Value, summary
from outrider.machine.agents.acp.login import Login
from outrider.machine.agents.acp.process import AgentLifecycle
from outrider.machine.agents.acp.spec import AcpSpec, Timeouts
from outrider.machine.agents.acp.terminals import AgentTerminals
from outrider.machine.agents.acp.turn import AcpTurn, prompt_of
from outrider.machine.agents.adapter import NoteRefusal, Observation, SingleAgentAdapter
from outrider.machine.sessions.chat_log import ChatLog
from outrider.machine.sessions.record import SessionRecord

CANCEL_TIMEOUT: Final = 1.0
"""Seconds that an agent has to end its turn before its process is ended."""


class AcpAgent(SingleAgentAdapter):
    """A running agent, or an agent that has ended and whose chat can still be read."""

    def __init__(
        self,
        spec: AcpSpec,
        record: SessionRecord,
        chat_log: ChatLog,
        environment: Mapping[str, str],
        *,
        note_refusal: NoteRefusal,
        timeouts: Timeouts,
    ) -> None:
        super().__init__(record)
        self._spec = spec
        self._chat_log = chat_log
        terminals = AgentTerminals(record.path, environment)
        self._approvals = Approvals(self._notify)
        self._chat = AcpChat(
            chat_log,
            spec.notices_pattern(),
            terminals,
            on_change=partial(self._chat_changed, record.type),
        )
        self._client = Client(
            AgentFiles(record.path),
            terminals,
            self._approvals,
            self._approval,
            partial(note_refusal, record.id),
        )
        self._controls = Controls()
        self._updates = SessionUpdates(
            self._chat,
            self._controls,
            session=lambda: self._lifecycle.session,
            on_activity=self._message_accepted,
            on_change=self._notify,
        )
        self._login = Login(spec, environment)
        self._lifecycle = AgentLifecycle(
            spec,
            record,
            environment,
            login=self._login,
            terminals=terminals,
            client=self._client,
            on_update=self._updates.handle,
            on_change=self._lifecycle_changed,
            timeouts=timeouts,
        )
        self._turn: AcpTurn | None = None
        self._turn_task: asyncio.Task[None] | None = None
        self._failure: str | None = None
        self._stop_reason: str | None = None

    # The interface of a session

    async def ready(self) -> None:
        """Return once the session is open."""
        await self._lifecycle.ready()

    async def deliver(self, message_id: str, message: ChatInput) -> None:
        """Send the agent a message; return once it has accepted it."""
        running, session = await self._lifecycle.ready()
        # The chat log is written before the session marks a message as delivered.
        if message_id in self._chat_log:
            return  # an earlier daemon delivered it, and was killed before it could record that
        blocks, text = prompt_of(message, running.agent, self._spec)
        self._failure = None
        self._updates.records_chat = True
        self._turn = turn = AcpTurn(message_id, text, self._chat, self._login)
        self._turn_task = turn_task = asyncio.create_task(
            self._follow(turn, running.connection.prompt(session, blocks)),
            name=f"turn of {self._record.id}",
        )
        self._notify()
        await turn.wait_accepted(turn_task, running.connection.transport.drained)
        if not turn.is_accepted:
            reason = self._lifecycle.end_message or self._failure
            raise ApiError(500, reason or "The agent did not take the message")

    async def choose(self, action: PendingAction, option: ActionOption) -> bool:
        """Answer the approval that the agent requests."""
        offered = self._approvals.answer(action.id, option.id)
        self._notify()
        return offered

    async def interrupt(self) -> None:
        """Cancel the turn; the agent ends it by its answer to the prompt."""
        running, session = await self._lifecycle.ready()
        if self._turn is not None:
            self._turn.is_interrupted = True
        try:
            await running.connection.cancel(session)
        except ConnectionError as error:
            raise ApiError(500, f"The agent could not be interrupted: {error}") from error
        finally:
            # The protocol wants these answered as cancelled, after the notification: an agent
            # that got the answers first might take them for rejections, and go on.
            if self._turn is not None:
                self._approvals.cancel_turn()
            else:  # nothing would reset that: the next turn could not request approvals
                self._approvals.cancel_all()
                self._notify()

    async def change(self, values: Mapping[str, Value]) -> None:
        """Change controls, one after the other; observers are notified after each."""
        running, session = await self._lifecycle.ready()
        await self._change(running.connection, session, values)

    async def messages(self) -> Sequence[Message]:
        """Return the whole chat."""
        return self._chat_log.messages()

    def open_texts(self) -> Mapping[str, str]:
        """Return the texts of the messages that the agent is writing now, by message id."""
        return self._chat.open_texts()

    def completed_messages(self, start: int, *, is_turn_over: bool) -> Sequence[Message]:
        """Return the messages from index `start` on that will not change."""
        del is_turn_over  # the chat knows the end of each message
        messages = self._chat.completed_messages(start)
        if messages:
            self._chat_log.save()
        return messages

    async def close(self) -> None:
        """End the agent with every process that it started; keep its chat."""
        await self.detach()

    async def detach(self) -> None:
        """End the agent, which cannot outlive this daemon; keep its chat and its session id."""
        self._observer = self._chat_observer = None
        await self._end()
        self._chat_log.save()

    def evidence(self) -> dict[str, Any]:
        """Return what the status follows from."""
        running = self._lifecycle.running
        return {
            **({} if running is None else running.evidence()),
            "agentSession": self._lifecycle.session,
            "opening": self._lifecycle.is_reopening,
            "turn": self._turn is not None,
            "questions": len(self._approvals),
            "stopReason": self._stop_reason,
            "updates": list(self._updates.recent),
            "unreadableUpdates": self._updates.unreadable,
            "refusedPaths": list(self._client.refused),
        }

    # Opening

    async def open(self, argv: Sequence[str]) -> None:
        """Start the agent with a new session.

        Raises:
            ApiError: 500, it did not become ready; 400, it does not have the requested model.
        """
        self._updates.records_chat = True
        self._controls.load(await self._lifecycle.open(argv))
        running, session = await self._lifecycle.ready()
        in_arguments = bool(self._spec.model_args)  # the command line names the model already
        for purpose, wanted, optional in (
            ("model", self._record.model, in_arguments),
            ("mode", self._spec.mode, False),
        ):
            values = self._controls.change_to(purpose, wanted, optional=optional)
            await self._change(running.connection, session, values)

    def reopen(self, argv: Sequence[str]) -> None:
        """Begin to open an earlier session again; messages sent meanwhile wait for it.

        A turn that was under way when the earlier daemon stopped cannot be resumed: the protocol
        has no request for that. It ends as a failure that the chat and the status report.
        """
        if self._record.generating_since is not None:
            self._failure = (
                "The turn was cut off when the machine agent stopped: send the message again"
            )
            self._chat.end_earlier_turn(self._failure)
        self._lifecycle.reopen(argv, self._controls.load)

    async def resume(self, argv: Sequence[str]) -> None:
        """Open an earlier session again and return once the agent is ready.

        A session without a message is begun anew: many agents have recorded nothing of it.

        Raises:
            ApiError: 500, it cannot be opened.
        """
        if not self._chat_log.messages():
            await self.open(argv)
            return
        self._lifecycle.reopen(argv, self._controls.load)
        await self._lifecycle.ready()

    def set_ended(self, reason: str) -> None:
        """Mark the agent as ended from the start: its session cannot be opened again."""
        self._lifecycle.set_lost(reason)

    # Turns

    async def _follow(self, turn: AcpTurn, prompt: Awaitable[PromptResponse]) -> None:
        """Follow a turn to its end."""
        await turn.follow(prompt)
        self._failure = turn.failure
        if turn.connection_error is not None and not await self._lifecycle.has_ended():
            name = self._spec.display_name
            self._failure = f"{name} no longer listens: {turn.connection_error}"
        self._stop_reason = turn.outcome
        self._approvals.end_turn()
        # Some agents end a cancelled turn like any other.
        self._chat.end_turn("cancelled" if turn.is_interrupted else turn.outcome)
        self._turn = None
        self._notify()

    def _message_accepted(self) -> None:
        """Count the message as accepted: the agent does something about it."""
        if self._turn is not None:
            self._turn.accept()

    def _approval(self, tool_call: ToolCallUpdate) -> tuple[str, list[FileDiff]]:
        self._message_accepted()
        return self._chat.approval(tool_call)

    # Controls

    async def _change(
        self, connection: AgentConnection, session: str, values: Mapping[str, Value]
    ) -> None:
        for setting, value in self._controls.validate(values):
            name = setting.control.label
            try:
                answer = await connection.change(session, setting, value)
            except RequestError as error:
                raise bad_request(
                    f"The agent did not change {name} to {value!r}: {error_text(error)}",
                    f"controls.{setting.control.id}",
                ) from error
            except (ConnectionError, TimeoutError) as error:
                raise ApiError(500, f"The agent did not answer the change of {name}") from error
            # The options in the answer, if any, take precedence over the requested value.
            self._controls.set_value(setting, value)
            self._controls.load_options(answer)
            self._notify()

    # Observations

    def _lifecycle_changed(self) -> None:
        if self._lifecycle.end_message is not None:
            self._approvals.cancel_all()
        self._notify()

    def _observation(self) -> Observation:
        end_message, pending = self._lifecycle.end_message, self._approvals.first
        status: AgentStatus
        if end_message is not None:
            status, pending = "error", None
        elif pending is not None:
            status = "waiting_approval"
        elif self._turn is not None:
            status = "generating"
        else:
            status = "idle" if self._failure is None else "error"
        return Observation(
            status=status,
            pending=pending,
            error=end_message or self._failure if status == "error" else None,
            gone=end_message is not None,
            end_reason=self._lifecycle.end_reason,
            title=self._updates.title,
            model=self._controls.value_name("model") or self._record.model,
            summary=summary(self._controls, self._updates.usage),
            controls=self._controls.resources(),
        )

    # The end

    async def _end(self) -> None:
        """End the turn, then the agent; harmless if it has ended."""
        turn_task = self._turn_task
        self._approvals.cancel_all()
        running, session = self._lifecycle.running, self._lifecycle.session
        try:
            if self._turn and running and session and turn_task:
                with contextlib.suppress(ConnectionError, TimeoutError):
                    async with asyncio.timeout(CANCEL_TIMEOUT):
                        self._turn.is_interrupted = True
                        await running.connection.cancel(session)
                        await asyncio.wait({turn_task})
        finally:  # also if this is cancelled: nobody may end it later
            await self._lifecycle.end()
        if turn_task is not None:
            await asyncio.wait({turn_task}, timeout=CANCEL_TIMEOUT)
