"""Starts the service with its access layer bypassed: everyone is the account in `ACCOUNT`."""

# mypy: disable-error-code="method-assign,assignment"
import os
from typing import Any

from starlette.types import Scope

from outrider.cli.main import run
from outrider.cloud.access.audit import Audit
from outrider.cloud.access.principal import ALL_SCOPES, Principal
from outrider.cloud.access.rate_limits import RateLimits
from outrider.cloud.api.authorization import Authorization, Headers, RequestContext
from outrider.cloud.api.endpoint import Endpoint

_ANYONE = Principal("key", "key_of_the_benchmark", os.environ["ACCOUNT"], ALL_SCOPES)


async def _authorize_anyone(
    _: Authorization, _endpoint: Endpoint[Any], _scope: Scope, _headers: Headers, to: RequestContext
) -> None:
    to.principal = _ANYONE


Authorization.authorize = _authorize_anyone
RateLimits.headers = lambda _rates, _statuses: []
Audit.note = lambda _audit, **_note: None
run()
