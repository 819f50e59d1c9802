r"""Texts without escapes (of JSON and programming languages), with a map to the original.

`{\"password\": \"contrase\\u00f1a\"}` holds the same secret as without the backslashes: so
detectors do not have to know escapes, however deep JSON is nested in a text.
"""

import re
from bisect import bisect_right
from typing import Final

_ESCAPE: Final = re.compile(r"\\{1,8}(?:u(?P<code>[0-9a-fA-F]{4})|(?P<letter>[\"'`/nrtbf]))")
_LETTERS: Final = {"n": "\n", "r": "\n", "t": "\t", "b": "", "f": "\n"}


class Unescaped:
    """A text without its escapes.

    Attributes:
        text: the result, the text itself if there were none.
    """

    def __init__(self, text: str) -> None:
        parts: list[str] = []
        self._unescaped, self._escaped = [0], [0]
        end = length = 0
        for escape in _ESCAPE.finditer(text):
            plain = _plain(escape)
            parts += [text[end : escape.start()], plain]
            length += escape.start() - end + len(plain)
            end = escape.end()
            self._unescaped.append(length)
            self._escaped.append(end)
        self.text = "".join([*parts, text[end:]]) if parts else text

    def original(self, place: int) -> int:
        """Return the index in the original text of an index in `text`."""
        index = bisect_right(self._unescaped, place) - 1
        return self._escaped[index] + place - self._unescaped[index]


def _plain(escape: re.Match[str]) -> str:
    if escape["letter"] is not None:
        return _LETTERS.get(escape["letter"], escape["letter"])
    character = chr(int(escape["code"], 16))
    return character if character.isprintable() else " "
