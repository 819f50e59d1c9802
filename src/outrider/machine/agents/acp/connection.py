"""JSON-RPC with an agent: requests over the official SDK, one line of JSON per message.

    agent's stdout ─▶ LineTransport.receive ─┬─ session updates ─▶ on_update, in order
                                             ├─ requests ─▶ SDK ─▶ Client
                                             └─ answers ─▶ SDK ─▶ AgentConnection's caller

The SDK's own transport accepts whatever an agent writes. This one has limits, and skips what would
stop the SDK's reading: lines that are no JSON, endless lines, answers of an unexpected form.
"""

import asyncio
import json
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Final, Literal

import msgspec
from acp import PROTOCOL_VERSION, RequestError
from acp.client.router import build_client_router
from acp.connection import Connection
from acp.interfaces import Client
from acp.meta import AGENT_METHODS, CLIENT_METHODS
from acp.schema import InitializeResponse, PromptResponse
from pydantic import ValidationError

from outrider import __version__
from outrider.machine.agents.acp.controls import Setting, Value
from outrider.machine.agents.acp.output_tail import OutputTail
from outrider.machine.agents.acp.spec import DEFAULT_TIMEOUTS, Timeouts

AUTHENTICATION_REQUIRED: Final = -32000
"""The protocol's error code for a missing login."""

Trace = Callable[[Literal["sent", "received"], bytes], None]
"""Called with each line to and from an agent."""

TRACE: Final[ContextVar[Trace | None]] = ContextVar("acp_trace", default=None)
"""Traces the connections that are made in this context, for `outrider providers check`."""

MAX_LINE: Final = 64 * 1024 * 1024
"""Bytes of the longest message that is read; a longer one is skipped as a whole."""

MAX_REQUESTS: Final = 128
"""Requests of the agent that may be in flight at once; further ones are refused."""

_CHUNK: Final = 64 * 1024
_UNREADABLE_KEPT: Final = 4 * 1024
_UNREADABLE_PAUSE: Final = 0.001


class LineTransport:
    """A transport for the SDK's `Connection`.

    Session updates bypass the SDK, which starts a task for each: `on_update` gets their parameters
    before the next line is read. An answer (the end of a turn) is thus handled after all updates
    that precede it.

    Attributes:
        unreadable: the newest lines that were no messages.
        drained: set while the agent has read everything that was written.
        finished: set once everything that the agent wrote has been read.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        on_update: Callable[[Any], None],
        write_timeout: float = DEFAULT_TIMEOUTS.write,
    ) -> None:
        self._trace = TRACE.get()
        self._write_timeout = write_timeout
        self._reader = reader
        self._writer = writer
        self._on_update = on_update
        self._buffer = bytearray()
        self._searched = 0
        self._skipping = False
        self._in_flight: set[int | str] = set()
        self.unreadable = OutputTail(_UNREADABLE_KEPT)
        self.drained = asyncio.Event()
        self.drained.set()
        self.finished = asyncio.Event()

    async def receive(self) -> dict[str, Any] | None:
        """Return the next message that the SDK is to handle, None at the end of the stream."""
        while (line := await self._line()) is not None:
            if self._trace is not None:
                self._trace("received", line)
            await asyncio.sleep(0)  # the SDK handles earlier messages first: no backlog
            message = _message(line)
            if message is None:
                if line.strip():
                    self.unreadable.add(line[:1024] + b"\n")
                    await asyncio.sleep(_UNREADABLE_PAUSE)
            # Not over the SDK, which would start a task for each: the order must be kept.
            elif message.get("method") == CLIENT_METHODS["session_update"]:
                self._on_update(message.get("params"))
            elif "method" not in message or "id" not in message:
                return message
            elif len(self._in_flight) >= MAX_REQUESTS:
                await self.send(_too_many_requests(message["id"]))
            else:
                self._in_flight.add(message["id"])
                return message
        self.finished.set()
        return None

    async def send(self, message: dict[str, Any]) -> None:
        """Write a message.

        Raises:
            ConnectionError: the agent does not read it, or is gone.
        """
        if "method" not in message:
            self._in_flight.discard(message["id"])
        if self._writer.is_closing():
            raise ConnectionError("The agent's input is closed")
        # Cleared before the write: `AcpTurn.wait_accepted` looks at it right after.
        self.drained.clear()
        line = msgspec.json.encode(message, enc_hook=str)
        if self._trace is not None:
            self._trace("sent", line)
        self._writer.write(line + b"\n")
        try:
            async with asyncio.timeout(self._write_timeout):
                await self._writer.drain()
        except TimeoutError:
            raise ConnectionError(
                f"The agent has not read its input for {self._write_timeout:.0f} s"
            ) from None
        self.drained.set()

    async def close(self) -> None:
        """Do nothing: the process closes the pipes."""

    async def _line(self) -> bytes | None:
        """Return the next line, None at the end; the rest of a line over the limit is skipped.

        Invariant: the first `_searched` bytes of the buffer hold no line end, so no byte is
        searched twice.
        """
        while True:
            end = self._buffer.find(b"\n", self._searched)
            if end >= 0:
                line = bytes(self._buffer[:end])
                del self._buffer[: end + 1]
                self._searched = 0
                if not self._skipping:
                    return line
                self._skipping = False
                continue
            self._searched = len(self._buffer)
            if self._searched > MAX_LINE:
                self.unreadable.add(b"[a line of more than %d bytes]\n" % MAX_LINE)
                self._skipping = True
            # Nothing of a line over the limit is kept, so its length costs no memory.
            if self._skipping:
                self._buffer.clear()
                self._searched = 0
            data = await self._reader.read(_CHUNK)
            if not data:
                return None
            self._buffer += data


def _message(line: bytes) -> dict[str, Any] | None:
    """Return the message in a line, None if it does not have the form of one."""
    try:
        message = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        message = _decode_lone_surrogates(line)
    if not isinstance(message, dict):
        return None
    method, number = message.get("method"), message.get("id")
    if "method" in message and not isinstance(method, str):
        return None
    if "id" in message and (not isinstance(number, int | str) or isinstance(number, bool)):
        return None
    if "method" not in message:
        if "id" not in message:
            return None
        if message.get("error") is not None and not isinstance(message["error"], dict):
            message["error"] = {"code": -32603, "message": str(message["error"])}
    return message


def _decode_lone_surrogates(line: bytes) -> Any:
    """Decode a line with lone surrogates, which JavaScript programs may write."""
    if b"\\ud" not in line.lower():
        return None
    try:
        whole = json.dumps(json.loads(line), ensure_ascii=False).encode("utf-8", "replace")
        return msgspec.json.decode(whole)
    except (ValueError, RecursionError):
        return None


def _too_many_requests(number: int | str) -> dict[str, Any]:
    text = f"{MAX_REQUESTS} requests are unanswered already: wait for one of them"
    return {"jsonrpc": "2.0", "id": number, "error": {"code": -32603, "message": text}}


class AgentConnection:
    """Sends requests to the agent at the other end of a process's pipes.

    Every request raises RequestError if the agent refuses it, and ConnectionError if the agent has
    ended. `change` raises TimeoutError if it is not answered within `timeouts.answer`. The others
    wait without a bound of their own: the caller bounds what belongs to the opening of a session.

    Args:
        reader: the agent's standard output.
        writer: the agent's standard input.
        client: carries out the agent's requests.
        on_update: gets the parameters of every session update, in order.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        client: Client,
        on_update: Callable[[Any], None],
        *,
        timeouts: Timeouts = DEFAULT_TIMEOUTS,
    ) -> None:
        self._answer_timeout = timeouts.answer
        self.transport = LineTransport(reader, writer, on_update, timeouts.write)
        self._json_rpc = Connection(build_client_router(client), self.transport)

    async def close(self) -> None:
        """Stop reading, and fail every request in flight."""
        await self._json_rpc.close()

    async def initialize(self) -> InitializeResponse:
        """Negotiate the protocol version and the capabilities of both sides."""
        answer = await self._request(
            "initialize",
            protocolVersion=PROTOCOL_VERSION,
            clientCapabilities={
                "fs": {"readTextFile": True, "writeTextFile": True},
                "terminal": True,
            },
            clientInfo={"name": "outrider", "title": "Outrider", "version": __version__},
        )
        try:
            return InitializeResponse.model_validate(answer)
        except ValidationError as error:
            raise RequestError(-32603, f"it answered `initialize` wrongly: {error}") from error

    async def authenticate(self, method_id: str) -> None:
        """Log in by one of the agent's login methods."""
        await self._request("authenticate", methodId=method_id)

    async def new_session(self, directory: str) -> dict[str, Any]:
        """Open a session and return the agent's answer, which has `sessionId`."""
        answer = await self._request("session_new", cwd=directory, mcpServers=[])
        if not isinstance(answer.get("sessionId"), str):
            raise RequestError(-32603, "it opened a session without an id")
        return answer

    async def load_session(self, session_id: str, directory: str) -> dict[str, Any]:
        """Open an earlier session; the agent sends its whole chat again."""
        return await self._request(
            "session_load", sessionId=session_id, cwd=directory, mcpServers=[]
        )

    async def resume_session(self, session_id: str, directory: str) -> dict[str, Any]:
        """Open an earlier session; the agent does not send its chat again."""
        return await self._request(
            "session_resume", sessionId=session_id, cwd=directory, mcpServers=[]
        )

    async def prompt(self, session_id: str, blocks: list[dict[str, Any]]) -> PromptResponse:
        """Send a message; return at the end of the turn, however long that takes."""
        answer = await self._request("session_prompt", sessionId=session_id, prompt=blocks)
        try:
            return PromptResponse.model_validate(answer)
        except ValidationError:
            return PromptResponse(stop_reason="end_turn")  # the turn has ended in any case

    async def cancel(self, session_id: str) -> None:
        """Notify the agent to end its turn; that ends when the prompt is answered, if ever."""
        await self._json_rpc.send_notification(
            AGENT_METHODS["session_cancel"], {"sessionId": session_id}
        )

    async def change(self, session_id: str, setting: Setting, value: Value) -> dict[str, Any]:
        """Change a setting and return the agent's answer."""
        async with asyncio.timeout(self._answer_timeout):
            match setting.method:
                case "mode":
                    return await self._request(
                        "session_set_mode", sessionId=session_id, modeId=str(value)
                    )
                case "model":  # dropped from the protocol and the SDK
                    parameters = {"sessionId": session_id, "modelId": value}
                    return await self._send("session/set_model", parameters)
            kind = {"type": "boolean"} if isinstance(value, bool) else {}
            return await self._request(
                "session_set_config_option",
                sessionId=session_id,
                configId=setting.control.id,
                value=value,
                **kind,
            )

    async def _request(self, name: str, **parameters: Any) -> dict[str, Any]:
        return await self._send(AGENT_METHODS[name], parameters)

    async def _send(self, method: str, parameters: dict[str, Any]) -> dict[str, Any]:
        answer = await self._json_rpc.send_request(method, parameters)
        return answer if isinstance(answer, dict) else {}
