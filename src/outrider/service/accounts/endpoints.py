"""The account: its plan and usage, its keys, its audit trail."""

import time
from dataclasses import dataclass
from functools import partial
from typing import Annotated

from msgspec import Meta

from outrider.contract.account import Account, AccountUser, KeyView, Limits, Usage
from outrider.contract.errors import not_found
from outrider.contract.ids import is_id
from outrider.contract.outcomes import Deleted
from outrider.contract.structs import Wire
from outrider.contract.text import AUDIT_ID
from outrider.service.accounts.audit import Audit
from outrider.service.accounts.authentication import Authenticator
from outrider.service.accounts.dashboard_sessions import DashboardSessions
from outrider.service.accounts.quota import PLANS, Quota
from outrider.service.accounts.store import api_keys, usage, users
from outrider.service.database.engine import Database
from outrider.service.http.client_address import Addresses
from outrider.service.http.endpoint import Call, Endpoint
from outrider.service.http.session_cookie import set_cookie
from outrider.service.settings import Settings


class SessionView(Wire, kw_only=True):
    """A signed-in session of the user."""

    id: str
    """The session's id."""
    created_at: int
    """When it began, in epoch milliseconds."""
    last_seen_at: int
    """When it last made a request, in epoch milliseconds."""
    address: str | None
    """Where its login came from; null where that is not known."""
    user_agent: str | None
    """The `User-Agent` of its login; null where there was none."""
    current: bool
    """Whether it is the session of this request."""


class SessionList(Wire, kw_only=True):
    """The user's sessions, newest first."""

    sessions: list[SessionView]
    """The sessions."""


class SessionsEnded(Wire, kw_only=True):
    """How many sessions were ended."""

    success: bool = True
    """Always true: an error has another body."""
    ended: int
    """How many were ended."""


class AuditRecord(Wire, kw_only=True):
    """A request to the service and its outcome."""

    id: str
    """The record's id, for `before`."""
    at: int
    """When it happened, in epoch milliseconds."""
    principal: str | None
    """The id of the key, user or machine; null for somebody without a valid credential."""
    action: str
    """The operation's name, or what a machine refused an agent."""
    target: str | None
    """The id of what it was about; null where there was nothing."""
    outcome: int
    """The HTTP status of the answer; 499 where the client disconnected before it."""
    address: str
    """Where the request came from."""
    request_id: str
    """The request's `X-Request-Id`."""


class AuditTrail(Wire, kw_only=True):
    """Records, newest first."""

    records: list[AuditRecord]
    """The records."""


class AuditQuery(Wire, kw_only=True):
    """Which records."""

    limit: Annotated[int, Meta(ge=1, le=1000)] = 100
    """How many records, at most."""
    before: Annotated[str, Meta(pattern=AUDIT_ID)] | None = None
    """The id of a record: only older ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountServices:
    """What the handlers of the account use."""

    settings: Settings
    database: Database
    addresses: Addresses
    authenticator: Authenticator
    sessions: DashboardSessions
    quota: Quota
    audit: Audit


async def account(services: AccountServices, call: Call) -> Account:
    """The account's plan, what it has used of it this month, its limits, keys and user."""
    settings = services.settings
    plan_name = await usage.plan_of(services.database, call.account_id)
    plan = PLANS[plan_name]
    month, calls = await services.quota.used(call.account_id)
    now = time.time() * 1000
    keys = [
        KeyView(
            id=key.id,
            name=key.name,
            prefix=key.prefix,
            scopes=sorted(key.scopes),
            created_at=key.created_at,
            expires_at=key.expires_at,
            last_used_at=key.last_used_at,
        )
        for key in await api_keys.of_account(services.database, call.account_id)
        if key.revoked_at is None
        and (key.expires_at is None or key.expires_at > now)
        and (call.principal.kind == "session" or call.principal.id == key.id)
    ]
    is_session = call.principal.kind == "session"
    user = await users.by_id(services.database, call.principal.id) if is_session else None
    return Account(
        id=call.account_id,
        plan=plan_name,
        usage=Usage(month=month, calls=calls, limit=plan.calls_per_month),
        limits=Limits(
            requests_per_minute_per_key=settings.rate_limit_key,
            requests_per_minute_per_session=settings.rate_limit_session,
            requests_per_minute_per_ip=settings.rate_limit_ip,
            auth_requests_per_five_minutes=settings.rate_limit_auth,
            calls_per_month=plan.calls_per_month,
            webhooks=plan.webhooks,
        ),
        keys=keys,
        user=None if user is None else AccountUser(id=user.id, email=user.email),
    )


async def revoke_key(services: AccountServices, call: Call) -> Deleted:
    """Revoke an API key of the account; it stops working at once, within a second elsewhere."""
    key_id = call.path("keyId")
    now = time.time_ns() // 1_000_000
    if not is_id("key", key_id) or not await api_keys.revoke(
        services.database, key_id, now, account_id=call.account_id
    ):
        raise not_found(f"No key {key_id!r} in this account that still works")
    services.authenticator.forget(key_id)
    return Deleted(id=key_id)


async def list_sessions(services: AccountServices, call: Call) -> SessionList:
    """The sessions in which the user is signed in; `current` is the one of this request."""
    assert call.principal.session is not None, "the endpoint is for sessions"
    return SessionList(
        sessions=[
            SessionView(
                id=session.id,
                created_at=session.created_at,
                last_seen_at=max(
                    session.last_seen_at or session.created_at,
                    services.authenticator.last_seen(session.id),
                ),
                address=session.address,
                user_agent=session.user_agent,
                current=session.id == call.principal.session.id,
            )
            for session in await services.sessions.of_user(call.principal)
        ]
    )


async def end_session(services: AccountServices, call: Call) -> Deleted:
    """End one of the user's sessions: its tokens are no longer valid."""
    session_id = call.path("sessionId")
    if not await services.sessions.end_of_user(call.principal, session_id):
        raise not_found(f"No session {session_id!r} of this user")
    if call.principal.session is not None and call.principal.session.id == session_id:
        set_cookie(services.addresses, call, "", 0)
    return Deleted(id=session_id)


async def end_other_sessions(services: AccountServices, call: Call) -> SessionsEnded:
    """End all of the user's sessions except the one of this request."""
    return SessionsEnded(ended=await services.sessions.end_others(call.principal))


async def audit_trail(services: AccountServices, call: Call) -> AuditTrail:
    """Who requested what, and its outcome: changes, terminal commands and refusals.

    Kept for 90 days. There are no message bodies and no secrets in it.
    """
    query: AuditQuery = call.query
    records = await services.audit.of_account(
        call.account_id, limit=query.limit, before=query.before
    )
    return AuditTrail(
        records=[
            AuditRecord(**{name: getattr(record, name) for name in AuditRecord.__struct_fields__})
            for record in records
        ]
    )


_SESSIONS = "/api/v1/account/sessions"
_endpoint = partial(Endpoint, tag="Account")

ENDPOINTS: list[Endpoint[AccountServices]] = [
    _endpoint(
        method="GET",
        path="/api/v1/account",
        who="principal",
        summary="Read plan, usage, limits and keys",
        handler=account,
        response=Account,
    ),
    _endpoint(
        method="DELETE",
        path="/api/v1/account/keys/{keyId}",
        who="session",
        recent_login=True,
        summary="Revoke an API key",
        handler=revoke_key,
        response=Deleted,
    ),
    _endpoint(
        method="GET",
        path=_SESSIONS,
        who="session",
        summary="List the user's sessions",
        handler=list_sessions,
        response=SessionList,
    ),
    _endpoint(
        method="DELETE",
        path=_SESSIONS,
        who="session",
        summary="End all other sessions",
        handler=end_other_sessions,
        response=SessionsEnded,
    ),
    _endpoint(
        method="DELETE",
        path=f"{_SESSIONS}/{{sessionId}}",
        who="session",
        summary="End a session",
        handler=end_session,
        response=Deleted,
    ),
    _endpoint(
        method="GET",
        path="/api/v1/audit",
        who="session",
        summary="Read the audit trail",
        handler=audit_trail,
        response=AuditTrail,
        query=AuditQuery,
    ),
]
