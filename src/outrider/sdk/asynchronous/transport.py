"""Sends requests, with retries, and decodes the responses."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import httpx2
import msgspec

from outrider.contract.errors import ErrorCode, OutriderError
from outrider.sdk import operations
from outrider.sdk.configuration import NOT_A_KEY, Configuration
from outrider.sdk.decoding import error_of, result
from outrider.sdk.errors import (
    ApiError,
    AuthenticationError,
    ConnectionFailed,
    ResponseTimeout,
    UnexpectedResponse,
)
from outrider.sdk.operations import Operation
from outrider.sdk.retry_policy import RetryPolicy

T = TypeVar("T")

_CONNECT_SECONDS = 10.0


class AsyncTransport:
    """The connection to one service.

    With a login in place of a key it begins a session before the first request and ends it when it
    is closed. If the service wants the password again, or the session has expired, it gives the
    password once more and repeats the request.

    Args:
        http_client: sends the requests; without it, one that is closed with the transport.
        timeout: seconds that a request may take.

    Attributes:
        retries: decides whether and when a request is sent again.
    """

    def __init__(
        self,
        configuration: Configuration,
        retries: RetryPolicy,
        timeout: float,
        http_client: httpx2.AsyncClient | None,
    ) -> None:
        self._url = configuration.api_url
        self._headers = configuration.headers
        self._login = configuration.login
        self._token: str | None = None
        self._logging_in = asyncio.Lock()
        self.retries = retries
        self._timeout = timeout
        self._is_owner = http_client is None
        # Loading the system's certificates would slow down every command; without https there is
        # nothing to verify, because redirects are not followed.
        has_tls = not configuration.api_url.startswith("http://")
        self._http = http_client or httpx2.AsyncClient(verify=has_tls)

    async def aclose(self) -> None:
        """End the session of a login, and close the connections."""
        # Log out before the connections are closed: the session would stay valid for days.
        try:
            if self._token is not None:
                await self.send(operations.LOG_OUT, is_login=True)
        except OutriderError:
            pass  # it expires by itself
        finally:
            self._token = None
            if self._is_owner:
                await self._http.aclose()

    async def send(
        self,
        operation: Operation[T],
        *,
        query: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        is_login: bool = False,
        **parameters: str,
    ) -> T:
        """Send a request and return the result.

        Args:
            query: the query parameters; those that are None are left out.
            body: the fields of the body; those that are None are left out.
            timeout: seconds, in place of the client's.
            is_login: whether the request is a part of logging in or out.
            parameters: of the operation's path.

        Raises:
            OutriderError: see `outrider.sdk.errors`.
        """
        headers = self._headers
        # An answer may be lost after the service has acted: under the same key it acts once.
        if operation.method == "POST":
            headers = {**headers, "Idempotency-Key": secrets.token_hex(16)}
        content: bytes | None = None
        if body is not None:
            headers = {**headers, "Content-Type": "application/json"}
            content = msgspec.json.encode(_present(body))
        request = self._request(
            operation.method,
            operation.url(**parameters),
            query,
            headers=headers,
            content=content,
            timeout=self._timeout if timeout is None else timeout,
        )
        response = await self._authenticated(request, is_stream=False, is_login=is_login)
        return result(operation, response.status_code, response.headers, response.content)

    @asynccontextmanager
    async def stream(
        self, path: str, query: Mapping[str, Any], silence: float
    ) -> AsyncIterator[httpx2.EventSource]:
        """Open a stream of server-sent events.

        Args:
            silence: seconds without a byte after which the connection counts as lost.

        Raises:
            OutriderError: see `outrider.sdk.errors`; ConnectionFailed also while it is read.
        """
        headers = {**self._headers, "Accept": "text/event-stream"}
        request = self._request("GET", path, query, headers=headers, timeout=silence)
        response = await self._authenticated(request, is_stream=True)
        # An iteration may be abandoned in the middle: the connection is closed in any case.
        try:
            yield httpx2.EventSource(response, max_event_size=_MAX_EVENT)
        except httpx2.SSEError as error:
            text = f"The answer is not a stream of events: {error}"
            raise UnexpectedResponse(text, status=response.status_code) from error
        except httpx2.TransportError as error:
            raise _failure(request, error) from error
        finally:
            await response.aclose()

    def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None,
        *,
        headers: Mapping[str, str],
        timeout: float,
        content: bytes | None = None,
    ) -> httpx2.Request:
        # httpx would raise a UnicodeEncodeError that names neither the key nor its place.
        if not self._headers.get("Authorization", "").isascii():
            raise AuthenticationError(NOT_A_KEY, status=401)
        try:
            return self._http.build_request(
                method,
                self._url + path,
                params=None if query is None else _present(query),
                headers=headers,
                content=content,
                timeout=_limits(timeout),
            )
        except (httpx2.InvalidURL, UnicodeError) as error:
            raise ConnectionFailed(f"{self._url!r} cannot be requested: {error}") from error

    async def _authenticated(
        self, request: httpx2.Request, *, is_stream: bool, is_login: bool = False
    ) -> httpx2.Response:
        """Send a request with the token of the session, if there is a login."""
        if self._login is None or is_login:
            if self._token is not None:
                request.headers["Authorization"] = f"Bearer {self._token}"
            return await self._attempt(request, is_stream=is_stream)
        token = self._token or await self._log_in(None)
        request.headers["Authorization"] = f"Bearer {token}"
        try:
            return await self._attempt(request, is_stream=is_stream)
        except ApiError as error:
            wants_password = error.code == ErrorCode.RECENT_LOGIN_REQUIRED
            if not (wants_password or error.status == 401):
                raise
        token = await self._log_in(token, is_session_over=not wants_password)
        request.headers["Authorization"] = f"Bearer {token}"
        if "Idempotency-Key" in request.headers:  # the refusal may be stored under the old one
            request.headers["Idempotency-Key"] = secrets.token_hex(16)
        return await self._attempt(request, is_stream=is_stream)

    async def _log_in(self, used: str | None, *, is_session_over: bool = True) -> str:
        """Return a token that is newer than the one that was used.

        Raises:
            AuthenticationError: the email or the password is wrong.
        """
        assert self._login is not None
        # Requests that are refused at the same time wait here; only the first one logs in again,
        # and the others find a token that is newer than theirs.
        async with self._logging_in:
            if self._token is None or self._token == used:
                operation, body = operations.LOG_IN, self._login._asdict()
                if not is_session_over:
                    operation, body = operations.REAUTHENTICATE, {"password": body["password"]}
                else:
                    self._token = None
                done = await self.send(operation, body=body, is_login=True)
                self._token = done.token
            return self._token

    async def _attempt(self, request: httpx2.Request, *, is_stream: bool) -> httpx2.Response:
        """Send a request until it succeeds or the policy gives up; raise the error then."""
        retries = 0
        while True:
            failure: OutriderError
            try:
                response = await self._http.send(request, stream=is_stream)
                if response.is_error and is_stream:
                    await response.aread()
                    await response.aclose()
            except httpx2.DecodingError as error:
                raise UnexpectedResponse(f"The answer cannot be read: {error}") from error
            except httpx2.TransportError as error:
                failure = _failure(request, error)
                delay = self._delay_after(retries, request, error)
                if delay is None:
                    raise failure from error
            except (httpx2.InvalidURL, httpx2.HTTPError, UnicodeError) as error:
                raise ConnectionFailed(f"{request.url} cannot be requested: {error}") from error
            else:
                if not response.is_error:
                    return response
                failure = error_of(response.status_code, response.headers, response.content)
                delay = self.retries.after_response(
                    retries, response.status_code, response.headers, failure.code
                )
                if delay is None:
                    raise failure
            await asyncio.sleep(delay)
            retries += 1

    def _delay_after(
        self, retries: int, request: httpx2.Request, error: httpx2.TransportError
    ) -> float | None:
        was_connected = not isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout)
        if was_connected and isinstance(error, httpx2.TimeoutException):
            return None  # the time that the caller allows is over
        if isinstance(error, httpx2.UnsupportedProtocol | httpx2.LocalProtocolError):
            return None
        return self.retries.after_failure(retries, request.method, was_sent=was_connected)


_MAX_EVENT = 16 * 1024 * 1024
"""Bytes of one event, which has a session or a message of 64 KiB at most."""


def _present(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _limits(timeout: float) -> httpx2.Timeout:
    return httpx2.Timeout(timeout, connect=min(timeout, _CONNECT_SECONDS))


def _failure(request: httpx2.Request, error: httpx2.TransportError) -> ConnectionFailed:
    url = f"{request.url.scheme}://{request.url.netloc.decode()}"
    if isinstance(error, httpx2.TimeoutException):
        return ResponseTimeout(f"{url} did not answer in time ({type(error).__name__})")
    reason = str(error) or type(error).__name__
    return ConnectionFailed(f"No answer from {url}: {reason}")
