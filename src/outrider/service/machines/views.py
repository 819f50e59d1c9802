"""What the API shows of a machine: `GET /daemons` (`daemon`), `GET …/status` (`daemon_status`).

A new field of the API's structs is an error of mypy here until it is given a value.
"""

from collections.abc import Iterable, Iterator
from typing import Final, TypedDict

from msgspec import UNSET

from outrider.contract.providers import Category
from outrider.contract.resources import (
    AgentStatus,
    Approval,
    CliEntry,
    Daemon,
    DaemonStatus,
    IdeEntry,
    Session,
    Workspace,
)
from outrider.contract.sizes import count_within, json_bytes
from outrider.service.machines.machine_state import MachineState

MAX_LISTED_BYTES: Final = 64 * 1024
"""Bytes of a machine's agents in the list of machines, which has no pages."""


class _Summary(TypedDict):
    """The fields of `DaemonSummary`, which every view of a machine has."""

    id: str
    hostname: str
    nickname: str
    platform: str
    cdp_connected: bool
    ides: list[IdeEntry]
    clis: list[CliEntry]
    acps: list[CliEntry]
    version: str
    connected_at: int | None
    last_seen_at: int | None


class _Entry(TypedDict):
    """The fields that the entries of agents and of IDEs have in common."""

    id: str
    type: str
    name: str
    session_id: str
    status: AgentStatus
    title: str | None
    workspace: Workspace | None
    last_activity_at: int


def daemon(state: MachineState) -> Daemon:
    """Return the machine as the list of connected machines shows it."""
    return Daemon(**_summary(state))


def any_daemon(state: MachineState) -> Daemon:
    """Return the machine as the list of all machines shows it."""
    return Daemon(
        **_summary(state),
        connected=state.connected,
        reconnecting=True if state.connected and not state.online else UNSET,
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
    return DaemonStatus(
        **_summary(state),
        connected=state.connected,
        machine=state.machine,
        sessions=list(state.sessions.values()),
        available_providers=state.providers,
        timestamp=now,
    )


def _summary(state: MachineState) -> _Summary:
    ides, clis, acps = _entries(state)
    return {
        "id": state.id,
        "hostname": state.hostname,
        "nickname": state.nickname,
        "platform": state.platform,
        "cdp_connected": any(session.cdp_connected for session in state.sessions.values()),
        "ides": ides,
        "clis": clis,
        "acps": acps,
        "version": state.version,
        "connected_at": state.connected_at,
        "last_seen_at": state.last_seen_at,
    }


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
    return CliEntry(**_entry(machine_id, session))


def _ide(machine_id: str, session: Session) -> IdeEntry:
    return IdeEntry(
        **_entry(machine_id, session),
        cdp_connected=session.cdp_connected,
        agents=session.agents,
    )


def type_target(machine_id: str, session: Session) -> str:
    """Return the target id that names a session by its type: the `ideId` of its events."""
    return f"{machine_id}:{session.kind}:{session.type}"


def _entry(machine_id: str, session: Session) -> _Entry:
    return {
        "id": type_target(machine_id, session),
        "type": session.type,
        "name": session.name,
        "session_id": session.id,
        "status": session.status,
        "title": session.title,
        "workspace": session.workspace,
        "last_activity_at": session.last_activity_at,
    }
