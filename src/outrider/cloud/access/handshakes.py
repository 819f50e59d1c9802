"""How often machines may ask for a connection: refusals by address, connections by machine."""

import time
from collections.abc import Callable
from typing import Final

from starlette.types import Scope

from outrider.cloud.access.client_address import Addresses
from outrider.cloud.access.rate_limits import MemoryWindows

_SECONDS: Final = 60
_MAX_COUNTERS: Final = 20_000


class Handshakes:
    """Counts the handshakes of machines in sliding windows, on this node alone.

    A machine that is let in does not count against its address: thousands may share one, and come
    back together.

    Args:
        per_minute: refused handshakes of one address, and connections of one machine.
        clock: seconds since the epoch.
    """

    def __init__(
        self, addresses: Addresses, per_minute: int, clock: Callable[[], float] = time.time
    ) -> None:
        self._addresses = addresses
        self._per_minute = per_minute
        self._windows = MemoryWindows(_MAX_COUNTERS, clock)

    def wait(self, scope: Scope) -> float:
        """Return the seconds that the address has to wait before it may try again; 0 for none."""
        address = self._address(scope)
        if address is None:
            return 0
        _, used, _, seconds = self._windows.hit(address, self._per_minute, _SECONDS, 0)
        return seconds if used >= self._per_minute else 0

    def refused(self, scope: Scope) -> None:
        """Count a handshake that was refused."""
        address = self._address(scope)
        if address is not None:
            self._windows.hit(address, self._per_minute, _SECONDS, 1)

    def accepted(self, machine_id: str) -> float:
        """Count a connection of a machine; return the seconds that it has to wait, 0 for none."""
        fits, _, _, seconds = self._windows.hit(machine_id, self._per_minute, _SECONDS, 1)
        return 0 if fits else seconds

    def _address(self, scope: Scope) -> str | None:
        return self._addresses.counted_as(self._addresses.client(scope))
