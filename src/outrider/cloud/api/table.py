"""The table of all endpoints; every route of the API is derived from it."""

from typing import Any

from outrider.cloud.api import account, auth, daemons, shortcuts, webhooks
from outrider.cloud.api.endpoint import Endpoint

ENDPOINTS: list[Endpoint[Any]] = [
    *daemons.ENDPOINTS,
    *shortcuts.ENDPOINTS,
    *webhooks.ENDPOINTS,
    *auth.ENDPOINTS,
    *account.ENDPOINTS,
]
