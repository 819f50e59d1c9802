"""Pages of the event log, for clients that ask again and again: a request may wait for an event."""

import asyncio
from typing import Final, NamedTuple

from outrider.contract.event_stream import StreamResume
from outrider.contract.sizes import MAX_PAGE_BYTES
from outrider.service.database.engine import Database
from outrider.service.events import frames
from outrider.service.events import log as event_log
from outrider.service.events.feed import LiveFeed
from outrider.service.events.log import LoggedEvent
from outrider.service.events.selection import Selection

# Events of one query.
_SCANNED: Final = 500

# Queries of one request, at most. If its filter fits nothing until then, the page is empty, and the
# client asks for the next one.
_MAX_QUERIES: Final = 20


class Page(NamedTuple):
    """Events, and the cursor up to which the log was read."""

    events: list[LoggedEvent]
    cursor: int
    resume: StreamResume


class Pages:
    """Reads pages of the event log.

    Args:
        poll_interval: seconds between the queries of a request that waits without a wake-up.
    """

    def __init__(self, database: Database, feed: LiveFeed, poll_interval: float = 5.0) -> None:
        self._database = database
        self._feed = feed
        self._poll_interval = poll_interval

    async def read(
        self,
        account_id: str,
        selection: Selection,
        *,
        after: str | None,
        limit: int,
        wait: float,
    ) -> Page:
        """Return the selected events after a cursor, oldest first, `MAX_PAGE_BYTES` at most.

        Args:
            after: the cursor that the client has; None for the oldest events of the log.
            wait: seconds to wait for the first event, if there is none. After a gap there is no
                wait, so that the client learns of it.

        Raises:
            SQLAlchemyError, OSError: the database is unavailable.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + wait
        extent = await event_log.extent(self._database, account_id)
        if after is None:
            page = Page([], extent.floor, "fresh")
        else:
            cursor = frames.cursor_of(after)
            if cursor is None or not extent.floor <= cursor <= extent.newest:
                return Page([], extent.newest, "gap")
            page = Page([], cursor, "ok")
        # Before the first read: what is stored after it ends the wait.
        with self._feed.subscribe(account_id) as subscription:
            while True:
                page, is_end = await self._scan(account_id, selection, page, limit)
                seconds = end - loop.time()
                is_over = seconds <= 0 or self._feed.is_draining
                if page.events or not is_end or is_over:
                    return page
                await subscription.changed(min(seconds, self._poll_interval))

    async def _scan(
        self, account_id: str, selection: Selection, page: Page, limit: int
    ) -> tuple[Page, bool]:
        """Read on after an empty page; return the page, and whether the log's end is reached."""
        events: list[LoggedEvent] = []
        cursor, left = page.cursor, MAX_PAGE_BYTES
        for _ in range(_MAX_QUERIES):
            part = await event_log.read(
                self._database, account_id, cursor, _SCANNED, wants=selection.wants_name
            )
            for event in part.events:
                if selection.wants(event):
                    left -= len(event.body)
                    if left < 0 and events:
                        return Page(events, cursor, page.resume), False
                    events.append(event)
                    if len(events) == limit:
                        return Page(events, event.cursor, page.resume), False
                cursor = event.cursor
            cursor = part.cursor
            if not part.has_more:
                return Page(events, cursor, page.resume), True
        return Page(events, cursor, page.resume), False
