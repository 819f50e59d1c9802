"""One-time links that set a password, for users who have none or have forgotten it.

The operator creates a link and sends it. The token is in the URL's fragment, which browsers do not
send to servers, so it appears in no log and no `Referer`; the page `/password` reads it there.
"""

import time
from collections.abc import Callable
from typing import Final, NamedTuple

from outrider.service.accounts import credentials
from outrider.service.accounts.store import users
from outrider.service.database.engine import Database

RESET_SECONDS: Final = 86400
"""Seconds for which a link works."""

PAGE: Final = "/password"


class PasswordLink(NamedTuple):
    """A link, and when it expires (epoch milliseconds)."""

    url: str
    expires_at: int


async def new_link(
    database: Database, user_id: str, base_url: str, clock: Callable[[], float] = time.time
) -> PasswordLink:
    """Create a link that sets the user's password; an older link stops working.

    Args:
        base_url: the service's public URL, without a trailing slash.
        clock: seconds since the epoch.
    """
    token, now = credentials.new_reset_token(), int(clock() * 1000)
    expires_at = now + RESET_SECONDS * 1000
    digest = credentials.digest(token)
    await users.add_reset(database, user_id, digest, now=now, expires_at=expires_at)
    return PasswordLink(f"{base_url}{PAGE}#{token}", expires_at)
