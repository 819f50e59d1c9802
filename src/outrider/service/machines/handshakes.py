"""Rate limits on machine connections: refused handshakes by address, connections by machine."""

import time
from collections.abc import Callable
from typing import Final

from starlette.types import Scope

from outrider.service.accounts.rate_limits import MemoryWindows
from outrider.service.http.client_address import Addresses

_WINDOW_SECONDS: Final = 60
_MAX_COUNTERS: Final = 20_000


class Handshakes:
    """Counts machine handshakes in sliding windows, for this node only.

    A successful handshake does not count against its address: thousands of machines may share an
    address and reconnect at the same time.

    Args:
        per_minute: the limit on refused handshakes of one address, and on connections of one
            machine.
        clock: seconds since the epoch.
    """

    def __init__(
        self, addresses: Addresses, per_minute: int, clock: Callable[[], float] = time.time
    ) -> None:
        self._addresses = addresses
        self._per_minute = per_minute
        self._windows = MemoryWindows(_MAX_COUNTERS, clock)

    def wait(self, scope: Scope) -> float:
        """Return the seconds until the address may try again; 0 if it may now. Counts nothing."""
        address = self._address(scope)
        if address is None:
            return 0
        _, used, _, seconds = self._windows.hit(address, self._per_minute, _WINDOW_SECONDS, 0)
        return seconds if used >= self._per_minute else 0

    def refused(self, scope: Scope) -> None:
        """Count a refused handshake of the address."""
        address = self._address(scope)
        if address is not None:
            self._windows.hit(address, self._per_minute, _WINDOW_SECONDS, 1)

    def accepted(self, machine_id: str) -> float:
        """Count a connection of a machine; return 0, or the seconds to wait if over the limit."""
        fits, _, _, seconds = self._windows.hit(machine_id, self._per_minute, _WINDOW_SECONDS, 1)
        return 0 if fits else seconds

    def _address(self, scope: Scope) -> str | None:
        return self._addresses.counted_as(self._addresses.client(scope))
