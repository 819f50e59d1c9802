"""Private keys: blocks of several lines, also where their beginning or end is not in the text."""

import re
from collections.abc import Iterator
from typing import Final

from outrider.daemon.debug.scan import Anchored, Scan, Secret

KIND: Final = "private-key"

_LABEL: Final = r"(?:[A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?|OpenVPN Static key V1)"
_BOX: Final = r" \t|│┃║>"
_BEGIN: Final = re.compile(rf"----[- ]BEGIN {_LABEL}[ -]----")
_BODY: Final = re.compile(
    r"[A-Za-z0-9+/= \t\\]*+"  # all of it, where it stands in one line
    rf"(?:\n[{_BOX}#]*+"
    rf"(?:[\w-]{{1,40}}: [^\n]{{0,200}}|[A-Za-z0-9+/=\\]{{1,200}}+[{_BOX}]*+(?=\n|\Z))"
    rf"|\n[{_BOX}#]*+(?=\n[{_BOX}#]*+[A-Za-z0-9+/=]{{40}}))*+"
)
_PROSE: Final = re.compile(r"(?:[^-]|-(?!----?[ -]?(?:END|BEGIN) ))*+")
_END: Final = re.compile(rf"----[- ]END {_LABEL}[ -]----")
_LINE: Final = re.compile(rf"[{_BOX}]*+[A-Za-z0-9+/=\\]{{1,200}}[{_BOX}]*+")
_PIECE: Final = re.compile(rf"[A-Za-z0-9+/=]{{32,}}+[{_BOX}]*\Z")
_MAX_KEY: Final = 16 * 1024
_PUTTY: Final = re.compile(r"Private-Lines: \d{1,4}\n")
_PUTTY_LINES: Final = re.compile(rf"(?:[{_BOX}]*+[A-Za-z0-9+/=]{{1,80}}+(?:\n|\Z))*+")


def _whole(scan: Scan, place: int) -> Secret | None:
    """Return a key from its beginning: up to its end, or as far as it goes."""
    begun = scan.match(_BEGIN, place, 100)
    if begun is None:
        return None
    end = scan.span(_PROSE, begun.end(), _MAX_KEY)
    ended = scan.match(_END, end, 100)
    if ended is not None:
        return Secret(place, ended.end(), KIND)
    return Secret(place, scan.span(_BODY, begun.end(), len(scan.text)), KIND)


def _putty(scan: Scan, place: int) -> Secret | None:
    """Return the lines of PuTTY's form of a key."""
    head = scan.match(_PUTTY, place, 40)
    if head is None:
        return None
    end = scan.span(_PUTTY_LINES, head.end(), _MAX_KEY)
    return Secret(head.end(), end, KIND) if end > head.end() else None


class _Beheaded:
    """Keys whose beginning is not in the text."""

    def search(self, scan: Scan) -> Iterator[Secret]:
        """Return the ends of such keys, in order."""
        position = 0
        for place in scan.places(("----- end ", "-----end ", "---- end ")):
            end = scan.match(_END, place, 100)
            if end is None:
                continue
            start = max(position, self._start(scan, place, max(position, place - _MAX_KEY)))
            yield Secret(start, end.end(), KIND)
            position = end.end()

    @staticmethod
    def _start(scan: Scan, place: int, least: int) -> int:
        """Return where the lines of base64 begin that stand above a place."""
        scan.examined += place - least
        text = scan.text
        start = text.rfind("\n", least, place) + 1
        if start == 0:
            return least if _PIECE.search(text, least, place) else place
        while start > least:
            before = text.rfind("\n", least, start - 1) + 1
            line = text[max(before, least) : start - 1].rstrip("\r")
            if not _LINE.fullmatch(line):
                piece = _PIECE.search(line, max(0, len(line) - 200))
                return start if piece is None else start - 1 - len(line) + piece.start()
            if before == 0:
                return least
            start = before
        return start


FORMS: Final = (
    Anchored(("-----begin ", "---- begin "), _whole),
    Anchored(("private-lines: ",), _putty),
    _Beheaded(),
)
"""The forms of this module, in the order in which they are looked for."""
