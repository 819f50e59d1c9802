"""Dashboard sessions: a password for a signed token that can be ended at any time."""

import asyncio
import time
from collections.abc import Callable
from typing import Annotated, Final

import jwt
import msgspec

from outrider.cloud.access import passwords
from outrider.cloud.access.principal import ALL_SCOPES, Principal, SessionRef
from outrider.cloud.access.sealing import derived
from outrider.cloud.store import sessions
from outrider.cloud.store.database import Database
from outrider.cloud.store.sessions import User
from outrider.contract.errors import ApiError, ErrorCode
from outrider.contract.ids import new_id
from outrider.contract.structs import Wire

SESSION_SECONDS: Final = 12 * 3600.0
"""How long a session lives."""

COOKIE: Final = "outrider_session"

_ALGORITHM: Final = "HS256"
_ISSUER: Final = "outrider"


class UserView(Wire, kw_only=True):
    """The user who logged in."""

    id: str
    account_id: str
    email: str


class LoggedIn(Wire, kw_only=True):
    """A session's token; `auth_time` is when the password was given (epoch milliseconds)."""

    token: str
    expires_at: int
    auth_time: int
    user: UserView


_Id = Annotated[str, msgspec.Meta(pattern=r"^\w{1,64}\Z")]


class _Claims(Wire, kw_only=True):
    """What a token says of its session, checked for its types."""

    sub: _Id
    account: _Id
    sid: _Id
    auth_time: int
    exp: int


class Sessions:
    """Begins, checks and ends sessions.

    Args:
        clock: seconds since the epoch.
    """

    def __init__(
        self, database: Database, secret_key: str, clock: Callable[[], float] = time.time
    ) -> None:
        self._database = database
        self._key = derived(secret_key, "sessions")
        self._clock = clock
        # A check takes 64 MB and a core for a moment.
        self._checks = asyncio.Semaphore(2)

    async def log_in(self, email: str, password: str) -> LoggedIn:
        """Begin a session.

        Raises:
            ApiError: 401 `AUTH_INVALID`, no such user or not the password, which one is not told.
        """
        user = await sessions.user_by_email(self._database, email)
        known = await self._matches(user, password)
        if user is None or not known:
            raise ApiError(401, "The email or the password is wrong", code=ErrorCode.AUTH_INVALID)
        now = self._now()
        session_id = new_id("session")
        await sessions.begin(
            self._database,
            session_id=session_id,
            user_id=user.id,
            now=now,
            expires_at=now + int(SESSION_SECONDS * 1000),
        )
        return self._token(user, session_id, now, now + int(SESSION_SECONDS * 1000))

    async def reauthenticate(self, principal: Principal, password: str) -> LoggedIn:
        """Give the session's user a token with a new `auth_time`; it expires when the session does.

        Raises:
            ApiError: 401 `AUTH_INVALID`, not the password.
        """
        user = await sessions.user_by_id(self._database, principal.id)
        known = await self._matches(user, password)
        if user is None or not known or principal.session is None:
            raise ApiError(401, "The password is wrong", code=ErrorCode.AUTH_INVALID)
        return self._token(user, principal.session.id, self._now(), principal.session.expires_at)

    async def end(self, session_id: str) -> None:
        """End a session: its tokens are worth nothing from now on."""
        await sessions.end(self._database, session_id)

    def claimed(self, token: str) -> Principal | None:
        """Return whom a token was made for, by its signature alone: the session may have ended."""
        try:
            decoded = jwt.decode(
                token,
                self._key,
                algorithms=[_ALGORITHM],
                issuer=_ISSUER,
                options={"require": ["exp", "sub"], "verify_exp": False, "verify_iat": False},
            )
            claims = msgspec.convert(decoded, _Claims)
        except (jwt.InvalidTokenError, msgspec.ValidationError):
            return None
        return Principal(
            "session",
            claims.sub,
            claims.account,
            ALL_SCOPES,
            auth_time=claims.auth_time,
            session=SessionRef(claims.sid, claims.exp * 1000),
        )

    async def principal(self, token: str) -> Principal | None:
        """Return who has this token; None where it is not one that works."""
        principal = self.claimed(token)
        if principal is None or principal.session is None:
            return None
        if not await sessions.lives(self._database, principal.session.id, self._now()):
            return None
        return principal

    async def _matches(self, user: User | None, password: str) -> bool:
        async with self._checks:
            password_hash = None if user is None else user.password_hash
            return await asyncio.to_thread(passwords.matches, password_hash, password)

    def _token(self, user: User, session_id: str, auth_time: int, expires_at: int) -> LoggedIn:
        claims = {
            "iss": _ISSUER,
            "sub": user.id,
            "account": user.account_id,
            "sid": session_id,
            "authTime": auth_time,
            "iat": auth_time // 1000,
            "exp": expires_at // 1000,
        }
        return LoggedIn(
            token=jwt.encode(claims, self._key, algorithm=_ALGORITHM),
            expires_at=expires_at,
            auth_time=auth_time,
            user=UserView(id=user.id, account_id=user.account_id, email=user.email),
        )

    def _now(self) -> int:
        return int(self._clock() * 1000)
