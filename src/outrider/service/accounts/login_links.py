"""One-time links that log in to the dashboard: `outrider up` prints one.

    up ── issue ──▶ URL/login#once=TOKEN ── opened in a browser ──▶ POST /auth/link {token}

The token is in the URL's fragment, which browsers send to no server and in no `Referer`. It is kept
in memory only, as a digest, for `LINK_SECONDS` and one use. `take_link` accepts it from loopback
addresses only.
"""

import time
from collections.abc import Callable
from typing import Final, NamedTuple

from outrider.service.accounts import credentials

LINK_SECONDS: Final = 600.0
"""How long a link works."""

_MOST: Final = 16


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
        token = credentials.new_link_token()
        self._links[credentials.digest(token)] = _Link(email, self._clock() + LINK_SECONDS)
        while len(self._links) > _MOST:
            del self._links[next(iter(self._links))]
        return token

    def take(self, token: str) -> str | None:
        """Use up a link; return its user's email, or None if it does not work."""
        link = self._links.pop(credentials.digest(token), None)
        return None if link is None or self._clock() >= link.expires_at else link.email
