"""The messages that wait for an agent, and the retries of the oldest one; free of I/O."""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final

from outrider.contract.commands import ChatInput
from outrider.contract.errors import ApiError, conflict, not_found
from outrider.machine.sessions.core.protocol import CoreCommand, Dequeue, Enqueue, SetTimer

MAX_QUEUED: Final = 16
"""Messages that may wait while an agent is generating."""

RETRY_AFTER: Final = 30.0
"""Seconds after which a failed delivery of a queued message is retried; at once on a change."""

MAX_ATTEMPTS: Final = 5
"""Failed deliveries of a queued message, after which it is dropped with an error."""


class MessageQueue:
    """The queue of one session, as its journal has it.

    Attributes:
        is_postponed: a delivery has failed; it is retried after a change or `RETRY_AFTER`.
        has_timer: the session's timer, of which there is one, is set for that retry.
    """

    def __init__(self, entries: Iterable[tuple[str, ChatInput]]) -> None:
        self._entries = deque(entries)
        self._failures = 0  # of the oldest message
        self.is_postponed = False
        self.has_timer = False

    def __bool__(self) -> bool:
        return bool(self._entries)

    def entries(self) -> list[tuple[str, ChatInput]]:
        """Return the messages (id, input), oldest first."""
        return list(self._entries)

    def add(self, message_id: str, message: ChatInput, *, is_first: bool) -> Iterator[CoreCommand]:
        """Queue a message behind the others, or ahead of them.

        Raises:
            ApiError: 409, the queue is full.
        """
        if len(self._entries) >= MAX_QUEUED:
            raise conflict(
                f"{MAX_QUEUED} messages wait for this agent already: "
                "wait until it has taken one, or stop it"
            )
        yield Enqueue(message_id, message, is_first=is_first)
        self._entries.insert(0 if is_first else len(self._entries), (message_id, message))
        self.is_postponed = False

    def withdraw(self, message_id: str) -> Iterator[CoreCommand]:
        """Remove a message. Raises ApiError: 404, it is not in the queue."""
        entry = next((entry for entry in self._entries if entry[0] == message_id), None)
        if entry is None:
            raise not_found(f"No message {message_id!r} is in the queue")
        if entry is self._entries[0]:
            self._failures = 0
        self._entries.remove(entry)
        yield Dequeue(message_id)

    def remove_oldest(self) -> Iterator[CoreCommand]:
        """Remove the oldest message: the agent has accepted it, or never will."""
        message_id, _ = self._entries.popleft()
        self._failures = 0
        yield Dequeue(message_id)

    def postpone(self, error: ApiError, *, is_gone: bool) -> bool:
        """Return whether the oldest message is retried after a failed delivery.

        A conflict (409) or an agent that is gone does not count as an attempt.
        """
        if error.status != 409 and not is_gone:
            self._failures += 1
        is_temporary = error.status == 409 or error.status >= 500
        self.is_postponed = is_temporary and self._failures < MAX_ATTEMPTS
        return self.is_postponed

    def set_timer(self) -> Iterator[CoreCommand]:
        """Set the timer for the retry, if one is due and has none."""
        if self.is_postponed and not self.has_timer:
            self.has_timer = True
            yield SetTimer(RETRY_AFTER)

    def time_out(self) -> bool:
        """Return whether the timer that expired was for the retry, which is due then."""
        had_timer = self.has_timer
        if had_timer:
            self.has_timer = self.is_postponed = False
        return had_timer
