"""What a machine may send, beyond the limits that each field's type declares.

Both ends use this module: the service closes a connection that exceeds a limit, and our machine
agent stays within the limits with `fitted`, `TokenBucket` and its outbox.
"""

import math
import operator
from collections.abc import Callable
from functools import cache
from typing import Any, Final, TypeVar

import msgspec
from msgspec import inspect

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
_Fit = Callable[[Any], Any]


class TokenBucket:
    """A token bucket: allows `burst` at once, and `rate` a second over time.

    Times are seconds of a monotonic clock. A new bucket is full.
    """

    __slots__ = ("_burst", "_filled_at", "_rate", "_tokens")

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

    __slots__ = ("_bytes", "_events")

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
def _fit_of(kind: type) -> _Fit | None:
    return _compile(inspect.type_info(kind))


def _compile(kind: inspect.Type) -> _Fit | None:  # a case for each kind of type
    """Return a function that cuts a value to this type's limits; None if it has none."""
    match kind:
        case inspect.StructType():
            fields = [(field.name, _compile(field.type)) for field in kind.fields]
            return _fit_struct([(name, fit) for name, fit in fields if fit is not None])
        case inspect.ListType():
            return _fit_list(_compile(kind.item_type), kind.max_length)
        case inspect.UnionType():
            return _fit_union([(choice, _compile(choice)) for choice in kind.types])
        case inspect.StrType(max_length=int() as length, pattern=pattern):
            return _fit_text(length, _REPAIRS.get(pattern))
        case inspect.IntType() | inspect.FloatType() if (kind.ge, kind.le) != (None, None):
            return _fit_number(kind.ge, kind.le)
    return None


def _fit_struct(fields: list[tuple[str, _Fit]]) -> _Fit | None:
    if not fields:
        return None

    def fit(value: msgspec.Struct) -> msgspec.Struct:
        changes = {}
        for name, fit_field in fields:
            old = getattr(value, name)
            new = fit_field(old)
            if new is not old:
                changes[name] = new
        return msgspec.structs.replace(value, **changes) if changes else value

    return fit


def _fit_list(fit_item: _Fit | None, longest: int | None) -> _Fit | None:
    if fit_item is None and longest is None:
        return None

    def fit(values: list[Any]) -> list[Any]:
        first = values if longest is None else values[:longest]
        if fit_item is None:
            return first
        fitting = [fit_item(value) for value in first]
        is_same = len(first) == len(values) and all(map(operator.is_, fitting, values))
        return values if is_same else fitting

    return fit


def _fit_union(choices: list[tuple[inspect.Type, _Fit | None]]) -> _Fit | None:
    """Fit a value to the first member of its type, such as `str` in `str | None`."""
    kinds: list[tuple[type, _Fit]] = []
    for choice, fit_choice in choices:
        if fit_choice is None:
            continue
        match choice:
            case inspect.StructType():
                kinds.append((choice.cls, fit_choice))
            case inspect.StrType():
                kinds.append((str, fit_choice))
            case inspect.ListType():
                kinds.append((list, fit_choice))
            case inspect.IntType() | inspect.FloatType():
                kinds.append((float, fit_choice))
                kinds.append((int, fit_choice))
    if not kinds:
        return None

    def fit(value: Any) -> Any:
        for kind, fit_kind in kinds:
            if isinstance(value, kind):
                return fit_kind(value)
        return value

    return fit


def _fit_text(longest: int, repair: Callable[[str], str] | None) -> _Fit:
    def fit(text: str) -> str:
        if len(text) > longest:
            text = text[: longest - 1] + _ELLIPSIS
        if not text.isascii():  # lone surrogates (paths that are not UTF-8) cannot be JSON
            text = text.encode("utf-8", "replace").decode()
        return text if repair is None else repair(text)

    return fit


def _fit_number(low: float | None, high: float | None) -> _Fit:
    def fit(number: float) -> float:
        if low is not None and not number >= low:
            return low
        return high if high is not None and number > high else number

    return fit
