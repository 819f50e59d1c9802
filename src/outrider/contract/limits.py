"""What a machine may send, beyond the limits that each field's type declares.

Both ends use this module: the service closes a connection that exceeds a limit, and our machine
agent stays within the limits with `fitted`, `TokenBucket` and its outbox.
"""

import math
from collections.abc import Callable
from functools import cache, partial
from typing import Final, TypeVar

import msgspec
from msgspec import inspect

from outrider.contract.rewriting import Place, Rewrite, rewriter
from outrider.contract.text import NO_NUL, PRINTABLE, printable

MAX_SESSIONS: Final = 1000
"""Sessions that a machine may report."""

MAX_PROVIDERS: Final = 256
"""Providers that a machine may report."""

MAX_STATE_BYTES: Final = 2 * 1024 * 1024
"""Bytes of JSON that the service stores for a machine: its load, providers and sessions."""

EVENTS_PER_SECOND: Final = 100.0
"""Events that a machine may send, over time."""

EVENT_BURST: Final = 10_000
"""Events that a machine may send at once."""

EVENT_BYTES_PER_SECOND: Final = 256 * 1024
"""Bytes of frames with events that a machine may send, over time."""

EVENT_BYTES_BURST: Final = 64 * 1024 * 1024
"""Bytes of frames with events that a machine may send at once."""

OWN_EVENTS_PER_SECOND: Final = 80.0
OWN_EVENT_BURST: Final = 2_000
OWN_EVENT_BYTES_PER_SECOND: Final = 200 * 1024
OWN_EVENT_BYTES_BURST: Final = 32 * 1024 * 1024
"""Limits of our own machine agent, below the service's: delayed frames arrive in one burst."""

_ELLIPSIS: Final = "…"
_REPAIRS: Final[dict[str | None, Callable[[str], str]]] = {
    PRINTABLE: printable,
    NO_NUL: lambda text: text.replace("\0", "\N{REPLACEMENT CHARACTER}"),
}

_ROUNDING: Final = 1e-6
"""Tolerance, so that a token is available at the time returned by `next_at`."""

StructT = TypeVar("StructT", bound=msgspec.Struct)


class TokenBucket:
    """A token bucket: allows `burst` at once, and `rate` a second over time.

    Times are seconds of a monotonic clock. A new bucket is full.
    """

    def __init__(self, rate: float, burst: float) -> None:
        self._rate = rate
        self._burst = self._tokens = burst
        self._filled_at = -math.inf

    def available(self, now: float) -> int:
        """Return the number of tokens available at `now`."""
        self._fill(now)
        return int(self._tokens + _ROUNDING)

    def take(self, now: float, count: int = 1) -> bool:
        """Take `count` tokens if available; return whether they were."""
        self._fill(now)
        if self._tokens + _ROUNDING < count:
            return False
        self._tokens -= count
        return True

    def next_at(self, now: float, count: int = 1) -> float:
        """Return the earliest time at which `count` tokens are available."""
        self._fill(now)
        return now + max(0.0, count - self._tokens) / self._rate

    def _fill(self, now: float) -> None:
        if now > self._filled_at:
            self._tokens = min(self._burst, self._tokens + (now - self._filled_at) * self._rate)
            self._filled_at = now


class EventAllowance:
    """The events that the service takes from a machine: their number, and their bytes.

    By default those that a machine may send.
    """

    def __init__(self, events: TokenBucket | None = None, size: TokenBucket | None = None) -> None:
        self._events = events or TokenBucket(EVENTS_PER_SECOND, EVENT_BURST)
        self._bytes = size or TokenBucket(EVENT_BYTES_PER_SECOND, EVENT_BYTES_BURST)

    def refusal(self, now: float, size: int) -> str | None:
        """Take an event of `size` bytes; return why that is too much, None if it is not."""
        if not self._events.take(now):
            return (
                f"A machine may send {EVENTS_PER_SECOND:g} events a second, "
                f"and {EVENT_BURST} at once"
            )
        if not self._bytes.take(now, size):
            return (
                f"A machine may send {EVENT_BYTES_PER_SECOND * 60 >> 20} MiB of events a minute, "
                f"and {EVENT_BYTES_BURST >> 20} MiB at once"
            )
        return None


def fitted(value: StructT) -> StructT:
    """Return `value` cut to the limits that the types of its fields declare.

    Long text is cut and ends with an ellipsis, long lists are cut at the end, numbers are clamped,
    and characters that a field may not contain are replaced by U+FFFD.
    """
    fit = _fit_of(type(value))
    return value if fit is None else fit(value)


@cache
def _fit_of(kind: type) -> Rewrite | None:
    return rewriter(inspect.type_info(kind), _fit)


def _fit(kind: inspect.Type, _: Place | None) -> Rewrite | None:
    match kind:
        case inspect.ListType(max_length=int() as longest):
            return lambda values: values if len(values) <= longest else values[:longest]
        case inspect.StrType(max_length=int() as longest, pattern=pattern):
            return partial(_fit_text, longest=longest, repair=_REPAIRS.get(pattern))
        case inspect.IntType(ge=low, le=high) | inspect.FloatType(ge=low, le=high) if (
            low,
            high,
        ) != (None, None):
            return partial(_fit_number, low=low, high=high)
    return None


def _fit_text(text: str, longest: int, repair: Callable[[str], str] | None) -> str:
    if len(text) > longest:
        text = text[: longest - 1] + _ELLIPSIS
    if not text.isascii():  # lone surrogates (paths that are not UTF-8) cannot be JSON
        text = text.encode("utf-8", "replace").decode()
    return text if repair is None else repair(text)


def _fit_number(number: float, low: float | None, high: float | None) -> float:
    if low is not None and not number >= low:  # also of NaN
        return low
    return high if high is not None and number > high else number
