"""Names whose values are secrets: `password`, `API_KEY`, `refreshToken`, `Set-Cookie` and so on."""

import re
from itertools import pairwise
from typing import Final

from outrider.machine.redaction.tables import TABLES

_NAME: Final = re.compile(r"[\w$.-]{1,80}(?: [\w$.-]{1,40}){0,2}")
"""The form of a name; sentences and paths are not names."""

_MAX_WORDS: Final = 8
_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")

_NAMES: Final = TABLES["names"]
_SECRET: Final = frozenset(_NAMES["words"].split())
_SECRET_PAIRS: Final = frozenset(
    [
        *_NAMES["pairs"],
        *(f"{word} key" for word in _NAMES["keys"].split()),
        *(f"{word} code" for word in _NAMES["codes"].split()),
    ]
)
_OF_TEXTS: Final = frozenset(_NAMES["texts"].split())
_ABOUT: Final = frozenset(_NAMES["about"].split())


def describes_a_secret(name: str) -> bool:
    """Return whether a name describes a secret and does not hold it: `tokenCount`."""
    words = _WORD.findall(name[-120:])
    return bool(words) and words[-1].lower() in _ABOUT


def is_secret_name(name: str, *, of_text: bool = True) -> bool:
    """Return whether a value with this name is a secret.

    Without `of_text`, the value is a number: `tokens` may hold tokens, but also their count.
    """
    words = [word.lower() for word in _WORD.findall(name)] if _NAME.fullmatch(name) else []
    if not 0 < len(words) <= _MAX_WORDS or words[-1] in _ABOUT:
        return False
    if any(word in _SECRET for word in words):
        return True
    if of_text and words[-1] in _OF_TEXTS:
        return True
    return any(f"{a} {b}" in _SECRET_PAIRS for a, b in pairwise(words))
