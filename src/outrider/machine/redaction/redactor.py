"""Replaces the secrets in texts with marks and counts them; stores and logs nothing."""

import re
from collections import Counter
from typing import Final

from outrider.machine.redaction import markup, named_values, private_keys, rules, urls
from outrider.machine.redaction.control_sequences import has_moves, strip_controls
from outrider.machine.redaction.escapes import Unescaped
from outrider.machine.redaction.scan import Detector, Scan, Secret, mark
from outrider.machine.redaction.tokens import TokenDetector
from outrider.machine.redaction.values import has_letters_and_digits

DETECTORS: Final[tuple[Detector, ...]] = (
    *private_keys.DETECTORS,
    TokenDetector(),
    *urls.DETECTORS,
    *rules.DETECTORS,
    *markup.DETECTORS,
    *named_values.DETECTORS,
)
"""All detectors in the order in which they run, the most specific first."""

_HINT: Final = re.compile(r"[=:@<]|-[-pu]|login|password|[A-Za-z0-9_\-.]{8}", re.IGNORECASE)
"""Every secret contains one of these; most short texts do not, and are not scanned."""

_WRAPS: Final = 24
"""Characters of the shortest secret that a screen may have wrapped over several lines."""

_BOX: Final = r" \t|│┃║"
_RUN: Final = r"[A-Za-z0-9_\-.+/=$,]"
_LINE_END: Final = rf"(?=[{_BOX}]{{0,200}}(?:\n|\Z))"
_BREAK: Final = rf"[{_BOX}]{{0,200}}\n[{_BOX}]{{0,200}}+"
_WRAPPED: Final = re.compile(rf"{_BREAK}{_RUN}{{20,512}}+{_LINE_END}")
_WRAPPED_END: Final = re.compile(rf"{_BREAK}{_RUN}{{1,19}}+{_LINE_END}")


class Redactor:
    """Redacts the texts of one debug bundle.

    Attributes:
        counts: how many secrets of each kind were replaced.
        examined: how many characters have been given to patterns, see `scan`.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.examined = 0

    def text(self, text: str) -> str:
        """Return the text without control sequences, each secret replaced by a mark."""
        self.examined += len(text)
        redacted, counts = self._without_secrets(strip_controls(text))
        if has_moves(text):
            # A cursor movement may separate two words or interrupt one: try both, and keep the
            # reading with more secrets.
            joined, others = self._without_secrets(strip_controls(text, gaps=False))
            if others.total() > counts.total():
                redacted, counts = joined, others
        self.counts += counts
        return redacted

    def hide(self, kind: str = "named-secret") -> str:
        """Return the mark for a value that is secret because of its name, and count it."""
        self.counts[kind] += 1
        return mark(kind)

    def _without_secrets(self, text: str) -> tuple[str, Counter[str]]:
        counts: Counter[str] = Counter()
        if not _HINT.search(text):
            return text, counts
        if "\\" in text:
            text = self._run_detectors(text, counts, escapes=True)
        return self._run_detectors(text, counts, escapes=False), counts

    def _run_detectors(self, text: str, counts: Counter[str], *, escapes: bool) -> str:
        """Run every detector once, each on the text that the detectors before it have redacted.

        With `escapes`, detectors see the text without its escapes; marks go into the original.
        """
        read = Unescaped(text if escapes else "")
        scan = Scan(read.text if escapes else text)
        for detector in DETECTORS:
            pieces: list[str] = []
            position = until = 0
            for secret in detector.search(scan):
                if secret.start < until:
                    continue
                until = _wrapped_end(scan, secret)
                start, end = secret.start, until
                if escapes:
                    start, end = read.original(start), read.original(end)
                pieces += [text[position:start], mark(secret.kind)]
                counts[secret.kind] += 1
                position = end
            if pieces:
                self.examined += scan.examined
                text = "".join([*pieces, text[position:]])
                read = Unescaped(text if escapes else "")
                scan = Scan(read.text if escapes else text)
        self.examined += scan.examined
        return text


def _wrapped_end(scan: Scan, secret: Secret) -> int:
    """Return the end of a secret that a screen has wrapped over several lines."""
    end = secret.end
    if secret.end - secret.start < _WRAPS:
        return end
    while True:
        more = scan.match(_WRAPPED, end, 1024)
        if more is None or not has_letters_and_digits(more[0]):
            break
        end = more.end()
    if end > secret.end:
        last = scan.match(_WRAPPED_END, end)
        end = end if last is None else last.end()
    return end
