"""Waiting for what has to happen, with a bound."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable

TIMEOUT = 30.0
"""Seconds within which anything that a test waits for has to happen."""


async def eventually(
    condition: Callable[[], bool | Awaitable[bool]], within: float = TIMEOUT
) -> None:
    """Wait until `condition` holds; fail where it does not in time."""
    loop = asyncio.get_running_loop()
    end = loop.time() + within
    while True:
        before = loop.time()
        result = condition()
        if await result if inspect.isawaitable(result) else result:
            return
        now = loop.time()
        assert now < end, "it never became true"
        # A look that takes long (a request, the process table) must not keep a core busy.
        await asyncio.sleep(min(max(0.01, now - before), 0.1))
