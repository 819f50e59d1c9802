"""`/mcp` over HTTP: who may use it, and how much; what a message means is the SDK's.

Streamable HTTP without sessions: each message is a POST, answered with JSON. A message counts once
against the rate limits and the quota of its key, like a request of the API.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from outrider.contract.errors import ApiError, ErrorCode
from outrider.contract.structs import Wire
from outrider.service.accounts.principal import ALL_SCOPES, Principal
from outrider.service.http.authorization import (
    Headers,
    RequestContext,
    headers_of,
    refuse_cross_site,
)
from outrider.service.http.base_path import base_url
from outrider.service.http.endpoint import Call, Endpoint
from outrider.service.http.error_response import ACCOUNT_ID
from outrider.service.http.pipeline import (
    Pipeline,
    error_headers,
    error_response,
    failure_response,
    send_json,
)
from outrider.service.http.request_body import read_body
from outrider.service.mcp.tool_calls import CALLER, Caller, ToolCalls, receive_body, retry_advice
from outrider.service.settings import Settings

if TYPE_CHECKING:
    from outrider.service.mcp.sdk_server import SdkServer

PATH: Final = "/mcp"
METADATA_PATH: Final = "/.well-known/oauth-protected-resource"

MAX_CONCURRENT: Final = 100
"""Concurrent requests of one key on a node."""

SESSION_HEADER: Final = b"x-outrider-session"
"""Names the session in which the client runs, so that it cannot answer its own approvals."""

_NO_STORE: Final = (b"cache-control", b"no-store")
_END_SECONDS: Final = 5.0
_RETRY_SECONDS: Final = 1.0
_MAX_SESSION: Final = 512


class _Message(msgspec.Struct):
    """The fields for an error response to a message that was refused before the SDK got it."""

    method: str
    id: str | int


async def mcp(_services: None, _call: Call) -> bytes:
    """Serve a message; it names the row that `/mcp` is authorized by."""
    raise NotImplementedError


_ENDPOINT: Final[Endpoint[None]] = Endpoint(
    method="POST",
    path=PATH,
    who="principal",
    summary="MCP",
    handler=mcp,
    response=Wire,
    tag="MCP",
    reads_only=True,
)
"""Any key may connect: the scopes are those of the tools."""


class McpEndpoint:
    """The ASGI application of `/mcp`.

    Args:
        calls: runs the tools.
    """

    path = PATH

    def __init__(self, pipeline: Pipeline, calls: ToolCalls, settings: Settings) -> None:
        self._pipeline = pipeline
        self._calls = calls
        self._settings = settings
        self._open: dict[str, int] = {}
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
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=_END_SECONDS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        headers = headers_of(scope)
        headers.pop(b"cookie", None)  # a browser sends it by itself; a key must be given
        context = RequestContext(self._pipeline.addresses.client(scope))
        one = _Exchange(scope, receive, send, headers, context)
        try:
            principal = await self._authorize(one)
            with self._one_more(principal.id):
                await self._serve(one, principal, await one.body())
        except ConnectionError:
            return
        except ApiError as error:
            await self._refuse(one, error)
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001  # answers 500 and logs the traceback
            answer = failure_response(scope, error)
            await send_json(scope, send, answer.status, answer.body, [])

    async def _authorize(self, one: "_Exchange") -> Principal:
        """Check who sends a request.

        Raises:
            ApiError: it has no key, is over a limit, or comes from another site's page; 405, it is
                not a POST.
        """
        context = one.context
        await self._pipeline.authorization.authorize(_ENDPOINT, one.scope, one.headers, context)
        if context.principal is None or context.principal.kind != "key":
            raise ApiError(
                401,
                "MCP takes an API key in `Authorization: Bearer <API_KEY>`, and no session",
                code=ErrorCode.AUTH_INVALID,
            )
        one.scope[ACCOUNT_ID] = context.principal.account_id
        refuse_cross_site(one.headers)
        if one.scope["method"] != "POST":
            raise ApiError(405, "This path takes POST and no other method: it has no sessions")
        return context.principal

    async def _serve(self, one: "_Exchange", principal: Principal, body: bytes) -> None:
        """Pass a message to the SDK, with its caller."""
        gone = asyncio.Event()
        session = one.headers.get(SESSION_HEADER, b"").decode("latin-1")[:_MAX_SESSION]

        async def is_gone() -> None:
            await gone.wait()

        caller = Caller(
            principal=principal,
            address=one.context.address,
            request_id=one.scope["request_id"],
            session=session or None,
            client_gone=is_gone,
        )
        more = [*self._pipeline.rates.headers(one.context.statuses), _NO_STORE]

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *more]
            await one.send(message)

        server = await self._started()
        watcher = asyncio.create_task(_watch(one.receive, gone), name="watch a client of /mcp")
        try:
            receive = receive_body(body, is_gone)
            await server.handle_request({**one.scope, CALLER: caller}, receive, send_with_headers)
        finally:
            watcher.cancel()
            await asyncio.wait({watcher}, timeout=_END_SECONDS)

    async def _started(self) -> "SdkServer":
        """Return the SDK's server, which the first request starts."""
        async with self._starting:
            if self._server is None:
                # Half a second of imports, in a thread: other requests go on meanwhile.
                module = await asyncio.to_thread(import_module, "outrider.service.mcp.sdk_server")
                server: SdkServer = module.SdkServer(self._calls)
                ready = asyncio.get_running_loop().create_future()
                self._task = asyncio.create_task(server.run(ready), name="serve /mcp")
                await asyncio.wait({self._task, ready}, return_when=asyncio.FIRST_COMPLETED)
                if self._task.done():
                    self._task.result()
                self._server = server
            return self._server

    @contextmanager
    def _one_more(self, key_id: str) -> Iterator[None]:
        """Count a request while the context lasts.

        Raises:
            ApiError: 429, the key has `MAX_CONCURRENT` already.
        """
        count = self._open.get(key_id, 0)
        if count >= MAX_CONCURRENT:
            raise ApiError(
                429,
                f"{MAX_CONCURRENT} requests of this key are open already: make fewer at a time",
                code=ErrorCode.RATE_LIMITED,
                retry_after=_RETRY_SECONDS,
            )
        self._open[key_id] = count + 1
        try:
            yield
        finally:
            self._open[key_id] -= 1
            if not self._open[key_id]:
                del self._open[key_id]

    async def _refuse(self, one: "_Exchange", error: ApiError) -> None:
        """Send an error. A tool call over a limit gets a tool error, which its model reads."""
        principal = one.context.principal
        if error.status in {401, 403, 429}:
            self._pipeline.audit.note(
                principal=None if principal is None else principal.id,
                account_id=None if principal is None else principal.account_id,
                action=_ENDPOINT.operation,
                target=None,
                outcome=error.status,
                address=one.context.address,
                request_id=one.scope["request_id"].decode(),
            )
        headers = [*self._pipeline.rates.headers(one.context.statuses), *error_headers(error)]
        if error.status == HTTPStatus.UNAUTHORIZED:
            headers = [header for header in headers if header[0] != b"www-authenticate"]
            headers.append((b"www-authenticate", self._challenge(one.scope, error)))
        elif error.status == HTTPStatus.METHOD_NOT_ALLOWED:
            headers.append((b"allow", b"POST"))
        elif error.status == HTTPStatus.TOO_MANY_REQUESTS:
            called = await _tool_call(one)
            if called is not None:
                await send_json(one.scope, one.send, 200, _tool_error(called, error), headers)
                return
        answer = error_response(error)
        await send_json(one.scope, one.send, answer.status, answer.body, headers)

    def _challenge(self, scope: Scope, error: ApiError) -> bytes:
        """Return the value of `WWW-Authenticate` (RFC 9728, 5.1)."""
        invalid = "" if error.code == ErrorCode.AUTH_REQUIRED else 'error="invalid_token", '
        metadata = self._address(scope) + METADATA_PATH + PATH
        return f'Bearer {invalid}resource_metadata="{metadata}"'.encode("latin-1")

    def _address(self, scope: Scope) -> str:
        """Return the base URL that the client uses, which the metadata must repeat."""
        is_https = self._pipeline.addresses.is_https(scope)
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


@dataclass(slots=True)
class _Exchange:
    """A request to `/mcp`, and the ASGI callables to read its body and answer it."""

    scope: Scope
    receive: Receive
    send: Send
    headers: Headers
    context: RequestContext
    _body: bytes | None = None

    async def body(self) -> bytes:
        """Return the body, which is read once.

        Raises:
            ApiError: 413, it is too large.
            ConnectionError: the client has disconnected.
        """
        if self._body is None:
            self._body = await read_body(self.receive, self.headers.get(b"content-length"))
        return self._body


async def _tool_call(one: _Exchange) -> _Message | None:
    """Return the tool call in a request; None if it has none."""
    if one.scope["method"] != "POST":
        return None
    try:
        message = msgspec.json.decode(await one.body(), type=_Message)
    except (ApiError, ConnectionError, msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    return message if message.method == "tools/call" else None


async def _watch(receive: Receive, gone: asyncio.Event) -> None:
    """Set `gone` when the client has disconnected."""
    while (await receive())["type"] != "http.disconnect":
        pass
    gone.set()


def _tool_error(called: _Message, error: ApiError) -> bytes:
    """Return the response to a tool call that was refused before the SDK got it."""
    text = error.message.rstrip(".")
    if error.retry_after is not None:
        text += f". {retry_advice(error.retry_after)}"
    result: dict[str, Any] = {
        "content": [{"type": "text", "text": f"{text}."}],
        "isError": True,
        "resultType": "complete",
    }
    return msgspec.json.encode({"jsonrpc": "2.0", "id": called.id, "result": result})
