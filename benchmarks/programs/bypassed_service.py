"""Starts the service with its access layer bypassed: everyone is the account in `ACCOUNT`."""

import os
from typing import Any

from starlette.types import Scope

from outrider.cli.main import run
from outrider.cloud.access.audit import Audit
from outrider.cloud.access.principal import ALL_SCOPES, Principal
from outrider.cloud.access.rate_limits import RateLimits, RateLimitStatus
from outrider.cloud.api.authorization import Authorization, Headers, RequestContext
from outrider.cloud.api.endpoint import Endpoint

_ANYONE = Principal("key", "key_of_the_benchmark", os.environ["ACCOUNT"], ALL_SCOPES)


async def _authorize_anyone(
    _authorization: Authorization,
    _endpoint: Endpoint[Any],
    _scope: Scope,
    _headers: Headers,
    context: RequestContext,
) -> None:
    context.principal = _ANYONE


def _no_headers(_rates: RateLimits, _standings: list[RateLimitStatus]) -> list[tuple[bytes, bytes]]:
    return []


def _no_note(_audit: Audit, **_note: object) -> None:
    return


Authorization.authorize = _authorize_anyone  # type: ignore[method-assign,assignment]
RateLimits.headers = _no_headers  # type: ignore[method-assign,assignment]
Audit.note = _no_note  # type: ignore[assignment]
run()
