"""What the API shows of a machine: `GET /daemons` (`daemon`), `GET …/status` (`daemon_status`).

A new field of the API's structs is an error of mypy here until it is given a value.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from msgspec import UNSET
from msgspec.structs import asdict, replace

from outrider.contract.providers import Category
from outrider.contract.resources import (
    Approval,
    CliEntry,
    Daemon,
    DaemonStatus,
    DaemonSummary,
    IdeEntry,
    Session,
)
from outrider.contract.sizes import count_within, json_bytes
from outrider.service.machines.machine_state import MachineState

MAX_LISTED_BYTES: Final = 64 * 1024
"""Bytes of a machine's agents in the list of machines, which has no pages."""


def daemon(state: MachineState) -> Daemon:
    """Return the machine as the list of connected machines shows it."""
    ides, clis, acps = _entries(state)
    return Daemon(
        id=state.id,
        hostname=state.hostname,
        nickname=state.nickname,
        platform=state.platform,
        cdp_connected=any(session.cdp_connected for session in state.sessions.values()),
        ides=ides,
        clis=clis,
        acps=acps,
        version=state.version,
        connected_at=state.connected_at,
        last_seen_at=state.last_seen_at,
    )


def any_daemon(state: MachineState) -> Daemon:
    """Return the machine as the list of all machines shows it."""
    is_reconnecting = state.connected and not state.online
    return replace(
        daemon(state),
        connected=state.connected,
        reconnecting=True if is_reconnecting else UNSET,
    )


def approvals(state: MachineState) -> Iterator[Approval]:
    """Yield the questions that agents of a machine wait to have answered."""
    for session in state.sessions.values():
        if session.pending_action is not None:
            yield Approval(
                action=session.pending_action,
                target_id=session.target_id,
                session_id=session.id,
                type=session.type,
                title=session.title,
                workspace=session.workspace,
                daemon_id=state.id,
                nickname=state.nickname,
                created_at=session.last_activity_at,
            )


def daemon_status(state: MachineState, *, now: int) -> DaemonStatus:
    """Return the machine in full."""
    shown = daemon(state)
    summary = {name: getattr(shown, name) for name in DaemonSummary.__struct_fields__}
    return DaemonStatus(
        **summary,
        connected=state.connected,
        machine=state.machine,
        sessions=list(state.sessions.values()),
        available_providers=state.providers,
        timestamp=now,
    )


def _entries(state: MachineState) -> tuple[list[IdeEntry], list[CliEntry], list[CliEntry]]:
    """Return the IDEs, CLI and ACP agents: of each type the session that was used last.

    Of more than `MAX_LISTED_BYTES` those that were used last.
    """
    sessions = _latest(state.sessions.values())
    if state.size > MAX_LISTED_BYTES:
        sessions.sort(key=lambda session: session.last_activity_at, reverse=True)
        sizes = (json_bytes(_ide(state.id, session)) for session in sessions)
        del sessions[count_within(sizes, MAX_LISTED_BYTES) :]
    return (
        [_ide(state.id, session) for session in sessions if session.kind == "ide"],
        [_cli(state.id, session) for session in sessions if session.kind == "cli"],
        [_cli(state.id, session) for session in sessions if session.kind == "acp"],
    )


def _latest(sessions: Iterable[Session]) -> list[Session]:
    """Return, of each type, the most recently used session."""
    latest: dict[tuple[Category, str], Session] = {}
    for session in sessions:
        kind = session.kind, session.type
        other = latest.get(kind)
        if other is None or session.last_activity_at >= other.last_activity_at:
            latest[kind] = session
    return list(latest.values())


def _cli(machine_id: str, session: Session) -> CliEntry:
    return CliEntry(
        id=type_target(machine_id, session),
        type=session.type,
        name=session.name,
        session_id=session.id,
        status=session.status,
        title=session.title,
        workspace=session.workspace,
        last_activity_at=session.last_activity_at,
    )


def _ide(machine_id: str, session: Session) -> IdeEntry:
    return IdeEntry(
        **asdict(_cli(machine_id, session)),
        cdp_connected=session.cdp_connected,
        agents=session.agents,
    )


def type_target(machine_id: str, session: Session) -> str:
    """Return the target id that names a session by its type: the `ideId` of its events."""
    return f"{machine_id}:{session.kind}:{session.type}"
