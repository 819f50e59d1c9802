"""The messages that wait for an agent: in order, one for each time that it rests."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from outrider.contract.commands import ChatInput
from outrider.contract.errors import ApiError, conflict
from outrider.daemon.journal import Journal

MAX_QUEUED: Final = 16
"""Messages that may wait while an agent is generating."""

_log = structlog.get_logger(__name__)


class MessageQueue:
    """The queue of one session. It outlives the daemon.

    Args:
        give: gives a message to the agent; raises ApiError where the agent does not take it.
        rests: tells whether the agent takes a message now.
    """

    def __init__(
        self,
        session_id: str,
        journal: Journal,
        *,
        give: Callable[[str, ChatInput], Awaitable[None]],
        rests: Callable[[], bool],
    ) -> None:
        self._session_id = session_id
        self._journal = journal
        self._give = give
        self._rests = rests
        self._waiting = deque(journal.queue(session_id))
        self._input = asyncio.Lock()
        self._draining: asyncio.Task[None] | None = None

    @property
    def busy(self) -> bool:
        """Whether a message waits, or is being given to the agent."""
        return bool(self._waiting) or self._input.locked()

    async def pass_by(self, message_id: str, message: ChatInput) -> None:
        """Give the agent a message at once, where none waits.

        Raises:
            ApiError: the agent does not take it.
        """
        async with self._input:
            await self._give(message_id, message)

    def add(self, message_id: str, message: ChatInput) -> None:
        """Have a message wait.

        Raises:
            ApiError: 409, the queue is full.
        """
        if len(self._waiting) >= MAX_QUEUED:
            raise conflict(
                f"{MAX_QUEUED} messages wait for this agent already: "
                "wait until it has taken one, or stop it"
            )
        self._journal.enqueue(self._session_id, message_id, message)
        self._waiting.append((message_id, message))
        self.drain()

    def drain(self) -> None:
        """Begin to give the agent what waits, if it rests."""
        if self._waiting and (self._draining is None or self._draining.done()):
            self._draining = asyncio.create_task(self._drain(), name=f"queue {self._session_id}")

    async def stop(self) -> None:
        """Give the agent no more."""
        if self._draining is not None and not self._draining.done():
            self._draining.cancel()
            await asyncio.wait({self._draining}, timeout=5)

    async def _drain(self) -> None:
        async with self._input:
            while self._waiting and self._rests():
                message_id, message = self._waiting[0]
                try:
                    await self._give(message_id, message)
                except ApiError as error:
                    _log.warning(
                        "queued message not taken; it waits for the next idle",
                        session=self._session_id,
                        error=error.message,
                    )
                    return
                self._waiting.popleft()
                self._journal.dequeue(message_id)
