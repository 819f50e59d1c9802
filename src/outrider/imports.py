"""Imports without the optional parts that a library loads wherever they are installed."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without(module: str) -> Iterator[None]:
    """Make `import module` fail inside the block, unless the module is loaded already.

    For modules that only other parts of this program need, and that cost every start memory. It
    holds for all threads: import nothing else meanwhile.
    """
    if module in sys.modules:
        yield
        return
    sys.modules[module] = None  # type: ignore[assignment]  # how Python marks a missing module
    try:
        yield
    finally:
        del sys.modules[module]
