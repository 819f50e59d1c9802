"""An account as the API shows it: its plan and usage, its limits, its keys and their scopes."""

from enum import StrEnum
from typing import Annotated, Literal, get_args

from msgspec import Meta

from outrider.contract.structs import Wire

PlanName = Literal["free", "pro", "team", "enterprise"]
"""The plans."""


class Scope(StrEnum):
    """What a credential may be allowed to do."""

    IDE_READ = "ide:read"
    IDE_CONTROL = "ide:control"
    AGENT_READ = "agent:read"
    AGENT_CONTROL = "agent:control"
    TERMINAL_EXEC = "terminal:exec"
    WEBHOOK_MANAGE = "webhook:manage"


class Usage(Wire, kw_only=True):
    """The calls of this calendar month (UTC)."""

    month: str
    """The month."""
    calls: int
    """Calls by API key so far."""
    limit: int | None
    """Calls that the plan allows in a month; null for any number."""


class Limits(Wire, kw_only=True):
    """The limits that hold, by setting and by plan."""

    requests_per_minute_per_key: int
    """Requests per minute of one API key."""
    requests_per_minute_per_session: int
    """Requests per minute of one dashboard session."""
    requests_per_minute_per_ip: int
    """Requests per minute of one address."""
    auth_requests_per_five_minutes: int
    """Requests per 5 minutes of one address to routes that take credentials."""
    calls_per_month: int | None
    """Calls that the plan allows in a month; null for any number."""
    webhooks: int | None
    """Webhooks that the plan allows; null for any number."""


class KeyView(Wire, kw_only=True):
    """An API key that works: all but the key itself."""

    id: str
    """The key's id."""
    name: str
    """What the key is called."""
    prefix: str
    """The beginning of the key."""
    scopes: list[Annotated[str, Meta(extra_json_schema={"enum": sorted(Scope)})]]
    """What the key may do."""
    created_at: int
    """When it was made, in epoch milliseconds."""
    expires_at: int | None
    """When it expires, in epoch milliseconds; null for never."""
    last_used_at: int | None
    """When it was last used, in epoch milliseconds; null for never."""


class AccountUser(Wire, kw_only=True):
    """Who is logged in."""

    id: str
    """The user's id."""
    email: str
    """The user's email address."""


class Account(Wire, kw_only=True):
    """The account."""

    id: str
    """The account's id."""
    plan: Annotated[str, Meta(extra_json_schema={"enum": get_args(PlanName)})]
    """The account's plan."""
    usage: Usage
    """What was used of the plan this month."""
    limits: Limits
    """The limits that hold."""
    keys: list[KeyView]
    """The keys that work: all of them for a session, its own for a key."""
    user: AccountUser | None = None
    """Who is logged in; null for an API key."""
