"""Serves an endpoint: the contract's order of checks, the handler, the response.

IP limit → authentication → key limit → scope → recent login → monthly quota → body →
ownership (404) → action. The first three limits have their place here and come with the
issue on access; ownership is checked by the handlers.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import msgspec
import structlog
from starlette.types import Receive, Send
from starlette.types import Scope as AsgiScope

from outrider.cloud.access.authenticate import Authenticator
from outrider.cloud.access.principal import Principal
from outrider.cloud.api.decode import decode_body, decode_query, read_body
from outrider.cloud.api.endpoint import Call, Endpoint, Services
from outrider.cloud.fleet.dispatch import ClientGone
from outrider.contract.errors import ApiError, ErrorCode

_JSON: Final = (b"content-type", b"application/json")
_NO_STORE: Final = (b"cache-control", b"no-store")

_encoder = msgspec.json.Encoder()
_log = structlog.get_logger(__name__)


class Resource:
    """The ASGI application of one path: its endpoints by method."""

    def __init__(
        self,
        path: str,
        endpoints: Mapping[str, Endpoint],
        services: Services,
        authenticator: Authenticator,
    ) -> None:
        self.path = path
        self._served = {
            method: _Served(endpoint, services, authenticator)
            for method, endpoint in endpoints.items()
        }
        self._allow = ", ".join(sorted(self._served)).encode()

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        served = self._served.get(scope["method"])
        if served is None:
            await _discard(receive)
            error = ApiError(405, f"This path takes {self._allow.decode()}, not {scope['method']}")
            await send_error(send, error, [(b"allow", self._allow)])
            return
        await served(scope, receive, send)


class _Served:
    """One endpoint with what it takes to serve it."""

    def __init__(
        self, endpoint: Endpoint, services: Services, authenticator: Authenticator
    ) -> None:
        self._endpoint = endpoint
        self._services = services
        self._authenticator = authenticator
        self._decoder: msgspec.json.Decoder[Any] | None = (
            msgspec.json.Decoder(endpoint.body) if endpoint.body is not None else None
        )

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        try:
            call = await self._admit(scope, receive)
            answer = await self._endpoint.handler(self._services, call)
            data = answer if isinstance(answer, bytes) else _encoder.encode(answer)
            await send_json(send, self._endpoint.status, data)
        except ApiError as error:
            await send_error(send, error)
        except (ClientGone, ConnectionError):
            _log.debug("client went away", path=scope["path"])
        except asyncio.CancelledError:
            raise
        except Exception:  # noqa: BLE001  # last line of defence: tell the client, keep the trace
            _log.exception("request failed", path=scope["path"])
            await send_error(send, ApiError(500, "Something broke in the service; it is logged"))

    async def _admit(self, scope: AsgiScope, receive: Receive) -> Call:
        endpoint = self._endpoint
        principal = None
        if endpoint.scope is not None:
            principal = await self._authenticator.principal(_header(scope, b"authorization"))
            _check_scope(principal, endpoint)
        body = await read_body(receive)
        decoded = query = None
        if endpoint.query is not None:
            query = decode_query(endpoint.query, scope["query_string"])
        if self._decoder is not None and not (endpoint.body_optional and not body.strip()):
            decoded = decode_body(self._decoder, body)

        async def gone() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass

        return Call(scope, principal, decoded, body, query, gone)


def _check_scope(principal: Principal, endpoint: Endpoint) -> None:
    if endpoint.scope not in principal.scopes:
        raise ApiError(
            403,
            f"This credential lacks the scope {endpoint.scope}",
            code=ErrorCode.AUTH_FORBIDDEN,
        )
    if endpoint.recent_login and principal.auth_time is None:
        raise ApiError(
            403,
            "This needs a recent login in the dashboard; an API key cannot do it",
            code=ErrorCode.RECENT_LOGIN_REQUIRED,
        )


def _header(scope: AsgiScope, name: bytes) -> str | None:
    for key, value in scope["headers"]:
        if key == name:
            return str(value, "latin-1")
    return None


async def _discard(receive: Receive) -> None:
    """Read what has come of a body that nobody wants, within its limit."""
    try:
        await read_body(receive)
    except (ApiError, ConnectionError):
        return


async def send_json(
    send: Send, status: int, data: bytes, headers: list[tuple[bytes, bytes]] | None = None
) -> None:
    """Send a response of JSON."""
    length = (b"content-length", str(len(data)).encode())
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": [_JSON, length, _NO_STORE, *(headers or [])],
        }
    )
    await send({"type": "http.response.body", "body": data})


async def send_error(
    send: Send, error: ApiError, headers: list[tuple[bytes, bytes]] | None = None
) -> None:
    """Send the response that tells an error."""
    await send_json(send, error.status, _encoder.encode(error.body()), headers)
