r"""Searching a text for secrets in linear time: at anchors, within windows.

SECURITY.md promises that a text which is crafted against the redaction does not stop the machine
agent. So a detector looks for secrets only at its anchors (`password`, `://`, `ghp_`), and there
only within a window of bounded size. Text beyond the window is read only if it is part of a
secret, and that text is not examined again. For `n` characters, `A` anchors of all detectors and a
largest window of `W` characters, a scan examines at most `(A + W) * n` characters, whatever the
text is. `Scan.examined` counts them, and tests check the bound.

    text    … export DB_PASSWORD='hunter2' && …
    anchor              ^ password
    window              |--------------|         head: name, sign, quote
    value                        |-----|         read on while it belongs to the secret
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

MARK: Final = "[redacted:"
"""The start of the mark that replaces a secret."""

WINDOW: Final = 512
"""Characters after an anchor that a pattern may examine, unless a detector has its own limit."""

_ASCII_LOWER: Final = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}


def mark(kind: str) -> str:
    """Return the mark that replaces a secret."""
    return f"{MARK}{kind}]"


class Secret(NamedTuple):
    """A secret in a text: its start, its end and its kind."""

    start: int
    end: int
    kind: str


class Scan:
    """One scan of a text.

    Attributes:
        low: the text in lower case, with every character at the same index.
        examined: how many characters have been given to patterns.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        low = text.lower()
        self.low = low if len(low) == len(text) else text.translate(_ASCII_LOWER)
        self.examined = 0

    def match(
        self, pattern: re.Pattern[str], place: int, window: int = WINDOW
    ) -> re.Match[str] | None:
        """Match a pattern at an index, within a window."""
        end = min(place + window, len(self.text))
        self.examined += max(0, end - place)
        return pattern.match(self.text, place, end)

    def span(self, pattern: re.Pattern[str], place: int, limit: int) -> int:
        """Return the end of a run of characters; `pattern` must not backtrack (`*+`)."""
        run = pattern.match(self.text, place, min(place + limit, len(self.text)))
        end = place if run is None else run.end()
        self.examined += end - place + 1
        return end

    def before(self, place: int, size: int) -> str:
        """Return up to `size` characters before an index, from the same line."""
        start = max(0, place - size)
        self.examined += place - start
        return self.text[start:place].rpartition("\n")[2]

    def everywhere(self, pattern: re.Pattern[str]) -> Iterator[re.Match[str]]:
        """Return every match of a pattern that examines each character only a few times."""
        self.examined += len(self.text)
        return pattern.finditer(self.text)

    def places(self, anchors: Iterable[str]) -> list[int]:
        """Return the indexes of anchors (given in lower case), in order."""
        places: set[int] = set()
        for anchor in anchors:
            self.examined += len(self.low)
            place = self.low.find(anchor)
            while place >= 0:
                places.add(place)
                place = self.low.find(anchor, place + len(anchor))
        return sorted(places)


class Detector(Protocol):
    """Finds the secrets of one kind of evidence."""

    def search(self, scan: Scan) -> Iterator[Secret]:
        """Return the secrets, in order, without overlaps."""


@dataclass(frozen=True)
class AnchoredDetector:
    """Looks for secrets at anchors only; `find` returns the secret whose anchor is at an index."""

    anchors: tuple[str, ...]
    find: Callable[[Scan, int], Secret | None]

    def search(self, scan: Scan) -> Iterator[Secret]:
        """Return the secrets, in order."""
        position = 0
        for place in scan.places(self.anchors):
            if place < position:
                continue  # inside a secret
            secret = self.find(scan, place)
            if secret is not None and secret.start >= position:
                yield secret
                position = secret.end
