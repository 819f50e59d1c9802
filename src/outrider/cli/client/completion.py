"""Completion of target and machine names in bash, zsh and fish.

Whatever fails, completion offers nothing: a person is typing, and an error would break the line.
"""

from outrider.cli.client.credentials import connect
from outrider.contract.errors import OutriderError


def complete_target(incomplete: str) -> list[tuple[str, str]]:
    """Return the running sessions whose id, or whose type, begins with a word."""
    try:
        with connect() as client:
            sessions = client.sessions.list(state="running", limit=1000)
    except OutriderError:
        return []
    types = [session.type for session in sessions]
    names = {
        session.type: session.title or session.name
        for session in sessions
        if types.count(session.type) == 1
    }
    names |= {session.id: f"{session.type} {session.title or ''}".rstrip() for session in sessions}
    return [(name, text) for name, text in names.items() if name.startswith(incomplete)]


def complete_machine(incomplete: str) -> list[tuple[str, str]]:
    """Return the machines whose nickname begins with a word."""
    try:
        with connect() as client:
            machines = client.machines.list()
    except OutriderError:
        return []
    return [
        (machine.nickname, machine.id)
        for machine in machines
        if machine.nickname.startswith(incomplete)
    ]
