"""The checks before a request's body is read, in the contract's order.

IP limit → authentication → key limit → scope → recent login → monthly quota.
"""

import time
from collections.abc import Callable, Mapping
from typing import Final

from starlette.types import Scope as AsgiScope

from outrider.cloud.access.addresses import bucket
from outrider.cloud.access.principal import Principal
from outrider.cloud.access.rates import RateLimited, Standing
from outrider.cloud.access.sessions import COOKIE
from outrider.cloud.api.endpoint import Endpoint, Services
from outrider.contract.errors import ApiError, ErrorCode

Headers = Mapping[bytes, bytes]

_SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})


class Admission:
    """What is known of a request so far: also of one that is refused."""

    __slots__ = ("address", "principal", "standings")

    def __init__(self, address: str) -> None:
        self.address = address
        self.principal: Principal | None = None
        self.standings: list[Standing] = []


class Gate:
    """Admits requests or refuses them.

    Args:
        clock: seconds since the epoch.
    """

    def __init__(self, services: Services, clock: Callable[[], float] = time.time) -> None:
        self._rates = services.rates
        self._authenticator = services.authenticator
        self._quota = services.quota
        self._recent_login = services.settings.recent_login
        self._clock = clock

    async def admit(
        self, endpoint: Endpoint, scope: AsgiScope, headers: Headers, admission: Admission
    ) -> None:
        """Let the request pass, with its principal and its standings in `admission`.

        Raises:
            ApiError: 401, 403 or 429, as the contract tells them apart.
        """
        try:
            await self._limit_address(endpoint, admission)
            if endpoint.who == "anyone":
                return
            principal = await self._authenticator.principal(_credential(scope, headers))
            admission.principal = principal
            if principal.kind == "key":
                admission.standings.append(await self._rates.hit("key", principal.id))
            self._authorize(endpoint, principal)
            if principal.kind == "key":
                await self._quota.spend(principal.account_id)
        except RateLimited as error:
            admission.standings.append(error.standing)
            raise

    async def _limit_address(self, endpoint: Endpoint, admission: Admission) -> None:
        who = bucket(admission.address)
        admission.standings.append(await self._rates.hit("ip", who))
        if endpoint.credential_limit is not None:
            count = self._rates.hit if endpoint.credential_limit == "counted" else self._rates.check
            admission.standings.append(await count("auth", who))

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
        return self._clock() - principal.auth_time / 1000 <= self._recent_login


def _credential(scope: AsgiScope, headers: Headers) -> str:
    """Return the credential that a request carries: in its header, else in the cookie.

    Raises:
        ApiError: 401, there is none, or not in the right form; 403, a cookie came with a
            request that another site may have made.
    """
    header = headers.get(b"authorization")
    if header is not None:
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
    """Tell whether a request that carries the cookie was made by a page of this site."""
    kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if kind != b"application/json":
        return False
    site = headers.get(b"sec-fetch-site")
    if site is not None:
        return site == b"same-origin"
    origin = headers.get(b"origin", b"")
    return bool(origin) and origin.partition(b"://")[2] == headers.get(b"host")
