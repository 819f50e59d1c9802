"""The composition root: the one place where the service's parts are made and joined."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from prometheus_client import CollectorRegistry, Gauge
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, Route, WebSocketRoute

from outrider.cloud.access.addresses import Addresses
from outrider.cloud.access.audit import Audit
from outrider.cloud.access.authenticate import Authenticator
from outrider.cloud.access.enrolment import Enrolment
from outrider.cloud.access.idempotency import Idempotency
from outrider.cloud.access.quota import Quota
from outrider.cloud.access.rates import Rates
from outrider.cloud.access.sealing import Sealer, secret_key
from outrider.cloud.access.sessions import Sessions
from outrider.cloud.api import operations
from outrider.cloud.api.admission import Gate
from outrider.cloud.api.endpoint import Endpoint, Services
from outrider.cloud.api.pipeline import Resource
from outrider.cloud.api.responses import Outermost, http_exception, unexpected
from outrider.cloud.api.table import ENDPOINTS
from outrider.cloud.fleet.bus import MemoryBus
from outrider.cloud.fleet.dispatch import Dispatcher
from outrider.cloud.fleet.gateway import Gateway
from outrider.cloud.fleet.presence import Presence
from outrider.cloud.settings import Settings
from outrider.cloud.store.database import Database

GATEWAY_PATH = "/api/v1/daemon/connect"


class Service:
    """The service: an ASGI application, and the life of what it uses."""

    def __init__(self, settings: Settings) -> None:
        self._database = Database(settings.sqlalchemy_url)
        self._presence = Presence(self._database, settings.grace_period)
        bus = MemoryBus()
        self._dispatcher = Dispatcher(
            database=self._database,
            presence=self._presence,
            bus=bus,
            timeout=settings.command_timeout,
        )
        enrolment = Enrolment(self._database)
        self._gateway = Gateway(
            database=self._database,
            presence=self._presence,
            dispatcher=self._dispatcher,
            bus=bus,
            owner_of=enrolment.machine,
        )
        secret = secret_key(settings.secret_key, settings.data_dir)
        sessions = Sessions(self._database, secret)
        self._authenticator = Authenticator(self._database, sessions)
        self._quota = Quota(self._database)
        self._audit = Audit(self._database)
        self._idempotency = Idempotency(self._database, Sealer(secret))
        services = Services(
            settings=settings,
            database=self._database,
            addresses=Addresses(settings.trusted_proxies),
            rates=Rates(
                key=settings.rate_limit_key,
                ip=settings.rate_limit_ip,
                auth=settings.rate_limit_auth,
            ),
            authenticator=self._authenticator,
            sessions=sessions,
            quota=self._quota,
            audit=self._audit,
            idempotency=self._idempotency,
            enrolment=enrolment,
            dispatcher=self._dispatcher,
            presence=self._presence,
            gateway=self._gateway,
        )
        registry = CollectorRegistry()
        machines = Gauge("outrider_machines", "Machines with a socket here.", registry=registry)
        machines.set_function(self._gateway.count)
        app = Starlette(
            routes=[
                *_resources(ENDPOINTS, services),
                WebSocketRoute(GATEWAY_PATH, self._gateway),
                *operations.routes(ENDPOINTS, self._database, registry),
            ],
            exception_handlers={HTTPException: http_exception, Exception: unexpected},
        )
        app.router.redirect_slashes = False
        self.app = Outermost(app, registry)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Open what the application uses; close it at the end.

        Raises:
            DatabaseError: the database cannot be used.
        """
        try:
            await self._database.migrate()
            await self._presence.restore()
            tasks = [
                asyncio.create_task(self._presence.keep_saving(), name="save snapshots"),
                asyncio.create_task(self._authenticator.keep_saving(), name="save last used"),
                asyncio.create_task(self._audit.keep_writing(), name="write audit"),
                asyncio.create_task(self._idempotency.keep_pruning(), name="prune keys"),
            ]
            try:
                yield
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                await self._dispatcher.close()
                await self._presence.close()
                await self._authenticator.save_last_used()
                await self._quota.give_back()
                await self._audit.write()
        finally:
            await self._database.close()

    async def drain(self) -> None:
        """Let the commands under way end, a few seconds at the most; then tell the machines."""
        await self._dispatcher.drain()
        await self._idempotency.drain(1)
        await self._gateway.close()


def _resources(endpoints: list[Endpoint], services: Services) -> list[BaseRoute]:
    gate = Gate(services)
    by_path: dict[str, dict[str, Endpoint]] = {}
    for endpoint in endpoints:
        by_path.setdefault(endpoint.path, {})[endpoint.method] = endpoint
    return [
        Route(path, Resource(path, methods, services, gate)) for path, methods in by_path.items()
    ]
