"""The principal of a request: the owner of its credential, and the scopes that it has."""

from typing import Literal, NamedTuple

from outrider.contract.account import Scope

__all__ = ["ALL_SCOPES", "Principal", "Scope", "SessionRef"]


ALL_SCOPES = frozenset(Scope)


class SessionRef(NamedTuple):
    """A dashboard session, and when it expires (epoch milliseconds)."""

    id: str
    expires_at: int


class Principal(NamedTuple):
    """The bearer of a valid credential: an API key, or a dashboard session.

    `id` is the API key's or the user's. `auth_time` is when the user last proved their identity, by
    the password or a login link, in epoch milliseconds: for a while after it, the login is recent.
    Both `auth_time` and `session` are None for an API key. `name` is the key's.
    """

    kind: Literal["key", "session"]
    id: str
    account_id: str
    scopes: frozenset[str]
    auth_time: int | None = None
    session: SessionRef | None = None
    name: str | None = None
