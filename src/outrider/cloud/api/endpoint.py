"""Defines an endpoint: a row of the table that routes, checks and OpenAPI are derived from."""

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
"""Who may call an endpoint: credentials with its scope; any valid credential; dashboard sessions;
anyone without a credential."""

CredentialLimit = Literal["counted", "handler"]
"""How the limit on routes that take credentials is counted: at every request, or by the handler
for wrong guesses only (a machine that polls with a valid code is not counted)."""


@dataclass(frozen=True, slots=True)
class Services:
    """The services that handlers and checks use; created in `app.py`."""

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
    """A request that has passed the checks, as its handler gets it.

    `body` and `query` have the endpoint's types; `raw_body` is the body as received. `gone` returns
    when the client has disconnected. A handler may add `response_headers`. It sets `acted_for` to
    the account that a request without a principal concerns, and `reads_only` if the request changes
    nothing; the audit uses both.
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
        """Return a path parameter."""
        return str(self.scope["path_params"][name])

    @property
    def caller(self) -> Principal:
        """The principal; only for endpoints that require a credential."""
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
        scope: the scope that the credential needs if `who` is `scope`.
        summary: the title in the documentation; the handler's docstring is the description.
        response: the type of the body of a successful response; several if it depends on the
            request.
        body: the type of the request's body, None if it has none.
        described_bodies: the types of body in the API's description, if `body` does not define
            the fields.
        query: the type of the query parameters, None if there are none.
        recent_login: whether only a dashboard session with a recent login may call it.
        body_optional: whether the body may be omitted.
        reads_only: whether it changes nothing although it is not a GET. It is then audited only
            when refused, and its response is not stored under an `Idempotency-Key`.
        is_read: for an endpoint that both reads and writes: returns from the decoded body whether
            the request only reads, with the effects of `reads_only`.
        credential_limit: how requests count against the limit on routes that take credentials.
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
