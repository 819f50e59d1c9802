"""What an endpoint is: one row of the table from which routes, checks and OpenAPI come."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal

from starlette.types import Scope as AsgiScope

from outrider.cloud.access.enrolment import Enrolment
from outrider.cloud.access.principal import Principal, Scope
from outrider.cloud.fleet.dispatch import Dispatcher
from outrider.cloud.fleet.gateway import Gateway
from outrider.cloud.fleet.presence import Presence
from outrider.cloud.settings import Settings
from outrider.contract.structs import Wire

Method = Literal["GET", "POST", "PATCH", "DELETE"]


@dataclass(frozen=True, slots=True)
class Services:
    """What the handlers work with, joined in `app.py`."""

    settings: Settings
    dispatcher: Dispatcher
    presence: Presence
    gateway: Gateway
    enrolment: Enrolment


@dataclass(slots=True)
class Call:
    """One request that has passed the checks before its handler.

    `body` and `query` are of the endpoint's types; `raw_body` is the body as it came.
    """

    scope: AsgiScope
    principal: Principal | None
    body: Any
    raw_body: bytes
    query: Any
    gone: Callable[[], Awaitable[None]]

    def path(self, name: str) -> str:
        """Return a parameter of the path."""
        return str(self.scope["path_params"][name])

    @property
    def account_id(self) -> str:
        """The account that makes the request."""
        assert self.principal is not None, "an endpoint without a scope has no account"
        return self.principal.account_id


Handler = Callable[[Services, Call], Awaitable[bytes | Wire]]
"""Returns the body of the response, as JSON or to be encoded."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A row of the table.

    Args:
        scope: what the credential must be allowed; None for an endpoint without one.
        response: the type of the body of a successful response.
        body: the type of the request's body, None where it has none.
        query: the type of the query parameters, None where there are none.
        recent_login: whether only a dashboard session with a recent login may call it.
        summary: a line for people; the handler's docstring says more.
        handler: does the work.
        body_optional: whether the body may be left out.
    """

    method: Method
    path: str
    scope: Scope | None
    summary: str
    handler: Handler
    response: Any
    body: Any = None
    query: type[Wire] | None = None
    recent_login: bool = False
    body_optional: bool = False
    status: int = 200
    tag: str = ""
