"""What the service remembers of sessions: written when they begin, end or change their title.

    Presence ── report ──▶ SessionHistory ── every few seconds ──▶ session_history (database)
    EventIntake ── session:ended, in the event's transaction ───▶

`list_sessions` shows running sessions in their live state. The event of an end arrives shortly
after the report without the session, so the list waits for it.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final, Literal

import structlog
from msgspec import UNSET

from outrider.contract.resources import Session, SessionPage
from outrider.contract.sizes import count_within, json_bytes
from outrider.service.database.engine import DATABASE_ERRORS, Database
from outrider.service.machines.machine_state import MachineState
from outrider.service.machines.presence import Presence
from outrider.service.machines.store import session_history
from outrider.service.machines.store.session_history import OwnedSession
from outrider.service.periodic import WriteBehind, run_periodically

_log = structlog.get_logger(__name__)

_SAVE_SECONDS: Final = 5.0
_PAUSE_SECONDS: Final = 0.1

END_WAIT: Final = 1.0
"""Seconds that a list waits for the reason of an end which has been reported."""

_POLL_SECONDS: Final = 0.05


class SessionHistory:
    """The sessions of all accounts.

    Args:
        presence: the machines in their live state.
        days: how long ended sessions are kept.
        clock: seconds since the epoch.
    """

    def __init__(
        self,
        database: Database,
        presence: Presence,
        *,
        days: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._database = database
        self._presence = presence
        self._days = days
        self._clock = clock
        self._changed: WriteBehind[MachineState] = WriteBehind(self._save, "session history")
        self._missing: dict[tuple[str, str], OwnedSession] = {}
        presence.observe_sessions(self.reported)

    def reported(self, state: MachineState) -> None:
        """Note that sessions of a machine have begun, left its report or changed their title."""
        self._changed.put(state.id, state)

    async def run(self) -> None:
        """Save what has changed every few seconds, until cancelled."""
        await run_periodically(self.save, _SAVE_SECONDS, "save sessions")

    async def save(self) -> None:
        """Save what has changed, and end what has been missing since the last call.

        Raises:
            SQLAlchemyError, OSError: the database is unavailable; the next call saves it.
        """
        missing = [
            owned
            for owned in self._missing.values()
            if (state := self._presence.local(owned.machine_id)) is not None
            and owned.session.id not in state.sessions
        ]
        if missing:
            async with self._database.begin() as transaction:
                await session_history.end(transaction, missing, int(self._clock() * 1000))
        self._missing.clear()
        await self._changed.flush()

    async def list_sessions(
        self,
        account_id: str,
        *,
        machine: MachineState | None = None,
        state: Literal["running", "ended"] | None,
        q: str | None,
        limit: int,
        before: str | None,
    ) -> SessionPage:
        """Return sessions, the newest launch first; see `session_history.page`.

        Args:
            machine: only sessions of this one, a machine of the account.
        """
        await self._changed.flush()
        deadline = self._clock() + END_WAIT
        while True:
            machines = (
                [machine] if machine is not None else await self._presence.of_account(account_id)
            )
            live = {connected.id: connected for connected in machines}
            if not await self._has_missing(live) or self._clock() >= deadline:
                break
            await asyncio.sleep(_POLL_SECONDS)
            if machine is not None:
                machine = await self._presence.find(account_id, machine.id)
        rows, has_more = await session_history.page(
            self._database,
            account_id,
            machine_id=None if machine is None else machine.id,
            state=state,
            q=q,
            limit=limit,
            before=before,
        )
        shown = [await self._shown(owned, live) for owned in rows]
        # The live state of a session may be longer than what is stored of it.
        sessions = shown[: count_within(map(json_bytes, shown))]
        has_more |= len(sessions) < len(shown)
        return SessionPage(
            sessions=sessions, cursor=sessions[-1].target_id if sessions and has_more else UNSET
        )

    async def _has_missing(self, live: dict[str, MachineState]) -> bool:
        """Return whether a stored session is in no report any more, and its end is on its way."""
        online = [state.id for state in live.values() if state.online]
        return any(
            session_id not in live[machine_id].sessions
            for machine_id, session_id in await session_history.running_ids(self._database, online)
        )

    async def _shown(self, owned: OwnedSession, live: dict[str, MachineState]) -> Session:
        """Return a running session as it is now, or was when its machine was seen last."""
        if owned.session.state == "ended":
            return owned.session
        if owned.machine_id not in live:
            state = await self._presence.find(owned.account_id, owned.machine_id)
            if state is None:
                return owned.session
            live[owned.machine_id] = state
        return live[owned.machine_id].sessions.get(owned.session.id, owned.session)

    async def worktree_removed(self, machine_id: str, path: str) -> None:
        """Note in the ended sessions of a machine that this worktree was removed.

        The machine has removed it: that it cannot be noted is logged, and no error.
        """
        try:
            async with self._database.begin() as transaction:
                await session_history.worktree_removed(transaction, machine_id, path)
        except DATABASE_ERRORS as error:
            _log.warning("removed worktree not noted", machine=machine_id, error=str(error))

    async def prune(self) -> None:
        """Delete ended sessions that are older than the retention.

        Raises:
            SQLAlchemyError, OSError: the database is unavailable.
        """
        before = int((self._clock() - self._days * 86400) * 1000)
        batch = session_history.PRUNE_BATCH
        while await session_history.prune(self._database, before) == batch:  # noqa: ASYNC110
            await asyncio.sleep(_PAUSE_SECONDS)  # other writers get their turn

    async def _save(self, states: dict[str, MachineState]) -> None:
        mine = {
            machine_id: state
            for machine_id in states
            if (state := self._presence.local(machine_id)) is not None
        }
        stored = {
            (owned.machine_id, owned.session.id): owned
            for owned in await session_history.running(self._database, list(mine))
        }
        changed = []
        for state in mine.values():
            for session in state.sessions.values():
                previous = stored.pop((state.id, session.id), None)
                if previous is None or summary(previous.session) != summary(session):
                    changed.append(OwnedSession(state.account_id, state.id, session))
        self._missing |= stored
        if changed:
            async with self._database.begin() as transaction:
                await session_history.save(transaction, changed)


def summary(session: Session) -> tuple[object, ...]:
    """Return what is written anew when it changes."""
    return session.title, session.model, session.workspace
