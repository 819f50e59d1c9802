"""Values after names and options: where they end, and which of them are not secrets."""

import re
from functools import cache
from typing import Final

from outrider.machine.redaction.scan import MARK, Scan, Secret
from outrider.machine.redaction.secret_names import is_secret_name

MAX_JUDGED: Final = 128
"""Characters of the longest value that may be a placeholder; a longer one is a secret."""

_QUOTED: Final = 4096
_LONG_TEXT: Final = 16 * 1024

QUOTE: Final = r"(?:\"\"\"|'''|[\"'`])"
"""The opening quote of a value."""

_FIRST: Final = re.compile(r"[^\s\"'`,;&<>(){}\\]")
_RUN: Final = re.compile(r"[^\s\"'`<>]*+")

_PLAIN: Final = re.compile(
    r"(?:none|null|nil|true|false|undefined|str(?:ing)?|bytes|int(?:eger)?|bool(?:ean)?|number|any"
    r"|(?:final|sequence|optional|annotated|literal|list|dict|callable|union|mapping)(?:\[.*)?"
    r"|required|object|array|secretstr|token|varchar\S*|text|\?[a-z].*"
    r"|\$[A-Z_][A-Z0-9_]*|\$[a-z_]+|\$[({].*|%\w+%?|\{.*|<.*|\*+|x{3,}|\.{3}|…|[-=|>(\[?.+)\]},;:*]+)"
    r"[,;)\]}|]*",
    re.IGNORECASE,
)
"""Placeholders: what code and instructions have in place of a secret."""

_OBJECTS: Final = (
    r"os|env|process|getpass|self|this|cls|settings|config|cfg|conf|ctx|context|req|request|res"
    r"|response|args|opts|options|props|params|data|body|json|user|state|session|secrets|var|local"
)
_CODE: Final = re.compile(
    rf"(?:await|new|async|return|not|lambda|function|yield|typeof|input|let|const|var)"
    rf"|[A-Za-z_][A-Za-z_.]*+(?:::\w+)*+\(.*|[A-Za-z_][A-Za-z_.]*+\[.*\]?.*"
    rf"|(?:{_OBJECTS})(?:\??\.|\[|::)[\w.\[\]\"'-]+[,;)]*"
    rf"|&?[A-Za-z_]+(?:::\w+)+.*"
)
"""Expressions that programs assign: they refer to a secret and do not contain it."""


@cache
def _inside(quote: str) -> re.Pattern[str]:
    if len(quote) == 3:
        return re.compile(rf"(?:(?!{quote})[\s\S])*+")
    return re.compile(rf"(?:\\[^\n]|[^{quote}\\\n])*+")


def value_end(scan: Scan, place: int, quote: str | None, limit: int = _QUOTED) -> int:
    """Return the end of the value that starts at an index; it may be empty.

    Without a quote, at most `MAX_JUDGED` + 1 characters are read; `rest_end` reads the rest.
    """
    if quote:
        return scan.span(_inside(quote), place, _LONG_TEXT if len(quote) == 3 else limit)
    # A bracket or a comma is the syntax around a missing value, not a value.
    if not _FIRST.match(scan.text, place):
        return place
    return scan.span(_RUN, place, MAX_JUDGED + 1)


def rest_end(scan: Scan, end: int, quote: str | None) -> int:
    """Return the end of a secret of which `value_end` has read only the start."""
    if quote:
        return end
    end = scan.span(_RUN, end, len(scan.text))
    while scan.text[end - 1] == "\\":
        end -= 1  # the backslash escapes the following quote, as in nested JSON
    return end


def secret_at(scan: Scan, start: int, quote: str | None) -> Secret | None:
    """Return the value that starts at an index as a secret, None if it is a placeholder."""
    end = value_end(scan, start, quote)
    if is_placeholder(scan.text[start : min(end, start + MAX_JUDGED + 1)]):
        return None
    return Secret(start, rest_end(scan, end, quote), "named-secret")


def is_placeholder(value: str) -> bool:
    """Return whether a value is empty or a placeholder: `null`, `$TOKEN`, `<your key>`, `****`."""
    value = value.strip()
    if not value or value.startswith(MARK):
        return True
    if len(value) > MAX_JUDGED or _PLAIN.fullmatch(value) is None:
        return False
    return value[0] != "$" or not _is_no_variable(value)


def is_code(value: str, name: str) -> bool:
    """Return whether a value is an expression of a program: `get_token()`, `config.password`."""
    if len(value) > MAX_JUDGED:
        return False
    if _CODE.fullmatch(value):
        return True
    word = value.rstrip(",;)]}")
    if word.partition(".")[0].strip("_").lower() == name.strip("_").lower():
        return True
    return "_" in word.strip("_") and word.replace("_", "").isalpha() and is_secret_name(word)


def is_unlike_a_word(value: str) -> bool:
    """Return whether a value does not look like a word of a sentence."""
    word = value.rstrip(".,;:!?")
    return not word.isalpha() or len(word) > 24


def looks_like_a_password(value: str) -> bool:
    """Return whether a value mixes letters and other characters, as passwords do."""
    word = value.strip("\"'`.,;:!?()")
    return len(word) >= 6 and any(c.isalpha() for c in word) and not word.isalpha()


def has_letters_and_digits(text: str) -> bool:
    """Return whether a text has both letters and digits, as random strings do."""
    return any(c.isdigit() for c in text) and any(c.isalpha() for c in text)


def _is_no_variable(value: str) -> bool:
    """Return whether `$…` is not a variable: variables are all upper or all lower case."""
    name = value[1:].rstrip(",;)]}|")
    return name[:1].isalpha() and not name.isupper() and not name.replace("_", "").isalpha()
