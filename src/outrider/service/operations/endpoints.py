"""Routes for operators and their tools: health, metrics, and the API's description."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from outrider.service.http import docs, openapi
from outrider.service.http.endpoint import Endpoint
from outrider.service.operations.metrics_access import MetricsAccess


class Readiness(NamedTuple):
    """Whether this node should get requests, and the state of each dependency: `ok` or an error."""

    is_ready: bool
    parts: dict[str, str]


ReadReadiness = Callable[[], Awaitable[Readiness]]


def routes(
    endpoints: Sequence[Endpoint[Any]],
    readiness: ReadReadiness,
    registry: CollectorRegistry,
    access: MetricsAccess,
    base_path: str,
) -> list[Route]:
    """Return the routes outside `/api/v1`.

    Args:
        access: who may read the metrics.
        base_path: what the API's description says that its paths are below; empty for the root.
    """

    # Created on the first request, in a thread, because that would block the loop; then cached.
    @cache
    def described() -> dict[str, Any]:
        return openapi.describe(endpoints, base_path)

    @cache
    def encoded() -> bytes:
        return msgspec.json.encode(described())

    @cache
    def page() -> bytes:
        return docs.page(described()).encode()

    async def healthz(_request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def readyz(_request: Request) -> Response:
        is_ready, parts = await readiness()
        if is_ready:
            return JSONResponse({"status": "ok"} | parts)
        return JSONResponse({"status": "unavailable"} | parts, 503)

    async def metrics(request: Request) -> Response:
        error = access.error(request.scope)
        if error is not None:
            return Response(
                msgspec.json.encode(error.body()),
                error.status,
                headers={"WWW-Authenticate": "Bearer"} if error.status == 401 else None,
                media_type="application/json",
            )
        return Response(generate_latest(registry), headers={"content-type": CONTENT_TYPE_LATEST})

    async def openapi_json(_request: Request) -> Response:
        return Response(await asyncio.to_thread(encoded), media_type="application/json")

    async def docs_page(_request: Request) -> Response:
        return HTMLResponse(
            await asyncio.to_thread(page), headers={"Content-Security-Policy": docs.POLICY}
        )

    return [
        Route("/healthz", healthz),
        Route("/readyz", readyz),
        Route("/metrics", metrics),
        Route("/openapi.json", openapi_json),
        Route("/docs", docs_page),
    ]
