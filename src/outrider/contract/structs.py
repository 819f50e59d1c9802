"""The base class of all structs that are sent or stored as JSON."""

from typing import Annotated

import msgspec
from msgspec import Meta

Count = Annotated[int, Meta(ge=0, le=2**53 - 1)]
"""A number of things or bytes, at most 2**53 - 1, which JavaScript can represent."""

Timestamp = Annotated[int, Meta(ge=0, le=2**53 - 1)]
"""Epoch milliseconds."""


class Wire(msgspec.Struct, rename="camel", kw_only=True):
    """A JSON object with camelCase names. Unknown fields are ignored, a missing value is null.

    `kw_only` is not inherited (msgspec applies it to a class's own fields), so every subclass
    repeats it.
    """
