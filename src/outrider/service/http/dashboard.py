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
from pathlib import Path
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

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
        return [_route(path, _Page(path, missing)) for path in PATHS if path != "/device"]
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
        *(_route(path, _Dashboard(path, text, code=code.get(path))) for path in PATHS),
        _route("/icon.svg", _Page("/icon.svg", icon)),
        _route("/assets/{name}", _Assets(assets)),
    ]


def not_found(missing: ASGIApp, directory: Path = STATIC) -> Route:
    """Return the route of all other paths, which comes last: status 404, a page for browsers.

    Args:
        missing: the page if the dashboard has not been built.
    """
    page = missing
    if is_built(directory):
        page = _Dashboard("none", (directory / "index.html").read_text("utf-8"), status=404)
    return Route("/{path:path}", _NotFound(page))


def _route(path: str, app: ASGIApp) -> Route:
    return Route(path, app, methods=["GET"])


class _Page:
    """ASGI application with one response for every request. `path` is the label of metrics."""

    def __init__(self, path: str, response: Response) -> None:
        self.path = path
        self._response = response

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._response(scope, receive, send)


class _Dashboard:
    """ASGI application for a page of the dashboard: the same text, with the base path in it.

    Args:
        code: the name of the script that the page needs besides the main one.
    """

    _BASE = '<base href="/"'

    def __init__(self, path: str, text: str, status: int = 200, *, code: str | None = None) -> None:
        self.path = path
        self._text = text
        self._status = status
        self._code = code

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        root = base_path(scope)
        base = f'<base href="{html.escape(root)}/"'
        headers = {"Content-Security-Policy": POLICY, "Cache-Control": "no-store"}
        if self._code is not None:
            headers["Link"] = f"<{root}/assets/{self._code}>; rel=modulepreload"
        text = self._text.replace(self._BASE, base, 1)
        response = HTMLResponse(text, self._status, headers=headers)
        await response(scope, receive, send)


class _NotFound:
    """ASGI application for paths that nothing is at: a page if the client takes HTML."""

    path = "none"

    def __init__(self, page: ASGIApp) -> None:
        self._page = page

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_read = scope["method"] in ("GET", "HEAD") and not scope["path"].startswith(
            ("/api", "/mcp")
        )
        if not is_read or "text/html" not in Request(scope).headers.get("accept", ""):
            raise HTTPException(404)
        await self._page(scope, receive, send)


class _Assets:
    """ASGI application for the files with hashed names; only those that were built."""

    path = "/assets/{name}"

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._names = {file.name for file in directory.iterdir()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        name = request.path_params["name"]
        if name not in self._names or name.endswith(".gz"):
            raise HTTPException(404)
        headers = {"Cache-Control": _FOR_EVER, "Vary": "Accept-Encoding"}
        file = self._directory / name
        if f"{name}.gz" in self._names and "gzip" in request.headers.get("accept-encoding", ""):
            file = self._directory / f"{name}.gz"
            headers["Content-Encoding"] = "gzip"
        try:
            stat = await asyncio.to_thread(os.stat, file)
        except FileNotFoundError:  # the dashboard was built again, with other names
            raise HTTPException(404) from None
        media_type = mimetypes.guess_type(name)[0] or "application/octet-stream"
        response = FileResponse(file, headers=headers, media_type=media_type, stat_result=stat)
        await response(scope, receive, send)
