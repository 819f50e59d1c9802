"""The event streams that are open on this node: their limits, their frames and their ends.

A stream first sends what its client has missed, page by page as the client reads, then what its
account's tail (`reader`) puts into its buffer:

    log ── pages up to the tail ──▶ frames ◀── FrameBuffer ◀── AccountTail
"""

import asyncio
import itertools
import random
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec
import structlog

from outrider.contract.event_stream import ChatDelta, StreamEndReason, StreamResume
from outrider.contract.frames import Delta
from outrider.service.accounts.principal import Principal
from outrider.service.accounts.revocation import CHECK_INTERVAL, Credential, RevocationWatch
from outrider.service.database.engine import DATABASE_ERRORS, Database
from outrider.service.events import frames
from outrider.service.events import log as event_log
from outrider.service.events.feed import LiveFeed
from outrider.service.events.frames import FrameBudget, FrameBuffer
from outrider.service.events.log import Extent, LoggedEvent, Part
from outrider.service.events.reader import AccountTail, LogReader
from outrider.service.events.selection import Selection
from outrider.service.events.stream_limit import StreamLimit

_RETRY_SECONDS: Final = 1.0
# Clients whose streams end together connect again spread over this time, after it.
_RETRY_MILLIS: Final = 1000

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamTimes:
    """The intervals of streams, in seconds.

    Attributes:
        heartbeat: between heartbeats.
        check: between checks of the credentials, also of requests that wait.
        poll: between queries for events that caused no wake-up.
        max_age: after which a stream ends, so that streams spread over the nodes.
    """

    heartbeat: float = 10.0
    check: float = CHECK_INTERVAL
    poll: float = 5.0
    max_age: float = 3600.0


class Beginning(NamedTuple):
    """Where a stream begins: after the cursor `position`; `newest` is the log's newest."""

    resume: StreamResume
    position: int
    newest: int


class EventStream:
    """An open stream. Whoever opened it must close it."""

    def __init__(
        self,
        owner: "EventStreams",
        credential: Credential,
        selection: Selection,
        begin: Beginning,
    ) -> None:
        self.credential = credential
        self._owner = owner
        self._selection = selection
        self._resume = begin.resume
        self._position = begin.position
        self._newest = begin.newest
        self._buffer = FrameBuffer(budget=owner.frame_budget, account_id=credential.account_id)
        self._tail: AccountTail | None = None
        self._woken = asyncio.Event()
        self._end_reason: StreamEndReason | None = None
        self._heartbeat_at = self._age_end = 0.0

    def receive(self, events: Sequence[LoggedEvent]) -> None:
        """Take the next events of the account."""
        for event in events:
            if event.cursor > self._position and self._selection.wants(event):
                self._buffer.add_event(event.cursor, frames.event_frame(event))
        if self._buffer.overflowed:
            self.end("slow_consumer")
        elif not self._buffer.is_empty:
            self._woken.set()

    def receive_delta(self, daemon_id: str, targets: Iterable[str], frame: bytes) -> None:
        """Take a delta of a session; it is dropped if the client reads too slowly."""
        if self._selection.wants_delta(daemon_id, targets):
            self._buffer.add_delta(frame)
            self._woken.set()

    def end(self, reason: StreamEndReason) -> None:
        """End it: its client gets no more events, and the reason."""
        if self._end_reason is None:
            self._end_reason = reason
            self._leave_tail()
            self._woken.set()

    def revoked(self) -> None:
        """End it: its credential is no longer valid."""
        self.end("unauthorized")

    def close(self) -> None:
        """Release what it holds. May be called again."""
        self._leave_tail()
        self._buffer.clear()
        self._owner.remove(self)

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """Yield what to send, until the stream ends."""
        times, now = self._owner.times, asyncio.get_running_loop().time()
        self._age_end = now + times.max_age
        self._heartbeat_at = now + times.heartbeat
        yield frames.ready_frame(self._resume, self._position)
        is_behind = self._position < self._newest
        while is_behind and self._is_open():
            part = await self._page()
            yield self._missed(part.events, part.cursor)
            is_behind = part.has_more
        if self._is_open():
            # From here on the tail fills the buffer. It may be ahead of this stream: the pages up
            # to where it was at this moment are still to be read.
            tail = self._tail = self._owner.reader.join(
                self.credential.account_id, self._position, self
            )
            if self._selection.deltas:
                self._owner.add_delta_stream(self)
            # What follows the tail's position is in the buffer from now on.
            goal = tail.position
            while self._position < goal and self._is_open():
                part = await self._page()
                events = [event for event in part.events if event.cursor <= goal]
                # Without more, the numbers from there up to the goal are unused.
                yield self._missed(events, min(part.cursor, goal) if part.has_more else goal)
        while self._is_open():
            chunk, newest = self._buffer.take()
            if newest is not None:
                self._position = newest
            elif self._buffer.is_empty and self._tail is not None:
                self._position = max(self._position, self._tail.position)
            chunk += self._heartbeat()
            if chunk:
                yield chunk
            else:
                await self._wait(min(self._heartbeat_at, self._age_end))
        yield frames.end_frame(self._end_reason or "max_age", retry_after_ms())

    def _is_open(self) -> bool:
        if self._end_reason is None and asyncio.get_running_loop().time() >= self._age_end:
            self.end("max_age")
        return self._end_reason is None

    async def _page(self) -> Part:
        """Return the next events of the log; while the database is unavailable, try again."""
        while self._is_open():
            try:
                return await self._owner.reader.page(
                    self.credential.account_id, self._position, self._selection.wants_name
                )
            except DATABASE_ERRORS as error:
                _log.warning("reading the event log failed", error=str(error))
                await self._wait(asyncio.get_running_loop().time() + _RETRY_SECONDS)
        return Part([], self._position, has_more=True)

    def _missed(self, events: Sequence[LoggedEvent], cursor: int) -> bytes:
        """Return the frames of a part that was read, and go on after it."""
        self._position = cursor
        chunk = b"".join(
            frames.event_frame(event) for event in events if self._selection.wants(event)
        )
        return chunk + self._heartbeat()

    def _heartbeat(self) -> bytes:
        now = asyncio.get_running_loop().time()
        if now < self._heartbeat_at:
            return b""
        self._heartbeat_at = now + self._owner.times.heartbeat
        return frames.heartbeat_frame(self._position)

    async def _wait(self, until: float) -> None:
        """Wait until the stream is woken, or until a time of the event loop."""
        self._woken.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                await self._woken.wait()

    def _leave_tail(self) -> None:
        if self._tail is not None:
            self._owner.reader.leave(self._tail, self)
            self._tail = None
            self._owner.remove_delta_stream(self)


class EventStreams:
    """The event streams of this node.

    Args:
        revocations: ends the streams of revoked credentials.
        limit: counts the streams of each credential.

    Attributes:
        frame_budget: what the buffers of the streams hold together.
        delta_accounts_changed: set when `delta_accounts` has changed.
    """

    def __init__(
        self,
        database: Database,
        feed: LiveFeed,
        revocations: RevocationWatch,
        limit: StreamLimit,
        times: StreamTimes | None = None,
    ) -> None:
        self.times = times or StreamTimes()
        self.frame_budget = FrameBudget()
        self.reader = LogReader(database, feed, self.times.poll)
        self._database = database
        self._revocations = revocations
        self._limit = limit
        self._streams: set[EventStream] = set()
        self._delta_streams: dict[str, set[EventStream]] = {}
        self._delta_numbers: dict[str, int] = {}
        self._openings = itertools.count(1)
        self.delta_accounts_changed = asyncio.Event()

    def count(self) -> int:
        """Return how many streams are open here."""
        return len(self._streams)

    async def open(
        self, principal: Principal, selection: Selection, after: str | None
    ) -> EventStream:
        """Open a stream of the account's events.

        Args:
            after: the cursor that the client has; None to begin with what comes from now on.

        Raises:
            ApiError: 429 `STREAM_LIMIT`, the credential has too many streams.
            SQLAlchemyError, OSError: the database is unavailable.
        """
        credential = Credential(principal)
        await self._limit.acquire(credential)
        try:
            begin = beginning(await event_log.extent(self._database, credential.account_id), after)
        except BaseException:
            # Also if the client has gone: a place that nobody releases would be lost for hours.
            self._limit.release(credential)
            raise
        stream = EventStream(self, credential, selection, begin)
        self._streams.add(stream)
        self._revocations.add(stream)
        return stream

    def remove(self, stream: EventStream) -> None:
        """Remove a stream that is closed; it calls this itself."""
        if stream in self._streams:
            self._streams.remove(stream)
            self._revocations.remove(stream)
            self._limit.release(stream.credential)

    def add_delta_stream(self, stream: EventStream) -> None:
        """Send a stream the deltas of its account from now on; it calls this itself."""
        account_id = stream.credential.account_id
        self._delta_streams.setdefault(account_id, set()).add(stream)
        self._delta_numbers[account_id] = next(self._openings)
        self.delta_accounts_changed.set()

    def remove_delta_stream(self, stream: EventStream) -> None:
        """Send a stream no more deltas; it calls this itself."""
        account_id = stream.credential.account_id
        streams = self._delta_streams.get(account_id, set())
        streams.discard(stream)
        if not streams and self._delta_streams.pop(account_id, None) is not None:
            del self._delta_numbers[account_id]
            self.delta_accounts_changed.set()

    def delta(self, account_id: str, daemon_id: str, delta: Delta, ide_id: str) -> None:
        """Send a delta of a machine's session to the streams that want it.

        Args:
            ide_id: the target id by type of the session; empty if it is not known.
        """
        streams = self._delta_streams.get(account_id)
        if not streams:
            return
        target_id = f"{daemon_id}:session:{delta.session_id}"
        body = ChatDelta(
            target_id=target_id,
            message_id=delta.message_id,
            revision=delta.revision,
            op=delta.op,
            text=delta.text,
        )
        frame = frames.delta_frame(msgspec.json.encode(body))
        for stream in streams:
            stream.receive_delta(daemon_id, (target_id, ide_id), frame)

    def delta_accounts(self) -> dict[str, int]:
        """Return the accounts with streams on this node that want deltas.

        The number of an account grows with each stream that is opened.
        """
        return dict(self._delta_numbers)

    async def run(self) -> None:
        """Read events and keep the count of streams, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.reader.run(), name="read the event log")
            tasks.create_task(self._limit.run(), name="count streams")

    def drain(self) -> None:
        """Stop counting the streams of this node: their clients continue at other nodes."""
        self._limit.leave()


def beginning(extent: Extent, after: str | None) -> Beginning:
    """Return where a stream begins whose client has the cursor `after`, if any."""
    if after is None:
        return Beginning("fresh", extent.newest, extent.newest)
    cursor = frames.cursor_of(after)
    if cursor is None or not extent.floor <= cursor <= extent.newest:
        return Beginning("gap", extent.newest, extent.newest)
    return Beginning("ok", cursor, extent.newest)


def retry_after_ms() -> int:
    """Return when a client whose stream ends should connect again, in milliseconds.

    It is random: the clients of a node that drains do not all connect in one moment.
    """
    return random.randrange(_RETRY_MILLIS, 2 * _RETRY_MILLIS)  # noqa: S311  # spread only
