"""Every endpoint of the API. No route exists that is not in here."""

from outrider.cloud.api import account, auth, daemons, shortcuts, webhooks

ENDPOINTS = [
    *daemons.ENDPOINTS,
    *shortcuts.ENDPOINTS,
    *webhooks.ENDPOINTS,
    *auth.ENDPOINTS,
    *account.ENDPOINTS,
]
