"""Takes secrets out of texts and counts them. Nothing of what it reads is kept or logged."""

import re
from collections import Counter
from typing import Final

from outrider.daemon.debug import commands, forms, keys, markup, named, tokens
from outrider.daemon.debug.controls import has_moves, strip_controls
from outrider.daemon.debug.escapes import Unescaped
from outrider.daemon.debug.scan import Form, Scan, Secret, mark
from outrider.daemon.debug.values import is_mixed

FORMS: Final[tuple[Form, ...]] = (
    *keys.FORMS,
    *tokens.FORMS,
    *forms.FORMS,
    *commands.FORMS,
    *markup.FORMS,
    *named.FORMS,
)
"""The forms, in the order in which they are looked for: first those that tell most of a secret."""

_HINT: Final = re.compile(r"[=:@<]|-[-pu]|login|password|[A-Za-z0-9_\-.]{8}", re.IGNORECASE)
"""What every form has somewhere; most short texts have it not, and need no closer look."""

_WRAPS: Final = 24
"""Characters of the shortest secret that a screen may have broken over several lines."""

_BOX: Final = r" \t|│┃║"
_RUN: Final = r"[A-Za-z0-9_\-.+/=$,]"
_LINE_END: Final = rf"(?=[{_BOX}]{{0,200}}(?:\n|\Z))"
_BREAK: Final = rf"[{_BOX}]{{0,200}}\n[{_BOX}]{{0,200}}+"
_WRAPPED: Final = re.compile(rf"{_BREAK}{_RUN}{{20,512}}+{_LINE_END}")
_WRAPPED_END: Final = re.compile(rf"{_BREAK}{_RUN}{{1,19}}+{_LINE_END}")


class Redactor:
    """Redacts the texts of one bundle.

    Attributes:
        counts: how many secrets of each kind were found.
        examined: how many characters patterns were given to look at, see `scan`.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.examined = 0

    def text(self, text: str) -> str:
        """Return the text without control sequences, with a mark in the place of each secret."""
        self.examined += len(text)
        shown, counts = self._without_secrets(strip_controls(text))
        if has_moves(text):  # a move may be a gap between words, or stand in the middle of one
            joined, others = self._without_secrets(strip_controls(text, gaps=False))
            if others.total() > counts.total():
                shown, counts = joined, others
        self.counts += counts
        return shown

    def hidden(self, kind: str = "named-secret") -> str:
        """Return what stands in the place of a value that is secret by its name."""
        self.counts[kind] += 1
        return mark(kind)

    def _without_secrets(self, text: str) -> tuple[str, Counter[str]]:
        counts: Counter[str] = Counter()
        if not _HINT.search(text):
            return text, counts
        if "\\" in text:
            text = self._searched(text, counts, escapes=True)
        return self._searched(text, counts, escapes=False), counts

    def _searched(self, text: str, counts: Counter[str], *, escapes: bool) -> str:
        """Return a text in which every form has been looked for once.

        With `escapes`, it is looked for in what is left when escapes are taken away.
        """
        read = Unescaped(text if escapes else "")
        scan = Scan(read.text if escapes else text)
        for form in FORMS:
            kept: list[str] = []
            position = until = 0
            for secret in form.search(scan):
                if secret.start < until:
                    continue
                until = _wrapped_end(scan, secret)
                start, end = secret.start, until
                if escapes:
                    start, end = read.original(start), read.original(end)
                kept += [text[position:start], mark(secret.kind)]
                counts[secret.kind] += 1
                position = end
            if kept:
                self.examined += scan.examined
                text = "".join([*kept, text[position:]])
                read = Unescaped(text if escapes else "")
                scan = Scan(read.text if escapes else text)
        self.examined += scan.examined
        return text


def _wrapped_end(scan: Scan, secret: Secret) -> int:
    """Return where a secret ends that a screen has broken over several lines."""
    end = secret.end
    if secret.end - secret.start < _WRAPS:
        return end
    while True:
        more = scan.match(_WRAPPED, end, 1024)
        if more is None or not is_mixed(more[0]):
            break
        end = more.end()
    if end > secret.end:
        last = scan.match(_WRAPPED_END, end)
        end = end if last is None else last.end()
    return end
