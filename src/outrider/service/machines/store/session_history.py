"""The sessions of machines, running and ended.

Two writers may be late: an end is reported by an event, which may be stored after the session was
resumed, and a running session by a report, which may be stored after the event. The machine's own
times say what is newer. An end without a reason, noted because the session was missing in a report,
gives way to either.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal, NamedTuple

import msgspec
from sqlalchemy import Select, bindparam, delete, func, or_, select, text, tuple_, update

from outrider.contract.resources import Session
from outrider.contract.sizes import count_within, cut_session
from outrider.contract.targets import parse_target
from outrider.service.batched import batched
from outrider.service.database import tables
from outrider.service.database.engine import Database
from outrider.service.database.transaction import Transaction

PRUNE_BATCH: Final = 500

_MAX_IDS: Final = 500
_ESCAPE: Final = "\\"
_history = tables.session_history
_machines = tables.machines
_KEY = (_history.c.machine_id, _history.c.id)

_REPLACED: Final = ("last_activity_at", "ended_at", "end_reason", "search", "data")

_IS_NEWER: Final = """
    excluded.ended_at IS NULL AND (
        session_history.ended_at IS NULL
        OR session_history.end_reason IS NULL
        OR excluded.last_activity_at > session_history.ended_at
    )
    OR excluded.ended_at >= session_history.last_activity_at
"""


class OwnedSession(NamedTuple):
    """A session, with its machine and account."""

    account_id: str
    machine_id: str
    session: Session


async def save(transaction: Transaction, sessions: Iterable[OwnedSession]) -> None:
    """Add sessions, or replace their states by newer ones."""
    rows = {(owned.machine_id, owned.session.id): _row(owned) for owned in sessions}
    # In the order of the keys: nodes that write the same rows cannot deadlock.
    if not rows:
        return
    new = transaction.insert(_history)
    upsert = new.on_conflict_do_update(
        index_elements=_KEY,
        set_={name: new.excluded[name] for name in _REPLACED},
        where=text(_IS_NEWER),
    )
    await transaction.execute(upsert, [rows[key] for key in sorted(rows)])


async def running(database: Database, machine_ids: Sequence[str]) -> list[OwnedSession]:
    """Return the sessions of these machines that have not ended, as they are stored."""
    sessions: list[OwnedSession] = []
    async with database.read() as transaction:
        for batch in batched(machine_ids, _MAX_IDS):
            query = select(_history.c.account_id, *_KEY, _history.c.data).where(
                _history.c.machine_id.in_(batch),
                _history.c.ended_at.is_(None),
            )
            sessions += [
                OwnedSession(account_id, machine_id, _decode(data))
                for account_id, machine_id, _, data in await transaction.execute(query)
            ]
    return sessions


async def running_ids(database: Database, machine_ids: Sequence[str]) -> set[tuple[str, str]]:
    """Return the machines and ids of the sessions of these machines that have not ended."""
    keys: set[tuple[str, str]] = set()
    async with database.read() as transaction:
        for batch in batched(machine_ids, _MAX_IDS):
            query = select(*_KEY).where(
                _history.c.machine_id.in_(batch), _history.c.ended_at.is_(None)
            )
            keys |= {(row[0], row[1]) for row in await transaction.execute(query)}
    return keys


async def end(transaction: Transaction, missing: Sequence[OwnedSession], now: int) -> None:
    """Note that sessions have ended, for a reason that is not known."""
    if not missing:
        return
    rows = []
    for owned in missing:
        ended = cut_session(
            msgspec.structs.replace(owned.session, state="ended", ended_at=now, pending_action=None)
        )
        data = msgspec.json.encode(ended)
        rows.append({"machine": owned.machine_id, "session": owned.session.id, "ended": data})
    await transaction.execute(
        update(_history)
        .where(_history.c.machine_id == bindparam("machine"))
        .where(_history.c.id == bindparam("session"), _history.c.ended_at.is_(None))
        .values(ended_at=now, data=bindparam("ended")),
        rows,
    )


async def worktree_removed(transaction: Transaction, machine_id: str, path: str) -> None:
    """Note in the ended sessions of a machine that their worktree at this path was removed."""
    # The searched text has the session's directory, which is the worktree or inside it.
    ended = select(_history.c.id, _history.c.data).where(
        _history.c.machine_id == machine_id,
        _history.c.ended_at.is_not(None),
        _history.c.search.like(_containing(path), escape=_ESCAPE),
    )
    rows = []
    for session_id, data in await transaction.execute(ended.order_by(_history.c.id)):
        session = _decode(data)
        if session.worktree is None or session.worktree.path != path:
            continue
        removed = msgspec.structs.replace(
            session,
            worktree=msgspec.structs.replace(session.worktree, removed=True),
            resumable=False,
            not_resumable="Its worktree was removed",
        )
        rows.append({"session": session_id, "removed": msgspec.json.encode(removed)})
    if rows:
        await transaction.execute(
            update(_history)
            .where(_history.c.machine_id == machine_id)
            .where(_history.c.id == bindparam("session"), _history.c.ended_at.is_not(None))
            .values(data=bindparam("removed")),
            rows,
        )


async def page(
    database: Database,
    account_id: str,
    *,
    machine_id: str | None = None,
    state: Literal["running", "ended"] | None = None,
    q: str | None = None,
    limit: int,
    before: str | None = None,
) -> tuple[list[OwnedSession], bool]:
    """Return sessions of an account, the newest launch first, and whether more follow.

    They have `MAX_PAGE_BYTES` at most; a single one may have more.

    Args:
        q: text in the title, the directory, the type, or the name of the machine.
        before: the id or the target id of a session; only those behind it. An unknown one is behind
            all.
    """
    query: Select[Any] = select(*_KEY, func.length(_history.c.data)).where(
        _history.c.account_id == account_id
    )
    if machine_id is not None:
        query = query.where(_history.c.machine_id == machine_id)
    if state is not None:
        has_ended = _history.c.ended_at.is_not(None)
        query = query.where(has_ended if state == "ended" else ~has_ended)
    if q:
        query = _matching(query, q)
    if before is not None:
        # Two machines may report sessions with the same id: a target id tells them apart.
        target = parse_target(before)
        position = select(_history.c.created_at, _history.c.id, _history.c.machine_id).where(
            _history.c.account_id == account_id,
            _history.c.id == (before if target is None else target.name),
        )
        if target is not None:
            position = position.where(_history.c.machine_id == target.daemon_id)
        if machine_id is not None:
            position = position.where(_history.c.machine_id == machine_id)
        async with database.read() as transaction:
            place = (await transaction.execute(position.limit(1))).first()
        if place is None:
            return [], False
        order = tuple_(_history.c.created_at, _history.c.id, _history.c.machine_id)
        query = query.where(order < tuple_(place[0], place[1], place[2]))
    query = query.order_by(
        _history.c.created_at.desc(), _history.c.id.desc(), _history.c.machine_id.desc()
    ).limit(limit + 1)
    async with database.read() as transaction:
        rows = (await transaction.execute(query)).all()
        count = count_within(length for *_, length in rows[:limit])
        keys = [(machine, session_id) for machine, session_id, _ in rows[:count]]
        stored: dict[tuple[str, str], bytes] = {}
        for batch in batched(keys, _MAX_IDS):
            data = select(*_KEY, _history.c.data).where(tuple_(*_KEY).in_(batch))
            stored |= {(row[0], row[1]): row[2] for row in await transaction.execute(data)}
    sessions = [
        OwnedSession(account_id, key[0], _decode(stored[key])) for key in keys if key in stored
    ]
    return sessions, len(keys) < len(rows)


async def prune(database: Database, before: int) -> int:
    """Delete a batch of sessions that ended before `before`; return how many."""
    old = select(*_KEY).where(_history.c.ended_at < before).limit(PRUNE_BATCH)
    async with database.begin() as transaction:
        keys = [tuple(row) for row in await transaction.execute(old)]
        if keys:
            await transaction.execute(delete(_history).where(tuple_(*_KEY).in_(keys)))
    return len(keys)


def _containing(q: str) -> str:
    """Return the pattern of a text that contains `q`, in any case."""
    text = q.casefold()
    for special in (_ESCAPE, "%", "_"):
        text = text.replace(special, _ESCAPE + special)
    return f"%{text}%"


def _matching(query: Select[Any], q: str) -> Select[Any]:
    pattern = _containing(q)
    named = select(_machines.c.id).where(
        _machines.c.id == _history.c.machine_id,
        or_(
            func.lower(_machines.c.nickname).like(pattern, escape=_ESCAPE),
            func.lower(_machines.c.hostname).like(pattern, escape=_ESCAPE),
        ),
    )
    has_text = _history.c.search.like(pattern, escape=_ESCAPE)
    return query.where(or_(_history.c.id == q, has_text, named.exists()))


def _row(owned: OwnedSession) -> dict[str, Any]:
    session = cut_session(msgspec.structs.replace(owned.session, pending_action=None))
    path = "" if session.workspace is None else session.workspace.path
    searched = (session.title or "", path, session.type, session.name)
    return {
        "machine_id": owned.machine_id,
        "id": session.id,
        "account_id": owned.account_id,
        "created_at": session.created_at,
        "last_activity_at": session.last_activity_at,
        "ended_at": session.ended_at,
        "end_reason": session.end_reason,
        "search": "\n".join(searched).casefold().replace("\0", ""),
        "data": msgspec.json.encode(session),
    }


def _decode(data: bytes) -> Session:
    return msgspec.json.decode(data, type=Session)
