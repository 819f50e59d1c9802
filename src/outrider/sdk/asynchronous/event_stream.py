"""The events of an account as they happen: connects again and resumes where it was."""

import asyncio
import logging
import math
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from typing import Any, Final

import httpx2
import msgspec

from outrider.contract.event_stream import StreamEnd, StreamHeartbeat, StreamReady
from outrider.sdk.asynchronous.transport import AsyncTransport
from outrider.sdk.errors import ApiError, ConnectionFailed, UnexpectedResponse
from outrider.sdk.operations import EVENTS
from outrider.sdk.results import Delta, Event

Frame = Event | Delta | StreamReady | StreamHeartbeat

SILENCE_SECONDS: Final = 30.0
"""A heartbeat comes every 10 s; after this time without one the connection counts as lost."""

GIVE_UP_SECONDS: Final = 300.0
"""How long it tries to connect again before it raises."""

LONGEST_PAUSE: Final = 5.0
"""Seconds between two attempts to connect again, at most."""

_TYPES: Final[Mapping[str, Any]] = {
    "stream:ready": StreamReady,
    "stream:heartbeat": StreamHeartbeat,
    "stream:end": StreamEnd,
    "chat:delta": Delta,
}

_log = logging.getLogger("outrider.sdk")


def joined(events: str | Iterable[str] | None) -> str | None:
    """Return the filter of events as the API takes it."""
    return events if events is None or isinstance(events, str) else ",".join(events) or None


async def frames(
    transport: AsyncTransport,
    query: Mapping[str, Any],
    *,
    after: str | None = None,
    on_gap: Callable[[], None] | None = None,
    deadline: float = math.inf,
) -> AsyncGenerator[Frame, None]:
    """Yield the frames of the stream, over as many connections as it takes.

    Args:
        query: the filters of the API.
        after: the cursor to resume after.
        on_gap: called if events may be missing, because the cursor is too old.
        deadline: if there is no connection at this time of the monotonic clock, the frames end.

    Raises:
        OutriderError: the first connection failed; later: the key is no longer valid, or there was
            no connection for `GIVE_UP_SECONDS`.
    """
    cursor, has_connected, failures, lost_at = after, False, 0, time.monotonic()
    while not has_connected or time.monotonic() < deadline:
        pause: float | None = None
        try:
            opened = transport.stream(EVENTS.path, {**query, "after": cursor}, SILENCE_SECONDS)
            async with opened as source:
                async for received in source:
                    frame = _decode(received)
                    if frame is None:
                        continue
                    if isinstance(frame, StreamEnd):
                        pause = frame.retry_after_ms / 1000
                        break
                    if isinstance(frame, StreamReady):
                        has_connected = True
                        if frame.resume == "gap":
                            _log.warning("events may be missing: the cursor is too old")
                            if on_gap is not None:
                                on_gap()
                    else:
                        failures = 0
                    # It counts before the frame is yielded: a consumer that is interrupted there
                    # has got the frame. Deltas have none; that of a resumed stream is not newer.
                    if not (isinstance(frame, Delta) or _resumed(frame)):
                        cursor = frame.cursor
                    yield frame
                    lost_at = time.monotonic()
        except (ConnectionFailed, ApiError) as error:
            # The first failure is raised: a wrong address or key is not retried for minutes.
            is_over = _is_final(error) or time.monotonic() - lost_at > GIVE_UP_SECONDS
            if is_over or not has_connected:
                raise
            pause = error.retry_after if isinstance(error, ApiError) else None
        if pause is None:
            pause = transport.retries.delay(failures)
        failures += 1
        await asyncio.sleep(min(pause, LONGEST_PAUSE))


def _is_final(error: ConnectionFailed | ApiError) -> bool:
    """Return whether the next attempt would fail too: no limit, proxy or restart is the cause."""
    return isinstance(error, ApiError) and error.status < 500 and error.status != 429


def _resumed(frame: Frame) -> bool:
    """Return whether the stream goes on where the last one ended."""
    return isinstance(frame, StreamReady) and frame.resume == "ok"


def _decode(received: httpx2.ServerSentEvent) -> Frame | StreamEnd | None:
    """Return a frame; None for those of a newer service."""
    kind = _TYPES.get(received.event)
    if kind is None and received.event.startswith("stream:"):
        return None
    try:
        frame: Frame | StreamEnd = msgspec.json.decode(received.data, type=kind or Event)
    except msgspec.DecodeError as error:
        raise UnexpectedResponse(f"An event has another form than expected: {error}") from error
    if isinstance(frame, Event):
        frame.cursor, frame.body = received.id, received.data
    return frame
