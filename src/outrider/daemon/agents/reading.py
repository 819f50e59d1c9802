"""The part of a chat that a request asks for, within what an answer holds."""

from typing import Final

from outrider.contract.commands import ReadChat
from outrider.contract.errors import bad_request
from outrider.contract.resources import Message

MAX_CHAT_BYTES: Final = 8 * 1024 * 1024
"""What one answer to read_chat holds of a chat at the most; older messages are left out."""


def select(messages: list[Message], query: ReadChat) -> list[Message]:
    """Return what follows `query.after`, or the last `query.limit` messages.

    Raises:
        ApiError: 400, the chat has no message with the id `after`.
    """
    if query.after is not None:
        index = next((i for i, m in enumerate(messages) if m.id == query.after), None)
        if index is None:
            raise bad_request(f"This chat has no message {query.after!r}", "after")
        messages = messages[index + 1 :]
        return _within(messages[: query.limit] if query.limit else messages, newest=False)
    return _within(messages[-query.limit :] if query.limit else messages, newest=True)


def _within(messages: list[Message], *, newest: bool) -> list[Message]:
    """Return as many as fit into an answer, from the newest or from the oldest on."""
    room, kept = MAX_CHAT_BYTES, 0
    for message in reversed(messages) if newest else messages:
        room -= len(message.content.encode("utf-8", "surrogatepass")) + 256
        if room < 0 and kept:
            break
        kept += 1
    return messages[len(messages) - kept :] if newest else messages[:kept]
