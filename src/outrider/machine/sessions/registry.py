"""The sessions of this machine: those that run, those that start, and those that have ended."""

from collections.abc import Mapping
from pathlib import Path

from outrider.contract.commands import NamesSession
from outrider.contract.errors import ApiError, bad_request, conflict, not_found
from outrider.contract.providers import Category
from outrider.contract.resources import Provider as Description
from outrider.contract.resources import Session, Worktree
from outrider.contract.targets import parse_target
from outrider.machine.agents.provider import Provider
from outrider.machine.link.journal import Journal
from outrider.machine.sessions.clock import Clock
from outrider.machine.sessions.ended_chats import EndedChats
from outrider.machine.sessions.record import SessionRecord
from outrider.machine.sessions.session import AgentSession


class Registry:
    """What the parts that launch, end and read sessions share.

    Args:
        chats: keeps the chats of ended sessions.

    Attributes:
        daemon_id: this machine, for target ids.
        running: the running sessions, oldest first.
        launching: the records of sessions that are being launched.
        resuming: the ids of ended sessions that are being resumed; they are among `ended` until
            their agents run.
        ended: the records of sessions that have ended.
    """

    def __init__(
        self,
        daemon_id: str,
        providers: Mapping[str, Provider],
        *,
        journal: Journal,
        chats: EndedChats,
        clock: Clock,
        max_sessions: int,
    ) -> None:
        self.daemon_id = daemon_id
        self.journal = journal
        self.chats = chats
        self.clock = clock
        self._providers = providers
        self._max_sessions = max_sessions
        self.running: dict[str, AgentSession] = {}
        self.launching: dict[str, SessionRecord] = {}
        self.resuming: set[str] = set()
        self.ended: dict[str, SessionRecord] = {}

    def describe(self) -> list[Session]:
        """Return every running session, oldest first."""
        return [session.describe() for session in self.running.values()]

    def check_room(self) -> None:
        """Check that one more session may run, besides those that are being started.

        Raises:
            ApiError: 409, too many sessions run.
        """
        # Those that start count too, or many launches at once would exceed the limit.
        running = len(self.running) + len(self.resuming) + len(self.launching)
        if running >= self._max_sessions:
            raise conflict(
                f"{self._max_sessions} sessions run on this machine, which is the limit: "
                "stop one first"
            )

    # Providers

    def providers(self) -> list[Description]:
        """Return every provider of this machine."""
        return [provider.describe() for provider in self._providers.values()]

    def provider(self, type_: str) -> Provider | None:
        """Return the provider of this type, None if it has been removed."""
        return self._providers.get(type_)

    def require_provider(
        self, type_: str, field: str, categories: tuple[Category, ...] = ("cli", "acp", "ide")
    ) -> Provider:
        """Return the provider of a type that the field of a request names.

        Raises:
            ApiError: 400, there is no such type in these categories.
        """
        types = {
            kind: provider
            for kind, provider in self._providers.items()
            if provider.describe().category in categories
        }
        if type_ not in types:
            names = ", ".join(sorted(types)) or "none"
            raise bad_request(f"Unknown type {type_!r}: this machine knows {names}", field)
        return types[type_]

    def why_not_resumable(self, record: SessionRecord) -> str | None:
        """Return why a session cannot be continued once it has ended; None if it can."""
        if record.worktree is not None and record.worktree.removed:
            return "Its worktree was removed"
        provider = self.provider(record.type)
        return (
            "Its provider file was removed" if provider is None else provider.not_resumable(record)
        )

    # Sessions

    def find(self, query: NamesSession) -> AgentSession:
        """Return the session that a command addresses; without an address, the latest active one.

        Raises:
            ApiError: 404, no such session; 400, `target` and `session_id` name different ones.
        """
        requested = None if query.session_id is None else self._by_id(query.session_id)
        if query.target is None:
            return requested or _latest(list(self.running.values()), "any agent")
        session = self._by_target(query.target)
        if requested not in (None, session):
            raise bad_request(
                f"The session {query.session_id!r} is not {query.target!r}, which is the session "
                f"{session.record.id!r} now: name one of them. Nothing was done",
                "sessionId",
            )
        return session

    def find_ended(self, query: NamesSession) -> SessionRecord | None:
        """Return the ended session that a command names by its id, None if there is none."""
        session_id = query.session_id
        if query.target is not None:
            target = parse_target(query.target)
            if target is None or (target.daemon_id, target.kind) != (self.daemon_id, "session"):
                return None
            if session_id not in (None, target.name):
                return None
            session_id = target.name
        return None if session_id is None else self.ended.get(session_id)

    def worktrees_at(self, path: str) -> list[Worktree]:
        """Return the worktree with this path as the sessions' records describe it."""
        running = (session.record for session in self.running.values())
        worktrees = (
            record.worktree for record in (*running, *self.launching.values(), *self.ended.values())
        )
        return [tree for tree in worktrees if tree and tree.path == path and not tree.removed]

    def other_in(self, worktree: Worktree, record: SessionRecord) -> str | None:
        """Return the id of another session than that of `record` that works in a worktree."""
        top = Path(worktree.path)
        running = [session.record for session in self.running.values()]
        resuming = [self.ended[session_id] for session_id in self.resuming]
        for other in (*running, *resuming, *self.launching.values()):
            if other.id != record.id and Path(other.path).is_relative_to(top):
                return other.id
        return None

    def _by_id(self, session_id: str) -> AgentSession:
        session = self.running.get(session_id)
        if session is not None:
            return session
        if session_id in self.ended:
            raise not_found(
                f"The session {session_id!r} has ended: launch it with `resume`, or a new one"
            )
        raise no_session(session_id)

    def _by_target(self, text: str) -> AgentSession:
        target = parse_target(text)
        if target is None or target.daemon_id != self.daemon_id:
            raise not_found(f"{text!r} is not a target of this machine")
        if target.kind == "session":
            return self._by_id(target.name)
        sessions = [
            session
            for session in self.running.values()
            if session.record.kind == target.kind
            and target.name in (session.record.type, session.record.name)
        ]
        return _latest(sessions, f"{target.kind}:{target.name}")


def no_session(session_id: str) -> ApiError:
    """Return the error for an id that no session of this machine has."""
    return not_found(f"This machine has no session {session_id!r}")


def _latest(sessions: list[AgentSession], description: str) -> AgentSession:
    if not sessions:
        raise not_found(f"No session of {description} runs on this machine: launch one first")
    return max(sessions, key=lambda session: session.record.last_activity_at)
