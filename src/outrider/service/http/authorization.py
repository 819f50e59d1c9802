"""Authorization: the checks before a request's body is read, and their order.

IP limit → authentication → key limit → scope → recent login → monthly quota. Requests of a session
count against the session instead of the address, so a session is authenticated first. An endpoint's
own rate limit follows the IP limit if it is by address, and the key limit otherwise.
"""

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from starlette.types import Scope as AsgiScope

from outrider.contract.errors import ApiError, ErrorCode
from outrider.service.accounts.authentication import Authenticator
from outrider.service.accounts.principal import Principal
from outrider.service.accounts.quota import Quota
from outrider.service.accounts.rate_limits import RateLimited, RateLimits, RateLimitStatus
from outrider.service.http.client_address import Addresses
from outrider.service.http.endpoint import Endpoint, EndpointLimit
from outrider.service.http.session_cookie import COOKIE, cookie_name, cookies, page_secret

Headers = Mapping[bytes, bytes]

_SINGLE_HEADERS: Final = (b"authorization", b"idempotency-key")
_SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})


def headers_of(asgi_scope: AsgiScope) -> dict[bytes, bytes]:
    """Return the request's headers by name.

    A credential or idempotency key that is sent twice becomes empty, and thus invalid: a proxy in
    front of the service may have checked the other one.
    """
    headers = dict(asgi_scope["headers"])
    if len(headers) != len(asgi_scope["headers"]):
        for name in _SINGLE_HEADERS:
            if sum(1 for other, _ in asgi_scope["headers"] if other == name) > 1:
                headers[name] = b""
    return headers


class RequestContext:
    """The request context: what the checks have established, also for a refused request."""

    __slots__ = ("address", "credential", "principal", "statuses")

    def __init__(self, address: str) -> None:
        self.address = address
        self.credential = ""
        self.principal: Principal | None = None
        self.statuses: list[RateLimitStatus] = []


class Authorization:
    """Authorizes requests.

    Args:
        recent_login: seconds for which a login is recent.
        public_url: the origin of this site's pages, beside the host that a request names.
        clock: seconds since the epoch.
    """

    def __init__(
        self,
        *,
        addresses: Addresses,
        rates: RateLimits,
        authenticator: Authenticator,
        quota: Quota,
        recent_login: float,
        public_url: str | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._addresses = addresses
        self._rates = rates
        self._authenticator = authenticator
        self._quota = quota
        self._recent_login = recent_login
        self._public_origin = None if public_url is None else public_url.encode()
        self._clock = clock

    async def authorize(
        self,
        endpoint: Endpoint[Any],
        asgi_scope: AsgiScope,
        headers: Headers,
        context: RequestContext,
    ) -> None:
        """Authorize a request; store its principal and rate limit statuses in `context`.

        `context` is filled as far as the checks got, also when this raises.

        Raises:
            ApiError: 401, 403 or 429, by the first check that fails.
        """
        rates, statuses = self._rates, context.statuses
        address = self._addresses.counted_as(context.address)
        token, claimed, problem = "", None, None
        if endpoint.who != "anyone":
            try:
                token, claimed = self._credential(asgi_scope, headers)
            except ApiError as error:
                problem = error
            context.credential = token
        try:
            if claimed is not None:
                context.principal = await self._session(claimed, address, statuses)
            elif address is not None:
                statuses.append(await rates.hit("ip", address))
            limit = endpoint.rate_limit
            if limit is not None and limit.by == "address" and address is not None:
                statuses.append(await self._count(limit, address))
            if endpoint.who == "anyone":
                refuse_cross_site(headers)
                return
            if problem is not None:
                raise problem
            if context.principal is not None:
                await self._count_principal(endpoint, context.principal, statuses)
                self._check_permission(endpoint, context.principal)
                return
            principal = await self._authenticator.principal(token)
            context.principal = principal
            key = principal.id
            statuses.append(await rates.hit("key", key))
            if limit is not None:
                await self._count_principal(endpoint, principal, statuses)
            self._check_permission(endpoint, principal)
            await self._quota.spend(principal.account_id)
        except RateLimited as error:
            statuses.append(error.limit_status)
            raise

    async def authorize_inner(self, endpoint: Endpoint[Any], context: RequestContext) -> None:
        """Authorize a request made for a client that is authenticated and counted already.

        Raises:
            ApiError: 403, the principal lacks the endpoint's scope; 429, it is over the endpoint's
                own limit.
        """
        assert context.principal is not None, "authenticated before"
        try:
            await self._count_principal(endpoint, context.principal, context.statuses)
        except RateLimited as error:
            context.statuses.append(error.limit_status)
            raise
        self._check_permission(endpoint, context.principal)

    async def recheck(self, context: RequestContext) -> None:
        """Check again the credential of a request that goes on, such as a WebSocket.

        Raises:
            ApiError: 401, it is revoked, expired or ended; 403, it has lost scopes.
        """
        assert context.principal is not None, "authorized before"
        if context.principal.kind == "session":
            await self._authenticator.active(context.principal)
            return
        now = await self._authenticator.principal(context.credential)
        if not context.principal.scopes <= now.scopes:
            text = "This credential has lost a scope"
            raise ApiError(403, text, code=ErrorCode.AUTH_FORBIDDEN)

    def require_scope(self, endpoint: Endpoint[Any], principal: Principal) -> None:
        """Check that a credential has the scope of an endpoint, not only its `read_scope`.

        Raises:
            ApiError: 403, it has not.
        """
        if endpoint.scope is not None and endpoint.scope not in principal.scopes:
            raise ApiError(
                403,
                f"This credential lacks the scope {endpoint.scope}",
                code=ErrorCode.AUTH_FORBIDDEN,
            )

    async def limit(self, asgi_scope: AsgiScope, context: RequestContext) -> None:
        """Count a request without an endpoint against its session or address.

        Raises:
            ApiError: 429, the rate limit is exceeded.
        """
        address = self._addresses.counted_as(context.address)
        try:
            claimed = None
            with suppress(ApiError):
                _, claimed = self._credential(asgi_scope, headers_of(asgi_scope))
            if claimed is not None:
                await self._session(claimed, address, context.statuses)
            elif address is not None:
                context.statuses.append(await self._rates.hit("ip", address))
        except RateLimited as error:
            context.statuses.append(error.limit_status)
            raise
        except ApiError:
            pass  # an ended session: the request is refused anyway

    async def _session(
        self, claimed: Principal, address: str | None, statuses: list[RateLimitStatus]
    ) -> Principal:
        """Count a request of a session, then authenticate it.

        Counting comes first, so that tokens of ended sessions cannot cause unlimited database
        queries.
        """
        assert claimed.session is not None, "only of sessions"
        statuses.append(await self._rates.hit("session", claimed.session.id))
        try:
            return await self._authenticator.active(claimed)
        except ApiError:
            if address is not None:
                statuses.append(await self._rates.hit("ip", address))
            raise

    def _credential(self, asgi_scope: AsgiScope, headers: Headers) -> tuple[str, Principal | None]:
        """Return the credential of a request, from its header, and the session that it is of.

        A session may have ended. One of a cookie comes without a credential.

        Raises:
            ApiError: 401, there is none, or no cookie works; 403, the request has a cookie and may
                come from another site.
        """
        header = headers.get(b"authorization")
        if header is not None:
            scheme, _, credential = header.decode("latin-1").partition(" ")
            token = credential.strip() if scheme.lower() == "bearer" else ""
            return token, self._authenticator.claimed(token)
        is_https = self._addresses.is_https(asgi_scope)
        cookie = headers.get(b"cookie", b"")
        tokens = cookies(cookie, cookie_name(asgi_scope, is_https=is_https))
        # With https the cookie of a release before the prefix: its browser is to log in again too.
        if not tokens and not cookies(cookie, COOKIE):
            raise ApiError(
                401,
                "Send your API key in the header `Authorization: Bearer <API_KEY>`",
                code=ErrorCode.AUTH_REQUIRED,
            )
        self._refuse_other_sites(asgi_scope, headers)
        secret = page_secret(headers)
        claimed = None
        if secret is not None:
            claimed = self._authenticator.claimed_by_page(tokens, secret)
        if claimed is None:
            raise ApiError(
                401,
                "This browser is not logged in any more: log in again. Programs send "
                "`Authorization: Bearer <API_KEY>` instead of the cookie",
                code=ErrorCode.AUTH_INVALID,
            )
        return "", claimed

    def _refuse_other_sites(self, asgi_scope: AsgiScope, headers: Headers) -> None:
        """Refuse requests that have a cookie and may come from pages of other sites.

        Raises:
            ApiError: 403, this is one.
        """
        if asgi_scope["type"] == "websocket":
            # A browser sends the cookie with the handshakes of any site's pages, and says which.
            if not _is_own_handshake(headers, self._public_origin):
                raise ApiError(
                    403,
                    "With a cookie, a WebSocket must come from this site's own pages: "
                    "programs send `Authorization: Bearer <API_KEY>`",
                    code=ErrorCode.AUTH_FORBIDDEN,
                )
        elif asgi_scope["method"] not in _SAFE_METHODS and not _is_own(headers):
            raise ApiError(
                403,
                "With a cookie, a change must come from this site's own pages as application/json",
                code=ErrorCode.AUTH_FORBIDDEN,
            )

    async def _count_principal(
        self, endpoint: Endpoint[Any], principal: Principal, statuses: list[RateLimitStatus]
    ) -> None:
        limit = endpoint.rate_limit
        if limit is not None and limit.by != "address":
            caller = principal.id if limit.by == "principal" else principal.account_id
            statuses.append(await self._count(limit, caller))

    async def _count(self, limit: EndpointLimit, caller: str) -> RateLimitStatus:
        if limit.counted == "request":
            return await self._rates.hit(limit.name, caller)
        return await self._rates.check(limit.name, caller)

    def _check_permission(self, endpoint: Endpoint[Any], principal: Principal) -> None:
        if endpoint.read_scope is None or endpoint.read_scope not in principal.scopes:
            self.require_scope(endpoint, principal)
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
        # `abs`: a login whose time is far in the future, from a wrong clock, is not recent.
        return abs(self._clock() - principal.auth_time / 1000) <= self._recent_login


def _is_own(headers: Headers) -> bool:
    """Return whether a request with a cookie was made by a page of this site."""
    kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if kind != b"application/json":
        return False
    return is_own_page(headers)


def _is_own_handshake(headers: Headers, public_origin: bytes | None) -> bool:
    """Return whether a browser sent a handshake for a page of this site.

    Its `Origin` is the public URL, or has the host of the request, which is an allowed one
    (`cloud.hosts`). The public URL's host with another scheme is another origin.
    """
    origin = headers.get(b"origin")
    if origin is None or headers.get(b"sec-fetch-site", b"same-origin") != b"same-origin":
        return False
    host = origin.partition(b"://")[2]
    if public_origin is not None and host == public_origin.partition(b"://")[2]:
        return origin == public_origin
    return host != b"" and host == headers.get(b"host")


def is_own_page(headers: Headers) -> bool:
    """Return whether a page of this site made the request."""
    return _same_origin(headers) is True


def refuse_cross_site(headers: Headers) -> None:
    """Refuse requests of other sites' pages, against login CSRF.

    Raises:
        ApiError: 403, the browser's headers name another site.
    """
    if _same_origin(headers) is False:
        raise ApiError(403, "A page of another site may not do this", code=ErrorCode.AUTH_FORBIDDEN)


def _same_origin(headers: Headers) -> bool | None:
    """Return whether the request comes from this site's pages; None if not from a browser."""
    site = headers.get(b"sec-fetch-site")
    if site is not None:
        return site == b"same-origin"
    origin = headers.get(b"origin")
    if origin is None:
        return None
    return origin.partition(b"://")[2] == headers.get(b"host")
