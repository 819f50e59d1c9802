"""Which session or machine a word of the command line names.

A TARGET is a target id, a session id, the beginning of one of them, a type, or
`<nickname>:cli|acp|ide:<type>`; a MACHINE is an id or a nickname. What names several is refused
with the candidates, and nothing is done.
"""

from collections.abc import Iterable

from outrider.cli.client.output import UsageError
from outrider.contract.ids import is_id
from outrider.contract.resources import Session
from outrider.contract.targets import parse_target
from outrider.sdk import Agent, Conflict, Machine, NotFound, Outrider

_PREFIX = "session_"
_PAGE = 1000


def find_agent(client: Outrider, word: str, *, or_ended: bool = False) -> Agent:
    """Return the agent that a TARGET names.

    Args:
        or_ended: whether it may name an ended session, if no running one fits.

    Raises:
        UsageError: several sessions or machines fit.
        NotFound: none fits.
    """
    target = parse_target(word)
    # With less than a session id at its end it is the beginning of a target id.
    if target is not None and (target.kind != "session" or is_id("session", target.name)):
        if target.daemon_id.startswith("machine_"):
            return client.agent(word)
        machine = find_machine(client, target.daemon_id)
        return client.agent(f"{machine.id}:{target.kind}:{target.name}")
    for state in ("running", "ended") if or_ended else ("running",):
        sessions = fitting(client.sessions.list(state=state, limit=_PAGE), word)
        if len(sessions) > 1:
            lines = [
                f"{session.id}  {session.type}  {session.title or _place(session)}".rstrip()
                for session in sessions
            ]
            names = "".join(f"\n  {line}" for line in lines)
            raise UsageError(f"{word!r} is ambiguous: it names{names}")
        if sessions:
            return client.agent(sessions[0].target_id)
    raise NotFound(f"No session is named by {word!r}: `outrider ls` lists them", status=404)


def fitting(sessions: Iterable[Session], word: str) -> list[Session]:
    """Return the sessions that a word names: by a whole id, else by its beginning or the type."""
    if not word:
        return []
    every = list(sessions)
    exact = [session for session in every if word in {session.id, session.target_id}]
    return exact or [
        session
        for session in every
        if session.type == word
        or session.target_id.startswith(word)
        or session.id.startswith(word)
        or session.id.removeprefix(_PREFIX).startswith(word)
    ]


def find_machine(client: Outrider, word: str | None) -> Machine:
    """Return the machine that a MACHINE names; without a word the only one that is connected.

    Raises:
        UsageError: several fit.
        NotFound: none fits.
    """
    if word is not None:
        try:
            return client.machines.get(word)
        except Conflict as error:
            raise UsageError(str(error)) from error
    machines = client.machines.list()
    if not machines:
        raise NotFound("No machine is connected: start `outrider daemon` on one", status=404)
    if len(machines) > 1:
        names = "".join(f"\n  {machine.id}  {machine.nickname}" for machine in machines)
        raise UsageError(f"Several machines are connected: choose one with --on{names}")
    return machines[0]


def _place(session: Session) -> str:
    return session.workspace.path if session.workspace else ""
