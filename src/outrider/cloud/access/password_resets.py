"""One-time links that set a password, for users who have none or have forgotten it.

The operator makes one and sends it; the page `/password` takes the token from the link's fragment,
which no browser sends to a server, so that it is in no log and no `Referer`.
"""

import time
from collections.abc import Callable
from typing import Final, NamedTuple

from outrider.cloud.access import credentials
from outrider.cloud.store import users
from outrider.cloud.store.database import Database

RESET_SECONDS: Final = 86400
"""Seconds for which a link works."""

PAGE: Final = "/password"


class PasswordLink(NamedTuple):
    """A link as it is sent, and when it expires (epoch milliseconds)."""

    url: str
    expires_at: int


async def new_link(
    database: Database, user_id: str, base_url: str, clock: Callable[[], float] = time.time
) -> PasswordLink:
    """Make a link that sets the user's password; an older one stops working.

    Args:
        base_url: the address that people use, without a slash at its end.
        clock: seconds since the epoch.
    """
    token, now = credentials.new_reset_token(), int(clock() * 1000)
    expires_at = now + RESET_SECONDS * 1000
    digest = credentials.digest(token)
    await users.add_reset(database, user_id, digest, now=now, expires_at=expires_at)
    return PasswordLink(f"{base_url}{PAGE}#{token}", expires_at)
