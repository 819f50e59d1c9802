"""Text that another program gave: what a name may hold, and how to show the rest safely."""

import re
import unicodedata
from typing import Annotated, Final

from msgspec import Meta

from outrider.contract.errors import bad_request

MAX_NAME: Final = 256
"""Characters of a name, an id, a type."""

# C0 and C1 control characters (escape sequences begin with one), line separators, and the
# characters that change the direction of writing, with which a name can look like another one.
_UNSAFE: Final = r"\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069"

PRINTABLE: Final = rf"^[^{_UNSAFE}]*$(?!\n)"
"""The pattern of every name: one line, nothing that a terminal would act on."""

NO_NUL: Final = r"^[^\x00]*$"
"""The pattern of every path, and of what becomes an argument of a program."""

TERMINAL_NAME: Final = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$(?!\n)"
"""The pattern of the names of terminals."""

DELIVERY_ID: Final = r"^dlv_[0-9a-z]{26}$(?!\n)"
"""The pattern of the ids of deliveries."""

EXPLANATIONS: Final = {
    PRINTABLE: "text without control characters",
    NO_NUL: "text without NUL characters",
    TERMINAL_NAME: "1 to 64 letters, digits, dots, dashes and underscores, a letter or digit first",
    DELIVERY_ID: "the id of a delivery",
}
"""What to tell somebody whose text does not match a pattern."""

Name = Annotated[str, Meta(max_length=MAX_NAME, pattern=PRINTABLE)]
ShortName = Annotated[str, Meta(max_length=40, pattern=PRINTABLE)]

_unsafe = re.compile(f"[{_UNSAFE}]")
_INVISIBLE: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp", "Zs"})
"""The categories of Unicode for spaces, control and format characters."""


def is_printable(text: str) -> bool:
    """Return whether `text` matches `PRINTABLE`."""
    return _unsafe.search(text) is None


def is_blank(text: str) -> bool:
    """Return whether `text` has no visible character: it is empty, or spaces and controls only."""
    return all(unicodedata.category(character) in _INVISIBLE for character in text)


def checked_name(text: str, field: str) -> str:
    """Return a name that did not come through a decoder.

    Raises:
        ApiError: 400, it is too long or not printable; the text names `field`.
    """
    if len(text) > MAX_NAME:
        raise bad_request(f"`{field}` is longer than {MAX_NAME} characters", field)
    if not is_printable(text):
        raise bad_request(f"`{field}` holds a control character: {escaped(text)!r}", field)
    return text


def printable(text: str) -> str:
    """Return `text` with U+FFFD in place of every character that `PRINTABLE` excludes."""
    return _unsafe.sub("\N{REPLACEMENT CHARACTER}", text)


def escaped(text: str) -> str:
    r"""Return `text` as one line for a terminal: what is not printable becomes `\x1b`, `\n`, …."""
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in text
    )


def escaped_lines(text: str) -> str:
    """Return `text` as `escaped` does, but keep its line breaks. For tracebacks and help texts."""
    return "\n".join(escaped(line) for line in text.split("\n"))
