"""The machines that this node sees to: those with a socket here, or in their grace period."""

import asyncio
from collections.abc import Callable, Iterator

from outrider.cloud.fleet.machine_state import MachineState


class Roster:
    """The machines by their ids and accounts, with a timer for each whose socket has gone.

    Args:
        grace_period: seconds that such a machine has to come back.
        expire: called when one has not.
    """

    def __init__(self, grace_period: float, expire: Callable[[MachineState], None]) -> None:
        self._grace_period = grace_period
        self._expire = expire
        self._machines: dict[str, MachineState] = {}
        self._accounts: dict[str, dict[str, MachineState]] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def __iter__(self) -> Iterator[MachineState]:
        return iter(self._machines.values())

    def get(self, machine_id: str) -> MachineState | None:
        """Return a machine, None where it is not here."""
        return self._machines.get(machine_id)

    def of_account(self, account_id: str) -> dict[str, MachineState]:
        """Return an account's machines, by their ids."""
        return dict(self._accounts.get(account_id, {}))

    def keep(self, state: MachineState) -> None:
        """Take a machine in, in place of what was known of it."""
        self._machines[state.id] = state
        self._accounts.setdefault(state.account_id, {})[state.id] = state

    def forget(self, machine_id: str) -> None:
        """Let a machine go, which is not online here from then on."""
        state = self._machines.pop(machine_id, None)
        if state is None:
            return
        state.online = False
        owned = self._accounts[state.account_id]
        del owned[machine_id]
        if not owned:
            del self._accounts[state.account_id]

    def begin_grace(self, machine_id: str) -> None:
        """Give a machine that is here its time to come back."""
        self.end_grace(machine_id)
        loop = asyncio.get_running_loop()
        self._timers[machine_id] = loop.call_later(self._grace_period, self._expired, machine_id)

    def end_grace(self, machine_id: str) -> None:
        """Take it that a machine has come back, or is not waited for any more."""
        timer = self._timers.pop(machine_id, None)
        if timer is not None:
            timer.cancel()

    def close(self) -> None:
        """Stop every timer."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _expired(self, machine_id: str) -> None:
        state = self._machines.get(machine_id)
        if state is not None:
            self._expire(state)
