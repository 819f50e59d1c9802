"""API keys; only the hash of a key is stored."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from sqlalchemy import Row, bindparam, insert, or_, select, update

from outrider.service.database import tables
from outrider.service.database.engine import Database

_keys = tables.api_keys


class ApiKey(NamedTuple):
    """A stored API key. Times are epoch milliseconds."""

    id: str
    account_id: str
    name: str
    prefix: str
    scopes: frozenset[str]
    created_at: int
    expires_at: int | None
    revoked_at: int | None
    last_used_at: int | None


_COLUMNS = [_keys.c[name] for name in ApiKey._fields]


async def add(
    database: Database,
    *,
    key_id: str,
    account_id: str,
    name: str,
    prefix: str,
    digest: bytes,
    scopes: Iterable[str],
    now: int,
    expires_at: int | None,
) -> None:
    """Add a key."""
    async with database.begin() as connection:
        await connection.execute(
            insert(_keys).values(
                id=key_id,
                account_id=account_id,
                name=name,
                prefix=prefix,
                hash=digest,
                scopes=sorted(scopes),
                created_at=now,
                expires_at=expires_at,
            )
        )


async def by_hash(database: Database, digest: bytes) -> ApiKey | None:
    """Return the key with this hash."""
    async with database.read() as connection:
        row = (await connection.execute(select(*_COLUMNS).where(_keys.c.hash == digest))).first()
    return None if row is None else _key(row)


async def valid(database: Database, key_ids: Collection[str], now: int) -> set[str]:
    """Return which of these keys exist, and have neither expired nor been revoked."""
    query = select(_keys.c.id).where(
        _keys.c.id.in_(key_ids),
        _keys.c.revoked_at.is_(None),
        or_(_keys.c.expires_at.is_(None), _keys.c.expires_at > now),
    )
    async with database.read() as connection:
        return set(await connection.scalars(query))


async def of_account(database: Database, account_id: str) -> list[ApiKey]:
    """Return the account's keys, newest first, including revoked ones."""
    query = select(*_COLUMNS).where(_keys.c.account_id == account_id).order_by(_keys.c.id.desc())
    async with database.read() as connection:
        return [_key(row) for row in await connection.execute(query)]


async def revoke(
    database: Database, key_id: str, now: int, *, account_id: str | None = None
) -> bool:
    """Revoke a key; return False if there is no such unrevoked key (in the account)."""
    statement = (
        update(_keys)
        .where(_keys.c.id == key_id, _keys.c.revoked_at.is_(None))
        .values(revoked_at=now)
    )
    if account_id is not None:
        statement = statement.where(_keys.c.account_id == account_id)
    async with database.begin() as connection:
        return (await connection.execute(statement)).rowcount == 1


async def touch(database: Database, used: Mapping[str, int]) -> None:
    """Save when keys were last used, by id."""
    statement = (
        update(_keys).where(_keys.c.id == bindparam("key")).values(last_used_at=bindparam("at"))
    )
    # Sorted: nodes that update the same rows lock them in one order and cannot deadlock.
    rows = [{"key": key, "at": at} for key, at in sorted(used.items())]
    async with database.begin() as connection:
        await connection.execute(statement, rows)


def _key(row: Row[Any]) -> ApiKey:
    key = ApiKey._make(row)
    return key._replace(scopes=frozenset(key.scopes))
