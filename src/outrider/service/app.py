"""The composition root: creates the service's parts, connects them, and runs their tasks.

Start: the database is migrated and this node registered before any background task runs. Stop, in
this order: `leave` (readiness fails), `move` (machines connect to other nodes), `drain` (commands
in flight end, machines are disconnected), then `running` cancels the tasks and saves what is in
memory.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import structlog
from prometheus_client import Gauge, ProcessCollector

from outrider import __version__
from outrider.contract.events import EventName
from outrider.contract.frames import CloseCode, Delta
from outrider.service import asgi
from outrider.service.accounts.audit import RefusalSink
from outrider.service.accounts.encryption import key_file
from outrider.service.agents.waiting import Waits
from outrider.service.cluster.bus import Bus, BusDown
from outrider.service.cluster.transport import Transport
from outrider.service.components import Access, Fleet, Live, Options, Stores, Webhooks
from outrider.service.database.engine import DATABASE_ERRORS
from outrider.service.endpoints import ENDPOINTS, bound_endpoints
from outrider.service.events.deltas import DeltaRelay
from outrider.service.http.sockets import Sockets
from outrider.service.http.streaming import StreamingResponses
from outrider.service.machines.gateway import Gateway
from outrider.service.machines.handshakes import Handshakes
from outrider.service.machines.machine_state import MachineState
from outrider.service.machines.presence import Announcement
from outrider.service.machines.sockets import MachineSockets
from outrider.service.mcp.http_endpoint import McpEndpoint
from outrider.service.mcp.tool_calls import ToolCalls
from outrider.service.operations import installation
from outrider.service.operations.endpoints import Readiness
from outrider.service.periodic import run_periodically
from outrider.service.settings import Settings
from outrider.service.webhooks.retention import PRUNE_INTERVAL, prune, prune_log
from outrider.service.webhooks.store import deliveries

_log = structlog.get_logger(__name__)


class Service:
    """The service: an ASGI application, and the lifecycle of its parts."""

    def __init__(self, settings: Settings, options: Options | None = None) -> None:
        options = options or Options()
        self._settings = settings
        self._is_draining = False
        self._has_run_before = key_file(settings.data_dir).exists()
        self._stores = stores = Stores(settings, options)
        self._bus = self._new_bus()
        self._transport = Transport(self._bus)
        self._live = live = Live(stores, self._transport)
        self._webhooks = Webhooks(stores, on_stored=live.feed.stored)
        self._access = access = Access(
            stores,
            endpoints=[*ENDPOINTS, *(bound.endpoint for bound in options.more_endpoints)],
            on_account_changed=self._account_changed,
        )
        self._fleet = fleet = Fleet(
            stores,
            self._transport,
            announce=self._announce,
            close_connection=self._close_connection,
            revived=self._reclaim,
        )
        self._machine_sockets = MachineSockets(
            stores.database, fleet.presence, fleet.relay, fleet.terminals
        )
        gateway = Gateway(
            database=stores.database,
            presence=fleet.presence,
            relay=fleet.relay,
            terminals=fleet.terminals,
            sockets=self._machine_sockets,
            owner_of=access.enrollment.machine,
            handshakes=Handshakes(access.addresses, settings.rate_limit_ip, stores.clock),
            take_event=self._webhooks.intake.agent_event,
            note_refusal=RefusalSink(access.audit, stores.clock).note,
            take_delta=self._take_delta,
        )
        self._deltas = DeltaRelay(
            self._transport,
            live.streams,
            fleet.presence.connections_here,
            self._machine_sockets.watch_deltas,
        )
        self._streams, self._waits, self._sockets = StreamingResponses(), Waits(), Sockets()
        self._add_gauges()
        pipeline = asgi.pipeline(settings, stores.clock, access, self._streams, self._sockets)
        bound = bound_endpoints(
            stores,
            live=live,
            deliveries=self._webhooks,
            access=access,
            fleet=fleet,
            sockets=self._machine_sockets,
            waits=self._waits,
        )
        calls = ToolCalls(
            bound, pipeline, fleet.dispatcher, fleet.presence, approvals=settings.mcp_approvals
        )
        self._mcp = McpEndpoint(pipeline, calls, settings)
        self.app = asgi.application(
            bound, pipeline, stores, gateway, mcp=self._mcp, readiness=self._readiness
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Start the parts of the service; stop them at the end.

        Raises:
            DatabaseError: the database cannot be used.
            InstallationError: another service uses the database.
        """
        with installation.lock(self._stores.database):
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
            await installation.prepare(self._stores.database, used_before=self._has_run_before)
            await self._fleet.nodes.join(alone=self._settings.is_single_node)
            if self._settings.is_single_node:
                await deliveries.release_all(self._stores.database)
            await self._access.account_changes.start()
            tasks = [_background(work, name) for work, name in self._work()]
            try:
                yield
            finally:
                await self._mcp.close()
                await self._fleet.dispatcher.close()
                await self._fleet.presence.close()
                await self._deregister()
                for task in tasks:
                    task.cancel()
                    await asyncio.wait({task}, timeout=10)
                await self._save_state()
        finally:
            await self._webhooks.sender.close()
            await self._transport.close()
            await self._stores.database.close()

    def _work(self) -> list[tuple[Coroutine[Any, Any, None], str]]:
        """Return the background work of this node, and its names.

        It is stopped in this order: a task may pass its last items to later ones.
        """
        access, fleet, live, webhooks = self._access, self._fleet, self._live, self._webhooks
        pruning = run_periodically(self._prune, PRUNE_INTERVAL, "prune old rows")
        work = [
            (self._bus.run(), "run the bus"),
            (fleet.relay.run(), "relay commands"),
            (fleet.terminal_relay.run(), "relay terminals"),
            (fleet.directory.run(), "publish machines"),
            (fleet.presence.run(), "save snapshots"),
            (fleet.session_history.run(), "save sessions"),
            (webhooks.intake.run(), "store events"),
            (webhooks.queue.run(), "deliver"),
            (live.feed.run(), "wake for events"),
            (live.streams.run(), "read events"),
            (live.revocations.run(), "check credentials"),
            (self._deltas.run(), "exchange deltas"),
            (pruning, "prune old rows"),
            (access.authenticator.keep_saving(), "save last used"),
            (access.idempotency.keep_pruning(), "prune idempotency keys"),
            (access.audit.keep_writing(), "write audit"),
            (access.account_changes.run(), "poll for changed accounts"),
        ]
        if not self._settings.is_single_node:
            work.append((fleet.nodes.run(), "watch the nodes"))
        return work

    async def leave(self) -> bool:
        """Report this node as not ready; return whether there are other nodes.

        If there are, wait `drain_delay` first, so that load balancers notice.
        """
        self._is_draining = True
        if not self._bus.is_shared or not await self._fleet.nodes.has_others():
            return False
        await asyncio.sleep(self._settings.drain_delay)
        return True

    async def move(self) -> None:
        """Ask the machines to move to other nodes, so that no command fails.

        Call it when this node accepts no more connections: a load balancer that does not ask for
        its readiness would send a moving machine back to it.
        """
        self._sockets.drain()
        await self._machine_sockets.move()

    async def drain(self) -> None:
        """End streams and waits, let commands in flight end, then disconnect the machines."""
        self._sockets.drain()
        self._live.streams.drain()
        self._live.feed.drain()
        self._streams.drain()  # the server then waits until their last chunks are sent
        await self._fleet.dispatcher.drain()
        await self._access.idempotency.drain(1)
        await self._machine_sockets.close()

    def _add_gauges(self) -> None:
        """Add what is open on this node to its metrics."""
        for name, text, read in (
            ("outrider_machines", "Machines with a socket here.", self._machine_sockets.count),
            ("outrider_sockets", "Open WebSockets of clients.", self._sockets.count),
            ("outrider_waits", "Requests that wait for an agent.", self._waits.count),
            ("outrider_event_streams", "Open event streams.", self._live.streams.count),
            ("outrider_tasks", "Asyncio tasks of this process.", _count_tasks),
        ):
            Gauge(name, text, registry=self._stores.registry).set_function(read)
        ProcessCollector(registry=self._stores.registry)
        text = "The version of the service, as a label; the value is always 1."
        build = Gauge("outrider_build_info", text, ["version"], registry=self._stores.registry)
        build.labels(__version__).set(1)

    async def _readiness(self) -> Readiness:
        """Return whether this node should get requests, and the state of each dependency."""
        states = {"database": "ok"}
        if self._is_draining:
            states["node"] = "stopping"
        try:
            await self._stores.database.check()
        except DATABASE_ERRORS as error:
            states["database"] = str(error)
        if self._bus.is_shared:
            try:
                await self._bus.check()
                states["redis"] = "ok"
            except BusDown as error:
                states["redis"] = str(error)
        is_ready = all(state == "ok" for state in states.values())
        failure = self._access.audit.failure
        states["audit"] = "ok" if failure is None else f"cannot be written: {failure}"
        if failure is not None and self._settings.audit_required:
            is_ready = False
        return Readiness(is_ready, states)

    async def _deregister(self) -> None:
        try:
            await self._fleet.nodes.leave()
        except DATABASE_ERRORS as error:
            _log.warning("node deregistration failed", error=str(error))

    async def _save_state(self) -> None:
        """Save what this node has in memory; what the database does not take is lost."""
        access = self._access
        for part, save in (
            ("last used", access.authenticator.save_last_used),
            ("unspent calls", access.quota.give_back),
            ("audit", access.audit.write),
        ):
            try:
                await save()
            except DATABASE_ERRORS as error:
                _log.warning("saving state failed", part=part, error=str(error))

    def _take_delta(self, account_id: str, machine_id: str, delta: Delta, ide_id: str) -> None:
        self._deltas.receive(account_id, machine_id, delta, ide_id)

    def _close_connection(
        self, machine_id: str, code: CloseCode, reason: str, connection: int | None
    ) -> None:
        self._machine_sockets.close_here(machine_id, code, reason, connection)

    def _new_bus(self) -> Bus:
        redis = self._stores.redis
        if redis is None:
            return Bus()
        from outrider.service.cluster.redis_bus import RedisBus

        return RedisBus(redis, on_down=self._bus_down, on_up=self._bus_up)

    def _bus_down(self) -> None:
        self._fleet.directory.mark_incomplete()
        self._fleet.relay.bus_down()
        self._fleet.terminal_relay.bus_down()

    async def _bus_up(self) -> None:
        self._fleet.presence.republish()
        self._live.feed.wake_all()
        try:
            await self._reclaim()
        except DATABASE_ERRORS as error:
            _log.warning("machine reconciliation failed", error=str(error))

    async def _reclaim(self) -> None:
        """Claim this node's machines again; release those that have connected elsewhere since."""
        await self._machine_sockets.reclaim()

    async def _account_changed(self, account_id: str) -> None:
        """Drop this node's caches of an account that the operator changed or deleted."""
        self._access.authenticator.forget_account(account_id)
        self._webhooks.subscriptions.invalidate(account_id)
        await self._access.quota.refresh(account_id)
        await self._machine_sockets.drop_deleted(account_id)

    async def _prune(self) -> None:
        await prune(self._stores.database, self._stores.clock())
        await prune_log(self._stores.database, self._stores.clock())
        await self._fleet.session_history.prune()

    async def _announce(self, name: EventName, state: MachineState) -> Announcement:
        return await self._webhooks.intake.machine_event(
            name,
            account_id=state.account_id,
            daemon_id=state.id,
            hostname=state.hostname,
            nickname=state.nickname,
            platform=state.platform,
        )


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
