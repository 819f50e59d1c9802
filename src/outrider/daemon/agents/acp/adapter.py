"""One agent over the Agent Client Protocol: nothing is guessed, every wait has a bound.

The status follows from what is open: a question, a turn, a failure. An agent lives as long as
this daemon and no longer, for its pipes end here; `restore` opens its session again.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Mapping, Sequence
from functools import partial
from typing import Any, Final, cast

import structlog
from acp import PROTOCOL_VERSION, RequestError
from acp.interfaces import Client as AnyClient
from acp.schema import (
    AgentMessageChunk,
    AgentPlanUpdate,
    AgentThoughtChunk,
    ConfigOptionUpdate,
    CurrentModeUpdate,
    InitializeResponse,
    SessionInfoUpdate,
    SessionNotification,
    StopReason,
    ToolCallProgress,
    ToolCallStart,
    UsageUpdate,
)
from pydantic import ValidationError

from outrider.contract.commands import ChatInput
from outrider.contract.errors import ApiError, ErrorCode, bad_request, conflict
from outrider.contract.resources import (
    ActionOption,
    AgentStatus,
    Message,
    PendingAction,
    SummaryItem,
)
from outrider.daemon.agents.acp.chat import Chat
from outrider.daemon.agents.acp.client import Client
from outrider.daemon.agents.acp.content import error_text
from outrider.daemon.agents.acp.controls import Controls, Value
from outrider.daemon.agents.acp.files import Files
from outrider.daemon.agents.acp.opening import Begin, Login, open_again
from outrider.daemon.agents.acp.peer import Peer
from outrider.daemon.agents.acp.process import AgentProcess
from outrider.daemon.agents.acp.prompt import prompt_of
from outrider.daemon.agents.acp.provider_file import AcpFile
from outrider.daemon.agents.acp.questions import Questions
from outrider.daemon.agents.acp.terminals import Terminals
from outrider.daemon.agents.acp.transport import WRITE_TIMEOUT
from outrider.daemon.agents.adapter import NoteRefusal, Observation, Observer
from outrider.daemon.agents.transcript import Transcript
from outrider.daemon.journal import SessionRecord

_log = structlog.get_logger(__name__)

TAKE_WAIT: Final = 1.0
"""Seconds in which an agent may refuse a message; one that is silent has taken it.

The protocol acknowledges a prompt only by the end of its turn. A live agent reads its pipe in
order, and one that cannot work (no login, a model that it has not) says so at once.
"""

CANCEL_TIMEOUT: Final = 1.0
"""Seconds that an agent has to end its turn before it is ended with it."""

END_GRACE: Final = 1.5
"""Seconds that an agent has to end by itself once its input is closed."""

LAST_WORDS: Final = 0.5
"""Seconds for what an agent wrote just before its end."""

SESSION_KEY: Final = "acp_session"
"""Where a session's record keeps the agent's own id of it."""

_EVIDENCE_UPDATES: Final = 50
_STOPS: Final[dict[StopReason, str]] = {
    "refusal": "The agent refused to go on with this",
    "max_tokens": "The answer was cut off: the model's limit of tokens is reached",
    "max_turn_requests": "The turn was cut off: the agent's limit of model requests is reached",
}


class AcpAdapter:
    """A running agent, or one that is gone and whose chat remains."""

    def __init__(
        self,
        file: AcpFile,
        record: SessionRecord,
        transcript: Transcript,
        environment: Mapping[str, str],
        note_refusal: NoteRefusal,
    ) -> None:
        self._file = file
        self._record = record
        self._transcript = transcript
        self._environment = environment
        self._terminals = Terminals(record.path, environment)
        self._questions = Questions(self._tell)
        self._chat = Chat(transcript, file.notices_pattern(), self._terminals.text)
        self._client = Client(
            Files(record.path),
            self._terminals,
            self._questions,
            self._question,
            partial(note_refusal, record.id),
        )
        self._controls = Controls()
        self._login = Login(file, environment)
        self._process: AgentProcess | None = None
        self._peer: Peer | None = None
        self._agent: InitializeResponse | None = None
        self._observer: Observer | None = None
        self._told: Observation | None = None
        self._sending = asyncio.Lock()
        self._opening: asyncio.Task[None] | None = None
        self._turn: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._taken = asyncio.Event()
        self._offered: tuple[str, str] | None = None
        self._listening = False
        self._failure: str | None = None
        self._gone: str | None = None
        self._title: str | None = None
        self._usage: UsageUpdate | None = None
        self._stop_reason: str | None = None
        self._updates: deque[str] = deque(maxlen=_EVIDENCE_UPDATES)
        self._unreadable = 0

    # The interface

    def observe(self, observer: Observer) -> None:
        """Begin to tell `observer` of changes, the present state first."""
        self._observer = observer
        self._tell(again=True)

    async def submit(self, message_id: str, message: ChatInput) -> None:
        """Give the agent a message; return once it has taken it."""
        async with self._sending:
            peer, session = await self._ready()
            if self._questions.first is not None:
                raise conflict(
                    "The agent waits for an approval: approve or reject that first",
                    ErrorCode.APPROVAL_PENDING,
                )
            if message_id in self._transcript:
                return  # taken already, by the daemon that ran before this one
            blocks, text = prompt_of(message, self._agent, self._file)
            self._failure = None
            self._listening = True
            self._taken.clear()
            self._offered = (message_id, text)
            turn = asyncio.create_task(
                self._run_turn(peer.prompt(session, blocks)), name=f"turn of {self._record.id}"
            )
            self._turn = turn
            self._tell()
            await asyncio.sleep(0)  # it begins to be written
            await _first(turn, peer.transport.drained, 2 * WRITE_TIMEOUT)
            await _first(turn, self._taken, TAKE_WAIT)
            if turn.done() and self._offered is not None:
                self._offered = None
                raise ApiError(
                    500,
                    self._gone or self._failure or "The agent did not take the message",
                )
            self._take_offered()

    async def answer(self, action: PendingAction, option: ActionOption) -> None:
        """Give the agent the answer to its question."""
        try:
            await self._ready()
            self._questions.answer(action.id, option.id)
        finally:
            self._tell(again=True)

    async def change(self, values: Mapping[str, Value]) -> None:
        """Change controls, one after the other."""
        peer, session = await self._ready()
        await self._apply(peer, session, values)

    async def _apply(self, peer: Peer, session: str, values: Mapping[str, Value]) -> None:
        for setting, value in self._controls.check(values):
            name = setting.control.label
            try:
                answer = await peer.change(session, setting, value)
            except RequestError as error:
                raise bad_request(
                    f"{self._file.display_name} did not change {name} to {value!r}: "
                    f"{error_text(error)}",
                    f"controls.{setting.control.id}",
                ) from error
            except (ConnectionError, TimeoutError) as error:
                raise ApiError(
                    500, f"{self._file.display_name} did not answer the change of {name}"
                ) from error
            self._controls.changed(setting, value)
            self._controls.take_options(answer)
            self._tell()

    async def messages(self) -> Sequence[Message]:
        """Return the whole chat."""
        return self._transcript.messages()

    async def close(self) -> None:
        """End the agent with all that it started, and forget its chat."""
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
        info = None if self._agent is None else self._agent.agent_info
        process, peer = self._process, self._peer
        return {
            "agent": None if info is None else f"{info.name} {info.version}",
            "protocolVersion": None if self._agent is None else self._agent.protocol_version,
            "agentSession": self._record.native.get(SESSION_KEY),
            "turn": self._turn is not None and not self._turn.done(),
            "questions": len(self._questions),
            "stopReason": self._stop_reason,
            "updates": list(self._updates),
            "unreadableUpdates": self._unreadable,
            "rubbish": "" if peer is None else peer.transport.rubbish.text(),
            "stderr": "" if process is None else process.complaints.text(),
            "pid": None if process is None else process.pid,
            "exitCode": None if process is None else process.exit_code,
            "refusedPaths": list(self._client.refused),
        }

    # Opening

    async def open(self, argv: Sequence[str]) -> None:
        """Start the agent with a new session.

        Raises:
            ApiError: 500, it did not get ready; 400, it has not the model that is wanted.
        """
        self._listening = True
        session = await self._open(argv, self._login.new_session)
        self._record.native[SESSION_KEY] = session["sessionId"]
        await self._set("model", self._record.model, by_file=bool(self._file.model_args))
        await self._set("mode", self._file.mode, by_file=False)

    def reopen(self, argv: Sequence[str]) -> None:
        """Begin to open an earlier session again; what is sent meanwhile waits for it."""
        if self._record.generating_since is not None:
            self._failure = (
                "The turn was cut off when the machine agent stopped: send the message again"
            )
            self._chat.noted(self._failure)
        self._opening = asyncio.create_task(self._reopen(argv), name=f"restore {self._record.id}")

    def lost(self, why: str) -> None:
        """Count as gone from the start: the session cannot be opened again."""
        self._gone = why

    async def _reopen(self, argv: Sequence[str]) -> None:
        session = self._record.native[SESSION_KEY]

        async def begin(peer: Peer, agent: InitializeResponse, path: str) -> dict[str, Any]:
            return await open_again(peer, agent, session, path, self._file.display_name)

        try:
            await self._open(argv, begin)
        except ApiError as error:
            self._gone = error.message
            await self._end()
        finally:
            self._opening = None
        self._tell()

    async def _open(
        self,
        argv: Sequence[str],
        begin: Begin,
    ) -> dict[str, Any]:
        """Start the agent and let `begin` open a session; every step has a bound."""
        name = self._file.display_name
        try:
            self._process = await AgentProcess.start(argv, self._record.path, self._environment)
        except OSError as error:
            raise ApiError(500, f"{name} could not be started: {error.strerror}") from error
        self._peer = peer = Peer(self._process, cast("AnyClient", self._client), self._updated)
        self._watching = asyncio.create_task(
            self._watch(self._process), name=f"watch {self._record.id}"
        )
        step = "initialize"
        try:
            async with asyncio.timeout(self._file.ready_timeout):
                self._agent = await peer.initialize()
                if self._agent.protocol_version != PROTOCOL_VERSION:
                    raise ApiError(
                        500,
                        f"{name} speaks version {self._agent.protocol_version} of the protocol, "
                        f"not {PROTOCOL_VERSION}: install another version of it",
                    )
                step = "the opening of a session"
                answer = await begin(peer, self._agent, self._record.path)
        except RequestError as error:
            raise ApiError(500, self._login.refusal(error)) from error
        except ConnectionError as error:
            await self._has_ended()
            raise ApiError(500, self._last_words(self._process)) from error
        except TimeoutError as error:
            limit = self._file.ready_timeout
            raise ApiError(
                500,
                f"{name} did not answer {step} within {limit:.0f} s; it complained: "
                f"{self._complaints(self._process)}",
            ) from error
        self._controls.take_session(answer)
        return answer

    async def _set(self, purpose: str, wanted: str | None, *, by_file: bool) -> None:
        """Set the model or mode that a launch asks for, in the words of the agent or its names."""
        if wanted is None:
            return
        setting = self._controls.find(purpose)
        if setting is None:
            if by_file:
                return  # its command line has told it
            raise bad_request(f"{self._file.display_name} offers no choice of {purpose}", purpose)
        by_name = {name: value for value, name in setting.names.items()}
        value = wanted if wanted in setting.names else by_name.get(wanted)
        if value is None:
            if by_file:
                return
            raise bad_request(
                f"{self._file.display_name} has no {purpose} {wanted!r}; it has: "
                f"{', '.join(setting.names)}",
                purpose,
            )
        if value != setting.control.value:
            assert self._peer is not None
            session = self._record.native[SESSION_KEY]
            await self._apply(self._peer, session, {setting.control.id: value})

    # Turns

    async def _run_turn(self, prompt: Awaitable[Any]) -> None:
        """Follow one prompt to its end."""
        how = "cancelled"
        try:
            response = await prompt
        except RequestError as error:
            self._failure, how = self._login.refusal(error), "failed"
            if self._login.needed(error) or -32602 <= error.code <= -32600:
                self._end_turn(how)  # refused: as if it had never been sent
                return
            self._take_offered()
            self._chat.noted(error_text(error))
        except ConnectionError as error:
            how = "the agent has ended"
            if not await self._has_ended():
                self._failure = f"{self._file.display_name} no longer listens: {error}"
        else:
            self._stop_reason = how = response.stop_reason
            self._take_offered()
            if response.stop_reason in _STOPS:
                self._chat.noted(_STOPS[response.stop_reason])
        self._end_turn(how)

    def _end_turn(self, how: str) -> None:
        self._questions.cancel_all()
        self._chat.turn_ended(how)
        self._turn = None
        self._tell()

    def _take_offered(self) -> None:
        """The agent has taken the message: it belongs to the chat from here on."""
        if self._offered is not None:
            (message_id, text), self._offered = self._offered, None
            self._chat.user_said(message_id, text)
        self._taken.set()

    # What the agent tells

    def _updated(self, parameters: Any) -> None:
        """Take a session update, whatever it is."""
        try:
            notification = SessionNotification.model_validate(parameters)
        except ValidationError:
            self._unreadable += 1
            return
        ours = self._record.native.get(SESSION_KEY)
        if ours is not None and notification.session_id != ours:
            return  # another session of the same agent, such as a helper of its own
        update = notification.update
        self._updates.append(update.session_update)
        match update:
            case CurrentModeUpdate() | ConfigOptionUpdate():
                self._controls.take(update)
                self._tell()
            case SessionInfoUpdate():
                self._title = update.title or self._title
                self._tell()
            case UsageUpdate():
                self._usage = update
            case _ if not self._listening:
                return  # an earlier chat told anew: it is here already
            case AgentMessageChunk() | AgentThoughtChunk():
                self._take_offered()
                self._chat.said(update)
            case ToolCallStart() | ToolCallProgress():
                self._take_offered()
                self._chat.called(update)
            case AgentPlanUpdate():
                self._take_offered()
                self._chat.planned(update)

    def _question(self, tool_call: Any) -> str:
        self._take_offered()
        return self._chat.question(tool_call)

    async def _watch(self, process: AgentProcess) -> None:
        """Wait for the agent's end, and clear up behind it."""
        await process.ended()
        peer = self._peer
        if peer is not None:
            with contextlib.suppress(TimeoutError):  # a child that it left may hold its pipes
                async with asyncio.timeout(LAST_WORDS):
                    await peer.transport.finished.wait()
        if self._opening is None:  # else the opening tells it
            self._gone = self._last_words(process)
        if peer is not None:
            await peer.close()
        await self._terminals.close()
        await process.sweep()
        self._questions.cancel_all()
        self._tell()

    # Telling

    def _tell(self, *, again: bool = False) -> None:
        seen = self._state()
        if seen == self._told and not again:
            return
        self._told = seen
        if self._observer is not None:
            self._observer(seen)

    def _state(self) -> Observation:
        pending = self._questions.first
        status: AgentStatus
        if self._gone is not None:
            status, pending = "error", None
        elif pending is not None:
            status = "waiting_approval"
        elif self._turn is not None:
            status = "generating"
        else:
            status = "idle" if self._failure is None else "error"
        error = self._gone or self._failure if status == "error" else None
        return Observation(
            status=status,
            pending=pending,
            error=error,
            gone=self._gone is not None,
            title=self._title,
            model=self._controls.value_name("model") or self._record.model,
            summary=tuple(self._summary()),
            controls=self._controls.shown(),
        )

    def _summary(self) -> list[SummaryItem]:
        items = []
        for purpose in ("model", "mode"):
            value = self._controls.value_name(purpose)
            if value is not None:
                items.append(SummaryItem(id=purpose, label=purpose.capitalize(), value=value))
        usage = self._usage
        if usage is not None and usage.size:
            items.append(
                SummaryItem(
                    id="context",
                    label="Context",
                    value=f"{usage.used} of {usage.size} tokens",
                )
            )
        return items

    async def _ready(self) -> tuple[Peer, str]:
        """Return the agent and its session, once it has been opened."""
        if self._opening is not None:
            await asyncio.wait({self._opening}, timeout=self._file.ready_timeout)
        if self._gone is not None or self._peer is None:
            why = (self._gone or "The agent has ended").rstrip(".")
            raise ApiError(500, f"{why}. Launch it again")
        return self._peer, self._record.native[SESSION_KEY]

    # The end

    async def _end(self) -> None:
        """End the turn, then the agent, then whatever it left; harmless if it is gone."""
        opening, self._opening = self._opening, None
        if opening is not None and opening is not asyncio.current_task():
            opening.cancel()
            await asyncio.wait({opening}, timeout=CANCEL_TIMEOUT + END_GRACE)
        process, peer, turn = self._process, self._peer, self._turn
        self._questions.cancel_all()
        if turn is not None and peer is not None and process is not None:
            with contextlib.suppress(ConnectionError, TimeoutError):
                async with asyncio.timeout(CANCEL_TIMEOUT):
                    await peer.cancel(self._record.native[SESSION_KEY])
                    await asyncio.wait({turn})
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait({self._watching}, timeout=CANCEL_TIMEOUT)
        await self._terminals.close()
        if process is not None:
            await process.end(END_GRACE)
        if peer is not None:
            await peer.close()
        if turn is not None:
            await asyncio.wait({turn}, timeout=CANCEL_TIMEOUT)

    async def _has_ended(self) -> bool:
        """Tell whether the agent has ended; the end of its pipes may be seen before its own."""
        assert self._process is not None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(END_GRACE):
                await self._process.ended()
        if self._process.exit_code is None:
            return False
        if self._opening is None:
            self._gone = self._last_words(self._process)
        return True

    def _last_words(self, process: AgentProcess) -> str:
        code = process.exit_code
        how = "" if code is None else f" with code {code}"
        if code is not None and code < 0:
            how = f" by a signal ({-code})"
        name = self._file.display_name
        return f"{name} has ended{how}; it complained: {self._complaints(process)}"

    def _complaints(self, process: AgentProcess) -> str:
        lines = [line.strip() for line in process.complaints.text().split("\n") if line.strip()]
        return "\n".join(lines[-4:])[-1000:] or "(nothing)"


async def _first(task: asyncio.Task[None], event: asyncio.Event, seconds: float) -> None:
    """Return once the task is done or the event is set, or after so many seconds."""
    waiting = asyncio.create_task(event.wait())
    try:
        await asyncio.wait({task, waiting}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
