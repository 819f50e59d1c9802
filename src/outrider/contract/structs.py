"""The base of every structure that crosses a wire."""

import msgspec


class Wire(msgspec.Struct, rename="camel", kw_only=True):
    """A JSON object with camelCase names. Unknown fields are ignored, a missing value is null.

    `kw_only` is not inherited (msgspec applies it to a class's own fields), so every
    subclass says it again.
    """
