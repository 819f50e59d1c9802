"""What an endpoint is: one row of the table from which routes, checks and OpenAPI come."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from starlette.types import Scope as AsgiScope

from outrider.cloud.access.audit import Audit
from outrider.cloud.access.authentication import Authenticator
from outrider.cloud.access.client_address import Addresses
from outrider.cloud.access.enrollment import Enrollment
from outrider.cloud.access.idempotency import Idempotency
from outrider.cloud.access.principal import Principal, Scope
from outrider.cloud.access.quota import Quota
from outrider.cloud.access.rate_limits import RateLimits
from outrider.cloud.access.sessions import Sessions
from outrider.cloud.fleet.dispatch import Dispatcher
from outrider.cloud.fleet.gateway import Gateway
from outrider.cloud.fleet.presence import Presence
from outrider.cloud.settings import Settings
from outrider.cloud.store.database import Database
from outrider.cloud.webhooks.delivery_queue import DeliveryQueue
from outrider.cloud.webhooks.event_intake import EventIntake
from outrider.cloud.webhooks.subscriptions import Subscriptions
from outrider.contract.structs import Wire

Method = Literal["GET", "POST", "PATCH", "DELETE"]

Who = Literal["scope", "principal", "session", "anyone"]
"""Who may call an endpoint: a credential with its scope; any that works; a dashboard session;
anyone at all."""

CredentialLimit = Literal["counted", "handler"]
"""How the limit on routes that take credentials is counted: at every request, or by the
handler for those that guessed wrong (a machine that polls with a code of ours does not)."""


@dataclass(frozen=True, slots=True)
class Services:
    """What the handlers and the checks before them work with, joined in `app.py`."""

    settings: Settings
    database: Database
    addresses: Addresses
    rates: RateLimits
    authenticator: Authenticator
    sessions: Sessions
    quota: Quota
    audit: Audit
    idempotency: Idempotency
    enrollment: Enrollment
    dispatcher: Dispatcher
    presence: Presence
    gateway: Gateway
    subscriptions: Subscriptions
    queue: DeliveryQueue
    intake: EventIntake


@dataclass(slots=True)
class Call:
    """One request that has passed the checks before its handler.

    `body` and `query` are of the endpoint's types; `raw_body` is the body as it came.
    A handler may add `response_headers`, tell in `acted_for` which account a request without
    a principal turned out to concern, and in `reads_only` that this one changes nothing.
    """

    scope: AsgiScope
    principal: Principal | None
    address: str
    body: Any
    raw_body: bytes
    query: Any
    gone: Callable[[], Awaitable[None]]
    response_headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    acted_for: str | None = None
    reads_only: bool = False

    def path(self, name: str) -> str:
        """Return a parameter of the path."""
        return str(self.scope["path_params"][name])

    @property
    def caller(self) -> Principal:
        """The principal, of an endpoint that has one."""
        assert self.principal is not None, "an endpoint for anyone has no principal"
        return self.principal

    @property
    def account_id(self) -> str:
        """The account that makes the request."""
        return self.caller.account_id


Handler = Callable[[Services, Call], Awaitable[bytes | Wire]]
"""Returns the body of the response, as JSON or to be encoded. Its name is the operation's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A row of the table.

    Args:
        scope: what the credential must be allowed, where `who` is `scope`.
        summary: a line for people; the handler's docstring says more.
        response: the type of the body of a successful response; several where it depends on the
            request.
        body: the type of the request's body, None if it has none.
        described_bodies: the kinds of body that the description of the API shows, where `body`
            leaves open what its fields are.
        query: the type of the query parameters, None if there are none.
        recent_login: whether only a dashboard session with a recent login may call it.
        body_optional: whether the body may be left out.
        reads_only: whether it changes nothing although it is no GET: it is not in the audit
            unless it was refused, and its answer is not kept under an `Idempotency-Key`.
        is_read: tells of the body (of the type `body`) whether this request only reads, where one
            endpoint takes both kinds; `reads_only` says what follows from that.
        credential_limit: how the limit on routes that take credentials counts it.
    """

    method: Method
    path: str
    summary: str
    handler: Handler
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
    query: type[Wire] | None = None
    status: int = 200
    credential_limit: CredentialLimit | None = None

    @property
    def mutates(self) -> bool:
        """Whether it may change something."""
        return self.method != "GET" and not self.reads_only

    @property
    def responses(self) -> tuple[type[Wire], ...]:
        """The types of the body of a successful response."""
        return self.response if isinstance(self.response, tuple) else (self.response,)

    @property
    def bodies(self) -> tuple[type[Wire], ...]:
        """The types of the request's body, as the description shows them."""
        return self.described_bodies or (() if self.body is None else (self.body,))

    @property
    def may_repeat(self) -> bool:
        """Whether doing it twice is harmless, so that it takes no notice of `Idempotency-Key`."""
        return self.method != "POST" or not self.mutates

    @property
    def operation(self) -> str:
        """The operation's name, in OpenAPI and in the audit."""
        return self.handler.__name__
