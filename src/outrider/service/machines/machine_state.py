"""A machine as it was last reported, wherever its socket is.

Its size is bounded: `contract.limits` says how many sessions and bytes.
"""

from collections.abc import Iterable

import msgspec
import structlog

from outrider.contract.errors import OutriderError
from outrider.contract.frames import Change, Snapshot
from outrider.contract.limits import (
    MAX_SESSIONS,
    MAX_STATE_BYTES,
    EventAllowance,
)
from outrider.contract.resources import Machine, Provider, Session
from outrider.service.machines.store import machines

_log = structlog.get_logger(__name__)
_encode = msgspec.json.Encoder().encode


class TooMuchState(OutriderError):
    """A machine reports more than the service keeps of one."""


class MachineState:
    """A machine as it was last reported. Times are epoch milliseconds.

    `connected` is whether it counts as connected, `online` whether a socket leads to it as well,
    `connection` the number of the newest one. Fresh figures in `machine` (memory, load) are only on
    the node with the socket at once: see `Presence.update`.
    """

    def __init__(self, row: machines.Machine) -> None:
        self.id = row.id
        self.account_id = row.account_id
        self.nickname = row.nickname
        self.hostname = row.hostname
        self.platform = row.platform
        self.version = row.version
        self.connected_at = row.connected_at
        self.last_seen_at = row.last_seen_at
        self.event_seq = row.event_seq
        self.connection = row.connection
        self.connected = row.connected
        self.online = False
        self.events = EventAllowance()
        """What the machine may send; it is the same for its next connection to this node."""
        self.size = 0
        """The bytes of JSON of what is kept; of the machine, those of its last full report."""
        self.machine: Machine | None = None
        self.providers: list[Provider] = []
        self.sessions: dict[str, Session] = {}
        self.stale_at = 0
        """When the database and the other nodes are to hear of it even if little has changed."""
        if row.snapshot is not None:
            self._restore(row.snapshot)

    def replace(
        self, machine: Machine, providers: list[Provider], sessions: Iterable[Session]
    ) -> None:
        """Take a full report in place of what was known.

        Raises:
            TooMuchState: it is more than may be kept; nothing has changed.
        """
        size = len(_encode(machine)) + len(_encode(providers))
        self.sessions, self.size = self._with({}, sessions, size)
        self.machine = machine
        self.hostname, self.platform = machine.hostname, machine.platform
        self.providers = providers

    def change(self, change: Change) -> None:
        """Take what has changed.

        Raises:
            TooMuchState: it is more than may be kept; nothing has changed.
        """
        size, sessions = self.size, self.sessions
        if change.removed:
            sessions = sessions.copy()
            for session_id in change.removed:
                removed = sessions.pop(session_id, None)
                size -= 0 if removed is None else len(_encode(removed))
        if change.sessions:
            sessions, size = self._with(sessions, change.sessions, size)
        if change.machine is not None:
            self.machine = change.machine
        self.sessions, self.size = sessions, size

    def row(self) -> machines.Machine:
        """Return all of it, as the database has it."""
        return machines.Machine(
            id=self.id,
            account_id=self.account_id,
            nickname=self.nickname,
            hostname=self.hostname,
            platform=self.platform,
            version=self.version,
            connected=self.connected,
            connected_at=self.connected_at,
            last_seen_at=self.last_seen_at,
            snapshot=self.snapshot(),
            event_seq=self.event_seq,
            connection=self.connection,
        )

    def snapshot(self) -> bytes | None:
        """Return the state to save; None if the machine has never reported."""
        if self.machine is None:
            return None
        return msgspec.json.encode(
            Snapshot(
                machine=self.machine,
                providers=self.providers,
                sessions=list(self.sessions.values()),
            )
        )

    def _with(
        self, sessions: dict[str, Session], added: Iterable[Session], size: int
    ) -> tuple[dict[str, Session], int]:
        """Return `sessions` with these added or replaced, and the bytes of all that is kept."""
        # A copy: if it is too much, nothing has changed.
        sessions = sessions.copy()
        for session in added:
            # Never what the machine says: it could pass its session off as another machine's.
            session.target_id = f"{self.id}:session:{session.id}"
            older = sessions.get(session.id)
            size += len(_encode(session)) - (0 if older is None else len(_encode(older)))
            sessions[session.id] = session
        if len(sessions) > MAX_SESSIONS:
            raise TooMuchState(f"A machine may report {MAX_SESSIONS} sessions at the most")
        if size > MAX_STATE_BYTES:
            raise TooMuchState(f"A machine may report {MAX_STATE_BYTES} bytes at the most")
        return sessions, size

    def _restore(self, data: bytes) -> None:
        """Take what was saved; what an older version saved may be outside today's limits."""
        try:
            snapshot = msgspec.json.decode(data, type=Snapshot)
        except msgspec.DecodeError as error:
            _log.warning("saved report not used", machine=self.id, error=str(error))
            return
        self.machine = snapshot.machine
        self.hostname, self.platform = snapshot.machine.hostname, snapshot.machine.platform
        self.providers = snapshot.providers
        self.sessions = {session.id: session for session in snapshot.sessions}
        self.size = len(data)
