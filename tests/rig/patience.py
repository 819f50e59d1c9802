"""Waiting for what has to happen, with a bound."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable

PATIENCE = 30.0
"""Seconds within which anything that a test waits for has to happen."""


async def eventually(
    condition: Callable[[], bool | Awaitable[bool]], within: float = PATIENCE
) -> None:
    """Wait until `condition` holds; fail where it does not in time."""
    loop = asyncio.get_running_loop()
    end = loop.time() + within
    while True:
        result = condition()
        if await result if inspect.isawaitable(result) else result:
            return
        assert loop.time() < end, "it never became true"
        await asyncio.sleep(0.01)
