"""One agent over the Agent Client Protocol: nothing is guessed, every wait has a bound.

The status follows from what is open: a question, a turn, a failure.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from acp.schema import PromptResponse

from outrider.contract.commands import ChatInput
from outrider.contract.errors import ApiError
from outrider.contract.resources import ActionOption, AgentStatus, Message, PendingAction
from outrider.daemon.agents.acp.changing import change
from outrider.daemon.agents.acp.chat import Chat
from outrider.daemon.agents.acp.client import Client
from outrider.daemon.agents.acp.controls import Controls, Value, summary
from outrider.daemon.agents.acp.files import Files
from outrider.daemon.agents.acp.lifetime import Lifetime
from outrider.daemon.agents.acp.opening import Login
from outrider.daemon.agents.acp.prompt import prompt_of
from outrider.daemon.agents.acp.provider_file import AcpFile
from outrider.daemon.agents.acp.questions import Questions
from outrider.daemon.agents.acp.terminals import Terminals
from outrider.daemon.agents.acp.turn import Turn
from outrider.daemon.agents.acp.updates import Updates
from outrider.daemon.agents.adapter import NoteRefusal, Observation, Observer
from outrider.daemon.agents.transcript import Transcript
from outrider.daemon.session_record import SessionRecord

CANCEL_TIMEOUT: Final = 1.0
"""Seconds that an agent has to end its turn before it is ended with it."""

ANSWER_TIMEOUT: Final = 5.0
"""Seconds within which a question that was answered must be gone; it is at once."""


class AcpAdapter:
    """A running agent, or one that is gone and whose chat remains."""

    answer_timeout = ANSWER_TIMEOUT
    camera = None

    def __init__(
        self,
        file: AcpFile,
        record: SessionRecord,
        transcript: Transcript,
        environment: Mapping[str, str],
        *,
        note_refusal: NoteRefusal,
    ) -> None:
        self._file = file
        self._record = record
        self.name = record.name
        self.agents = {record.type: self}
        self._transcript = transcript
        terminals = Terminals(record.path, environment)
        self._questions = Questions(self._tell)
        self._chat = Chat(transcript, file.notices_pattern(), terminals.text)
        self._client = Client(
            Files(record.path),
            terminals,
            self._questions,
            self._question,
            partial(note_refusal, record.id),
        )
        self._controls = Controls()
        self._updates = Updates(
            self._chat,
            self._controls,
            session=lambda: self._life.session,
            works=self._take,
            changed=self._tell,
        )
        self._login = Login(file, environment)
        self._life = Lifetime(
            file,
            record,
            environment,
            login=self._login,
            terminals=terminals,
            client=self._client,
            on_update=self._updates.take,
            on_change=self._changed,
        )
        self._observer: Observer | None = None
        self._turn: Turn | None = None
        self._following: asyncio.Task[None] | None = None
        self._failure: str | None = None
        self._stop_reason: str | None = None

    # The interface

    def observe(self, observer: Observer) -> None:
        """Call `observer` with the present state, and after every change."""
        self._observer = observer
        self._tell()

    async def ready(self) -> None:
        """Return once the session is open."""
        await self._life.ready()

    async def show(self) -> None:
        """Do nothing: the agent always takes a message."""

    async def deliver(self, message_id: str, message: ChatInput) -> None:
        """Give the agent a message; return once it has taken it."""
        running, session = await self._life.ready()
        if message_id in self._transcript:
            return  # taken already, by the daemon that ran before this one
        blocks, text = prompt_of(message, running.agent, self._file)
        self._failure = None
        self._updates.listening = True
        self._turn = turn = Turn(message_id, text, self._chat, self._login)
        self._following = following = asyncio.create_task(
            self._follow(turn, running.peer.prompt(session, blocks)),
            name=f"turn of {self._record.id}",
        )
        self._tell()
        await turn.settled(following, running.peer.transport.drained)
        if not turn.is_taken:
            why = self._life.gone or self._failure or "The agent did not take the message"
            raise ApiError(500, why)

    async def choose(self, action: PendingAction, option: ActionOption) -> bool:
        """Give the agent the answer to its question."""
        offered = self._questions.answer(action.id, option.id)
        self._tell()
        return offered

    async def change(self, controls: Mapping[str, Value]) -> None:
        """Change controls, one after the other."""
        running, session = await self._life.ready()
        await change(self._controls, controls, running.peer, session, self._tell)

    async def messages(self) -> Sequence[Message]:
        """Return the whole chat."""
        return self._transcript.messages()

    async def close(self) -> None:
        """End the agent with all that it started, and delete its chat."""
        self._observer = None
        await self._end()
        self._transcript.delete()

    async def detach(self) -> None:
        """End the agent, which cannot outlive this daemon; its chat and its session stay."""
        self._observer = None
        await self._end()
        self._transcript.save()

    def evidence(self) -> dict[str, Any]:
        """Return what the status was judged from."""
        running = self._life.running
        return {
            **({} if running is None else running.evidence()),
            "agentSession": self._life.session,
            "opening": self._life.is_opening,
            "turn": self._turn is not None,
            "questions": len(self._questions),
            "stopReason": self._stop_reason,
            "updates": list(self._updates.recent),
            "unreadableUpdates": self._updates.unreadable,
            "refusedPaths": list(self._client.refused),
        }

    # Opening

    async def open(self, argv: Sequence[str]) -> None:
        """Start the agent with a new session.

        Raises:
            ApiError: 500, it did not get ready; 400, it has not the model that is wanted.
        """
        self._updates.listening = True
        self._controls.take_session(await self._life.open(argv))
        running, session = await self._life.ready()
        told = bool(self._file.model_args)  # its command line has told it
        for purpose, wanted, optional in (
            ("model", self._record.model, told),
            ("mode", self._file.mode, False),
        ):
            values = self._controls.choice(purpose, wanted, optional=optional)
            await change(self._controls, values, running.peer, session, self._tell)

    def reopen(self, argv: Sequence[str]) -> None:
        """Begin to open an earlier session again; what is sent meanwhile waits for it."""
        if self._record.generating_since is not None:
            self._failure = (
                "The turn was cut off when the machine agent stopped: send the message again"
            )
            self._chat.noted(self._failure)
        self._life.reopen(argv, self._controls.take_session)

    def lost(self, why: str) -> None:
        """Count as gone from the start: the session cannot be opened again."""
        self._life.gone = why

    # Turns

    async def _follow(self, turn: Turn, prompt: Awaitable[PromptResponse]) -> None:
        """Follow a turn to its end."""
        await turn.follow(prompt)
        self._failure = turn.failure
        if turn.lost is not None and not await self._life.has_ended():
            self._failure = f"{self._file.display_name} no longer listens: {turn.lost}"
        self._stop_reason = turn.how
        self._questions.cancel_all()
        self._chat.turn_ended(turn.how)
        self._turn = None
        self._tell()

    def _take(self) -> None:
        """The agent does something, so it has taken the message."""
        if self._turn is not None:
            self._turn.take()

    def _question(self, tool_call: Any) -> str:
        self._take()
        return self._chat.question(tool_call)

    # Telling

    def _changed(self) -> None:
        if self._life.gone is not None:
            self._questions.cancel_all()
        self._tell()

    def _tell(self) -> None:
        if self._observer is not None:
            self._observer(self._record.type, self._state())

    def _state(self) -> Observation:
        pending = self._questions.first
        status: AgentStatus
        if self._life.gone is not None:
            status, pending = "error", None
        elif pending is not None:
            status = "waiting_approval"
        elif self._turn is not None:
            status = "generating"
        else:
            status = "idle" if self._failure is None else "error"
        error = self._life.gone or self._failure if status == "error" else None
        return Observation(
            status=status,
            pending=pending,
            error=error,
            gone=self._life.gone is not None,
            title=self._updates.title,
            model=self._controls.value_name("model") or self._record.model,
            summary=summary(self._controls, self._updates.usage),
            controls=self._controls.shown(),
        )

    # The end

    async def _end(self) -> None:
        """End the turn, then the agent; harmless if it is gone."""
        following = self._following
        self._questions.cancel_all()
        running, session = self._life.running, self._life.session
        if self._turn and running and session and following:
            with contextlib.suppress(ConnectionError, TimeoutError):
                async with asyncio.timeout(CANCEL_TIMEOUT):
                    await running.peer.cancel(session)
                    await asyncio.wait({following})
        await self._life.end()
        if following is not None:
            await asyncio.wait({following}, timeout=CANCEL_TIMEOUT)
