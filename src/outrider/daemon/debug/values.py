"""Values that stand behind names and options: where they end, and which of them are no secrets."""

import re
from functools import cache
from typing import Final

from outrider.daemon.debug.names import is_secret_name
from outrider.daemon.debug.scan import MARK, Scan

JUDGED: Final = 128
"""Characters of a value at which a longer one is always a secret."""

_QUOTED: Final = 4096
_LONG_TEXT: Final = 16 * 1024

QUOTE: Final = r"(?:\"\"\"|'''|[\"'`])"
"""What opens a quoted value."""

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
"""What stands in the place of a secret in code and instructions, and tells none."""

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
"""What is assigned in programs, and is the place of a secret and not the secret."""


@cache
def _inside(quote: str) -> re.Pattern[str]:
    if len(quote) == 3:
        return re.compile(rf"(?:(?!{quote})[\s\S])*+")
    return re.compile(rf"(?:\\[^\n]|[^{quote}\\\n])*+")


def value_end(scan: Scan, place: int, quote: str | None, limit: int = _QUOTED) -> int:
    """Return where the value ends that begins at a place; it may be empty.

    Without a quote, no more than `JUDGED` characters and one are read: `rest_end` reads on.
    """
    if quote:
        return scan.span(_inside(quote), place, _LONG_TEXT if len(quote) == 3 else limit)
    if not _FIRST.match(scan.text, place):
        return place
    return scan.span(_RUN, place, JUDGED + 1)


def rest_end(scan: Scan, end: int, quote: str | None) -> int:
    """Return where a secret ends of which `value_end` has told only the beginning."""
    if quote:
        return end
    end = scan.span(_RUN, end, len(scan.text))
    while scan.text[end - 1] == "\\":
        end -= 1  # it belongs to the quote that follows, as in JSON within a text
    return end


def is_plain(value: str) -> bool:
    """Tell whether a value is none, or stands for one: `null`, `$TOKEN`, `<your key>`, `****`."""
    value = value.strip()
    if not value or value.startswith(MARK):
        return True
    if len(value) > JUDGED or _PLAIN.fullmatch(value) is None:
        return False
    return value[0] != "$" or not _is_odd_variable(value)


def is_code(value: str, name: str) -> bool:
    """Tell whether a program assigns this to a name: `get_token()`, `config.password`."""
    if len(value) > JUDGED:
        return False
    if _CODE.fullmatch(value):
        return True
    word = value.rstrip(",;)]}")
    if word.partition(".")[0].strip("_").lower() == name.strip("_").lower():
        return True
    return "_" in word.strip("_") and word.replace("_", "").isalpha() and is_secret_name(word)


def is_odd(value: str) -> bool:
    """Tell whether a value looks unlike a word."""
    word = value.rstrip(".,;:!?")
    return not word.isalpha() or len(word) > 24


def is_chancy(value: str) -> bool:
    """Tell whether a value has letters and other characters, as passwords have and words do not."""
    word = value.strip("\"'`.,;:!?()")
    return len(word) >= 6 and any(c.isalpha() for c in word) and not word.isalpha()


def is_mixed(text: str) -> bool:
    """Tell whether a text has letters and digits, as chance has them and words do not."""
    return any(c.isdigit() for c in text) and any(c.isalpha() for c in text)


def _is_odd_variable(value: str) -> bool:
    """Tell whether `$…` is no variable: those are in capitals, or have small letters alone."""
    name = value[1:].rstrip(",;)]}|")
    return name[:1].isalpha() and not name.isupper() and not name.replace("_", "").isalpha()
