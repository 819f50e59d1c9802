"""Authorization: the checks before a request's body is read, and their order.

IP limit → authentication → key limit → scope → recent login → monthly quota. Requests of a session
count against the session instead of the address, so a session is authenticated first. An endpoint's
own rate limit follows the IP limit if it is by address, and the key limit otherwise.
"""

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from starlette.types import Scope as AsgiScope

from outrider.contract.errors import ApiError, ErrorCode
from outrider.service.accounts.authentication import Authenticator
from outrider.service.accounts.principal import Principal
from outrider.service.accounts.quota import Quota
from outrider.service.accounts.rate_limits import RateLimited, RateLimits, RateLimitStatus
from outrider.service.http.client_address import Addresses
from outrider.service.http.endpoint import Endpoint
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


@dataclass(slots=True)
class RequestContext:
    """The request context: what the checks have established, also for a refused request."""

    scope: AsgiScope
    headers: Headers
    address: str
    credential: str = ""
    principal: Principal | None = None
    statuses: list[RateLimitStatus] = field(default_factory=list)


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

    def context(self, asgi_scope: AsgiScope) -> RequestContext:
        """Return the context of a request that is not checked yet."""
        return RequestContext(
            asgi_scope, headers_of(asgi_scope), self._addresses.client(asgi_scope)
        )

    async def authorize(self, endpoint: Endpoint[Any], context: RequestContext) -> None:
        """Authorize a request; store its principal and rate limit statuses in `context`.

        Fills `context` step by step; after an error it holds what the checks before it established.

        Raises:
            ApiError: 401, 403 or 429, by the first check that fails.
        """
        address = self._addresses.counted_as(context.address)
        # A wrong credential is an error only after the address is counted: else guesses were free.
        claimed, problem = None, None
        if endpoint.who != "anyone":
            try:
                context.credential, claimed = self._credential(context)
            except ApiError as error:
                problem = error
        if claimed is not None:
            context.principal = await self._session(claimed, context)
        elif address is not None:
            await self._count(context, "ip", address)
        limit = endpoint.rate_limit
        if limit is not None and limit.by == "address" and address is not None:
            await self._count(context, limit.name, address, limit.counted)
        if endpoint.who == "anyone":
            refuse_cross_site(context.headers)
            return
        if problem is not None:
            raise problem
        if context.principal is not None:
            await self.authorize_inner(endpoint, context)
            return
        principal = await self._authenticator.principal(context.credential)
        context.principal = principal
        await self._count(context, "key", principal.id)
        await self.authorize_inner(endpoint, context)
        # Last, so that a refused request costs nothing of the month (docs/access.md, "Limits").
        await self._quota.spend(principal.account_id)

    async def authorize_inner(self, endpoint: Endpoint[Any], context: RequestContext) -> None:
        """Check what is left for a client that is authenticated and counted: limit and permission.

        Raises:
            ApiError: 403, the principal lacks the endpoint's scope; 429, it is over the endpoint's
                own limit.
        """
        principal, limit = context.principal, endpoint.rate_limit
        assert principal is not None, "authenticated before"
        if limit is not None and limit.by != "address":
            caller = principal.id if limit.by == "principal" else principal.account_id
            await self._count(context, limit.name, caller, limit.counted)
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
            raise _forbidden("Only a dashboard session may do this, not an API key")

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
            raise _forbidden("This credential has lost a scope")

    def require_scope(self, endpoint: Endpoint[Any], principal: Principal) -> None:
        """Check that a credential has the scope of an endpoint, not only its `read_scope`.

        Raises:
            ApiError: 403, it has not.
        """
        if endpoint.scope is not None and endpoint.scope not in principal.scopes:
            raise _forbidden(f"This credential lacks the scope {endpoint.scope}")

    async def limit(self, context: RequestContext) -> None:
        """Count a request without an endpoint against its session or address.

        Raises:
            ApiError: 429, the rate limit is exceeded.
        """
        address = self._addresses.counted_as(context.address)
        claimed = None
        # Which error the credential has is not said here: the path does not exist for anybody.
        with suppress(ApiError):
            _, claimed = self._credential(context)
        if claimed is None:
            if address is not None:
                await self._count(context, "ip", address)
            return
        try:
            await self._session(claimed, context)
        except RateLimited:
            raise
        except ApiError:
            pass  # an ended session: the request is refused anyway

    async def _session(self, claimed: Principal, context: RequestContext) -> Principal:
        """Count a request of a session, then authenticate it.

        Counting comes first, so that tokens of ended sessions cannot cause unlimited database
        queries.
        """
        assert claimed.session is not None, "only of sessions"
        await self._count(context, "session", claimed.session.id)
        try:
            return await self._authenticator.active(claimed)
        except ApiError:
            # As for any wrong credential, although the session has been counted too.
            address = self._addresses.counted_as(context.address)
            if address is not None:
                await self._count(context, "ip", address)
            raise

    async def _count(
        self, context: RequestContext, name: str, caller: str, counted: str = "request"
    ) -> None:
        """Count a request, or check the limit of what its handler counts.

        Raises:
            RateLimited: the window is full.
        """
        try:
            count = self._rates.hit if counted == "request" else self._rates.check
            context.statuses.append(await count(name, caller))
        except RateLimited as error:
            context.statuses.append(error.limit_status)
            raise

    def _credential(self, context: RequestContext) -> tuple[str, Principal | None]:
        """Return the credential of a request, from its header, and the session that it is of.

        A session may have ended. One of a cookie comes without a credential.

        Raises:
            ApiError: 401, there is none, or no cookie works; 403, the request has a cookie and may
                come from another site.
        """
        asgi_scope, headers = context.scope, context.headers
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
                raise _forbidden(
                    "With a cookie, a WebSocket must come from this site's own pages: "
                    "programs send `Authorization: Bearer <API_KEY>`"
                )
        elif asgi_scope["method"] not in _SAFE_METHODS:
            kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
            if kind != b"application/json" or not is_own_page(headers):
                raise _forbidden(
                    "With a cookie, a change must come from this site's own pages as "
                    "application/json"
                )

    def _is_recent(self, principal: Principal) -> bool:
        if principal.auth_time is None:
            return False
        # `abs`: a login whose time is far in the future, from a wrong clock, is not recent.
        return abs(self._clock() - principal.auth_time / 1000) <= self._recent_login


def _forbidden(text: str) -> ApiError:
    return ApiError(403, text, code=ErrorCode.AUTH_FORBIDDEN)


def _is_own_handshake(headers: Headers, public_origin: bytes | None) -> bool:
    """Return whether a browser sent a handshake for a page of this site.

    Its `Origin` is the public URL, or has the host of the request, which is an allowed one
    (`http.hosts`). The public URL's host with another scheme is another origin.
    """
    origin = headers.get(b"origin")
    if origin is None or headers.get(b"sec-fetch-site", b"same-origin") != b"same-origin":
        return False
    # Behind a proxy that ends TLS, the request does not show the scheme; the public URL has it.
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
        raise _forbidden("A page of another site may not do this")


def _same_origin(headers: Headers) -> bool | None:
    """Return whether the request comes from this site's pages; None if not from a browser."""
    # Pages cannot set either header. `Origin` is for browsers that do not send the first one,
    # such as Safari before 16.4.
    site = headers.get(b"sec-fetch-site")
    if site is not None:
        return site == b"same-origin"
    origin = headers.get(b"origin")
    if origin is None:
        return None
    return origin.partition(b"://")[2] == headers.get(b"host")
