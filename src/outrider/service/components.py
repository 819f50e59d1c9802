"""The service's parts, grouped by capability.

`app.py` creates the groups in this order, connects them, and runs their tasks:

    Stores ──▶ Live ──▶ Webhooks ──▶ Access ──▶ Fleet ──▶ gateway, endpoints (app.py)

A group gets what it needs of earlier groups. What it needs of a later one is a callback.
"""

import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from argon2 import PasswordHasher
from prometheus_client import CollectorRegistry

from outrider.service.accounts.account_changes import AccountChanges
from outrider.service.accounts.audit import Audit
from outrider.service.accounts.authentication import Authenticator
from outrider.service.accounts.dashboard_sessions import DashboardSessions
from outrider.service.accounts.encryption import Cipher, derived, secret_key
from outrider.service.accounts.enrollment import Enrollment
from outrider.service.accounts.idempotency import Idempotency
from outrider.service.accounts.one_time_links import LoginLinks
from outrider.service.accounts.passwords import HASHER
from outrider.service.accounts.quota import Quota
from outrider.service.accounts.rate_limits import RateLimits
from outrider.service.accounts.revocation import RevocationWatch
from outrider.service.cluster.directory import FleetDirectory
from outrider.service.cluster.nodes import Nodes
from outrider.service.cluster.relay import CloseHandler, CommandRelay
from outrider.service.cluster.transport import Transport
from outrider.service.database.clock import SharedClock
from outrider.service.database.engine import Database
from outrider.service.events.feed import LiveFeed
from outrider.service.events.pages import Pages
from outrider.service.events.stream_limit import StreamLimit
from outrider.service.events.streams import EventStreams, StreamTimes
from outrider.service.http.client_address import Addresses
from outrider.service.http.endpoint import BoundEndpoint, Endpoint
from outrider.service.machines.dispatch import DRAIN_SECONDS, Dispatcher
from outrider.service.machines.presence import Announce, Presence
from outrider.service.machines.session_history import SessionHistory
from outrider.service.machines.store import machines
from outrider.service.settings import Settings
from outrider.service.terminals.relay import TerminalRelay
from outrider.service.terminals.streams import LocalTerminals
from outrider.service.webhooks.addresses import AddressPolicy
from outrider.service.webhooks.delivery_queue import DeliveryQueue
from outrider.service.webhooks.event_intake import EventIntake
from outrider.service.webhooks.sender import Sender
from outrider.service.webhooks.subscriptions import Subscriptions
from outrider.tracing import OFF, Tracing

if TYPE_CHECKING:
    from outrider.service.cluster.redis import Redis


@dataclass(frozen=True)
class Options:
    """What a program or a test chooses of the service, besides the operator's settings.

    Attributes:
        limit_loopback: whether rate limits by address also apply to loopback addresses.
        more_endpoints: added to the API's table.
        password_hasher: hashes and verifies the passwords of users.
        drain_seconds: how long a stop waits for commands in flight.
        stream_times: the intervals of event streams.
        login_links: links that log in.
        tracing: begins the spans; whoever created it closes it.
    """

    limit_loopback: bool = True
    more_endpoints: Sequence[BoundEndpoint] = ()
    password_hasher: PasswordHasher = HASHER
    drain_seconds: float = DRAIN_SECONDS
    stream_times: StreamTimes = field(default_factory=StreamTimes)
    login_links: LoginLinks = field(default_factory=LoginLinks)
    tracing: Tracing = OFF


class Stores:
    """What every group uses: the stores of the settings, the clocks, the keys and the metrics.

    They are not connected yet. The first start generates the secret key.

    Attributes:
        clock: seconds since the epoch, the same on all nodes.
        secret: the installation's secret key.
        redis: None on a single node.
    """

    def __init__(self, settings: Settings, options: Options) -> None:
        self.settings = settings
        self.options = options
        self.database = Database(settings.sqlalchemy_url)
        self.shared_clock = SharedClock(self.database)
        self.clock: Callable[[], float] = (
            time.time if settings.is_single_node else self.shared_clock
        )
        self.secret = secret_key(settings.secret_key, settings.data_dir)
        self.cipher = Cipher(self.secret)
        self.registry = CollectorRegistry()
        self.redis = _redis(settings, self.secret)


class Live:
    """Events as they happen: for streams, and for requests that wait."""

    def __init__(self, stores: Stores, transport: Transport) -> None:
        database, times = stores.database, stores.options.stream_times
        self.feed = LiveFeed(transport)
        self.revocations = RevocationWatch(database, stores.clock, times.check)
        limit = StreamLimit(redis=stores.redis)
        self.streams = EventStreams(database, self.feed, self.revocations, limit, times)
        self.pages = Pages(database, self.feed, times.poll)


class Webhooks:
    """The way of an event into the log and to webhooks.

    Args:
        on_stored: called with the account of each event that was stored.
    """

    def __init__(self, stores: Stores, *, on_stored: Callable[[str], None]) -> None:
        settings, database, clock = stores.settings, stores.database, stores.clock
        policy = AddressPolicy(allow_private=settings.allow_private_webhooks)
        self.sender = Sender(policy, settings.webhook_timeout, clock, stores.options.tracing)
        self.subscriptions = Subscriptions(database, policy, stores.cipher, clock)
        self.queue = DeliveryQueue(
            database=database,
            subscriptions=self.subscriptions,
            sender=self.sender,
            delays=settings.webhook_retry_delays,
            registry=stores.registry,
            clock=clock,
        )
        self.intake = EventIntake(
            database=database,
            subscriptions=self.subscriptions,
            queue=self.queue,
            on_stored=on_stored,
            clock=clock,
        )


class Access:
    """Who may do what, and how much: credentials, limits, quotas, audit.

    Args:
        endpoints: those whose own rate limits apply.
        on_account_changed: called with the account that the operator changed or deleted.
    """

    def __init__(
        self,
        stores: Stores,
        *,
        endpoints: Iterable[Endpoint[Any]],
        on_account_changed: Callable[[str], Awaitable[None]],
    ) -> None:
        settings, options = stores.settings, stores.options
        database, clock = stores.database, stores.clock
        self.addresses = Addresses(settings.trusted_proxies, limit_loopback=options.limit_loopback)
        self.sessions = DashboardSessions(database, stores.secret, clock, options.password_hasher)
        self.authenticator = Authenticator(database, self.sessions, clock)
        self.enrollment = Enrollment(database, clock)
        limits = (endpoint.rate_limit for endpoint in endpoints)
        self.rates = RateLimits(
            key=settings.rate_limit_key,
            session=settings.rate_limit_session,
            ip=settings.rate_limit_ip,
            auth=settings.rate_limit_auth,
            login=settings.rate_limit_login,
            others=[limit.definition for limit in limits if limit and limit.definition],
            redis=stores.redis,
        )
        self.quota = Quota(database, clock)
        self.idempotency = Idempotency(database, stores.cipher, clock)
        self.audit = Audit(database, clock)
        self.account_changes = AccountChanges(database, on_account_changed)


class Fleet:
    """The machines of all nodes: where they are connected, and how commands reach them.

    Args:
        announce: creates the events of machines that come online or go offline.
        close_connection: closes a machine's socket on this node.
        revived: called after this node was declared dead by the others.
    """

    def __init__(
        self,
        stores: Stores,
        transport: Transport,
        *,
        announce: Announce,
        close_connection: CloseHandler,
        revived: Callable[[], Awaitable[None]],
    ) -> None:
        settings, options = stores.settings, stores.options
        database, clock = stores.database, stores.clock
        self.relay = CommandRelay(transport, close_connection, tracing=options.tracing)
        self.terminals = LocalTerminals()
        self.terminal_relay = TerminalRelay(
            transport, partial(machines.node_of, database), self.terminals
        )
        self.directory = FleetDirectory(transport.bus, database)
        self.presence = Presence(
            database=database,
            directory=self.directory,
            node=transport.node,
            grace_period=settings.grace_period,
            announce=announce,
            clock=clock,
        )
        self.session_history = SessionHistory(
            database, self.presence, days=settings.history_days, clock=clock
        )
        self.nodes = Nodes(
            database=database,
            node=transport.node,
            take_over=self.presence.take_over,
            revived=revived,
            timeout=settings.node_timeout,
            shared_clock=stores.shared_clock,
        )
        self.dispatcher = Dispatcher(
            presence=self.presence,
            relay=self.relay,
            timeout=settings.command_timeout,
            drain_seconds=options.drain_seconds,
            tracing=options.tracing,
        )


def _redis(settings: Settings, secret: str) -> "Redis | None":
    """Return the shared Redis, if any. The key prefix is unique to this installation."""
    if settings.redis_url is None:
        return None
    from outrider.service.cluster.redis import Redis  # 6 MB that a single node does not need

    return Redis(settings.redis_url, f"outrider:{derived(secret, 'redis').hex()[:12]}")
