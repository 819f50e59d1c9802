"""A session of the demo agent: its messages, its settings, and what a turn may do."""

import asyncio
import json
import posixpath
from typing import Any, Final, Literal

from acp.helpers import update_agent_message_text
from acp.interfaces import Client

FOLDER: Final = ".outrider-demo"
"""The directory inside the session's one with the earlier messages, which git ignores."""

_MAX_HISTORY: Final = 2000


class CancelledTurn(Exception):  # it is no error
    """The client has interrupted the turn."""


class DemoSession:
    """A session: its messages, its settings, and what a turn uses to act.

    Attributes:
        messages: role and text of each message so far, oldest first.
        always: the kinds of tool calls that need no approval any more.
    """

    def __init__(self, client: Client, session_id: str, directory: str) -> None:
        self.client = client
        self.id = session_id
        self.directory = directory
        self.messages: list[tuple[Literal["user", "agent"], str]] = []
        self.mode = "ask"
        self.model = "demo-1"
        self.always: set[str] = set()
        self._cancelled = asyncio.Event()

    def path(self, name: str) -> str:
        """Return the path of a file in the session's directory."""
        return posixpath.join(self.directory, name)

    def begin_turn(self) -> None:
        """Forget an earlier interruption."""
        self._cancelled.clear()

    def cancel(self) -> None:
        """Interrupt the turn."""
        self._cancelled.set()

    async def pause(self, seconds: float) -> None:
        """Wait for so many seconds.

        Raises:
            CancelledTurn: the turn is interrupted.
        """
        try:
            async with asyncio.timeout(seconds):
                await self._cancelled.wait()
        except TimeoutError:
            return
        raise CancelledTurn

    async def say(self, text: str, message_id: str | None = None) -> None:
        """Send text; with another message id than before, it begins a new message."""
        chunk = update_agent_message_text(text)
        chunk.message_id = message_id
        await self.update(chunk)
        last = self.messages[-1] if self.messages else None
        if last is not None and last[0] == "agent" and message_id is None:
            self.messages[-1] = ("agent", last[1] + text)
        else:
            self.messages.append(("agent", text))

    async def update(self, update: Any) -> None:
        """Send a session update."""
        await self.client.session_update(session_id=self.id, update=update)

    async def save(self) -> None:
        """Store the messages in the session's directory: the first, and the newest ones."""
        # The first stays, because `remember` repeats it.
        messages = [*self.messages[:1], *self.messages[1:][-_MAX_HISTORY:]]
        await self._write(f"{FOLDER}/.gitignore", "*\n")
        await self._write(f"{FOLDER}/{self.id}.json", json.dumps(messages))

    async def load(self) -> None:
        """Read the messages of an earlier process.

        Raises:
            RequestError: there is no such session here.
        """
        answer = await self.client.read_text_file(
            session_id=self.id, path=self.path(f"{FOLDER}/{self.id}.json")
        )
        self.messages = [(role, text) for role, text in json.loads(answer.content)]

    async def _write(self, name: str, content: str) -> None:
        await self.client.write_text_file(session_id=self.id, path=self.path(name), content=content)
