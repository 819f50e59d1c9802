"""The sessions of an account and of one machine, running and ended; the worktrees of ended ones."""

from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from outrider.contract.commands import CommandType, RemoveWorktree, WorktreeRemoved
from outrider.contract.resources import SessionPage
from outrider.contract.structs import Wire
from outrider.contract.text import NO_NUL
from outrider.service.accounts.principal import Scope
from outrider.service.agents.targets import aim
from outrider.service.http.endpoint import Call, Endpoint
from outrider.service.machines.dispatch import Dispatcher
from outrider.service.machines.session_history import SessionHistory


class MachineSessionsQuery(Wire, kw_only=True):
    """Which sessions of a machine."""

    state: Literal["running", "ended"] | None = None
    """Only those that run, or that have ended. Without it, both."""
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100
    """How many sessions, at most."""
    before: Annotated[str, Meta(min_length=1, max_length=512, pattern=NO_NUL)] | None = None
    """The `cursor` of a page, or the id of a session: only those behind it, launched earlier."""


class SessionsQuery(MachineSessionsQuery, kw_only=True):
    """Which sessions of the account."""

    q: Annotated[str, Meta(max_length=200, pattern=NO_NUL)] | None = None
    """Text that the title, the directory, the type or the machine's name has; case is ignored. Or a
    session's id.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionHistoryServices:
    """What the handlers of the history use."""

    dispatcher: Dispatcher
    history: SessionHistory


async def sessions(services: SessionHistoryServices, call: Call) -> SessionPage:
    """The sessions of the account on all its machines, also on those that are offline.

    An ended one has `endedAt`, `endReason` and `resumable`, and is kept for 90 days. For the next
    page, give `cursor` as `before`.
    """
    query: SessionsQuery = call.query
    return await services.history.list_sessions(
        call.account_id,
        state=query.state,
        q=query.q,
        limit=query.limit,
        before=query.before,
    )


async def machine_sessions(services: SessionHistoryServices, call: Call) -> SessionPage:
    """The sessions of a machine, also while it is offline; as `GET /sessions`."""
    query: MachineSessionsQuery = call.query
    machine = await services.dispatcher.owned(call.account_id, call.path("daemonId"))
    return await services.history.list_sessions(
        call.account_id,
        machine=machine,
        state=query.state,
        q=None,
        limit=query.limit,
        before=query.before,
    )


async def remove_worktree(services: SessionHistoryServices, call: Call) -> WorktreeRemoved:
    """Remove the git worktree of a session that has ended; its branch stays.

    Only a worktree that Outrider created (`worktree.created`), in which everything is committed or
    ignored: what git ignores is deleted. 409 `WORKTREE_DIRTY`: it has changes. 409 also while the
    session runs, or another one in the worktree. 404: there is no such worktree, or not any more.
    """
    request = RemoveWorktree()
    target = await aim(services.dispatcher, call.account_id, call.path("ideId"), request)
    result = await services.dispatcher.call(
        call.account_id,
        target.daemon_id,
        CommandType.REMOVE_WORKTREE,
        msgspec.json.encode(request),
        call.client_gone,
    )
    removed = msgspec.json.decode(result, type=WorktreeRemoved)
    await services.history.worktree_removed(target.daemon_id, removed.removed)
    return removed


ENDPOINTS: list[Endpoint[SessionHistoryServices]] = [
    Endpoint(
        method="GET",
        path="/api/v1/sessions",
        scope=Scope.AGENT_READ,
        summary="List the sessions of the account",
        handler=sessions,
        query=SessionsQuery,
        response=SessionPage,
        tag="Daemons",
    ),
    Endpoint(
        method="GET",
        path="/api/v1/daemons/{daemonId}/sessions",
        scope=Scope.AGENT_READ,
        summary="List the sessions of a machine",
        handler=machine_sessions,
        query=MachineSessionsQuery,
        response=SessionPage,
        tag="Daemons",
    ),
    Endpoint(
        method="DELETE",
        path="/api/v1/shortcuts/{ideId}/worktree",
        scope=Scope.IDE_CONTROL,
        summary="Remove the worktree of a session that has ended",
        handler=remove_worktree,
        response=WorktreeRemoved,
        tag="Shortcuts",
    ),
]
