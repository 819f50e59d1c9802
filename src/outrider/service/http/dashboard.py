"""Serves the dashboard: the files that `web/` builds into `service/static`.

    /assets/NAME          a hashed name: cached for ever, sent compressed
    /, /login, /inbox, …  the page, never cached; its script shows what the path names
    any other path        the same page with status 404, for a browser that opens it

The page names its base path in `<base href>`, from which its script takes the addresses of the API.
A `Link` header has the browser load the code of a session's page together with the main script.
Without the files every page but `/device` says how to build them; the API does not need them.
"""

import asyncio
import html
import mimetypes
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from outrider.service.http.base_path import base_path

STATIC: Final = Path(__file__).parents[1] / "static"

PATHS: Final = (
    "/",
    "/login",
    "/inbox",
    "/machines",
    "/machines/{daemonId}",
    "/sessions/{targetId}",
    "/history",
    "/webhooks",
    "/webhooks/{webhookId}",
    "/account",
    "/device",
)
"""The paths of the dashboard's pages."""

POLICY: Final = (
    "default-src 'self'; script-src 'self'; worker-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; object-src 'none'; base-uri 'self'; form-action 'self'; "
    "frame-ancestors 'none'"
)
"""The policy of the pages. xterm.js needs inline styles; scripts come from files only."""

Handler = Callable[[Request], Awaitable[Response]]

_FOR_EVER: Final = "public, max-age=31536000, immutable"


def is_built(directory: Path = STATIC) -> bool:
    """Return whether the dashboard's files are there."""
    return (directory / "index.html").is_file()


def routes(missing: Response, directory: Path = STATIC) -> list[Route]:
    """Return the routes of the dashboard.

    Args:
        missing: the response of every page if the dashboard has not been built. `/device` then is
            left to another route, because machines are connected with it.
    """
    if not is_built(directory):
        return [Route(path, missing, methods=["GET"]) for path in PATHS if path != "/device"]
    text = (directory / "index.html").read_text("utf-8")
    assets = directory / "assets"
    session = next((file.name for file in assets.glob("session-*.js")), None)
    code = {"/sessions/{targetId}": session}
    icon = Response(
        (directory / "icon.svg").read_bytes(),
        headers={"Cache-Control": "max-age=3600"},
        media_type="image/svg+xml",
    )
    return [
        *(Route(path, _page(text, code=code.get(path))) for path in PATHS),
        Route("/icon.svg", icon, methods=["GET"]),
        Route("/assets/{name}", _asset(assets)),
    ]


def not_found(missing: Response, directory: Path = STATIC) -> Route:
    """Return the route of all other paths, which comes last: status 404, a page for browsers.

    Args:
        missing: the page if the dashboard has not been built.
    """
    page: Handler | None = None
    if is_built(directory):
        page = _page((directory / "index.html").read_text("utf-8"), status=404)
    return Route("/{path:path}", _NotFound(missing, page))


class _NotFound:
    """ASGI application for paths that nothing is at: a page if the client takes HTML.

    No handler, as Starlette answers 405 to the other methods of one.
    """

    def __init__(self, missing: Response, page: Handler | None) -> None:
        self._missing = missing
        self._page = page

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        is_read = scope["method"] in ("GET", "HEAD")
        is_api = scope["path"].startswith(("/api", "/mcp"))
        if not is_read or is_api or "text/html" not in request.headers.get("accept", ""):
            raise HTTPException(404)
        response = self._missing if self._page is None else await self._page(request)
        await response(scope, receive, send)


def _page(text: str, status: int = 200, *, code: str | None = None) -> Handler:
    """Return the handler of a page: the same text for all, with the base path in it.

    Args:
        code: the name of the script that the page needs besides the main one.
    """

    async def page(request: Request) -> Response:
        root = base_path(request.scope)
        headers = {"Content-Security-Policy": POLICY, "Cache-Control": "no-store"}
        if code is not None:
            headers["Link"] = f"<{root}/assets/{code}>; rel=modulepreload"
        base = f'<base href="{html.escape(root)}/"'
        return HTMLResponse(text.replace('<base href="/"', base, 1), status, headers=headers)

    return page


def _asset(directory: Path) -> Handler:
    """Return the handler of the files with hashed names; only those that were built."""
    names = {file.name for file in directory.iterdir()}

    async def asset(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in names or name.endswith(".gz"):
            raise HTTPException(404)
        headers = {"Cache-Control": _FOR_EVER, "Vary": "Accept-Encoding"}
        file = directory / name
        if f"{name}.gz" in names and "gzip" in request.headers.get("accept-encoding", ""):
            file = directory / f"{name}.gz"
            headers["Content-Encoding"] = "gzip"
        try:
            stat = await asyncio.to_thread(os.stat, file)
        except FileNotFoundError:  # the dashboard was built again, with other names
            raise HTTPException(404) from None
        media_type = mimetypes.guess_type(name)[0] or "application/octet-stream"
        return FileResponse(file, headers=headers, media_type=media_type, stat_result=stat)

    return asset
