"""Identifiers: TypeIDs, a prefix and a UUIDv7 in base32 (https://github.com/jetify-com/typeid)."""

import hashlib
from typing import Final, Literal

import uuid_utils
from typeid import TypeID
from typeid.errors import TypeIDException

Prefix = Literal[
    "acct", "user", "key", "machine", "session", "cmd", "msg", "act", "evt", "webhook", "dlv", "aud"
]

_MAX_MILLIS: Final = (1 << 48) - 1


def new_id(prefix: Prefix) -> str:
    """Return a new, globally unique id; ids sort by their time of creation."""
    return str(TypeID.from_uuid(uuid_utils.uuid7(), prefix=prefix))


def derived_id(prefix: Prefix, millis: int, *parts: str) -> str:
    """Return the id of something that is identified by `parts` and `millis` (epoch milliseconds).

    For records of other programs, such as a message in an agent's own transcript: reading the
    record again always gives the same id.
    """
    digest = hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).digest()
    random_a = int.from_bytes(digest[:2], "big") & 0x0FFF
    random_b = int.from_bytes(digest[2:10], "big") & ((1 << 62) - 1)
    stamp = min(max(millis, 0), _MAX_MILLIS)
    value = (stamp << 80) | (0x7 << 76) | (random_a << 64) | (0b10 << 62) | random_b
    return str(TypeID.from_uuid(uuid_utils.UUID(int=value), prefix=prefix))


def creation_time(text: str) -> int:
    """Return when `new_id` made this id, in epoch milliseconds.

    Raises:
        ValueError: `text` is not a TypeID.
    """
    try:
        return TypeID.from_string(text).uuid.int >> 80
    except TypeIDException as error:
        raise ValueError(f"{text!r} is not an id") from error


def is_id(prefix: Prefix, text: str) -> bool:
    """Return whether `text` is a well-formed id of this kind."""
    try:
        return TypeID.from_string(text).prefix == prefix
    except TypeIDException:
        return False
