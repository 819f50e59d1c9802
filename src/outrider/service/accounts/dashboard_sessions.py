"""Dashboard sessions: a login returns a signed token (JWT); ending the session revokes it.

There are two kinds of tokens. A program's works in `Authorization: Bearer`. The one in a browser's
cookie works only together with the page secret of the login (`api.session_cookie`).

Another way to log in, such as single sign-on, must take two rules into account. `reauthenticate`,
which makes a login recent again, takes the password only. And the cookie is `SameSite=Strict`: a
browser does not send it with a request to which another site has redirected it.
"""

import asyncio
import hmac
import time
from collections.abc import Callable
from functools import cached_property
from typing import Annotated, Final

import msgspec
from argon2 import PasswordHasher

from outrider.contract.errors import ApiError, ErrorCode, bad_request
from outrider.contract.ids import new_id
from outrider.contract.structs import Wire
from outrider.service.accounts import credentials, passwords
from outrider.service.accounts.encryption import derived
from outrider.service.accounts.principal import ALL_SCOPES, Principal, SessionRef
from outrider.service.accounts.store import dashboard_sessions, users
from outrider.service.accounts.store.dashboard_sessions import DashboardSession, Origin
from outrider.service.accounts.store.users import User
from outrider.service.database.engine import Database

SESSION_SECONDS: Final = 12 * 3600.0
"""How long a session lives."""

MAX_FAILURES: Final = 10
"""Wrong passwords in a row after which a session is ended."""

KNOWN_SECONDS: Final = 90 * 86400.0
"""How long an address counts as known after a login from it."""

_ALGORITHM: Final = "HS256"
_ISSUER: Final = "outrider"


class UserView(Wire, kw_only=True):
    """The user who logged in."""

    id: str
    """The user's id."""
    account_id: str
    """The user's account."""
    email: str
    """The user's email address."""


class LoggedIn(Wire, kw_only=True):
    """A session that has begun, or has given its password again."""

    token: str
    """The session's token, for `Authorization: Bearer`."""
    expires_at: int
    """When the session ends, in epoch milliseconds."""
    auth_time: int
    """When the password was given, in epoch milliseconds."""
    user: UserView
    """Who logged in."""


_Id = Annotated[str, msgspec.Meta(pattern=r"^\w{1,64}\Z")]


class _Claims(Wire, kw_only=True):
    """The claims of a session token."""

    sub: _Id
    account: _Id
    sid: _Id
    auth_time: int
    exp: int
    page: str | None
    """Null in a program's token; in a cookie's the digest of its page secret. Tokens of earlier
    releases, which worked in both places, have no such claim and are refused."""


class DashboardSessions:
    """Starts, checks and ends sessions.

    Args:
        clock: seconds since the epoch.
        hasher: hashes and verifies the passwords.
    """

    def __init__(
        self,
        database: Database,
        secret_key: str,
        clock: Callable[[], float] = time.time,
        hasher: PasswordHasher = passwords.HASHER,
    ) -> None:
        self._database = database
        self._secret_key = secret_key
        self._clock = clock
        self._hasher = hasher
        # A password check takes 64 MB and a core for a moment: bound the concurrent ones.
        self._checks = asyncio.Semaphore(2)

    async def log_in(self, email: str, password: str, origin: Origin | None = None) -> LoggedIn:
        """Start a session, and remember the address of `origin` as one of the user's.

        Raises:
            ApiError: 401 `AUTH_INVALID`, the email or the password is wrong; the same answer, in
                the same time, for both.
        """
        user = await users.by_email(self._database, email)
        is_right = await self._is_right(user, password)
        logged_in = await self._begin(user, origin) if user is not None and is_right else None
        if logged_in is None:
            raise _wrong_login()
        return logged_in

    async def log_in_by_link(self, email: str, origin: Origin | None = None) -> LoggedIn | None:
        """Start a session of a user who has used a one-time link; None if there is no such user."""
        user = await users.by_email(self._database, email)
        return None if user is None else await self._begin(user, origin)

    async def knows_address(self, email: str, network: str) -> bool:
        """Return whether the user has logged in from an address (its network) recently."""
        since = self._now() - int(KNOWN_SECONDS * 1000)
        return await users.knows_address(self._database, email, network, since)

    async def reauthenticate(self, principal: Principal, password: str) -> LoggedIn:
        """Return a token with a new `auth_time`; it expires when the session does.

        Raises:
            ApiError: 401 `AUTH_INVALID`, the password is wrong; after `MAX_FAILURES` in a row the
                session is ended.
        """
        user, session = await self._verify(principal, password)
        return self._token(user, session.id, self._now(), session.expires_at)

    async def change_password(
        self, principal: Principal, current: str, new: str, origin: Origin | None = None
    ) -> None:
        """Change the password of the session's user, and end all of the user's other sessions.

        Raises:
            ApiError: 400, `new` is not acceptable; 401 as `reauthenticate`.
        """
        user = await users.by_id(self._database, principal.id)
        await self._check_new(new, "new", user)
        user, session = await self._verify(principal, current)
        password_hash = await self._hash(new)
        is_changed = await users.change_password(
            self._database,
            user,
            password_hash,
            now=self._now(),
            keep_session=session.id,
            address=None if origin is None else origin.network,
        )
        if not is_changed:
            raise ApiError(401, "The password has just been changed", code=ErrorCode.AUTH_INVALID)

    async def reset_password(self, token: str, password: str, origin: Origin | None = None) -> User:
        """Set a password with a one-time link, and end all of the user's sessions.

        Raises:
            ApiError: 400, the link is not valid, or `password` is not acceptable.
        """
        digest = credentials.digest(token)
        user = await users.by_reset(self._database, digest, self._now())
        if user is None:
            raise _invalid_link()
        await self._check_new(password, "password", user)
        is_set = await users.use_reset(
            self._database,
            digest,
            await self._hash(password),
            now=self._now(),
            address=None if origin is None else origin.network,
        )
        if not is_set:  # a concurrent request has used the link
            raise _invalid_link()
        return user

    async def of_user(self, principal: Principal) -> list[DashboardSession]:
        """Return the user's sessions, newest first."""
        return await dashboard_sessions.of_user(self._database, principal.id, self._now())

    async def end_of_user(self, principal: Principal, session_id: str) -> bool:
        """End one of the user's sessions; return whether it existed."""
        return await dashboard_sessions.end_of_user(self._database, principal.id, session_id)

    async def end_others(self, principal: Principal) -> int:
        """End the user's other sessions; return how many."""
        assert principal.session is not None, "only sessions are let in here"
        return await dashboard_sessions.end_all(
            self._database, principal.id, but=principal.session.id
        )

    async def end(self, session_id: str) -> None:
        """End a session: its tokens are no longer valid."""
        await dashboard_sessions.end(self._database, session_id)

    def in_cookie(self, token: str, page_secret: str | None) -> str:
        """Return the token of a program's session for the cookie of a page.

        Without a page secret it is one that no request can use.
        """
        import jwt

        claims = jwt.decode(
            token, self._key, algorithms=[_ALGORITHM], options={"verify_exp": False}
        )
        claims["page"] = _page_digest(page_secret or "")
        return jwt.encode(claims, self._key, algorithm=_ALGORITHM)

    def claimed(self, token: str, page_secret: str | None = None) -> Principal | None:
        """Return the principal in a correctly signed token; its session may have ended.

        Args:
            page_secret: the secret that came with a cookie; None for a program's token.
        """
        import jwt  # 2 MB that an idle service does not need, and 8 MB for its key

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
        if page_secret is None:
            if claims.page is not None:
                return None
        elif not hmac.compare_digest(_page_digest(page_secret), claims.page or ""):
            return None
        return Principal(
            "session",
            claims.sub,
            claims.account,
            ALL_SCOPES,
            auth_time=claims.auth_time,
            session=SessionRef(claims.sid, claims.exp * 1000),
        )

    async def is_active(self, session_id: str) -> bool:
        """Return whether a session has neither expired nor been ended."""
        return await dashboard_sessions.is_active(self._database, session_id, self._now())

    async def _check_new(self, password: str, field: str, user: User | None) -> None:
        """Check a new password.

        Args:
            field: the field of the request that contains it.

        Raises:
            ApiError: 400, the password is not acceptable.
        """
        email = "" if user is None else user.email
        try:
            async with self._checks:
                await asyncio.to_thread(passwords.check_new, password, email)
        except passwords.WeakPassword as error:
            raise bad_request(str(error), field) from error

    async def _verify(self, principal: Principal, password: str) -> tuple[User, SessionRef]:
        """Check the password of a session's user; return the user and the session.

        Raises:
            ApiError: 401 `AUTH_INVALID`, the password is wrong.
        """
        session = principal.session
        assert session is not None, "only sessions are let in here"
        # Count before checking, so that concurrent attempts cannot exceed `MAX_FAILURES`.
        count = await dashboard_sessions.count_attempt(self._database, session.id, MAX_FAILURES)
        user = await users.by_id(self._database, principal.id)
        if count is not None and await self._is_right(user, password) and user is not None:
            await dashboard_sessions.reset_attempts(self._database, session.id)
            return user, session
        if count is not None and count < MAX_FAILURES:
            raise ApiError(401, "The password is wrong", code=ErrorCode.AUTH_INVALID)
        await dashboard_sessions.end(self._database, session.id)
        raise ApiError(
            401,
            f"The password was wrong {MAX_FAILURES} times: this session has ended, log in again",
            code=ErrorCode.AUTH_INVALID,
        )

    async def _is_right(self, user: User | None, password: str) -> bool:
        async with self._checks:
            password_hash = None if user is None else user.password_hash
            return await asyncio.to_thread(passwords.matches, password_hash, password, self._hasher)

    async def _hash(self, password: str) -> str:
        async with self._checks:
            return await asyncio.to_thread(passwords.hashed, password, self._hasher)

    async def _begin(self, user: User, origin: Origin | None) -> LoggedIn | None:
        """Start a session; None if the password has been changed since `user` was read."""
        now = self._now()
        session_id, expires_at = new_id("session"), now + int(SESSION_SECONDS * 1000)
        has_begun = await dashboard_sessions.begin(
            self._database,
            session_id=session_id,
            user=user,
            now=now,
            expires_at=expires_at,
            origin=origin,
        )
        return self._token(user, session_id, now, expires_at) if has_begun else None

    def _token(self, user: User, session_id: str, auth_time: int, expires_at: int) -> LoggedIn:
        import jwt

        claims = {
            "iss": _ISSUER,
            "sub": user.id,
            "account": user.account_id,
            "sid": session_id,
            "authTime": auth_time,
            "iat": auth_time // 1000,
            "exp": expires_at // 1000,
            "page": None,
        }
        return LoggedIn(
            token=jwt.encode(claims, self._key, algorithm=_ALGORITHM),
            expires_at=expires_at,
            auth_time=auth_time,
            user=UserView(id=user.id, account_id=user.account_id, email=user.email),
        )

    @cached_property
    def _key(self) -> bytes:
        return derived(self._secret_key, "sessions")

    def _now(self) -> int:
        return int(self._clock() * 1000)


def _page_digest(page_secret: str) -> str:
    return credentials.digest(page_secret).hex()


def _wrong_login() -> ApiError:
    return ApiError(401, "The email or the password is wrong", code=ErrorCode.AUTH_INVALID)


def _invalid_link() -> ApiError:
    return bad_request(
        "This link does not work: it is incomplete, used already, or too old. "
        "Ask the operator for a new one",
        "token",
    )
