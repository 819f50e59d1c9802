"""`/mcp` over HTTP: an endpoint of the pipeline whose body is the SDK's to understand.

Streamable HTTP without sessions: each message is a POST, answered with JSON. A message counts once
against the rate limits and the quota of its key, like a request of the API.
"""

import asyncio
from collections import Counter
from http import HTTPStatus
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from outrider.contract.errors import ApiError, ErrorCode
from outrider.contract.structs import Wire
from outrider.service.accounts.idempotency import Answer
from outrider.service.accounts.principal import ALL_SCOPES
from outrider.service.http.authorization import headers_of, refuse_cross_site
from outrider.service.http.base_path import base_url
from outrider.service.http.endpoint import Call, Endpoint, bind
from outrider.service.http.pipeline import EndpointApp, Exchange, Pipeline, RawHeaders
from outrider.service.http.request_body import read_body
from outrider.service.mcp.tool_calls import ToolCalls, error_text, receive_body
from outrider.service.settings import Settings

if TYPE_CHECKING:
    from outrider.service.mcp.sdk_server import SdkServer

PATH: Final = "/mcp"
METADATA_PATH: Final = "/.well-known/oauth-protected-resource"

MAX_CONCURRENT: Final = 100
"""Concurrent requests of one key on a node."""

_END_SECONDS: Final = 5.0
_RETRY_SECONDS: Final = 1.0


class _Message(msgspec.Struct):
    """The fields for an error response to a message that was refused before the SDK got it."""

    method: str
    id: str | int


class McpEndpoint(EndpointApp):
    """The ASGI application of `/mcp`.

    Args:
        calls: runs the tools.
    """

    def __init__(self, pipeline: Pipeline, calls: ToolCalls, settings: Settings) -> None:
        super().__init__(bind([_ENDPOINT], self)[0], pipeline)
        self._calls = calls
        self._settings = settings
        self._counts: Counter[str] = Counter()
        self._starting = asyncio.Lock()
        self._server: SdkServer | None = None
        self._task: asyncio.Task[None] | None = None

    def routes(self) -> list[Route]:
        """Return the routes of `/mcp` and of its metadata (RFC 9728)."""
        return [
            Route(PATH, self),
            Route(METADATA_PATH, self._metadata),
            Route(METADATA_PATH + PATH, self._metadata),
        ]

    async def close(self) -> None:
        """Stop the SDK's server, if it was started."""
        # The SDK's task group must be left by the task that entered it: end that one.
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=_END_SECONDS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        # A browser sends the cookie by itself; a key must be given.
        scope["headers"] = [header for header in scope["headers"] if header[0] != b"cookie"]
        await super().__call__(scope, receive, send)

    async def mcp(self, call: Call) -> Answer:
        """Pass a message to the SDK.

        Raises:
            ApiError: 401, its credential is no key; 403, it comes from another site's page; 405, it
                is not a POST; 429, the key has `MAX_CONCURRENT` messages open already.
        """
        if call.principal.kind != "key":
            raise ApiError(
                401,
                "MCP takes an API key in `Authorization: Bearer <API_KEY>`, and no session",
                code=ErrorCode.AUTH_INVALID,
            )
        refuse_cross_site(headers_of(call.asgi_scope))
        if call.asgi_scope["method"] != "POST":
            raise ApiError(405, "This path takes POST and no other method: it has no sessions")
        # Counted once the body is there: slow bodies have the server's own limits.
        key_id = call.principal.id
        if self._counts[key_id] >= MAX_CONCURRENT:
            raise ApiError(
                429,
                f"{MAX_CONCURRENT} requests of this key are open already: make fewer at a time",
                code=ErrorCode.RATE_LIMITED,
                retry_after=_RETRY_SECONDS,
            )
        self._counts[key_id] += 1
        try:
            server = await self._started()
            return await server.answer(call, receive_body(call.raw_body, call))
        finally:
            self._counts[key_id] -= 1
            if not self._counts[key_id]:
                del self._counts[key_id]

    async def _started(self) -> "SdkServer":
        """Return the SDK's server, which the first request starts."""
        async with self._starting:
            if self._server is None:
                # Half a second of imports, in a thread: other requests go on meanwhile.
                module = await asyncio.to_thread(import_module, "outrider.service.mcp.sdk_server")
                server: SdkServer = module.SdkServer(self._calls)
                ready = asyncio.get_running_loop().create_future()
                self._task = asyncio.create_task(server.run(ready), name="serve /mcp")
                # `ready` is never done if the SDK fails to start: its task has the exception then.
                await asyncio.wait({self._task, ready}, return_when=asyncio.FIRST_COMPLETED)
                if self._task.done():
                    self._task.result()
                self._server = server
            return self._server

    async def refusal(self, exchange: Exchange, error: ApiError) -> tuple[Answer, RawHeaders]:
        """Return the response for an error.

        A tool call over a limit gets a tool error, which its model reads.
        """
        answer, headers = await super().refusal(exchange, error)
        if error.status == HTTPStatus.UNAUTHORIZED:
            headers = [(b"www-authenticate", self._challenge(exchange.context.scope, error))]
        elif error.status == HTTPStatus.METHOD_NOT_ALLOWED:
            headers.append((b"allow", b"POST"))
        elif error.status == HTTPStatus.TOO_MANY_REQUESTS:
            call = await _tool_call(exchange)
            if call is not None:
                answer = Answer(200, _tool_error(call, error))
        return answer, headers

    def _challenge(self, scope: Scope, error: ApiError) -> bytes:
        """Return the value of `WWW-Authenticate` (RFC 9728, 5.1)."""
        invalid = "" if error.code == ErrorCode.AUTH_REQUIRED else 'error="invalid_token", '
        metadata = self._address(scope) + METADATA_PATH + PATH
        return f'Bearer {invalid}resource_metadata="{metadata}"'.encode("latin-1")

    def _address(self, scope: Scope) -> str:
        """Return the base URL that the client uses, which the metadata must repeat."""
        is_https = self.pipeline.addresses.is_https(scope)
        return base_url(scope, self._settings, is_https=is_https)

    async def _metadata(self, request: Request) -> Response:
        address = self._address(request.scope)
        return JSONResponse(
            {
                "resource": address + PATH,
                "resource_name": "Outrider",
                "resource_documentation": address + "/docs",
                "bearer_methods_supported": ["header"],
                "scopes_supported": sorted(ALL_SCOPES),
            }
        )


_ENDPOINT: Final = Endpoint(
    method="POST",
    path=PATH,
    who="principal",
    summary="MCP",
    handler=McpEndpoint.mcp,
    response=Wire,
    tag="MCP",
    reads_only=True,
)
"""Any key may connect: the scopes are those of the tools."""


async def _tool_call(exchange: Exchange) -> _Message | None:
    """Return the tool call in a request; None if it has none."""
    if exchange.context.scope["method"] != "POST":
        return None
    try:
        if exchange.call is not None:
            body = exchange.call.raw_body
        else:  # it was refused before its body was read
            length = exchange.context.headers.get(b"content-length")
            body = await read_body(exchange.receive, length)
        message = msgspec.json.decode(body, type=_Message)
    except (ApiError, ConnectionError, msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    return message if message.method == "tools/call" else None


def _tool_error(call: _Message, error: ApiError) -> bytes:
    """Return the response to a tool call that was refused before the SDK got it."""
    result: dict[str, Any] = {
        "content": [{"type": "text", "text": error_text(error)}],
        "isError": True,
        "resultType": "complete",
    }
    return msgspec.json.encode({"jsonrpc": "2.0", "id": call.id, "result": result})
