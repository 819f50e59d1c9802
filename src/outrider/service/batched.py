"""Large collections in parts, for statements and messages of a bounded size."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

T = TypeVar("T")


def batched(values: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield the values in lists of at most `size`, as `itertools.batched` of Python 3.12 does."""
    remaining = iter(values)
    while part := list(islice(remaining, size)):
        yield part
