"""One-time links: those of the operator set a password, the one of `outrider up` logs in.

    outrider admin ─▶ URL/password#TOKEN ─────▶ POST /auth/password/reset {token, password}
    outrider up ────▶ URL/login#once=TOKEN ───▶ POST /auth/link {token}

The token is in the URL's fragment, which browsers send to no server and in no `Referer`, so it
appears in no log. Only its digest is kept: of password links in the database for a day, of login
links in memory for ten minutes. `take_link` accepts a login link from loopback addresses only.
"""

import time
from collections.abc import Callable
from typing import Final, NamedTuple

from outrider.service.accounts import credentials
from outrider.service.accounts.store import users
from outrider.service.database.engine import Database

RESET_SECONDS: Final = 86400
"""How long a password link works."""

LINK_SECONDS: Final = 600.0
"""How long a login link works."""

PAGE: Final = "/password"

_MOST: Final = 16


class PasswordLink(NamedTuple):
    """A link, and when it expires (epoch milliseconds)."""

    url: str
    expires_at: int


async def new_password_link(
    database: Database, user_id: str, base_url: str, clock: Callable[[], float] = time.time
) -> PasswordLink:
    """Create a link that sets the user's password; an older link stops working.

    Args:
        base_url: the service's public URL, without a trailing slash.
        clock: seconds since the epoch.
    """
    token, now = credentials.new_token(), int(clock() * 1000)
    expires_at = now + RESET_SECONDS * 1000
    digest = credentials.digest(token)
    await users.add_reset(database, user_id, digest, now=now, expires_at=expires_at)
    return PasswordLink(f"{base_url}{PAGE}#{token}", expires_at)


class _Link(NamedTuple):
    email: str
    expires_at: float


class LoginLinks:
    """The links that have not been used.

    Args:
        clock: seconds of a monotonic clock.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._links: dict[bytes, _Link] = {}

    def issue(self, email: str) -> str:
        """Return the token of a new link for a user; the oldest of too many links ends."""
        token = credentials.new_token()
        self._links[credentials.digest(token)] = _Link(email, self._clock() + LINK_SECONDS)
        while len(self._links) > _MOST:
            del self._links[next(iter(self._links))]
        return token

    def take(self, token: str) -> str | None:
        """Use up a link; return its user's email, or None if it does not work."""
        link = self._links.pop(credentials.digest(token), None)
        return None if link is None or self._clock() >= link.expires_at else link.email
