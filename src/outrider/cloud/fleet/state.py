"""A machine as it was last reported, wherever its socket is."""

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

import msgspec

from outrider.cloud.store import machines
from outrider.contract.errors import OutriderError
from outrider.contract.frames import Change, Snapshot
from outrider.contract.resources import Machine, Provider, Session

MAX_SESSIONS: Final = 1000
"""Sessions of one machine that the service keeps in mind."""


@lru_cache(maxsize=1024)
def _shared(encoded: bytes) -> list[Provider]:
    """Return providers from their JSON; machines with the same ones share the list."""
    return msgspec.json.decode(encoded, type=list[Provider])


class TooManySessions(OutriderError):
    """A machine reports more sessions than the service keeps in mind."""


class MachineState:
    """A machine as it was last reported. Times are epoch milliseconds.

    `connected` is whether it counts as connected, `online` whether a socket leads to it as well,
    `connection` the number of the newest one.
    """

    __slots__ = (
        "account_id",
        "connected",
        "connected_at",
        "connection",
        "encoded",
        "event_seq",
        "hostname",
        "id",
        "last_seen_at",
        "machine",
        "nickname",
        "online",
        "platform",
        "providers",
        "sessions",
        "stale_at",
        "version",
    )

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
        self.machine: Machine | None = None
        self.providers: list[Provider] = []
        self.sessions: dict[str, Session] = {}
        self.stale_at = 0
        """When the database and the other nodes are to hear of it even if little has changed."""
        self.encoded: bytes | None = None
        """The machine's entry in the list of machines, kept until something changes."""
        if row.snapshot is not None:
            snapshot = msgspec.json.decode(row.snapshot, type=Snapshot)
            self.replace(snapshot.machine, snapshot.providers, snapshot.sessions)

    def replace(
        self, machine: Machine, providers: list[Provider], sessions: Iterable[Session]
    ) -> None:
        """Take a full report in place of what was known."""
        self.machine = machine
        self.hostname, self.platform = machine.hostname, machine.platform
        self.providers = _shared(msgspec.json.encode(providers))
        self.sessions = {}
        self._add(sessions)

    def change(self, change: Change) -> None:
        """Take what has changed."""
        if change.machine is not None:
            self.machine = change.machine
        for session_id in change.removed:
            self.sessions.pop(session_id, None)
        self._add(change.sessions)

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
        """Return what is known, to be saved; None where nothing was ever reported."""
        if self.machine is None:
            return None
        return msgspec.json.encode(
            Snapshot(
                machine=self.machine,
                providers=self.providers,
                sessions=list(self.sessions.values()),
            )
        )

    def _add(self, sessions: Iterable[Session]) -> None:
        self.encoded = None
        for session in sessions:
            session.target_id = f"{self.id}:session:{session.id}"
            self.sessions[session.id] = session
        if len(self.sessions) > MAX_SESSIONS:
            raise TooManySessions(f"A machine may report {MAX_SESSIONS} sessions at the most")
