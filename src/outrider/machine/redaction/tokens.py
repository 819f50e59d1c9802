"""Tokens that are recognizable by themselves: by a prefix or by their shape (`rules.toml`).

detect-secrets itself is not used: some of its patterns take quadratic time on a crafted text, which
may come from the screen of any agent.
"""

import re
from collections.abc import Iterator
from typing import Final

from outrider.machine.redaction.scan import Scan, Secret
from outrider.machine.redaction.tables import TABLES
from outrider.machine.redaction.values import has_letters_and_digits

_MIN: Final = 20
"""Characters of the shortest token."""


def _kind_of(table: str) -> dict[str, str]:
    """Return the kinds of a table by their prefixes."""
    return {begin: kind for kind, begins in TABLES[table].items() for begin in begins.split()}


_PREFIXES: Final = _kind_of("prefixes")
_WEAK_PREFIXES: Final = _kind_of("weak_prefixes")
_SHAPES: Final = {kind: re.compile(shape) for kind, shape in TABLES["shapes"].items()}
_INSIDE: Final = re.compile(
    "|".join(
        re.escape(begin)
        for begin in sorted(_PREFIXES, key=len, reverse=True)
        if re.search(r"[_.-]", begin) and len(begin) > 4
    )
    + r"|npm_|gh[pousr]_|eyJ[\w-]{8,200}+\.[\w-]{8}"
)
"""Prefixes that no word contains, so that they count in the middle of a run as well."""

_ENROLLMENT_CODE: Final = re.compile(
    r"(?=.*[A-Z])[B-DF-HJ-NP-TV-XZ2-9]{4}(?:-[B-DF-HJ-NP-TV-XZ2-9]{4}){1,2}"
)
_RUN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_\-.]{8,}+")
_PIECE: Final = re.compile(r"[A-Za-z0-9]{8,}+")


class TokenDetector:
    """Finds tokens in runs of token characters."""

    def search(self, scan: Scan) -> Iterator[Secret]:
        """Return the tokens, in order."""
        for match in scan.everywhere(_RUN):
            run = match[0].rstrip(".-")
            scan.examined += 3 * len(run)
            start, kind = _classify(run)
            if kind is not None:
                yield Secret(match.start() + start, match.start() + len(run), kind)


def _classify(run: str) -> tuple[int, str | None]:
    """Return the start of the token in a run and its kind, or None if there is no token."""
    if len(run) < _MIN:
        is_code = len(run) < 16 and _ENROLLMENT_CODE.fullmatch(run)
        return 0, "enrollment-code" if is_code else None
    if not has_letters_and_digits(run):
        return 0, None
    if run.startswith("eyJ") and "." in run:
        return 0, "jwt"
    for prefixes, piece in ((_PREFIXES, 8), (_WEAK_PREFIXES, 16)):
        begin = next(filter(run.startswith, prefixes), None)
        if begin is not None and _looks_random(run, piece):
            return 0, prefixes[begin]
    # A token may be glued to a word in front of it, as in `my_ghp_…`.
    inside = _INSIDE.search(run)
    if inside is not None and len(run) - inside.start() >= _MIN:
        kind = "jwt" if inside[0].startswith("eyJ") else _PREFIXES.get(inside[0], "token")
        if _looks_random(run[inside.start() :], 8):
            return inside.start(), kind
    # No shape is longer; a run may be, such as a picture in base64.
    shapes = _SHAPES.items() if len(run) <= 256 else ()
    return 0, next((kind for kind, shape in shapes if shape.fullmatch(run)), None)


def _looks_random(run: str, piece: int) -> bool:
    """Return whether a run has a part of at least `piece` letters and digits, mixed."""
    return any(
        len(part[0]) >= piece and has_letters_and_digits(part[0]) for part in _PIECE.finditer(run)
    )
