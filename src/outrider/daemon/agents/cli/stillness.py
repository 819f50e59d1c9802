"""For how long an agent has been still: it waits for a key, and nothing is on its way."""

import asyncio
import time
from typing import Final

from outrider.daemon.agents.cli import processes
from outrider.daemon.agents.cli.watch import Watch

_BETWEEN_LOOKS: Final = 0.1
"""Seconds that a look vouches for. Where they come later than that the machine is too busy to
tell: what has not been drawn by then may only be late."""


class Stillness:
    """Measures for how long an agent has neither drawn nor computed, from now on."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._looked = time.monotonic()
        self._seconds = 0.0

    async def look(self) -> float:
        """Look at the agent, and return for how many seconds it has been still at the least."""
        before = self._watch.snapshot
        await self._watch.look()
        pane, now = self._watch.pane, time.monotonic()
        passed, self._looked = now - self._looked, now
        if (
            pane is None
            or self._watch.snapshot != before
            or await asyncio.to_thread(processes.at_work, pane.pid)
        ):
            self._seconds = 0.0
        else:
            self._seconds += min(passed, _BETWEEN_LOOKS)
        return self._seconds
