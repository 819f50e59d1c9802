"""Private keys: PEM and PuTTY blocks, even if their first or last lines are missing."""

import re
from collections.abc import Iterator
from typing import Final

from outrider.machine.redaction.scan import AnchoredDetector, Scan, Secret

KIND: Final = "private-key"

_LABEL: Final = r"(?:[A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?|OpenVPN Static key V1)"
_BOX: Final = r" \t|│┃║>"
_BEGIN: Final = re.compile(rf"----[- ]BEGIN {_LABEL}[ -]----")
_BODY: Final = re.compile(
    r"[A-Za-z0-9+/= \t\\]*+"  # the whole key, if it is on one line
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


def _complete_key(scan: Scan, place: int) -> Secret | None:
    """Return a key from its BEGIN line to its END line, or to its last line of base64."""
    begin_line = scan.match(_BEGIN, place, 100)
    if begin_line is None:
        return None
    end = scan.span(_PROSE, begin_line.end(), _MAX_KEY)
    # Without an END line the text was cut: then only what looks like base64 is the key.
    end_line = scan.match(_END, end, 100)
    if end_line is not None:
        return Secret(place, end_line.end(), KIND)
    return Secret(place, scan.span(_BODY, begin_line.end(), len(scan.text)), KIND)


def _putty_key(scan: Scan, place: int) -> Secret | None:
    """Return the private lines of a key in PuTTY's format."""
    head = scan.match(_PUTTY, place, 40)
    if head is None:
        return None
    end = scan.span(_PUTTY_LINES, head.end(), _MAX_KEY)
    return Secret(head.end(), end, KIND) if end > head.end() else None


class _TruncatedKeys:
    """Keys whose BEGIN line is not in the text: scrolled off the screen, or cut."""

    def search(self, scan: Scan) -> Iterator[Secret]:
        """Return what is left of such keys, in order."""
        position = 0
        for place in scan.places(("----- end ", "-----end ", "---- end ")):
            end = scan.match(_END, place, 100)
            if end is None:
                continue
            least = max(position, place - _MAX_KEY)
            scan.examined += place - least
            start = least + _start_of_base64(scan.text[least:place])
            yield Secret(start, end.end(), KIND)
            position = end.end()


def _start_of_base64(text: str) -> int:
    """Return where the lines of base64 begin in a text that ends before an END mark."""
    *above, last = text.split("\n")
    if not above:
        return 0 if _PIECE.search(text[-200:]) else len(text)
    start = len(text) - len(last)
    for line in reversed(above):
        if not _LINE.fullmatch(line.rstrip("\r")):
            piece = _PIECE.search(line, max(0, len(line) - 200))
            return start if piece is None else start - 1 - len(line) + piece.start()
        start -= len(line) + 1
    return 0


DETECTORS: Final = (
    AnchoredDetector(("-----begin ", "---- begin "), _complete_key),
    AnchoredDetector(("private-lines: ",), _putty_key),
    _TruncatedKeys(),
)
"""The detectors of this module, in the order in which they run."""
