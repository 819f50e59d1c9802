"""The messages to and from an agent's pipes, one line of JSON each.

The SDK's own transport takes whatever an agent writes; this one has bounds, and passes over
what would end the SDK's reading: rubbish, lines without an end, answers of a strange form.
"""

import asyncio
import json
from collections.abc import Callable
from typing import Any, Final

import msgspec
from acp.meta import CLIENT_METHODS

from outrider.daemon.agents.acp.tail import Tail

MAX_LINE: Final = 64 * 1024 * 1024
"""Bytes of the longest message that is read; of a longer one, nothing is."""

MAX_REQUESTS: Final = 128
"""Requests of the agent that may be unanswered at once; further ones are refused."""

WRITE_TIMEOUT: Final = 10.0
"""Seconds that an agent may leave its standard input unread."""

_CHUNK: Final = 64 * 1024
_RUBBISH_KEPT: Final = 4 * 1024
_RUBBISH_PAUSE: Final = 0.001


class LineTransport:
    """A transport for the SDK's `Connection`.

    Updates of the session do not go through the SDK, which makes a task of each: `on_update`
    gets their parameters at once, so that an answer that follows them is read after them.

    Attributes:
        rubbish: the tail of the lines that were no messages.
        drained: set while the agent has been given everything that was written.
        finished: set once everything that the agent wrote has been read.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        on_update: Callable[[Any], None],
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._on_update = on_update
        self._buffer = bytearray()
        self._searched = 0
        self._skipping = False
        self._unanswered: set[int | str] = set()
        self.rubbish = Tail(_RUBBISH_KEPT)
        self.drained = asyncio.Event()
        self.drained.set()
        self.finished = asyncio.Event()

    async def receive(self) -> dict[str, Any] | None:
        """Return the next message that the SDK is to handle, None at the end of the stream."""
        while (line := await self._line()) is not None:
            await asyncio.sleep(0)  # what came before is handled first, so nothing piles up
            message = _message(line)
            if message is None:
                if line.strip():
                    self.rubbish.add(line[:1024] + b"\n")
                    await asyncio.sleep(_RUBBISH_PAUSE)
            elif message.get("method") == CLIENT_METHODS["session_update"]:
                self._on_update(message.get("params"))
            elif "method" not in message or "id" not in message:
                return message
            elif len(self._unanswered) >= MAX_REQUESTS:
                await self.send(_refusal(message["id"]))
            else:
                self._unanswered.add(message["id"])
                return message
        self.finished.set()
        return None

    async def send(self, message: dict[str, Any]) -> None:
        """Write a message.

        Raises:
            ConnectionError: the agent does not read it, or is gone.
        """
        if "method" not in message:
            self._unanswered.discard(message["id"])
        if self._writer.is_closing():
            raise ConnectionError("The agent's input is closed")
        self.drained.clear()
        self._writer.write(msgspec.json.encode(message, enc_hook=str) + b"\n")
        try:
            async with asyncio.timeout(WRITE_TIMEOUT):
                await self._writer.drain()
        except TimeoutError:
            raise ConnectionError(
                f"The agent has not read its input for {WRITE_TIMEOUT:.0f} s"
            ) from None
        self.drained.set()

    async def close(self) -> None:
        """Do nothing: the pipes belong to the process."""

    async def _line(self) -> bytes | None:
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
                self.rubbish.add(b"[a line of more than %d bytes]\n" % MAX_LINE)
                self._skipping = True
            if self._skipping:
                self._buffer.clear()
                self._searched = 0
            data = await self._reader.read(_CHUNK)
            if not data:
                return None
            self._buffer += data


def _message(line: bytes) -> dict[str, Any] | None:
    """Return the message in a line, None if it has not the form of one."""
    try:
        message = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        message = _repaired(line)
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


def _repaired(line: bytes) -> Any:
    """Read a line with halves of characters in it, as JavaScript programs may write them."""
    if b"\\ud" not in line.lower():
        return None
    try:
        whole = json.dumps(json.loads(line), ensure_ascii=False).encode("utf-8", "replace")
        return msgspec.json.decode(whole)
    except (ValueError, RecursionError):
        return None


def _refusal(number: int | str) -> dict[str, Any]:
    text = f"{MAX_REQUESTS} requests are unanswered already: wait for one of them"
    return {"jsonrpc": "2.0", "id": number, "error": {"code": -32603, "message": text}}
