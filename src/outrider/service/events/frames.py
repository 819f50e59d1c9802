"""The frames of an event stream (server-sent events), and the buffer of those not sent yet.

Free of I/O: it decides what is sent next, and what happens to a client that does not read.
"""

import re
from collections import Counter, deque
from typing import Final

import msgspec

from outrider.contract.event_stream import (
    StreamEnd,
    StreamEndReason,
    StreamHeartbeat,
    StreamReady,
    StreamResume,
)
from outrider.contract.structs import Wire
from outrider.service.events.log import LoggedEvent

MAX_FRAMES: Final = 1000
MAX_BYTES: Final = 1024 * 1024
"""What may wait for a client that does not read."""

MAX_NODE_BYTES: Final = 64 * 1024 * 1024
MAX_ACCOUNT_BYTES: Final = 16 * 1024 * 1024
"""What may wait for all clients of a node, and for those of one account."""

CHUNK_BYTES: Final = 64 * 1024
"""About how much is written to the client's connection at once."""

_CURSOR: Final = re.compile(r"[0-9]{1,18}")
_encoder: Final = msgspec.json.Encoder()


def cursor_text(cursor: int) -> str:
    """Return a cursor as clients get it; the texts sort as the numbers do."""
    return f"{cursor:016d}"


def cursor_of(text: str) -> int | None:
    """Return the cursor that a client has sent, None if it is not one of ours."""
    return int(text) if _CURSOR.fullmatch(text) else None


def event_frame(event: LoggedEvent) -> bytes:
    """Return the frame of an event."""
    head = f"id: {cursor_text(event.cursor)}\nevent: {event.name}\ndata: "
    return b"%b%b\n\n" % (head.encode(), event.body)


def delta_frame(body: bytes) -> bytes:
    """Return the frame of a `chat:delta`."""
    return b"event: chat:delta\ndata: %b\n\n" % body


def ready_frame(resume: StreamResume, cursor: int) -> bytes:
    """Return the first frame of a stream that begins after `cursor`."""
    return _frame("stream:ready", StreamReady(resume=resume, cursor=cursor_text(cursor)))


def heartbeat_frame(cursor: int) -> bytes:
    """Return a heartbeat; everything up to `cursor` has been sent."""
    return _frame("stream:heartbeat", StreamHeartbeat(cursor=cursor_text(cursor)))


def end_frame(reason: StreamEndReason, retry_after_ms: int) -> bytes:
    """Return the last frame of a stream; an EventSource connects again after the time."""
    body = StreamEnd(reason=reason, retry_after_ms=retry_after_ms)
    return b"retry: %d\n%b" % (retry_after_ms, _frame("stream:end", body))


def _frame(name: str, body: Wire) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), _encoder.encode(body))


class FrameBudget:
    """The bytes that the buffers of all streams of this node hold together.

    An account that has little in them gets room in any case, so that others cannot starve it.

    Args:
        max_bytes: bytes of all accounts.
        max_account_bytes: bytes of one account.
    """

    def __init__(
        self, max_bytes: int = MAX_NODE_BYTES, max_account_bytes: int = MAX_ACCOUNT_BYTES
    ) -> None:
        self._max_bytes = max_bytes
        self._max_account_bytes = max_account_bytes
        self._used: Counter[str] = Counter()
        self._total = 0

    def take(self, account_id: str, size: int) -> bool:
        """Count bytes of an account, if there is room; return whether there was."""
        used = self._used[account_id] + size
        # Room for one stream's worth in any case: other accounts cannot starve this one.
        is_little = used <= MAX_BYTES
        if not is_little and (
            used > self._max_account_bytes or self._total + size > self._max_bytes
        ):
            return False
        self._used[account_id] = used
        self._total += size
        return True

    def release(self, account_id: str, size: int) -> None:
        """Count bytes no more."""
        self._total -= size
        self._used[account_id] -= size
        if not self._used[account_id]:
            del self._used[account_id]


class FrameBuffer:
    """The frames that wait for one client to read.

    Events are never left out: a client that does not read them in time loses its stream, and
    resumes after the last event that it got. Deltas are left out when there is no room: the
    message follows as an event.

    Args:
        max_frames: how many frames may wait.
        max_bytes: how many bytes may wait. A frame that is alone may be larger.
        budget: what the buffers hold together.
        account_id: the account of the client.
    """

    def __init__(
        self,
        max_frames: int = MAX_FRAMES,
        max_bytes: int = MAX_BYTES,
        *,
        budget: FrameBudget | None = None,
        account_id: str = "",
    ) -> None:
        self._budget = budget or FrameBudget()
        self._account_id = account_id
        self._max_frames = max_frames
        self._max_bytes = max_bytes
        self._frames: deque[tuple[int | None, bytes]] = deque()
        self._bytes = 0
        self.overflowed = False
        """Whether events did not find room. The buffer stays empty from then on."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits."""
        return not self._frames

    def add_event(self, cursor: int, frame: bytes) -> None:
        """Add an event. Deltas that wait are dropped if it finds no room otherwise."""
        if self.overflowed or self._add(cursor, frame):
            return
        # Deltas first: the client can do without them, since the whole message follows.
        self._drop_deltas()
        if not self._add(cursor, frame):
            self.overflowed = True
            self.clear()

    def add_delta(self, frame: bytes) -> None:
        """Add a delta. Without room it is dropped, and so are those that wait."""
        if not self.overflowed and not self._add(None, frame):
            self._drop_deltas()

    def take(self, max_bytes: int = CHUNK_BYTES) -> tuple[bytes, int | None]:
        """Remove the oldest frames, about `max_bytes` of them.

        Returns:
            The frames, and the cursor of the newest event among them, if there is one.
        """
        taken: list[bytes] = []
        size, newest = 0, None
        while self._frames and size < max_bytes:
            cursor, frame = self._frames.popleft()
            taken.append(frame)
            size += len(frame)
            newest = newest if cursor is None else cursor
        self._release(size)
        return b"".join(taken), newest

    def clear(self) -> None:
        """Drop all frames that wait."""
        self._frames.clear()
        self._release(self._bytes)

    def _add(self, cursor: int | None, frame: bytes) -> bool:
        """Add a frame if it finds room; return whether it did."""
        size = len(frame)
        if self._frames and (
            len(self._frames) >= self._max_frames or self._bytes + size > self._max_bytes
        ):
            return False
        if not self._budget.take(self._account_id, size):
            return False
        self._frames.append((cursor, frame))
        self._bytes += size
        return True

    def _release(self, size: int) -> None:
        self._bytes -= size
        self._budget.release(self._account_id, size)

    def _drop_deltas(self) -> None:
        events = deque(item for item in self._frames if item[0] is not None)
        self._release(self._bytes - sum(len(frame) for _, frame in events))
        self._frames = events
