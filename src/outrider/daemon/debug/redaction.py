"""Takes secrets out of texts and counts them. Nothing of what it reads is kept or logged."""

import re
from collections import Counter
from collections.abc import Iterable
from typing import Final

from outrider.daemon.debug.controls import strip_controls
from outrider.daemon.debug.forms import OWN, Form, beheaded_keys, library, mark

_HINT: Final = re.compile(r"[=:@]|-[-pu]|login|[A-Za-z0-9_\-.]{8}")
"""What every form has somewhere; most short texts have it not, and need no closer look."""


_ASCII_LOWER: Final = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}


class Redactor:
    """Redacts the texts of one bundle. `counts` has how many secrets of each kind were found."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._forms = (*OWN, *library())

    def text(self, text: str) -> str:
        """Return the text without control sequences, with a mark in the place of each secret."""
        text = strip_controls(text)
        if not _HINT.search(text):
            return text
        low, lowered = "", ""
        for form in self._forms:
            if lowered is not text:
                low, lowered = _lower(text), text
            if not form.needs or any(needed in low for needed in form.needs):
                text = self._without(form, text, low)
        if "-----END " in text:
            text = self._without_beheaded_keys(text)
        return text

    def hidden(self, kind: str = "named-secret") -> str:
        """Return what stands in the place of a value that is secret by its name."""
        self.counts[kind] += 1
        return mark(kind)

    def _without(self, form: Form, text: str, low: str) -> str:
        group = "secret" if "secret" in form.pattern.groupindex else 0
        kept: list[str] = []
        position = 0
        for place in _places(form, text, low):
            if place < position:
                continue
            match = form.pattern.match(text, place)
            kind = None if match is None else form.judge(match)
            if match is None or kind is None:
                continue
            start, end = match.span(group)
            kept += [text[position:start], self.hidden(kind or form.kind)]
            position = end
        return "".join([*kept, text[position:]]) if kept else text

    def _without_beheaded_keys(self, text: str) -> str:
        kept, position = [], 0
        for start, end in beheaded_keys(text):
            kept += [text[position : max(position, start)], self.hidden("private-key")]
            position = end
        return "".join([*kept, text[position:]])


def _lower(text: str) -> str:
    """Return the text in lower case, each character in its place."""
    low = text.lower()
    return low if len(low) == len(text) else text.translate(_ASCII_LOWER)


def _places(form: Form, text: str, low: str) -> Iterable[int]:
    """Return the places, in order, where a match may begin."""
    if not form.begins:
        return (match.start() for match in form.pattern.finditer(text))
    places: set[int] = set()
    for begin in form.begins:
        place = low.find(begin)
        while place >= 0:
            places.add(place)
            place = low.find(begin, place + len(begin))
    return sorted(places)
