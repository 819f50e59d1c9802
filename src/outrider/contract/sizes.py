"""Limits in bytes on events and sessions as a whole, and on pages; and the cut to the limit.

The types of the fields limit each text and each list; together they would allow an event of 70 MB.
Our machine agent cuts an event before it keeps it, and the service cuts what other programs send.
"""

from collections.abc import Callable, Iterable
from functools import cache
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

_Place = tuple[type, str]
"""A field: its struct and its name."""

_WHOLE: Final[set[_Place]] = {
    (Workspace, "path"),
    (Worktree, "path"),
    (FileDiff, "path"),
    (FileLocation, "path"),
    (PendingAction, "options"),
}
"""A shorter path names another file, and an answer that is left out cannot be given."""

_ENDS: Final[dict[_Place, str]] = {
    (ChatMessage, "content"): TRUNCATION_NOTE,
    (FileDiff, "patch"): "\n\\ [outrider: the rest is left out]",
}
_ELLIPSIS: Final = "…"

_Shorten = Callable[[Any, int], Any]
"""Returns a value with texts and lists that are cut for a level."""


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
    """Return a session without a pending action, cut to the limit as an event is."""
    return session if json_bytes(session) <= limit else _cut(session, limit)


def _cut(value: Any, limit: int) -> Any:
    kind: type = type(value)
    shorten = _shorten_struct(kind)
    for level in range(1, _LEVELS + 1):
        value = shorten(value, level)
        # `truncated` is not set yet.
        if json_bytes(value) + len(b',"truncated":true') <= limit:
            break
    return value


@cache
def _shorten_struct(kind: type) -> _Shorten:
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)
    fields = [
        (field.name, shorten)
        for field in info.fields
        if (shorten := _compile(field.type, (kind, field.name))) is not None
    ]

    def shorten_fields(value: msgspec.Struct, level: int) -> msgspec.Struct:
        changes = {name: shorten(getattr(value, name), level) for name, shorten in fields}
        return msgspec.structs.replace(value, **changes)

    return shorten_fields


def _compile(kind: inspect.Type, place: _Place) -> _Shorten | None:
    """Return what shortens the values of a field; None if they stay as they are."""
    match kind:
        case inspect.StructType():
            return _shorten_struct(kind.cls)
        case inspect.UnionType():
            return _shorten_union([_compile(choice, place) for choice in kind.types], kind)
        case inspect.ListType():
            return _shorten_list(_compile(kind.item_type, place), is_whole=place in _WHOLE)
        case inspect.StrType(max_length=longest) if longest is None or longest > _LONGEST_NAME:
            return None if place in _WHOLE else _shorten_text(_ENDS.get(place, _ELLIPSIS))
    return None


def _shorten_union(choices: list[_Shorten | None], kind: inspect.UnionType) -> _Shorten | None:
    """Return what shortens an optional value; texts may stand beside booleans."""
    for shorten, choice in zip(choices, kind.types, strict=True):
        if shorten is not None:
            known = getattr(choice, "cls", list if isinstance(choice, inspect.ListType) else str)
            return lambda value, level: shorten(value, level) if isinstance(value, known) else value
    return None


def _shorten_list(item: _Shorten | None, *, is_whole: bool) -> _Shorten:
    def shorten(values: list[Any], level: int) -> list[Any]:
        first = values if is_whole else values[: _LONGEST_LIST >> level]
        return first if item is None else [item(value, level) for value in first]

    return shorten


def _shorten_text(end: str) -> _Shorten:
    def shorten(text: str, level: int) -> str:
        longest = max(_SHORTEST_TEXT, MAX_EVENT_CONTENT >> level)
        return text if len(text) <= longest else text[: longest - len(end)] + end

    return shorten
