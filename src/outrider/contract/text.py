"""Text from other programs: the limits of each kind, and how to show it safely.

The limits of a field are declared once, as its type. `limits.fitted` makes text fit its type.
"""

import re
import unicodedata
from typing import Annotated, Final

from msgspec import Meta

MAX_NAME: Final = 256
"""Characters of a name, an id, a type."""

# C0 and C1 control characters (escape sequences begin with one), line separators, and the
# characters that change the writing direction, which can make a name look like another one.
_UNSAFE: Final = r"\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069"

PRINTABLE: Final = rf"^[^{_UNSAFE}]*$(?!\n)"
"""The pattern of names: one line without characters that a terminal interprets."""

NO_NUL: Final = r"^[^\x00]*$"
"""The pattern of paths, arguments, and text of several lines: PostgreSQL cannot store NUL."""

TERMINAL_NAME: Final = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$(?!\n)"
"""The pattern of the names of terminals."""

DELIVERY_ID: Final = r"^dlv_[0-9a-z]{26}$(?!\n)"
"""The pattern of the ids of deliveries."""

AUDIT_ID: Final = r"^aud_[0-9a-z]{26}$(?!\n)"
"""The pattern of the ids of audit records."""

EXPLANATIONS: Final = {
    PRINTABLE: "text without control characters",
    NO_NUL: "text without NUL characters",
    TERMINAL_NAME: "1 to 64 letters, digits, dots, dashes and underscores, a letter or digit first",
    DELIVERY_ID: "the id of a delivery",
    AUDIT_ID: "the id of a record",
}
"""Error texts for text that does not match a pattern."""

Name = Annotated[str, Meta(max_length=MAX_NAME, pattern=PRINTABLE)]
"""A name, a type, an id."""

ShortName = Annotated[str, Meta(max_length=40, pattern=PRINTABLE)]
"""A version, a platform: text for a short column of the database."""

Id = Annotated[str, Meta(max_length=64, pattern=PRINTABLE)]
"""An id from `ids.new_id`, here or in another program."""

TargetId = Annotated[str, Meta(max_length=512, pattern=PRINTABLE)]
"""A target id: a machine's id, a kind and a name."""

MAX_TITLE: Final = 1024
"""Characters of a line for people."""

Title = Annotated[str, Meta(max_length=MAX_TITLE, pattern=PRINTABLE)]
"""A line for people: the title of a chat, the label of an option."""

Path = Annotated[str, Meta(max_length=4096, pattern=NO_NUL)]
"""A path. It may hold control characters: escape it before it is shown."""

Excerpt = Annotated[str, Meta(max_length=4096, pattern=NO_NUL)]
"""Text for people, of several lines. Escape it before it is shown."""

Text = Annotated[str, Meta(max_length=16_384, pattern=NO_NUL)]
"""Longer text for people, such as a question with the command that it is about."""

_unsafe = re.compile(f"[{_UNSAFE}]")
_INVISIBLE: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp", "Zs"})
"""The categories of Unicode for spaces, control and format characters."""


def is_printable(text: str) -> bool:
    """Return whether `text` matches `PRINTABLE`."""
    return _unsafe.search(text) is None


def is_blank(text: str) -> bool:
    """Return whether `text` has no visible character: it is empty, or spaces and controls only."""
    return all(unicodedata.category(character) in _INVISIBLE for character in text)


def printable(text: str) -> str:
    """Return `text` with U+FFFD in place of every character that `PRINTABLE` excludes."""
    return _unsafe.sub("\N{REPLACEMENT CHARACTER}", text)


def explained(reason: str) -> str:
    """Return a decoder's reason, with patterns replaced by their explanations."""
    for pattern, words in EXPLANATIONS.items():
        if repr(pattern) in reason:
            return f"expected {words}"
    return reason


def escaped(text: str) -> str:
    r"""Return `text` as one line for a terminal: what is not printable becomes `\x1b`, `\n`, ….

    Spaces of every width stay: French and Japanese texts have them.
    """
    if text.isprintable():
        return text
    return "".join(
        letter
        if letter.isprintable() or unicodedata.category(letter) == "Zs"
        else letter.encode("unicode_escape").decode()
        for letter in text
    )


def escaped_lines(text: str) -> str:
    """Return `text` as `escaped` does, but keep line breaks, for tracebacks and help texts."""
    return "\n".join(escaped(line) for line in text.split("\n"))
