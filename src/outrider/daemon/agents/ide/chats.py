"""The chats with the agents of one IDE, read off its window and kept."""

import asyncio
from pathlib import Path

import msgspec

from outrider.daemon.agents.ide.chat import Chat, Row
from outrider.daemon.agents.ide.following import Following
from outrider.daemon.agents.ide.window import WindowError
from outrider.daemon.agents.session import Clock
from outrider.daemon.agents.transcript import Transcript
from outrider.daemon.journal import Journal
from outrider.daemon.session_record import SessionRecord


class Chats:
    """A chat for each agent.

    Args:
        folder: where they are kept.
    """

    def __init__(
        self,
        following: Following,
        record: SessionRecord,
        folder: Path,
        journal: Journal,
        clock: Clock,
    ) -> None:
        self._following = following
        self._name = record.id
        self._chats = {
            kind: Chat(record.id, kind, Transcript(folder / f"{kind}.jsonl", clock), journal)
            for kind in following.panels
        }
        self._reading = asyncio.Lock()
        self._checking: asyncio.Task[None] | None = None

    def __getitem__(self, kind: str) -> Chat:
        return self._chats[kind]

    async def read(self, kind: str) -> None:
        """Take what the page shows of the chat now; nothing where there is no page.

        Raises:
            WindowError: the page does not tell.
        """
        window = self._following.window
        if self._following.gone is not None or window is None or window.state != "there":
            return
        async with self._reading:
            rows = await window.ask("read", kind)
            try:
                self._chats[kind].merge(msgspec.convert(rows, list[Row]))
            except msgspec.ValidationError as error:
                raise WindowError(f"its chat cannot be read: {error}") from error

    def catch_up(self) -> None:
        """Read the chat in the background, so that what came is dated and outlives the window.

        An agent that shows no sign of work after a message may have answered already.
        """
        panel = self._following.panel
        if self._checking is not None and not self._checking.done():
            return

        async def check() -> None:
            try:
                await self.read(panel.kind)
            except WindowError:
                return
            if panel.awaits and self._chats[panel.kind].answered:
                panel.begun()
                asyncio.get_running_loop().call_soon(self._following.look)

        self._checking = asyncio.create_task(check(), name=f"read {self._name}")

    async def stop(self) -> None:
        """Stop reading."""
        if self._checking is not None:
            self._checking.cancel()
            await asyncio.wait({self._checking}, timeout=1)

    def save(self) -> None:
        """Write what has not been written yet."""
        for chat in self._chats.values():
            chat.save()
