"""All endpoints of the API, and the services that the handlers of each module get.

The rows are in `ENDPOINTS` at the end of each module. For a new module, add its rows to the
table, from which the description and the rate limits come, and to `bound_endpoints`, with a
parameter for its services, which `service/app.py` passes.
"""

from typing import Any

from outrider.service.accounts import endpoints as account
from outrider.service.accounts import login_endpoints as auth
from outrider.service.agents import endpoints as shortcuts
from outrider.service.agents import waiting
from outrider.service.events import endpoints as events
from outrider.service.http.endpoint import BoundEndpoint, Endpoint, bind
from outrider.service.machines import endpoints as daemons
from outrider.service.machines import history_endpoints as session_history
from outrider.service.machines.dispatch import Dispatcher
from outrider.service.terminals import endpoints as terminal_sockets
from outrider.service.webhooks import endpoints as webhooks

ENDPOINTS: list[Endpoint[Any]] = [
    *daemons.ENDPOINTS,
    *session_history.ENDPOINTS,
    *shortcuts.ENDPOINTS,
    *waiting.ENDPOINTS,
    *terminal_sockets.ENDPOINTS,
    *events.ENDPOINTS,
    *webhooks.ENDPOINTS,
    *auth.ENDPOINTS,
    *account.ENDPOINTS,
]


def bound_endpoints(
    *,
    for_daemons: daemons.DaemonServices,
    for_session_history: session_history.SessionHistoryServices,
    for_shortcuts: Dispatcher,
    for_waiting: waiting.WaitServices,
    for_terminals: terminal_sockets.TerminalServices,
    for_events: events.EventServices,
    for_webhooks: webhooks.WebhookServices,
    for_auth: auth.AuthServices,
    for_account: account.AccountServices,
) -> list[BoundEndpoint]:
    """Return every endpoint of the table with the services that its handler uses."""
    return [
        *bind(daemons.ENDPOINTS, for_daemons),
        *bind(session_history.ENDPOINTS, for_session_history),
        *bind(shortcuts.ENDPOINTS, for_shortcuts),
        *bind(waiting.ENDPOINTS, for_waiting),
        *bind(terminal_sockets.ENDPOINTS, for_terminals),
        *bind(events.ENDPOINTS, for_events),
        *bind(webhooks.ENDPOINTS, for_webhooks),
        *bind(auth.ENDPOINTS, for_auth),
        *bind(account.ENDPOINTS, for_account),
    ]
