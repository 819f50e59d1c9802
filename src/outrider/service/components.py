"""The service's parts, grouped by capability, and how each group is created.

`app.py` creates the groups in this order, connects them, and runs their tasks:

    Stores ──▶ Live ──▶ Webhooks ──▶ Access ──▶ Fleet ──▶ gateway, endpoints (app.py)

A group gets what it needs of earlier groups. What it needs of a later one is a callback.
"""

import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from argon2 import PasswordHasher
from prometheus_client import CollectorRegistry

from outrider.service.accounts.account_changes import AccountChanges
from outrider.service.accounts.audit import Audit
from outrider.service.accounts.authentication import Authenticator
from outrider.service.accounts.dashboard_sessions import DashboardSessions
from outrider.service.accounts.encryption import Cipher, derived, secret_key
from outrider.service.accounts.enrollment import Enrollment
from outrider.service.accounts.idempotency import Idempotency
from outrider.service.accounts.quota import Quota
from outrider.service.accounts.rate_limits import RateLimit, RateLimits
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
from outrider.service.machines.dispatch import Dispatcher
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
from outrider.tracing import Tracing

if TYPE_CHECKING:
    from outrider.service.cluster.redis import Redis


@dataclass(frozen=True)
class Stores:
    """What every group uses: the stores of the settings, the clocks, the keys and the metrics.

    Attributes:
        clock: seconds since the epoch, the same on all nodes.
        secret: the installation's secret key.
        redis: None on a single node.
    """

    settings: Settings
    database: Database
    shared_clock: SharedClock
    clock: Callable[[], float]
    secret: str
    cipher: Cipher
    registry: CollectorRegistry
    redis: "Redis | None"

    @classmethod
    def create(cls, settings: Settings) -> "Stores":
        """Return them, not connected yet. The first start generates the secret key."""
        database = Database(settings.sqlalchemy_url)
        shared_clock = SharedClock(database)
        secret = secret_key(settings.secret_key, settings.data_dir)
        return cls(
            settings=settings,
            database=database,
            shared_clock=shared_clock,
            clock=time.time if settings.is_single_node else shared_clock,
            secret=secret,
            cipher=Cipher(secret),
            registry=CollectorRegistry(),
            redis=_redis(settings, secret),
        )


@dataclass(frozen=True)
class Live:
    """Events as they happen: for streams, and for requests that wait."""

    feed: LiveFeed
    revocations: RevocationWatch
    streams: EventStreams
    pages: Pages

    @classmethod
    def create(cls, stores: Stores, transport: Transport, times: StreamTimes) -> "Live":
        """Return them; `times` are the intervals of event streams."""
        feed = LiveFeed(transport)
        revocations = RevocationWatch(stores.database, stores.clock, times.check)
        limit = StreamLimit(redis=stores.redis)
        return cls(
            feed=feed,
            revocations=revocations,
            streams=EventStreams(stores.database, feed, revocations, limit, times),
            pages=Pages(stores.database, feed, times.poll),
        )


@dataclass(frozen=True)
class Webhooks:
    """The way of an event into the log and to webhooks."""

    sender: Sender
    subscriptions: Subscriptions
    queue: DeliveryQueue
    intake: EventIntake

    @classmethod
    def create(
        cls, stores: Stores, *, on_stored: Callable[[str], None], tracing: Tracing
    ) -> "Webhooks":
        """Return them.

        Args:
            on_stored: called with the account of each event that was stored.
            tracing: begins the spans of deliveries.
        """
        settings, database, clock = stores.settings, stores.database, stores.clock
        policy = AddressPolicy(allow_private=settings.allow_private_webhooks)
        sender = Sender(policy, settings.webhook_timeout, clock, tracing)
        subscriptions = Subscriptions(database, policy, stores.cipher, clock)
        queue = DeliveryQueue(
            database=database,
            subscriptions=subscriptions,
            sender=sender,
            delays=settings.webhook_retry_delays,
            registry=stores.registry,
            clock=clock,
        )
        intake = EventIntake(
            database=database,
            subscriptions=subscriptions,
            queue=queue,
            on_stored=on_stored,
            clock=clock,
        )
        return cls(sender=sender, subscriptions=subscriptions, queue=queue, intake=intake)


@dataclass(frozen=True)
class Access:
    """Who may do what, and how much: credentials, limits, quotas, audit."""

    addresses: Addresses
    sessions: DashboardSessions
    authenticator: Authenticator
    enrollment: Enrollment
    rates: RateLimits
    quota: Quota
    idempotency: Idempotency
    audit: Audit
    account_changes: AccountChanges

    @classmethod
    def create(
        cls,
        stores: Stores,
        *,
        hasher: PasswordHasher,
        limit_loopback: bool,
        endpoint_limits: Iterable[RateLimit],
        on_account_changed: Callable[[str], Awaitable[None]],
    ) -> "Access":
        """Return them.

        Args:
            endpoint_limits: the rate limits of single endpoints.
            on_account_changed: called with the account that the operator changed or deleted.
        """
        settings, database, clock = stores.settings, stores.database, stores.clock
        sessions = DashboardSessions(database, stores.secret, clock, hasher)
        rates = RateLimits(
            key=settings.rate_limit_key,
            session=settings.rate_limit_session,
            ip=settings.rate_limit_ip,
            auth=settings.rate_limit_auth,
            login=settings.rate_limit_login,
            others=endpoint_limits,
            redis=stores.redis,
        )
        return cls(
            addresses=Addresses(settings.trusted_proxies, limit_loopback=limit_loopback),
            sessions=sessions,
            authenticator=Authenticator(database, sessions, clock),
            enrollment=Enrollment(database, clock),
            rates=rates,
            quota=Quota(database, clock),
            idempotency=Idempotency(database, stores.cipher, clock),
            audit=Audit(database, clock),
            account_changes=AccountChanges(database, on_account_changed),
        )


@dataclass(frozen=True)
class Fleet:
    """The machines of all nodes: where they are connected, and how commands reach them."""

    relay: CommandRelay
    terminals: LocalTerminals
    terminal_relay: TerminalRelay
    directory: FleetDirectory
    presence: Presence
    session_history: SessionHistory
    nodes: Nodes
    dispatcher: Dispatcher

    @classmethod
    def create(
        cls,
        stores: Stores,
        transport: Transport,
        *,
        announce: Announce,
        close_connection: CloseHandler,
        revived: Callable[[], Awaitable[None]],
        drain_seconds: float,
        tracing: Tracing,
    ) -> "Fleet":
        """Return them.

        Args:
            announce: creates the events of machines that come online or go offline.
            close_connection: closes a machine's socket on this node.
            revived: called after this node was declared dead by the others.
            drain_seconds: how long a stop waits for commands in flight.
            tracing: begins the spans of commands.
        """
        settings, database, clock = stores.settings, stores.database, stores.clock
        relay = CommandRelay(transport, close_connection, tracing=tracing)
        terminals = LocalTerminals()
        terminal_relay = TerminalRelay(transport, partial(machines.node_of, database), terminals)
        directory = FleetDirectory(transport.bus, database)
        presence = Presence(
            database=database,
            directory=directory,
            node=transport.node,
            grace_period=settings.grace_period,
            announce=announce,
            clock=clock,
        )
        return cls(
            relay=relay,
            terminals=terminals,
            terminal_relay=terminal_relay,
            directory=directory,
            presence=presence,
            session_history=SessionHistory(
                database, presence, days=settings.history_days, clock=clock
            ),
            nodes=Nodes(
                database=database,
                node=transport.node,
                take_over=presence.take_over,
                revived=revived,
                timeout=settings.node_timeout,
                shared_clock=stores.shared_clock,
            ),
            dispatcher=Dispatcher(
                presence=presence,
                relay=relay,
                timeout=settings.command_timeout,
                drain_seconds=drain_seconds,
                tracing=tracing,
            ),
        )


def _redis(settings: Settings, secret: str) -> "Redis | None":
    """Return the shared Redis, if any. The key prefix is unique to this installation."""
    if settings.redis_url is None:
        return None
    from outrider.service.cluster.redis import Redis  # 6 MB that a single node does not need

    return Redis(settings.redis_url, f"outrider:{derived(secret, 'redis').hex()[:12]}")
