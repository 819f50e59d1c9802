"""Removes terminal control sequences from a text, so that they cannot split a secret.

Each pattern examines every character a bounded number of times: a sequence contains no ESC except
its first character, so a search never starts inside another match.
"""

import re
from typing import Final

_SEQUENCE: Final = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*(?P<final>[@-~])"  # CSI: colours, moves
    # the same as JSON, shells and editors write it
    r"|(?:\\{1,4}(?:u001[bB]|x1[bB]|033|e)|\^\[)\[(?:[\d;:?]{1,24}(?P<shown>[A-Za-z])|[mK])"
    r"|\\{1,4}(?:u001[bB]|x1[bB])(?:\][^\n\"]{0,200}?\\{1,4}(?:u0007|x07|u001[bB]\\{2,8})|[()][0-9A-Z])"
    # strings (titles, links): up to their end, or that of the line where it is missing
    r"|(?:\x1b[\]P^_X]|[\x9d\x90\x9e\x9f\x98])[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)?"
    r"|\x1b[ -/]*[0-~]?"
)
_GAPS: Final = {"C": " ", "G": " ", "a": " ", "`": " "} | dict.fromkeys("ABEFHdef", "\n")
"""What a cursor movement becomes: a space within the line, a line break otherwise."""

_OTHERS: Final = dict.fromkeys(
    [*range(0x09), *range(0x0B, 0x20), *range(0x7F, 0xA0)], None
)  # all but tab and line feed
_INVISIBLE: Final = re.compile(
    "(?<=[!-~])[\u00ad\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff]+(?=[!-~])"
)
"""Invisible characters between characters of secrets; emoji and scripts need them elsewhere."""

_ANY: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff]"
    r"|\\(?:u001|x1|033|e)|\^\["
)


def has_moves(text: str) -> bool:
    """Return whether a text contains sequences that move the cursor."""
    return any(_gap(match) for match in _SEQUENCE.finditer(text))


def strip_controls(text: str, *, gaps: bool = True) -> str:
    """Return a text without control sequences and characters, as a terminal would show it.

    A cursor movement becomes a space or a line break; without `gaps` it is removed.
    """
    if not _ANY.search(text):
        return text
    text = _SEQUENCE.sub(_gap if gaps else "", text)
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if "\b" in text:
        text = _without_overstrikes(text)
    return _INVISIBLE.sub("", text.translate(_OTHERS))


def _gap(sequence: re.Match[str]) -> str:
    return _GAPS.get(sequence["final"] or sequence["shown"] or "", "")


def _without_overstrikes(text: str) -> str:
    """Apply backspaces: each removes the character before it."""
    characters: list[str] = []
    for character in text:
        if character != "\b":
            characters.append(character)
        elif characters and characters[-1] != "\n":
            characters.pop()
    return "".join(characters)
