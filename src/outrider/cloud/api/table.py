"""The table of all endpoints; every route of the API is derived from it."""

from outrider.cloud.api import account, auth, daemons, shortcuts, webhooks

ENDPOINTS = [
    *daemons.ENDPOINTS,
    *shortcuts.ENDPOINTS,
    *webhooks.ENDPOINTS,
    *auth.ENDPOINTS,
    *account.ENDPOINTS,
]
