"""Limits in bytes on events and sessions as a whole, and on pages; and the cut to the limit.

The types of the fields limit each text and each list; together they would allow an event of 70 MB.
Our machine agent cuts an event before it keeps it, and the service cuts what other programs send.
"""

from collections.abc import Iterable
from functools import cache, partial
from typing import Any, Final

import msgspec
from msgspec import inspect

from outrider.contract.events import MAX_EVENT_CONTENT, TRUNCATION_NOTE, AgentEvent, ChatMessage
from outrider.contract.resources import (
    FileDiff,
    FileLocation,
    Message,
    PendingAction,
    Session,
    Workspace,
    Worktree,
)
from outrider.contract.rewriting import Place, Rewrite, rewriter

MAX_EVENT_BYTES: Final = 256 * 1024
"""Bytes of an event's body, the JSON that is stored, streamed and delivered."""

MAX_REPORTED_BYTES: Final = MAX_EVENT_BYTES - 8 * 1024
"""Bytes of an event as its machine reports it: the body repeats its names and ids."""

MAX_PAGE_BYTES: Final = 4 * 1024 * 1024
"""Bytes of a page of what the API lists; a single entry may have more."""

MAX_SESSION_BYTES: Final = 64 * 1024
"""Bytes of the record of a session that has no pending action."""

_LONGEST_LIST: Final = 1024
_SHORTEST_TEXT: Final = 64
_LEVELS: Final = 11
"""How often the longest texts and lists are halved, until texts have `_SHORTEST_TEXT` characters
and lists no entry. What is left of the largest event is below the limit."""

_LONGEST_NAME: Final = 512
"""Texts whose type allows no more are names and ids, which are never cut."""

_WHOLE: Final[set[Place | None]] = {
    (Workspace, "path"),
    (Worktree, "path"),
    (FileDiff, "path"),
    (FileLocation, "path"),
    (PendingAction, "options"),
}
"""A shorter path names another file, and an answer that is left out cannot be given."""

_ENDS: Final[dict[Place | None, str]] = {
    (ChatMessage, "content"): TRUNCATION_NOTE,
    (FileDiff, "patch"): "\n\\ [outrider: the rest is left out]",
}
_ELLIPSIS: Final = "…"


def json_bytes(value: object) -> int:
    """Return the length of a value's JSON."""
    return len(msgspec.json.encode(value))


def count_within(sizes: Iterable[int], limit: int = MAX_PAGE_BYTES) -> int:
    """Return how many of the first entries, of these bytes, a page has; it has at least one."""
    count = 0
    for size in sizes:
        limit -= size
        if limit < 0 and count:
            break
        count += 1
    return count


def messages_within(
    messages: list[Message], *, newest: bool, limit: int = MAX_PAGE_BYTES - 64 * 1024
) -> list[Message]:
    """Return as many messages as fit into a page, from the newest or from the oldest on.

    A single one is returned, however long it is. A page has room for the rest of a chat beside
    them.
    """
    in_order = reversed(messages) if newest else messages
    count = count_within((json_bytes(message) + 1 for message in in_order), limit)
    return messages[len(messages) - count :] if newest else messages[:count]


def cut_event(event: AgentEvent, limit: int = MAX_REPORTED_BYTES) -> AgentEvent:
    """Return an event cut to the limit, and marked as `truncated` if it was longer.

    The longest texts and lists are shortened; names, ids and paths stay, and so do all options of
    a pending action.
    """
    if json_bytes(event) <= limit:
        return event
    cut: AgentEvent = msgspec.structs.replace(_cut(event, limit), truncated=True)
    return cut


def cut_session(session: Session, limit: int = MAX_SESSION_BYTES) -> Session:
    """Return a session cut to the limit as an event is; with many options it may have more."""
    return session if json_bytes(session) <= limit else _cut(session, limit)


def _cut(value: Any, limit: int) -> Any:
    kind: type = type(value)
    for level in range(1, _LEVELS + 1):
        shorten = _shorten_of(kind, level)
        assert shorten is not None
        value = shorten(value)
        # `truncated` is not set yet.
        if json_bytes(value) + len(b',"truncated":true') <= limit:
            break
    return value


@cache
def _shorten_of(kind: type, level: int) -> Rewrite | None:
    return rewriter(inspect.type_info(kind), partial(_shorten, level=level))


def _shorten(kind: inspect.Type, place: Place | None, level: int) -> Rewrite | None:
    """Return what shortens the texts or lists of a type for a level; None if they stay whole."""
    if place in _WHOLE:
        return None
    match kind:
        case inspect.ListType():
            return lambda values: values[: _LONGEST_LIST >> level]
        case inspect.StrType(max_length=longest) if longest is None or longest > _LONGEST_NAME:
            return partial(_shorten_text, end=_ENDS.get(place, _ELLIPSIS), level=level)
    return None


def _shorten_text(text: str, end: str, level: int) -> str:
    longest = max(_SHORTEST_TEXT, MAX_EVENT_CONTENT >> level)
    return text if len(text) <= longest else text[: longest - len(end)] + end
