"""Defines an endpoint: a row of the table that routes, checks and OpenAPI are derived from."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from starlette.types import Scope as AsgiScope

from outrider.contract.structs import Wire
from outrider.service.accounts.idempotency import Answer
from outrider.service.accounts.principal import Principal, Scope
from outrider.service.accounts.rate_limits import RateLimit
from outrider.service.http.sockets import Conversation
from outrider.service.http.streaming import Stream

Method = Literal["GET", "POST", "PATCH", "DELETE"]

Who = Literal["scope", "principal", "session", "anyone"]
"""Who may call an endpoint: credentials with its scope; any valid credential; dashboard sessions;
anyone without a credential."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointLimit:
    """A rate limit of an endpoint, in addition to those of every request.

    Args:
        name: names the limit in the `RateLimit` headers. Endpoints with the same name share its
            windows. The settings define `key`, `session`, `ip`, `auth` and `login`.
        by: who has a window. Limits by address are checked before authentication, the others
            after it.
        requests: the requests in `seconds` seconds; None for a limit that the settings define. An
            operator cannot raise a limit that is given here, nor can tests and benchmarks, which
            raise those of the settings: they can call the endpoint only as often as anybody.
        counted: `request`: each request counts. `handler`: only what the handler counts with
            `RateLimits.hit`, such as wrong guesses. Either way a full window refuses requests.
    """

    name: str
    by: Literal["address", "principal", "account"]
    requests: int | None = None
    seconds: int = 60
    counted: Literal["request", "handler"] = "request"

    @property
    def definition(self) -> RateLimit | None:
        """The limit, if the settings do not define it."""
        if self.requests is None:
            return None
        subject = "this credential" if self.by == "principal" else f"this {self.by}"
        return RateLimit(self.name, self.requests, self.seconds, f"{subject} on this route")


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamKind:
    """What an endpoint streams, such as server-sent events (`text/event-stream`).

    Args:
        description: what the stream consists of, and when it ends.
        example: the beginning of a stream.
    """

    media_type: str
    description: str
    example: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SocketKind:
    """What a WebSocket endpoint exchanges with its clients.

    Args:
        description: the messages of both sides, and what the close codes mean.
        max_size: the largest message of a client in bytes; a larger one closes with 1009.
    """

    description: str
    max_size: int


@dataclass(slots=True)
class Call:
    """A request that has passed the checks, as its handler gets it.

    `body` and `query` have the endpoint's types; `raw_body` is the body as received.
    `client_gone` returns when the client has disconnected. A handler may add `response_headers`. It
    sets `acted_for` to the account that a request without a principal concerns, and `reads_only` if
    the request changes nothing; the audit uses both.
    """

    asgi_scope: AsgiScope
    principal_or_none: Principal | None
    address: str
    body: Any
    raw_body: bytes
    query: Any
    client_gone: Callable[[], Awaitable[None]]
    response_headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    acted_for: str | None = None
    reads_only: bool = False

    def path(self, name: str) -> str:
        """Return a path parameter."""
        return str(self.asgi_scope["path_params"][name])

    @property
    def principal(self) -> Principal:
        """Who made the request; only for endpoints that require a credential."""
        assert self.principal_or_none is not None, "an endpoint for anyone has no principal"
        return self.principal_or_none

    @property
    def account_id(self) -> str:
        """The account that makes the request."""
        return self.principal.account_id


async def never() -> None:
    """A `client_gone` that never fires, for work that outlives its request."""
    await asyncio.Event().wait()


S = TypeVar("S")
"""What the handlers of a module use: one service, or a dataclass of several."""

Body = bytes | Wire | Answer | Stream | Conversation
"""The body of a response: JSON, an object to encode as JSON, both with a status of its own
(`Answer`), or a stream of the endpoint's kind.
The handler of a WebSocket endpoint returns the conversation."""

Handler = Callable[[S, Call], Awaitable[Body]]
"""Serves the requests of an endpoint. Its name is the operation's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint(Generic[S]):
    """A row of the table.

    Args:
        scope: the scope that the credential needs; given exactly if `who` is `scope`.
        summary: the title in the documentation; the handler's docstring is the description.
        response: the type of the body of a successful response; several if it depends on the
            request; `()` if it always is a stream.
        stream: what the endpoint streams; its handler may then return a `Stream`.
        socket: what the endpoint exchanges over a WebSocket; its method is GET, its handler returns
            a `Conversation`, and a request without an upgrade gets a 426.
        body: the type of the request's body, None if it has none.
        described_bodies: the types of body in the API's description, if `body` does not define
            the fields.
        query: the type of the query parameters, None if there are none.
        recent_login: whether only a dashboard session with a recent login may call it.
        body_optional: whether the body may be omitted.
        reads_only: whether it changes nothing although it is not a GET. It is then audited only
            when refused, and its response is not stored under an `Idempotency-Key`.
        is_read: for an endpoint that both reads and writes: returns whether a request only reads,
            which has the effects of `reads_only`. Its argument is the decoded body, for a WebSocket
            the decoded query.
        read_scope: a scope that suffices instead of `scope` for requests that only read: those of
            which `is_read` says so, and all of an endpoint that never changes anything (a GET, or
            `reads_only`).
        rate_limit: a limit in addition to those of every request.

    Raises:
        ValueError: the row contradicts itself.
    """

    method: Method
    path: str
    summary: str
    handler: Handler[S]
    response: type[Wire] | tuple[type[Wire], ...]
    tag: str
    scope: Scope | None = None
    who: Who = "scope"
    recent_login: bool = False
    body: type[Wire] | None = None
    described_bodies: tuple[type[Wire], ...] = ()
    body_optional: bool = False
    reads_only: bool = False
    is_read: Callable[[Any], bool] | None = None
    read_scope: Scope | None = None
    query: type[Wire] | None = None
    status: int = 200
    rate_limit: EndpointLimit | None = None
    stream: StreamKind | None = None
    socket: SocketKind | None = None

    def __post_init__(self) -> None:
        if (self.who == "scope") != (self.scope is not None):
            raise ValueError("a row has a scope, or says who else may call it")
        if self.stream is not None and not self.may_repeat:
            raise ValueError("a stream cannot be stored under an Idempotency-Key")
        if self.who == "anyone" and self.rate_limit is not None and self.rate_limit.by != "address":
            raise ValueError("without a credential, only addresses can be counted")
        if self.socket is not None and (self.method != "GET" or self.who == "anyone"):
            raise ValueError("a WebSocket is a GET with a credential")
        if self.read_scope is not None and self.mutates and self.is_read is None:
            raise ValueError("`read_scope` needs `is_read`: which requests only read?")

    @property
    def mutates(self) -> bool:
        """Whether it may change something."""
        return (self.method != "GET" or self.socket is not None) and not self.reads_only

    @property
    def responses(self) -> tuple[type[Wire], ...]:
        """The types of the body of a successful response."""
        return self.response if isinstance(self.response, tuple) else (self.response,)

    @property
    def bodies(self) -> tuple[type[Wire], ...]:
        """The types of the request's body in the API's description."""
        return self.described_bodies or (() if self.body is None else (self.body,))

    @property
    def may_repeat(self) -> bool:
        """Whether repeating it is harmless, so that `Idempotency-Key` is ignored."""
        return self.method != "POST" or not self.mutates

    @property
    def operation(self) -> str:
        """The operation's name, in OpenAPI and in the audit."""
        return self.handler.__name__


class BoundEndpoint(NamedTuple):
    """An endpoint whose handler has the services that it uses."""

    endpoint: Endpoint[Any]
    handler: Callable[[Call], Awaitable[Body]]


def bind(endpoints: Iterable[Endpoint[S]], services: S) -> list[BoundEndpoint]:
    """Give the handlers of endpoints the services that they use."""
    return [BoundEndpoint(row, partial(row.handler, services)) for row in endpoints]
