"""Asks the machines of this node for deltas while a stream of their account wants them."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final

WATCH_INTERVAL: Final = 0.5
"""Seconds until a stream that wants deltas gets them."""


class DeltaWatch:
    """Decides which machines are asked, and asks each connection once.

    Args:
        accounts: returns the accounts of which a stream wants deltas.
        connections: returns the number of each connection of an account here, by machine id.
        ask: asks a machine for deltas of these sessions; None: of all, empty: of none.
    """

    def __init__(
        self,
        accounts: Callable[[], Iterable[str]],
        connections: Callable[[str], Mapping[str, int]],
        ask: Callable[[str, list[str] | None], Awaitable[None]],
    ) -> None:
        self._accounts = accounts
        self._connections = connections
        self._ask = ask
        self._asked: dict[str, int] = {}

    async def update(self) -> None:
        """Ask the machines that have to send deltas from now on, and those that have to stop."""
        wanted: dict[str, int] = {}
        for account_id in self._accounts():
            wanted.update(self._connections(account_id))
        before, self._asked = self._asked, wanted
        for machine_id, connection in wanted.items():
            if before.get(machine_id) != connection:
                await self._ask(machine_id, None)
        for machine_id in before.keys() - wanted.keys():
            await self._ask(machine_id, [])
