"""The ASGI application: what is served at each path, and what every request passes.

metrics, request id, span ─▶ base path ─▶ own port of the metrics ─▶ allowed hosts ─▶ routes
"""

from collections.abc import Awaitable, Callable, Sequence

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp

from outrider.service.accounts import pages
from outrider.service.components import Access, Stores
from outrider.service.http.authorization import Authorization
from outrider.service.http.base_path import BasePath
from outrider.service.http.endpoint import BoundEndpoint
from outrider.service.http.hosts import AllowedHosts
from outrider.service.http.pipeline import Pipeline, no_endpoint, resource_routes
from outrider.service.http.responses import RequestMetrics, http_exception, unexpected
from outrider.service.http.sockets import Sockets
from outrider.service.http.streaming import StreamingResponses
from outrider.service.mcp.http_endpoint import McpEndpoint
from outrider.service.operations import endpoints as operations
from outrider.service.operations.endpoints import Readiness
from outrider.service.operations.metrics_access import MetricsAccess, MetricsPort
from outrider.service.settings import Settings

GATEWAY_PATH = "/api/v1/daemon/connect"


def pipeline(
    settings: Settings,
    clock: Callable[[], float],
    access: Access,
    streams: StreamingResponses,
    sockets: Sockets,
) -> Pipeline:
    """Return what every request of the API passes before its handler."""
    return Pipeline(
        authorization=Authorization(
            addresses=access.addresses,
            rates=access.rates,
            authenticator=access.authenticator,
            quota=access.quota,
            recent_login=settings.recent_login,
            public_url=settings.public_url,
            clock=clock,
        ),
        addresses=access.addresses,
        rates=access.rates,
        idempotency=access.idempotency,
        audit=access.audit,
        audit_required=settings.audit_required,
        streams=streams,
        sockets=sockets,
    )


def application(
    bound: Sequence[BoundEndpoint],
    pipeline: Pipeline,
    stores: Stores,
    gateway: ASGIApp,
    *,
    mcp: McpEndpoint,
    readiness: Callable[[], Awaitable[Readiness]],
) -> ASGIApp:
    """Return the whole application.

    Args:
        bound: the endpoints of the API.
        gateway: serves the machines' WebSockets.
        readiness: returns whether this node should get requests.
    """
    settings, registry = stores.settings, stores.registry
    endpoints = [entry.endpoint for entry in bound]
    metrics = MetricsAccess(settings, pipeline.addresses)
    routes = Starlette(
        routes=[
            WebSocketRoute(GATEWAY_PATH, gateway),
            *resource_routes(bound, pipeline),
            *operations.routes(endpoints, readiness, registry, metrics, settings.base_path),
            *pages.routes(),
            *mcp.routes(),
            Route("/api/{path:path}", no_endpoint(pipeline)),
            pages.not_found(),
        ],
        exception_handlers={HTTPException: http_exception, Exception: unexpected},
    )
    routes.router.redirect_slashes = False
    app: ASGIApp = routes
    if settings.served_hosts is not None:
        app = AllowedHosts(app, settings.served_hosts)
    if settings.metrics_address is not None:
        app = MetricsPort(app, settings.metrics_address[1])
    if settings.base_path:
        app = BasePath(app, settings.base_path)
    return RequestMetrics(
        app,
        registry,
        stores.options.tracing,
        base_path=settings.base_path,
        is_tls=settings.tls_cert is not None,
    )
