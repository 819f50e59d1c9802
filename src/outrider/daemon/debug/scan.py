r"""How a text is searched for secrets: at anchors, in windows, in time that is linear.

A form of secret is looked for only where one of its anchors stands (`password`, `://`, `ghp_`), and
there only in a window of bounded size. What lies beyond the window is read only when it is going
to be taken out, and no form looks at that again. So with `n` characters, `A` anchors in all forms
and `W` characters in the largest window, a search looks at no more than `(A + W) * n` characters.
`Scan.examined` counts them.

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
"""What the place of a secret begins with."""

WINDOW: Final = 512
"""Characters behind an anchor that a pattern may look at, unless a form says otherwise."""

_ASCII_LOWER: Final = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}


def mark(kind: str) -> str:
    """Return what stands in the place of a secret."""
    return f"{MARK}{kind}]"


class Secret(NamedTuple):
    """A secret in a text: from where to where, and of which kind."""

    start: int
    end: int
    kind: str


class Scan:
    """One search of a text.

    Attributes:
        low: the text in lower case, each character in its place.
        examined: how many characters patterns were given to look at.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        low = text.lower()
        self.low = low if len(low) == len(text) else text.translate(_ASCII_LOWER)
        self.examined = 0

    def match(
        self, pattern: re.Pattern[str], place: int, window: int = WINDOW
    ) -> re.Match[str] | None:
        """Return what a pattern matches at a place, within a window."""
        end = min(place + window, len(self.text))
        self.examined += max(0, end - place)
        return pattern.match(self.text, place, end)

    def search(self, pattern: re.Pattern[str], place: int, window: int) -> re.Match[str] | None:
        """Return the first match of a pattern in a window."""
        end = min(place + window, len(self.text))
        self.examined += max(0, end - place)
        return pattern.search(self.text, place, end)

    def span(self, pattern: re.Pattern[str], place: int, limit: int) -> int:
        """Return where a run of characters ends; `pattern` matches each of them, one by one."""
        found = pattern.match(self.text, place, min(place + limit, len(self.text)))
        end = place if found is None else found.end()
        self.examined += end - place + 1
        return end

    def before(self, place: int, size: int) -> str:
        """Return up to `size` characters in front of a place, from the same line."""
        start = max(0, place - size)
        self.examined += place - start
        return self.text[start:place].rpartition("\n")[2]

    def everywhere(self, pattern: re.Pattern[str]) -> Iterator[re.Match[str]]:
        """Return every match of a pattern that looks at no character more than a few times."""
        self.examined += len(self.text)
        return pattern.finditer(self.text)

    def places(self, anchors: Iterable[str]) -> list[int]:
        """Return the places of anchors (in lower case), in order."""
        found: set[int] = set()
        for anchor in anchors:
            self.examined += len(self.low)
            place = self.low.find(anchor)
            while place >= 0:
                found.add(place)
                place = self.low.find(anchor, place + len(anchor))
        return sorted(found)


class Form(Protocol):
    """A form of secret."""

    def search(self, scan: Scan) -> Iterator[Secret]:
        """Return the secrets of this form, in order; none overlaps another."""


Find = Callable[[Scan, int], Secret | None]
"""Returns the secret whose anchor stands at a place, None where there is none."""


@dataclass(frozen=True)
class Anchored:
    """A form that is looked for where an anchor stands."""

    anchors: tuple[str, ...]
    find: Find

    def search(self, scan: Scan) -> Iterator[Secret]:
        """Return the secrets of this form, in order."""
        position = 0
        for place in scan.places(self.anchors):
            if place < position:
                continue  # within a secret that is taken out anyway
            secret = self.find(scan, place)
            if secret is not None and secret.start >= position:
                yield secret
                position = secret.end


Judge = Callable[[re.Match[str]], bool]


def pattern_form(
    kind: str,
    anchors: tuple[str, ...],
    pattern: str,
    judge: Judge = lambda _: True,
    *,
    window: int = WINDOW,
    more: str = "",
    flags: re.RegexFlag = re.IGNORECASE,
) -> Anchored:
    """Return a form that one pattern describes; its group `secret` is taken out, or all of it.

    `more` matches the characters with which a secret goes on that reaches the window's end.
    """
    compiled, rest = re.compile(pattern, flags), re.compile(f"(?:{more})*+") if more else None
    group = "secret" if "secret" in compiled.groupindex else 0

    def find(scan: Scan, place: int) -> Secret | None:
        match = scan.match(compiled, place, window)
        if match is None or match[group].startswith(MARK) or not judge(match):
            return None
        start, end = match.span(group)
        if rest is not None and end == min(place + window, len(scan.text)):
            end = scan.span(rest, end, len(scan.text))
        return Secret(start, end, kind)

    return Anchored(tuple(anchor.lower() for anchor in anchors), find)
