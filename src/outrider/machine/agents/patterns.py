"""Regular expressions of provider files, run under a limit of processor time.

Some patterns match some texts in exponentially many ways, such as `(a|aa)+b`, and agents show
text that anybody may have written. Python's `re` can neither be interrupted nor runs beside the
event loop: one such search would hang the machine agent. The `regex` package has a time limit.
"""

import re
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Final

import regex
import structlog

from outrider.contract.errors import OutriderError

SEARCH_LIMIT: Final = 0.5
"""Seconds of processor time that one search may take: many times what all built-in rules need."""

BUDGET: Final = 3.0
"""Seconds of processor time that all searches of one pattern may take within `WINDOW`.

For texts that are searched line by line: each search may be short, and all of them long.
"""

WINDOW: Final = 10.0
"""Seconds after which a pattern has its whole budget again, and runs again after a timeout."""

_LITERAL_BRACE: Final = re.compile(r"(\\N\{[^}]*\}|\\.)|\{(?!\d*,?\d*\})", re.DOTALL)
"""A brace that is text. In `regex` it would begin an approximate match, as in `(?:word){e<=1}`."""

_log = structlog.get_logger(__name__)


class PatternTimeout(OutriderError):
    """A pattern has used up its budget of processor time."""


class Pattern:
    """One regular expression in Python's syntax, with its budget.

    Raises:
        ValueError: it is not a regular expression.
    """

    def __init__(
        self, text: str, flags: int = 0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        try:
            re.compile(text, flags)  # `regex` knows more than is documented here, such as `(?R)`
            escaped = _LITERAL_BRACE.sub(lambda brace: brace[1] or r"\{", text)
            self._compiled = regex.compile(escaped, flags)
        except (re.error, regex.error, OverflowError, RecursionError) as error:
            raise ValueError(f"not a regular expression: {error}") from error
        self._text = text
        self._clock = clock
        self._window_end = 0.0
        self._left = BUDGET

    @property
    def groups(self) -> frozenset[str]:
        """The names of the groups."""
        return frozenset(self._compiled.groupindex)

    def search(self, text: str) -> "regex.Match[str] | None":
        """Return the first match in `text`, None if there is none.

        Raises:
            PatternTimeout: the pattern has used up its budget, now or earlier in this window.
        """
        return self._run(self._compiled.search, text)

    def match(self, text: str) -> "regex.Match[str] | None":
        """Return the match at the beginning of `text`. Raises as `search` does."""
        return self._run(self._compiled.match, text)

    def matches(self, text: str, *, otherwise: bool) -> bool:
        """Return whether the pattern is found in `text`, `otherwise` after a timeout."""
        try:
            return self.search(text) is not None
        except PatternTimeout:
            return otherwise

    def _run(
        self, function: "Callable[..., regex.Match[str] | None]", text: str
    ) -> "regex.Match[str] | None":
        now = self._clock()
        if now >= self._window_end:
            self._window_end, self._left = now + WINDOW, BUDGET
        if self._left <= 0:
            raise self._timeout()
        began = time.thread_time()
        try:
            return function(text, timeout=min(SEARCH_LIMIT, self._left))
        except TimeoutError:
            self._left = 0.0
            _log.error("pattern suspended", pattern=self._text[:200], seconds=WINDOW)
            raise self._timeout() from None
        finally:
            self._left -= time.thread_time() - began

    def _timeout(self) -> PatternTimeout:
        return PatternTimeout(
            f"The pattern {self._text[:100]!r} takes too long: correct the provider file"
        )


@lru_cache(maxsize=4096)
def pattern(text: str, flags: int = 0) -> Pattern:
    """Return the pattern of this text, one for all callers, so that they share its budget."""
    return Pattern(text, flags)
