"""The rules of `rules.toml`, which describes the known forms of secrets in the way of gitleaks."""

import base64
import binascii
import re
from collections.abc import Callable
from typing import Final

from outrider.machine.redaction.scan import MARK, WINDOW, AnchoredDetector, Scan, Secret
from outrider.machine.redaction.tables import TABLES
from outrider.machine.redaction.values import (
    has_letters_and_digits,
    is_placeholder,
    is_unlike_a_word,
    looks_like_a_password,
)

_WORD: Final = (
    r"(?!-)(?P<quote>[\"'])?"
    r"(?P<secret>(?(quote)(?:(?!(?P=quote))[^\n]){1,256}+|[^\s\"'|;&<>()]{1,256}+))"
)
_ARGUMENTS: Final = r"[^\n|;&]{0,300}?"


def _decoded(text: str) -> bytes:
    """Decode base64 text; return nothing if it is none."""
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        return b""


def _is_login(match: re.Match[str]) -> bool:
    value = match["secret"]
    decoded = _decoded(value)
    return (b":" in decoded and decoded.isascii()) or (
        len(value) >= 20 and has_letters_and_digits(value)
    )


def _is_authorization(match: re.Match[str]) -> bool:
    value = match["first"]
    if is_placeholder(value) or value.startswith(("<", "[")):
        return False
    return bool(match["scheme"] or match["other"]) or is_unlike_a_word(value) or len(value) >= 20


def _is_no_word(match: re.Match[str]) -> bool:
    """Return whether what follows `bearer` is not a word of a sentence."""
    value = match["secret"]
    is_random = any(c.isdigit() or c in "=+/" for c in value) or len(value) >= 32
    return is_random or not (value.islower() or value.istitle())


CHECKS: Final[dict[str, Callable[[re.Match[str]], bool]]] = {
    "": lambda _: True,
    "authorization": _is_authorization,
    "base64 of a login": _is_login,
    "base64 of a private key": lambda match: b"PRIVATE KEY" in _decoded(match[0][:80]),
    "letters and digits": lambda match: has_letters_and_digits(match[0]),
    "not a word": _is_no_word,
    "password": lambda match: looks_like_a_password(match["secret"]),
}
"""The values of `check` in the rules."""


def _rule(
    *,
    id: str,  # noqa: A002  # gitleaks' name for it
    keywords: list[str],
    regex: str,
    check: str = "",
    window: int = WINDOW,
    rest: str = "",
) -> AnchoredDetector:
    pattern = re.compile(regex.replace("\\\n", ""), re.IGNORECASE)
    group = "secret" if "secret" in pattern.groupindex else 0
    more, accepts = re.compile(f"(?:{rest})*+"), CHECKS[check]

    def find(scan: Scan, place: int) -> Secret | None:
        match = scan.match(pattern, place, window)
        if match is None or match[group].startswith(MARK):
            return None
        if is_placeholder(match[group]) or not accepts(match):
            return None
        start, end = match.span(group)
        # Only a secret that fills the window may go on behind it.
        if rest and end == place + window:
            end = scan.span(more, end, len(scan.text))
        return Secret(start, end, id)

    return AnchoredDetector(tuple(keywords), find)


def _command(programs: str, option: str, needs: str = "") -> AnchoredDetector:
    """Return a detector for `program … option secret`."""
    names = [name.rstrip("*") for name in programs.split()]
    either = "|".join(
        re.escape(name.rstrip("*")) + (r"[\w-]{0,20}" if "*" in name else r"(?![\w-])")
        for name in programs.split()
    )
    # Looked for ahead, so that the option may stand anywhere behind it.
    ahead = rf"(?={_ARGUMENTS}{needs})" if needs else ""
    regex = rf"(?<![\w-])(?:{either})(?:\.exe)?{ahead}{_ARGUMENTS}{option}{_WORD}"
    return _rule(id="command-argument", keywords=names, regex=regex)


DETECTORS: Final = (
    *(_rule(**table) for table in TABLES["rules"]),
    *(_command(**table) for table in TABLES["commands"]),
)
"""A detector for each rule, in the order of the file."""
