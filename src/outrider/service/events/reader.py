"""Reads the tail of each account's log once for all streams of this node.

    LiveFeed ── wake ──▶ AccountTail ──▶ one query ──▶ every stream of the account

An account without streams is not read, and an idle one costs a share of one query every few
seconds, which finds what a lost wake-up left unread.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import structlog

from outrider.service.database.engine import DATABASE_ERRORS, Database
from outrider.service.events import log as event_log
from outrider.service.events.feed import LiveFeed
from outrider.service.events.log import LoggedEvent, Part
from outrider.service.periodic import run_periodically

PAGE: Final = 200
"""Events of one query."""

# Queries at a time, so that most connections of the database's pool stay free for requests.
_READS: Final = 2

# Bytes of one query, which streams get at once; a fraction of what their buffers hold.
_SLICE_BYTES: Final = 256 * 1024

_COMPARED_AT_ONCE: Final = 500

_log = structlog.get_logger(__name__)


class Consumer(Protocol):
    """A stream that gets the events of its account."""

    def receive(self, events: Sequence[LoggedEvent]) -> None:
        """Take the next events, in order. It must not block."""


class AccountTail:
    """The newest part of an account's log, and the streams that it is read for.

    Attributes:
        position: the cursor up to which the streams have got everything.
    """

    def __init__(self, account_id: str, position: int) -> None:
        self.account_id = account_id
        self.position = position
        self.consumers: set[Consumer] = set()
        self.woken = asyncio.Event()
        self.task: asyncio.Task[None] | None = None

    def wake(self) -> None:
        """Read what is new."""
        self.woken.set()


class LogReader:
    """Reads the logs of the accounts that have streams on this node.

    Args:
        poll_interval: seconds between the queries that do not wait for a wake-up.
    """

    def __init__(self, database: Database, feed: LiveFeed, poll_interval: float = 5.0) -> None:
        self._database = database
        self._feed = feed
        self._poll_interval = poll_interval
        self._tails: dict[str, AccountTail] = {}
        self._slots = asyncio.Semaphore(_READS)

    def join(self, account_id: str, newest: int, consumer: Consumer) -> AccountTail:
        """Send a stream the events of its account from now on; return the account's tail.

        It gets the events after the tail's present position.

        Args:
            newest: the newest cursor of the account, as it was read a moment ago.
        """
        tail = self._tails.get(account_id)
        if tail is None:
            tail = self._tails[account_id] = AccountTail(account_id, newest)
            tail.task = asyncio.create_task(self._follow(tail), name="read the event log")
            self._feed.add(account_id, tail)
            tail.wake()  # events stored since `newest` was read have caused no wake-up
        tail.consumers.add(consumer)
        return tail

    def leave(self, tail: AccountTail, consumer: Consumer) -> None:
        """Send a stream no more events."""
        tail.consumers.discard(consumer)
        if not tail.consumers and self._tails.get(tail.account_id) is tail:
            del self._tails[tail.account_id]
            self._feed.remove(tail.account_id, tail)
            if tail.task is not None:
                tail.task.cancel()

    async def page(self, account_id: str, after: int, wants: Callable[[str], bool]) -> Part:
        """Return the next events of an account's log that are wanted.

        Raises:
            SQLAlchemyError, OSError: the database is unavailable.
        """
        async with self._slots:
            return await event_log.read(
                self._database, account_id, after, PAGE, max_bytes=_SLICE_BYTES, wants=wants
            )

    async def run(self) -> None:
        """Poll for events that caused no wake-up, until cancelled."""
        try:
            await run_periodically(self._poll, self._poll_interval, "poll for events")
        finally:
            for tail in self._tails.values():
                if tail.task is not None:
                    tail.task.cancel()

    async def _poll(self) -> None:
        accounts = list(self._tails)
        for start in range(0, len(accounts), _COMPARED_AT_ONCE):
            part = accounts[start : start + _COMPARED_AT_ONCE]
            for account_id, newest in (await event_log.newest(self._database, part)).items():
                tail = self._tails.get(account_id)
                if tail is not None and tail.position < newest:
                    tail.wake()

    async def _follow(self, tail: AccountTail) -> None:
        """Read an account's events after each wake-up, until cancelled."""
        while True:
            await tail.woken.wait()
            tail.woken.clear()
            try:
                part = await self.page(tail.account_id, tail.position, lambda _: True)
            except DATABASE_ERRORS as error:  # the next poll tries again
                _log.warning("reading the event log failed", error=str(error))
                continue
            if part.has_more:
                tail.woken.set()
            tail.position = part.cursor
            for consumer in list(tail.consumers):
                consumer.receive(part.events)
            # Streams whose clients read get the time to send it: pages of large events must not
            # overflow their buffers.
            await asyncio.sleep(0)
