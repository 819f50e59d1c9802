"""The checks before a request's body is read, in the contract's order.

IP limit → authentication → key limit → scope → recent login → monthly quota. A session's requests
count against the session and not against the address, so who has one is authenticated first.
"""

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

from starlette.types import Scope as AsgiScope

from outrider.cloud.access.principal import Principal
from outrider.cloud.access.rate_limits import RateLimited, RateLimitStatus
from outrider.cloud.access.sessions import COOKIE
from outrider.cloud.api.endpoint import Endpoint, Services
from outrider.contract.errors import ApiError, ErrorCode

Headers = Mapping[bytes, bytes]

_BEARER: Final = b"Bearer "
_ONCE: Final = (b"authorization", b"idempotency-key")
_SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})


def headers_of(scope: AsgiScope) -> dict[bytes, bytes]:
    """Return the request's headers by name.

    A credential or an idempotency key that comes twice is worth nothing: a proxy before the
    service may have looked at the other one.
    """
    headers = dict(scope["headers"])
    if len(headers) != len(scope["headers"]):
        for name in _ONCE:
            if sum(1 for other, _ in scope["headers"] if other == name) > 1:
                headers[name] = b""
    return headers


class Admission:
    """What is known of a request so far: also of one that is refused."""

    __slots__ = ("address", "principal", "statuses")

    def __init__(self, address: str) -> None:
        self.address = address
        self.principal: Principal | None = None
        self.statuses: list[RateLimitStatus] = []


class Gate:
    """Admits requests or refuses them.

    Args:
        clock: seconds since the epoch.
    """

    def __init__(self, services: Services, clock: Callable[[], float] = time.time) -> None:
        self._addresses = services.addresses
        self._rates = services.rates
        self._authenticator = services.authenticator
        self._quota = services.quota
        self._recent_login = services.settings.recent_login
        self._clock = clock

    async def admit(
        self, endpoint: Endpoint, scope: AsgiScope, headers: Headers, admission: Admission
    ) -> None:
        """Let the request pass, with its principal and its statuses in `admission`.

        Raises:
            ApiError: 401, 403 or 429, as the contract tells them apart.
        """
        rates, statuses = self._rates, admission.statuses
        address = self._addresses.counted_as(admission.address)
        token, problem = "", None
        if endpoint.who != "anyone":
            try:
                token = _credential(scope, headers)
            except ApiError as error:
                problem = error
        # What this node knows by itself it is asked in a plain call first: to await what has
        # nothing to wait for costs 0.2 to 0.4 us, and there are four such questions.
        try:
            session_id = self._authenticator.session_of(token)
            if session_id is not None:
                admission.principal = await self._session(session_id, token, address, statuses)
            elif address is not None:
                statuses.append(rates.hit_local("ip", address) or await rates.hit("ip", address))
            if endpoint.credential_limit is not None and address is not None:
                count = rates.hit if endpoint.credential_limit == "counted" else rates.check
                statuses.append(await count("auth", address))
            if endpoint.who == "anyone":
                _refuse_other_sites(headers)
                return
            if problem is not None:
                raise problem
            if admission.principal is not None:
                self._authorize(endpoint, admission.principal)
                return
            known = self._authenticator.remembered(token)
            principal = known or await self._authenticator.principal(token)
            admission.principal = principal
            who = principal.id
            statuses.append(rates.hit_local("key", who) or await rates.hit("key", who))
            self._authorize(endpoint, principal)
            if not self._quota.spend_here(principal.account_id):
                await self._quota.spend(principal.account_id)
        except RateLimited as error:
            statuses.append(error.limit_status)
            raise

    async def limit(self, scope: AsgiScope, admission: Admission) -> None:
        """Count a request that no endpoint serves, against its session or its address.

        Raises:
            ApiError: 429, there were too many.
        """
        address = self._addresses.counted_as(admission.address)
        try:
            session_id, token = None, ""
            with suppress(ApiError):
                token = _credential(scope, headers_of(scope))
                session_id = self._authenticator.session_of(token)
            if session_id is not None:
                await self._session(session_id, token, address, admission.statuses)
            elif address is not None:
                admission.statuses.append(await self._rates.hit("ip", address))
        except RateLimited as error:
            admission.statuses.append(error.limit_status)
            raise
        except ApiError:
            pass  # an ended session: what is refused is the request, whoever makes it

    async def _session(
        self, session_id: str, token: str, address: str | None, statuses: list[RateLimitStatus]
    ) -> Principal:
        """Authenticate a request by session, and count it.

        It is counted before the database is asked whether the session lives: an ended one must
        not be a way to ask it as often as one likes.
        """
        statuses.append(await self._rates.hit("session", session_id))
        try:
            return await self._authenticator.principal(token)
        except ApiError:
            if address is not None:
                statuses.append(await self._rates.hit("ip", address))
            raise

    def _authorize(self, endpoint: Endpoint, principal: Principal) -> None:
        if endpoint.scope is not None and endpoint.scope not in principal.scopes:
            raise ApiError(
                403,
                f"This credential lacks the scope {endpoint.scope}",
                code=ErrorCode.AUTH_FORBIDDEN,
            )
        if endpoint.recent_login and not self._is_recent(principal):
            raise ApiError(
                403,
                "This needs a dashboard session that logged in a moment ago: "
                "give the password again (POST /api/v1/auth/reauthenticate)",
                code=ErrorCode.RECENT_LOGIN_REQUIRED,
            )
        if endpoint.who == "session" and principal.kind != "session":
            raise ApiError(
                403,
                "Only a dashboard session may do this, not an API key",
                code=ErrorCode.AUTH_FORBIDDEN,
            )

    def _is_recent(self, principal: Principal) -> bool:
        if principal.auth_time is None:
            return False
        # `abs`: a login on a node whose clock is far ahead is not recent until that time.
        return abs(self._clock() - principal.auth_time / 1000) <= self._recent_login


def _credential(scope: AsgiScope, headers: Headers) -> str:
    """Return the credential that a request carries: in its header, else in the cookie.

    Raises:
        ApiError: 401, there is none, or not in the right form; 403, a cookie came with a
            request that another site may have made.
    """
    header = headers.get(b"authorization")
    if header is not None:
        if header.startswith(_BEARER):  # as nearly everybody writes it
            return header[len(_BEARER) :].decode("latin-1").strip()
        scheme, _, credential = header.decode("latin-1").partition(" ")
        return credential.strip() if scheme.lower() == "bearer" else ""
    token = _cookie(headers.get(b"cookie", b"").decode("latin-1"))
    if token is None:
        raise ApiError(
            401,
            "Send your API key in the header `Authorization: Bearer <API_KEY>`",
            code=ErrorCode.AUTH_REQUIRED,
        )
    if scope["method"] not in _SAFE_METHODS and not _is_own(headers):
        raise ApiError(
            403,
            "With a cookie, a change must come from this site's own pages as application/json",
            code=ErrorCode.AUTH_FORBIDDEN,
        )
    return token


def _cookie(header: str) -> str | None:
    for part in header.split(";"):
        name, _, value = part.strip().partition("=")
        if name == COOKIE:
            return value
    return None


def _is_own(headers: Headers) -> bool:
    """Return whether a request that carries the cookie was made by a page of this site."""
    kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if kind != b"application/json":
        return False
    return _same_origin(headers) is True


def _refuse_other_sites(headers: Headers) -> None:
    """Refuse a page of another site: it could log its visitor in to an account of its own.

    Raises:
        ApiError: 403, a browser tells that this is such a page.
    """
    if _same_origin(headers) is False:
        raise ApiError(403, "A page of another site may not do this", code=ErrorCode.AUTH_FORBIDDEN)


def _same_origin(headers: Headers) -> bool | None:
    """Return whether a browser made the request for a page of this site; None if none did."""
    site = headers.get(b"sec-fetch-site")
    if site is not None:
        return site == b"same-origin"
    origin = headers.get(b"origin")
    if origin is None:
        return None
    return origin.partition(b"://")[2] == headers.get(b"host")
