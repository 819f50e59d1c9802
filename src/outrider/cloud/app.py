"""The composition root: the one place where the service's parts are made and joined."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from prometheus_client import CollectorRegistry, Gauge
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, Route, WebSocketRoute

from outrider.cloud.access.authenticate import Authenticator
from outrider.cloud.access.enrolment import Enrolment
from outrider.cloud.api import operations
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
        self._gateway = Gateway(
            database=self._database,
            presence=self._presence,
            dispatcher=self._dispatcher,
            bus=bus,
        )
        self._authenticator = Authenticator(self._database)
        self.enrolment = Enrolment(self._database)
        services = Services(
            settings=settings,
            dispatcher=self._dispatcher,
            presence=self._presence,
            gateway=self._gateway,
            enrolment=self.enrolment,
        )
        registry = CollectorRegistry()
        machines = Gauge("outrider_machines", "Machines with a socket here.", registry=registry)
        machines.set_function(self._gateway.count)
        app = Starlette(
            routes=[
                *_resources(ENDPOINTS, services, self._authenticator),
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
        finally:
            await self._database.close()

    async def drain(self) -> None:
        """Let the commands under way end, a few seconds at the most; then tell the machines."""
        await self._dispatcher.drain()
        await self._gateway.close()


def _resources(
    endpoints: list[Endpoint], services: Services, authenticator: Authenticator
) -> list[BaseRoute]:
    by_path: dict[str, dict[str, Endpoint]] = {}
    for endpoint in endpoints:
        by_path.setdefault(endpoint.path, {})[endpoint.method] = endpoint
    return [
        Route(path, Resource(path, methods, services, authenticator))
        for path, methods in by_path.items()
    ]
