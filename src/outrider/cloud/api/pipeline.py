"""Serves an endpoint: admission, body, handler, response, audit.

The order of the checks is the contract's; ownership (404) is checked by the handlers, which
ask for nothing but what the account owns.
"""

import asyncio
from collections.abc import Mapping
from math import ceil
from typing import Any, Final

import msgspec
import structlog
from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as AsgiScope

from outrider.cloud.access.idempotency import Answer
from outrider.cloud.access.rate_limits import RateLimited
from outrider.cloud.api.admission import Admission, Gate, Headers, headers_of
from outrider.cloud.api.decode import decode_body, decode_query, read_body
from outrider.cloud.api.endpoint import Call, Endpoint, Services
from outrider.cloud.fleet.dispatch import ClientGone
from outrider.cloud.store.database import is_unavailable
from outrider.contract.errors import ApiError, not_found

_JSON: Final = (b"content-type", b"application/json")
_NO_STORE: Final = (b"cache-control", b"no-store")
_CHALLENGE: Final = (b"www-authenticate", b"Bearer")
_REPLAYED: Final = (b"idempotency-replayed", b"true")
_REFUSED: Final = frozenset({401, 403, 429})
_GONE: Final = 499
"""What the audit has for a client that went away before its answer."""

_AUDIT_RETRY_SECONDS: Final = 10.0

_encoder = msgspec.json.Encoder()
_log = structlog.get_logger(__name__)


class Resource:
    """The ASGI application of one path: its endpoints by method."""

    def __init__(
        self, path: str, endpoints: Mapping[str, Endpoint], services: Services, gate: Gate
    ) -> None:
        self.path = path
        self._served: dict[str, ASGIApp] = {
            method: _Served(endpoint, services, gate) for method, endpoint in endpoints.items()
        }
        allow = ", ".join(sorted(self._served))
        self._nowhere = nowhere(services, gate)
        self._wrong_method = Refusal(
            services,
            gate,
            ApiError(405, f"This path takes {allow} and no other method"),
            (b"allow", allow.encode()),
        )

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        served = self._served.get(scope["method"], self._wrong_method)
        # PostgreSQL takes no text with a zero byte, and nothing has one in its id.
        app = self._nowhere if "\0" in scope["path"] else served
        await app(scope, receive, send)


class Refusal:
    """The ASGI application for what no endpoint serves: always the same error.

    The limit of its session or address holds for such a request too.
    """

    path = "none"

    def __init__(
        self, services: Services, gate: Gate, error: ApiError, *headers: tuple[bytes, bytes]
    ) -> None:
        self._services = services
        self._gate = gate
        self._error = error
        self._headers = headers

    async def __call__(self, scope: AsgiScope, _receive: Receive, send: Send) -> None:
        """Refuse a request."""
        admission = Admission(self._services.addresses.client(scope))
        answer, headers = _told(self._error), list(self._headers)
        try:
            await self._gate.limit(scope, admission)
        except ApiError as error:
            answer, headers = _told(error), _headers_of(error)
        headers = [*self._services.rates.headers(admission.statuses), *headers]
        await _send(send, answer.status, answer.body, headers)


def nowhere(services: Services, gate: Gate) -> Refusal:
    """Return the application of the paths of the API that are no endpoint's."""
    return Refusal(services, gate, not_found("There is nothing at this path: see /docs"))


class _Served:
    """One endpoint with what it takes to serve it."""

    def __init__(self, endpoint: Endpoint, services: Services, gate: Gate) -> None:
        self._endpoint = endpoint
        self._services = services
        self._gate = gate
        self._decoder: msgspec.json.Decoder[Any] | None = (
            msgspec.json.Decoder(endpoint.body) if endpoint.body is not None else None
        )

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        headers = headers_of(scope)
        admission = Admission(self._services.addresses.client(scope))
        call: Call | None = None
        extra: list[tuple[bytes, bytes]] = []
        try:
            await self._gate.admit(self._endpoint, scope, headers, admission)
            call = await self._call(scope, receive, headers, admission)
            self._refuse_unaudited(call)
            answer = await self._answer(call, headers)
            extra = call.response_headers
            if answer.replayed:
                extra = [*extra, _REPLAYED]
        except ApiError as error:
            if isinstance(error, RateLimited) and error.limit_status not in admission.statuses:
                admission.statuses.append(error.limit_status)  # a limit that a handler counts
            answer = _told(error)
            extra = _headers_of(error)
        except (ClientGone, ConnectionError):
            self._note(scope, admission, call, _GONE)
            return
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001  # last line of defence: tell, keep the trace
            answer = _broken(scope, error)
        self._note(scope, admission, call, answer.status)
        extra = [*self._services.rates.headers(admission.statuses), *extra]
        await _send(send, answer.status, answer.body, extra)

    async def _call(
        self, scope: AsgiScope, receive: Receive, headers: Headers, admission: Admission
    ) -> Call:
        endpoint = self._endpoint
        body = await read_body(receive, headers.get(b"content-length"))
        decoded = query = None
        if endpoint.query is not None:
            query = decode_query(endpoint.query, scope["query_string"])
        if self._decoder is not None and not (endpoint.body_optional and not body.strip()):
            decoded = decode_body(self._decoder, body)

        async def gone() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass

        call = Call(scope, admission.principal, admission.address, decoded, body, query, gone)
        call.reads_only = endpoint.is_read is not None and endpoint.is_read(decoded)
        return call

    def _refuse_unaudited(self, call: Call) -> None:
        """Refuse what may change something while no record of it can be stored.

        Raises:
            ApiError: 503, the audit cannot be written.
        """
        services = self._services
        if not self._endpoint.mutates or call.reads_only or services.audit.failure is None:
            return
        if services.settings.audit_required:
            raise ApiError(
                503,
                "Nothing can be changed at the moment, for the service cannot write its audit: "
                "its disk may be full. Reading works; tell the operator",
                retry_after=_AUDIT_RETRY_SECONDS,
            )

    async def _answer(self, call: Call, headers: Headers) -> Answer:
        key = headers.get(b"idempotency-key")
        if key is None or self._endpoint.may_repeat or call.principal is None:
            return await self._handle(call)
        call.gone = _never  # the work outlives its client, so that the next try finds its answer
        return await self._services.idempotency.once(
            principal=call.principal.id,
            key=key.decode("latin-1"),
            request=(self._endpoint.method, call.scope["path"], call.raw_body),
            work=lambda: self._handle_once(call),
        )

    async def _handle_once(self, call: Call) -> tuple[Answer, bool]:
        """Return the answer, and whether something may have been done."""
        try:
            return await self._handle(call), True
        except ApiError as error:
            call.response_headers += _headers_of(error)
            return _told(error), not error.undone
        except Exception as error:  # noqa: BLE001  # as above; the key must not stay without answer
            return _broken(call.scope, error), True

    async def _handle(self, call: Call) -> Answer:
        data = await self._endpoint.handler(self._services, call)
        return Answer(
            self._endpoint.status, data if isinstance(data, bytes) else _encoder.encode(data)
        )

    def _note(
        self, scope: AsgiScope, admission: Admission, call: Call | None, outcome: int
    ) -> None:
        reads_only = call is not None and call.reads_only
        if (reads_only or not self._endpoint.mutates) and outcome not in _REFUSED:
            return
        principal = admission.principal
        account_id = principal.account_id if principal else call.acted_for if call else None
        self._services.audit.note(
            principal=None if principal is None else principal.id,
            account_id=account_id,
            action=self._endpoint.operation,
            target=next(iter(scope["path_params"].values()), None),
            outcome=outcome,
            address=admission.address,
            request_id=scope["request_id"].decode(),
        )


async def _never() -> None:
    await asyncio.Event().wait()


def _told(error: ApiError) -> Answer:
    return Answer(error.status, _encoder.encode(error.body()))


def _headers_of(error: ApiError) -> list[tuple[bytes, bytes]]:
    """Return what an error tells beside its body: how to be let in (RFC 9110, 15.5.2), or when."""
    if error.status == 401:
        return [_CHALLENGE]
    if error.retry_after is None:
        return []
    return [(b"retry-after", str(max(1, ceil(error.retry_after))).encode())]


def _broken(scope: AsgiScope, error: Exception) -> Answer:
    if is_unavailable(error):
        _log.warning(
            "request failed: the database is unavailable", path=scope["path"], error=str(error)
        )
        text = "The database cannot be reached at the moment: try again in a few seconds"
        return _told(ApiError(503, text))
    _log.exception("request failed", path=scope["path"], request=scope["request_id"].decode())
    return _told(ApiError(500, "Something broke in the service; it is logged"))


async def _send(send: Send, status: int, data: bytes, headers: list[tuple[bytes, bytes]]) -> None:
    length = (b"content-length", str(len(data)).encode())
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": [_JSON, length, _NO_STORE, *headers],
        }
    )
    await send({"type": "http.response.body", "body": data})
