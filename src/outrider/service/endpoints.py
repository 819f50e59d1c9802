"""All endpoints of the API, and the services that the handlers of each module get.

The rows are in `ENDPOINTS` at the end of each module. For a new module, add its rows to the
table, from which the description and the rate limits come, and to `bound_endpoints`.
"""

from typing import Any

from outrider.service.accounts import endpoints as account
from outrider.service.accounts import login_endpoints as auth
from outrider.service.agents import endpoints as shortcuts
from outrider.service.agents import waiting
from outrider.service.components import Access, Fleet, Live, Stores, Webhooks
from outrider.service.events import endpoints as events
from outrider.service.http.endpoint import BoundEndpoint, Endpoint, bind
from outrider.service.http.long_polls import LongPolls
from outrider.service.machines import endpoints as daemons
from outrider.service.machines.sockets import MachineSockets
from outrider.service.terminals import endpoints as terminal_sockets
from outrider.service.webhooks import endpoints as webhooks

ENDPOINTS: list[Endpoint[Any]] = [
    *daemons.ENDPOINTS,
    *shortcuts.ENDPOINTS,
    *waiting.ENDPOINTS,
    *terminal_sockets.ENDPOINTS,
    *events.ENDPOINTS,
    *webhooks.ENDPOINTS,
    *auth.ENDPOINTS,
    *account.ENDPOINTS,
]


def bound_endpoints(
    stores: Stores,
    *,
    live: Live,
    deliveries: Webhooks,
    access: Access,
    fleet: Fleet,
    sockets: MachineSockets,
    waits: waiting.Waits,
) -> list[BoundEndpoint]:
    """Return every endpoint of the table with the services that its handler uses."""
    settings, database, dispatcher = stores.settings, stores.database, fleet.dispatcher
    polls = LongPolls(live.revocations)
    return [
        *bind(
            daemons.ENDPOINTS,
            daemons.DaemonServices(
                dispatcher=dispatcher,
                presence=fleet.presence,
                sockets=sockets,
                history=fleet.session_history,
            ),
        ),
        *bind(shortcuts.ENDPOINTS, dispatcher),
        *bind(
            waiting.ENDPOINTS,
            waiting.WaitServices(dispatcher=dispatcher, feed=live.feed, waits=waits, polls=polls),
        ),
        *bind(
            terminal_sockets.ENDPOINTS,
            terminal_sockets.TerminalServices(
                dispatcher=dispatcher,
                terminals=fleet.terminal_relay,
                timeout=settings.command_timeout,
            ),
        ),
        *bind(
            events.ENDPOINTS,
            events.EventServices(
                database=database, streams=live.streams, pages=live.pages, polls=polls
            ),
        ),
        *bind(
            webhooks.ENDPOINTS,
            webhooks.WebhookServices(
                database=database,
                subscriptions=deliveries.subscriptions,
                queue=deliveries.queue,
                intake=deliveries.intake,
            ),
        ),
        *bind(
            auth.ENDPOINTS,
            auth.AuthServices(
                settings=settings,
                addresses=access.addresses,
                rates=access.rates,
                sessions=access.sessions,
                enrollment=access.enrollment,
                sockets=sockets,
                links=stores.options.login_links,
            ),
        ),
        *bind(
            account.ENDPOINTS,
            account.AccountServices(
                settings=settings,
                database=database,
                addresses=access.addresses,
                authenticator=access.authenticator,
                sessions=access.sessions,
                quota=access.quota,
                audit=access.audit,
            ),
        ),
        *stores.options.more_endpoints,
    ]
