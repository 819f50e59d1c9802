"""The composition root: creates the service's parts, connects them, and runs their tasks.

Start: the database is migrated and this node registered before any background task runs. Stop, in
this order: `leave` (readiness fails, machines move to other nodes), `drain` (commands in flight
end, machines are disconnected), then `running` cancels the tasks and saves what is in memory.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import structlog
from argon2 import PasswordHasher
from prometheus_client import CollectorRegistry, Gauge, ProcessCollector
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.routing import Route
from starlette.types import ASGIApp

from outrider import __version__
from outrider.cloud import installation
from outrider.cloud.access.account_changes import AccountChanges
from outrider.cloud.access.audit import Audit, RefusalSink
from outrider.cloud.access.authentication import Authenticator
from outrider.cloud.access.client_address import Addresses
from outrider.cloud.access.encryption import Cipher, derived, key_file, secret_key
from outrider.cloud.access.enrollment import Enrollment
from outrider.cloud.access.handshakes import Handshakes
from outrider.cloud.access.idempotency import Idempotency
from outrider.cloud.access.passwords import HASHER
from outrider.cloud.access.quota import Quota
from outrider.cloud.access.rate_limits import RateLimits, RedisWindows
from outrider.cloud.access.revocation import RevocationWatch
from outrider.cloud.access.sessions import Sessions
from outrider.cloud.access.sign_in_links import SignInLinks
from outrider.cloud.api import operations, pages
from outrider.cloud.api.account import AccountServices
from outrider.cloud.api.auth import AuthServices
from outrider.cloud.api.authorization import Authorization
from outrider.cloud.api.daemons import DaemonServices
from outrider.cloud.api.endpoint import BoundEndpoint
from outrider.cloud.api.events import EventServices
from outrider.cloud.api.long_polls import LongPolls
from outrider.cloud.api.operations import Readiness
from outrider.cloud.api.pipeline import Pipeline, no_endpoint, resources
from outrider.cloud.api.request_spans import RequestSpans
from outrider.cloud.api.responses import RequestMetrics, http_exception, unexpected
from outrider.cloud.api.router import Router
from outrider.cloud.api.session_history import SessionHistoryServices
from outrider.cloud.api.sockets import Sockets
from outrider.cloud.api.streaming import Streams
from outrider.cloud.api.table import ENDPOINTS, bound_endpoints
from outrider.cloud.api.terminals import TerminalServices
from outrider.cloud.api.waiting import Waits, WaitServices
from outrider.cloud.api.webhooks import WebhookServices
from outrider.cloud.base_path import BasePath
from outrider.cloud.fleet.bus import Bus, BusDown, MemoryBus
from outrider.cloud.fleet.directory import FleetDirectory
from outrider.cloud.fleet.dispatch import DRAIN_SECONDS, Dispatcher, PendingCommands
from outrider.cloud.fleet.gateway import Gateway
from outrider.cloud.fleet.machine_state import MachineState
from outrider.cloud.fleet.nodes import Nodes
from outrider.cloud.fleet.presence import Announcement, Presence
from outrider.cloud.fleet.relay import CommandRelay
from outrider.cloud.fleet.session_history import SessionHistory
from outrider.cloud.fleet.terminal_relay import TerminalRelay
from outrider.cloud.fleet.terminals import Terminals
from outrider.cloud.hosts import AllowedHosts
from outrider.cloud.live.deltas import DeltaRelay
from outrider.cloud.live.feed import LiveFeed
from outrider.cloud.live.pages import Pages
from outrider.cloud.live.stream_limit import StreamLimit
from outrider.cloud.live.streams import EventStreams, StreamTimes
from outrider.cloud.mcp.http_endpoint import McpEndpoint
from outrider.cloud.mcp.tool_calls import ToolCalls
from outrider.cloud.metrics_access import MetricsAccess, MetricsPort
from outrider.cloud.periodic import run_periodically
from outrider.cloud.settings import Settings
from outrider.cloud.store import deliveries, machines
from outrider.cloud.store.clock import SharedClock
from outrider.cloud.store.database import DATABASE_ERRORS, Database
from outrider.cloud.webhooks.addresses import AddressPolicy
from outrider.cloud.webhooks.delivery_queue import DeliveryQueue
from outrider.cloud.webhooks.event_intake import EventIntake
from outrider.cloud.webhooks.retention import PRUNE_INTERVAL, prune, prune_log
from outrider.cloud.webhooks.sender import Sender
from outrider.cloud.webhooks.subscriptions import Subscriptions
from outrider.contract.events import EventName
from outrider.contract.frames import CloseCode, Delta
from outrider.tracing import OFF, Tracing

if TYPE_CHECKING:
    from outrider.cloud.store.redis import Redis

GATEWAY_PATH = "/api/v1/daemon/connect"

_log = structlog.get_logger(__name__)


class Service:
    """The service: an ASGI application, and the lifecycle of its parts.

    Args:
        limit_loopback: whether rate limits by address also apply to loopback addresses.
        more_endpoints: added to the table.
        password_hasher: hashes and verifies the passwords of users.
        drain_seconds: how long a stop waits for commands in flight.
        stream_times: the intervals of event streams.
        sign_in_links: links that log in; none without it.
        tracing: begins the spans; the caller closes it.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        limit_loopback: bool = True,
        more_endpoints: Sequence[BoundEndpoint] = (),
        password_hasher: PasswordHasher = HASHER,
        drain_seconds: float = DRAIN_SECONDS,
        stream_times: StreamTimes | None = None,
        sign_in_links: SignInLinks | None = None,
        tracing: Tracing = OFF,
    ) -> None:
        self._settings = settings
        self._is_draining = False
        self._database = database = Database(settings.sqlalchemy_url)
        shared_clock = SharedClock(database)
        clock: Callable[[], float] = time.time if settings.is_single_node else shared_clock
        self._clock = clock
        self._registry = CollectorRegistry()
        self._has_run_before = key_file(settings.data_dir).exists()
        secret = secret_key(settings.secret_key, settings.data_dir)
        cipher = Cipher(secret)
        policy = AddressPolicy(allow_private=settings.allow_private_webhooks)
        self._sender = Sender(policy, settings.webhook_timeout, clock, tracing)
        subscriptions = self._subscriptions = Subscriptions(database, policy, cipher, clock)
        self._queue = DeliveryQueue(
            database=database,
            subscriptions=subscriptions,
            sender=self._sender,
            delays=settings.webhook_retry_delays,
            registry=self._registry,
            clock=clock,
        )
        redis = _redis(settings, secret)
        self._bus = self._new_bus(redis)
        self._feed = LiveFeed(self._bus)
        times = stream_times or StreamTimes()
        self._revocations = RevocationWatch(database, clock, times.check)
        limit = StreamLimit(redis=redis)
        self._event_streams = EventStreams(database, self._feed, self._revocations, limit, times)
        self._intake = EventIntake(
            database=database,
            subscriptions=subscriptions,
            queue=self._queue,
            on_stored=self._feed.stored,
            clock=clock,
        )
        pending = PendingCommands()
        self._relay = CommandRelay(self._bus, pending, self._close_connection, tracing=tracing)
        self._terminals, self._terminal_relay = _terminals(self._bus, self._relay.node, database)
        self._directory = FleetDirectory(self._bus, database)
        self._presence = Presence(
            database=database,
            directory=self._directory,
            node=self._relay.node,
            grace_period=settings.grace_period,
            announce=self._announce,
            clock=clock,
        )
        self._session_history = SessionHistory(
            database, self._presence, days=settings.history_days, clock=clock
        )
        self._nodes = Nodes(
            database=database,
            node=self._relay.node,
            take_over=self._presence.take_over,
            revived=self._reconcile,
            timeout=settings.node_timeout,
            shared_clock=shared_clock,
        )
        self._dispatcher = Dispatcher(
            presence=self._presence,
            relay=self._relay,
            pending=pending,
            timeout=settings.command_timeout,
            drain_seconds=drain_seconds,
            tracing=tracing,
        )
        enrollment = self._enrollment = Enrollment(database, clock)
        self._audit = Audit(database, clock)
        addresses = Addresses(settings.trusted_proxies, limit_loopback=limit_loopback)
        self._gateway = Gateway(
            database=database,
            presence=self._presence,
            dispatcher=self._dispatcher,
            relay=self._relay,
            terminals=self._terminals,
            owner_of=enrollment.machine,
            handshakes=Handshakes(addresses, settings.rate_limit_ip, clock),
            take_event=self._intake.agent_event,
            note_refusal=RefusalSink(self._audit, clock).note,
            take_delta=self._take_delta,
        )
        self._deltas = DeltaRelay(
            self._bus,
            self._relay.node,
            self._event_streams,
            self._presence.connections_here,
            self._gateway.watch_deltas,
        )
        sessions = Sessions(database, secret, clock, password_hasher)
        self._authenticator = Authenticator(database, sessions, clock)
        self._account_changes = AccountChanges(database, self._account_changed)
        self._quota = Quota(database, clock)
        self._idempotency = Idempotency(database, cipher, clock)
        self._streams = Streams()
        self._waits = Waits()
        polls = LongPolls(self._revocations)
        self._sockets = Sockets()
        endpoints = [*ENDPOINTS, *(bound.endpoint for bound in more_endpoints)]
        rates = RateLimits(
            key=settings.rate_limit_key,
            session=settings.rate_limit_session,
            ip=settings.rate_limit_ip,
            auth=settings.rate_limit_auth,
            login=settings.rate_limit_login,
            others=[
                rate
                for one in endpoints
                if one.rate_limit is not None and (rate := one.rate_limit.definition) is not None
            ],
            shared=None if redis is None else RedisWindows(redis),
        )
        self._add_gauges()
        bound = bound_endpoints(
            for_daemons=DaemonServices(
                dispatcher=self._dispatcher, presence=self._presence, gateway=self._gateway
            ),
            for_session_history=SessionHistoryServices(
                dispatcher=self._dispatcher, history=self._session_history
            ),
            for_shortcuts=self._dispatcher,
            for_waiting=WaitServices(
                dispatcher=self._dispatcher, feed=self._feed, waits=self._waits, polls=polls
            ),
            for_terminals=TerminalServices(
                dispatcher=self._dispatcher,
                terminals=self._terminals,
                timeout=settings.command_timeout,
            ),
            for_events=EventServices(
                database=database,
                streams=self._event_streams,
                pages=Pages(database, self._feed, times.poll),
                polls=polls,
            ),
            for_webhooks=WebhookServices(
                database=database,
                subscriptions=subscriptions,
                queue=self._queue,
                intake=self._intake,
            ),
            for_auth=AuthServices(
                addresses=addresses,
                rates=rates,
                sessions=sessions,
                enrollment=enrollment,
                gateway=self._gateway,
                links=sign_in_links or SignInLinks(),
            ),
            for_account=AccountServices(
                settings=settings,
                database=database,
                addresses=addresses,
                authenticator=self._authenticator,
                sessions=sessions,
                quota=self._quota,
                audit=self._audit,
            ),
        )
        pipeline = Pipeline(
            authorization=Authorization(
                addresses=addresses,
                rates=rates,
                authenticator=self._authenticator,
                quota=self._quota,
                recent_login=settings.recent_login,
                public_url=settings.public_url,
                clock=clock,
            ),
            addresses=addresses,
            rates=rates,
            idempotency=self._idempotency,
            audit=self._audit,
            audit_required=settings.audit_required,
            streams=self._streams,
            sockets=self._sockets,
        )
        self.app, self._mcp = self._application([*bound, *more_endpoints], pipeline, tracing)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Start the parts of the service; stop them at the end.

        Raises:
            DatabaseError: the database cannot be used.
            InstallationError: another service uses the database.
        """
        with installation.lock(self._database):
            async with self._running():
                yield

    @asynccontextmanager
    async def _running(self) -> AsyncIterator[None]:
        if self._settings.served_hosts is None:
            _log.warning(
                "host names not checked",
                advice="Set OUTRIDER_PUBLIC_URL or OUTRIDER_ALLOWED_HOSTS",
            )
        try:
            await installation.prepare(self._database, used_before=self._has_run_before)
            await self._nodes.join(alone=self._settings.is_single_node)
            if self._settings.is_single_node:
                await deliveries.release_all(self._database)
            await self._account_changes.start()
            # In the order in which they are stopped: a task may pass its last items to later ones.
            tasks = [
                _background(self._bus.run(), "run the bus"),
                _background(self._relay.run(), "relay commands"),
                _background(self._terminal_relay.run(), "relay terminals"),
                _background(self._directory.run(), "publish machines"),
                _background(self._presence.run(), "save snapshots"),
                _background(self._session_history.run(), "save sessions"),
                _background(self._intake.run(), "store events"),
                _background(self._queue.run(), "deliver"),
                _background(self._feed.run(), "wake for events"),
                _background(self._event_streams.run(), "read events"),
                _background(self._revocations.run(), "check credentials"),
                _background(self._deltas.run(), "exchange deltas"),
                _background(
                    run_periodically(self._prune, PRUNE_INTERVAL, "prune deliveries"),
                    "prune deliveries",
                ),
                _background(self._authenticator.keep_saving(), "save last used"),
                _background(self._idempotency.keep_pruning(), "prune idempotency keys"),
                _background(self._audit.keep_writing(), "write audit"),
                _background(self._account_changes.run(), "look for changed accounts"),
            ]
            if not self._settings.is_single_node:
                tasks.append(_background(self._nodes.run(), "watch the nodes"))
            try:
                yield
            finally:
                await self._mcp.close()
                await self._dispatcher.close()
                await self._presence.close()
                await self._enrollment.close()
                await self._deregister()
                for task in tasks:
                    task.cancel()
                    await asyncio.wait({task}, timeout=10)
                await self._authenticator.save_last_used()
                await self._quota.give_back()
                await self._audit.write()
        finally:
            await self._sender.close()
            await self._bus.close()
            await self._database.close()

    async def leave(self) -> None:
        """Report this node as not ready, and return when no more requests are expected.

        If other nodes exist, wait `drain_delay` so that load balancers notice, then ask the
        machines to move to those nodes, so that no command fails.
        """
        self._is_draining = True
        if self._bus.is_shared and await self._nodes.has_others():
            # Load balancers first: otherwise they would send a moving machine back to this node.
            await asyncio.sleep(self._settings.drain_delay)
            self._sockets.drain()
            await self._gateway.move()

    async def drain(self) -> None:
        """End streams and waits, let commands in flight end, then disconnect the machines."""
        self._sockets.drain()
        self._event_streams.drain()
        self._feed.drain()
        self._streams.drain()  # the server then waits until their last chunks are sent
        self._waits.drain()
        await self._dispatcher.drain()
        await self._idempotency.drain(1)
        await self._gateway.close()

    def _application(
        self, bound: Sequence[BoundEndpoint], pipeline: Pipeline, tracing: Tracing
    ) -> tuple[ASGIApp, McpEndpoint]:
        """Return the ASGI application, what is served at each path, and its part for MCP."""
        endpoints = [one.endpoint for one in bound]
        approvals = self._settings.mcp_approvals
        calls = ToolCalls(bound, pipeline, self._dispatcher, self._presence, approvals=approvals)
        mcp = McpEndpoint(pipeline, calls, self._settings)
        base_path = self._settings.base_path
        access = MetricsAccess(self._settings, pipeline.addresses)
        others = Starlette(
            routes=[
                *operations.routes(endpoints, self._readiness, self._registry, access, base_path),
                *pages.routes(),
                *mcp.routes(),
                Route("/api/{path:path}", no_endpoint(pipeline)),
                pages.not_found(),
            ],
            exception_handlers={HTTPException: http_exception, Exception: unexpected},
        )
        others.router.redirect_slashes = False
        router = Router(resources(bound, pipeline), others, {GATEWAY_PATH: self._gateway})
        traced = RequestSpans(router, tracing) if tracing.is_on else router
        return _with_middleware(traced, self._settings, self._registry), mcp

    def _add_gauges(self) -> None:
        """Add what is open on this node to its metrics."""
        for name, text, read in (
            ("outrider_machines", "Machines with a socket here.", self._gateway.count),
            ("outrider_sockets", "Open WebSockets of clients.", self._sockets.count),
            ("outrider_waits", "Requests that wait for an agent.", self._waits.count),
            ("outrider_event_streams", "Open event streams.", self._event_streams.count),
            ("outrider_tasks", "Asyncio tasks of this process.", _count_tasks),
        ):
            Gauge(name, text, registry=self._registry).set_function(read)
        ProcessCollector(registry=self._registry)
        build = Gauge("outrider_build_info", "1.", ["version"], registry=self._registry)
        build.labels(__version__).set(1)

    async def _readiness(self) -> Readiness:
        """Return whether this node should get requests, and the state of each dependency."""
        states = {"database": "ok"}
        if self._is_draining:
            states["node"] = "stopping"
        try:
            await self._database.ping()
        except DATABASE_ERRORS as error:
            states["database"] = str(error)
        if self._bus.is_shared:
            try:
                await self._bus.check()
                states["redis"] = "ok"
            except BusDown as error:
                states["redis"] = str(error)
        is_ready = all(state == "ok" for state in states.values())
        failure = self._audit.failure
        states["audit"] = "ok" if failure is None else f"cannot be written: {failure}"
        if failure is not None and self._settings.audit_required:
            is_ready = False
        return Readiness(is_ready, states)

    async def _deregister(self) -> None:
        try:
            await self._nodes.leave()
        except DATABASE_ERRORS as error:
            _log.warning("node deregistration failed", error=str(error))

    def _take_delta(self, account_id: str, machine_id: str, delta: Delta) -> None:
        self._deltas.receive(account_id, machine_id, delta)

    def _close_connection(
        self, machine_id: str, code: CloseCode, reason: str, connection: int | None
    ) -> None:
        self._gateway.close_connection(machine_id, code, reason, connection)

    def _new_bus(self, redis: "Redis | None") -> Bus:
        if redis is None:
            return MemoryBus()
        from outrider.cloud.fleet.redis_bus import RedisBus

        return RedisBus(redis, on_down=self._bus_down, on_up=self._bus_up)

    def _bus_down(self) -> None:
        self._directory.mark_incomplete()
        self._relay.bus_down()
        self._terminal_relay.bus_down()

    async def _bus_up(self) -> None:
        self._presence.republish()
        self._feed.wake_all()
        await self._reconcile()

    async def _reconcile(self) -> None:
        """Release machines that have connected to other nodes since."""
        try:
            await self._gateway.reclaim()
        except DATABASE_ERRORS as error:
            _log.warning("machine reconciliation failed", error=str(error))

    async def _account_changed(self, account_id: str) -> None:
        """Drop this node's caches of an account that the operator changed or deleted."""
        self._authenticator.forget_account(account_id)
        self._subscriptions.invalidate(account_id)
        await self._quota.refresh(account_id)
        await self._gateway.drop_deleted(account_id)

    async def _prune(self) -> None:
        await prune(self._database, self._clock())
        await prune_log(self._database, self._clock())
        await self._session_history.prune()

    async def _announce(self, name: EventName, state: MachineState) -> Announcement:
        return await self._intake.machine_event(
            name,
            account_id=state.account_id,
            daemon_id=state.id,
            hostname=state.hostname,
            nickname=state.nickname,
            platform=state.platform,
        )


def _with_middleware(app: ASGIApp, settings: Settings, registry: CollectorRegistry) -> ASGIApp:
    """Return the whole application: metrics, base path, own port, allowed hosts, `app`."""
    if settings.served_hosts is not None:
        app = AllowedHosts(app, settings.served_hosts)
    if settings.metrics_address is not None:
        app = MetricsPort(app, settings.metrics_address[1])
    if settings.base_path:
        app = BasePath(app, settings.base_path)
    return RequestMetrics(app, registry)


def _terminals(bus: Bus, node: str, database: Database) -> tuple[Terminals, TerminalRelay]:
    """Return the terminals of this node's machines, and what leads to those of other nodes."""
    terminals = Terminals()
    node_of = partial(machines.node_of, database)
    terminals.relay = relay = TerminalRelay(bus, node, node_of, terminals)
    return terminals, relay


def _redis(settings: Settings, secret: str) -> "Redis | None":
    """Return the shared Redis, if any. The key prefix is unique to this installation."""
    if settings.redis_url is None:
        return None
    from outrider.cloud.store.redis import Redis  # 6 MB that a single node does not need

    return Redis(settings.redis_url, f"outrider:{derived(secret, 'redis').hex()[:12]}")


def _count_tasks() -> int:
    return len(asyncio.all_tasks())


def _background(work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
    """Start a task that runs as long as the service; log it if it fails."""
    task = asyncio.create_task(work, name=name)
    task.add_done_callback(_log_failure)
    return task


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        _log.critical("background task failed", task=task.get_name(), exc_info=task.exception())
