"""Logging in and out, and how machines join an account."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated

from msgspec import Meta

from outrider.contract.enrollment import (
    DeviceAuthorization,
    DeviceDecision,
    Enrolled,
    EnrollRequest,
    MachineInfo,
    OneTimeCode,
    OneTimeCodeRequest,
    TokenRequest,
    WaitingDevice,
)
from outrider.contract.errors import ApiError, ErrorCode, bad_request
from outrider.contract.outcomes import Done
from outrider.contract.structs import Wire
from outrider.contract.text import Name, printable
from outrider.service.accounts.credentials import digest
from outrider.service.accounts.dashboard_sessions import (
    SESSION_SECONDS,
    DashboardSessions,
    LoggedIn,
)
from outrider.service.accounts.enrollment import Enrollment
from outrider.service.accounts.one_time_links import LoginLinks
from outrider.service.accounts.passwords import LONGEST, SHORTEST
from outrider.service.accounts.rate_limits import RateLimits
from outrider.service.accounts.store.dashboard_sessions import Origin
from outrider.service.http.authorization import headers_of, is_own_page
from outrider.service.http.base_path import base_url
from outrider.service.http.client_address import Addresses, network_of
from outrider.service.http.endpoint import Call, Endpoint, EndpointLimit
from outrider.service.http.session_cookie import page_secret, set_cookie
from outrider.service.machines.sockets import MachineSockets
from outrider.service.settings import Settings

NewPassword = Annotated[str, Meta(extra_json_schema={"minLength": SHORTEST, "maxLength": LONGEST})]
"""A new password; `passwords.check_new` checks it."""


class LoginRequest(Wire, kw_only=True):
    """Who logs in."""

    email: Name
    """The user's email address."""
    password: str
    """The user's password."""


class LinkRequest(Wire, kw_only=True):
    """The token of a link that opens the dashboard signed in."""

    token: Name
    """The token: the part of the link after `#once=`."""


class PasswordRequest(Wire, kw_only=True):
    """The password of the session's user."""

    password: str
    """The password."""


class PasswordChange(Wire, kw_only=True):
    """The password of the session's user, and the one that replaces it."""

    current: str
    """The current password."""
    new: NewPassword
    """The password as it is to be: 10 characters or more, and not one of the common ones."""


class PasswordReset(Wire, kw_only=True):
    """The token of a password link, and the password to set."""

    token: Name
    """The token of the link."""
    password: NewPassword
    """The password as it is to be: 10 characters or more, and not one of the common ones."""


class UserCodeQuery(Wire, kw_only=True):
    """The code that a machine shows."""

    user_code: str
    """The code that the machine shows. Case, spaces and dashes do not matter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthServices:
    """What the handlers of logins and enrollment use."""

    settings: Settings
    addresses: Addresses
    rates: RateLimits
    sessions: DashboardSessions
    enrollment: Enrollment
    sockets: MachineSockets
    links: LoginLinks


async def login(services: AuthServices, call: Call) -> LoggedIn:
    """Begin a dashboard session of 12 hours.

    The token is for programs, in `Authorization: Bearer`. The cookie `outrider_session` is for the
    browser's page that logs in, and works only together with its `X-Outrider-Page-Secret`.
    Addresses that have never logged in to the account share a limit of their own: 429.
    """
    request: LoginRequest = call.body
    secret = _page_secret(call)
    origin = _origin(call)
    is_limited = services.addresses.counted_as(call.address) is not None
    if is_limited and not await services.sessions.knows_address(request.email, origin.network):
        await services.rates.hit("login", _limited_name(request.email))
    logged_in = await services.sessions.log_in(request.email, request.password, origin)
    call.acted_for = logged_in.user.account_id
    _set_cookie(services, call, logged_in, secret, int(SESSION_SECONDS))
    return logged_in


async def take_link(services: AuthServices, call: Call) -> LoggedIn:
    """Log in with the link that `outrider up` prints: once, within ten minutes, as `login` does.

    From loopback addresses only, and not through a proxy: 403.
    """
    request: LinkRequest = call.body
    secret = _page_secret(call)
    if not services.addresses.is_direct_from_here(call.asgi_scope):
        raise ApiError(
            403, "This link works on the machine itself only", code=ErrorCode.AUTH_FORBIDDEN
        )
    email = services.links.take(request.token)
    logged_in = (
        None if email is None else await services.sessions.log_in_by_link(email, _origin(call))
    )
    if logged_in is None:
        raise ApiError(
            401,
            "This link does not work: it was used, or is too old. Log in with the password",
            code=ErrorCode.AUTH_INVALID,
        )
    call.acted_for = logged_in.user.account_id
    _set_cookie(services, call, logged_in, secret, int(SESSION_SECONDS))
    return logged_in


async def reauthenticate(services: AuthServices, call: Call) -> LoggedIn:
    """Give the password again, for what needs a recent login. The session gets a new token.

    A session that gives ten wrong passwords in a row ends.
    """
    request: PasswordRequest = call.body
    secret = _page_secret(call)
    logged_in = await services.sessions.reauthenticate(call.principal, request.password)
    left = max(1, (logged_in.expires_at - logged_in.auth_time) // 1000)
    _set_cookie(services, call, logged_in, secret, left)
    return logged_in


async def logout(services: AuthServices, call: Call) -> Done:
    """End the session: its tokens are no longer valid."""
    session = call.principal.session
    assert session is not None, "the endpoint is for sessions"
    await services.sessions.end(session.id)
    set_cookie(services.addresses, call, "", 0)
    return Done()


async def change_password(services: AuthServices, call: Call) -> Done:
    """Change the password of the session's user. All of the user's other sessions end.

    A password has 10 to 1,000 characters and is not a common one. Ten wrong current passwords in
    a row end this session too.
    """
    request: PasswordChange = call.body
    await services.sessions.change_password(
        call.principal, request.current, request.new, _origin(call)
    )
    return Done()


async def reset_password(services: AuthServices, call: Call) -> Done:
    """Set a password with a one-time link from the operator. All of the user's sessions end."""
    request: PasswordReset = call.body
    user = await services.sessions.reset_password(request.token, request.password, _origin(call))
    call.acted_for = user.account_id
    return Done()


async def enroll(services: AuthServices, call: Call) -> Enrolled:
    """Exchange a one-time code for a machine's connection token, shown this once.

    A machine that the account has enrolled before keeps its id, and its old token ends.
    """
    request: EnrollRequest = call.body
    call.acted_for, enrolled = await services.enrollment.redeem(request)
    await services.sockets.token_replaced(call.acted_for, enrolled.daemon_id)
    return enrolled


async def authorize_device(services: AuthServices, call: Call) -> DeviceAuthorization:
    """Ask for a device code (RFC 8628): the machine shows the user code and polls for its token."""
    is_https = services.addresses.is_https(call.asgi_scope)
    page = base_url(call.asgi_scope, services.settings, is_https=is_https) + "/device"
    return await services.enrollment.authorize_device(call.body, page, call.address)


async def device_token(services: AuthServices, call: Call) -> Enrolled:
    """Ask whether the device code has been approved; every 5 seconds, not more often.

    While it has not: 400 with `authorization_pending`, `slow_down`, `access_denied` or
    `expired_token` as its code.
    """
    request: TokenRequest = call.body
    if not await services.enrollment.knows_device(request.device_code):
        address = services.addresses.counted_as(call.address)
        if address is not None:
            await services.rates.hit("auth", address)
    call.acted_for, enrolled = await services.enrollment.device_token(request.device_code)
    await services.sockets.token_replaced(call.acted_for, enrolled.daemon_id)
    return enrolled


async def waiting_device(services: AuthServices, call: Call) -> WaitingDevice:
    """The machine that shows this user code: how it describes itself, and what it would replace.

    Check it before approving: an approved machine joins the account.
    """
    query: UserCodeQuery = call.query
    return await services.enrollment.waiting_device(call.account_id, query.user_code)


async def decide_device(services: AuthServices, call: Call) -> Done:
    """Approve or deny the machine that shows this user code."""
    decision: DeviceDecision = call.body
    await services.enrollment.decide_device(
        call.account_id, decision.user_code, approve=decision.action == "approve"
    )
    return Done()


async def new_enrolment_code(services: AuthServices, call: Call) -> OneTimeCode:
    """Make a one-time code for `outrider setup --code`, good for ten minutes and one machine."""
    request: OneTimeCodeRequest = call.body or OneTimeCodeRequest()
    return await services.enrollment.new_code(call.account_id, request.nickname)


def _origin(call: Call) -> Origin:
    """Return the origin of a request."""
    agent = dict(call.asgi_scope["headers"]).get(b"user-agent")
    shown = None if agent is None else printable(agent.decode("latin-1"))[:_MAX_USER_AGENT]
    return Origin(call.address[:64], network_of(call.address)[:64], shown)


def _limited_name(email: str) -> str:
    """Return the rate limit key of logins to an account: a digest without the email address."""
    return digest(email.strip().lower()).hex()


def _page_secret(call: Call) -> str | None:
    """Return the page secret that a login comes with; programs have none.

    Raises:
        ApiError: 400, a page has none.
    """
    headers = headers_of(call.asgi_scope)
    secret = page_secret(headers)
    if secret is None and is_own_page(headers):
        raise bad_request("This page is older than the service: reload it, then log in")
    return secret


def _set_cookie(
    services: AuthServices, call: Call, logged_in: LoggedIn, secret: str | None, seconds: int
) -> None:
    """Set the cookie of a session that has begun, or was renewed."""
    token = services.sessions.in_cookie(logged_in.token, secret)
    set_cookie(services.addresses, call, token, seconds)


_MAX_USER_AGENT = 300
_PATH = "/api/v1/auth"
_GUESSES = EndpointLimit(name="auth", by="address")
"""The limit on routes that take credentials. A machine that polls with a valid code is not counted
on `device/token`: its handler counts the wrong codes."""

_authentication = partial(Endpoint, tag="Authentication", rate_limit=_GUESSES)
_enrollment = partial(Endpoint, tag="Enrollment", rate_limit=_GUESSES)

ENDPOINTS: list[Endpoint[AuthServices]] = [
    _authentication(
        method="POST",
        path=f"{_PATH}/login",
        who="anyone",
        summary="Log in",
        handler=login,
        response=LoggedIn,
        body=LoginRequest,
    ),
    _authentication(
        method="POST",
        path=f"{_PATH}/link",
        who="anyone",
        summary="Log in with a one-time link",
        handler=take_link,
        response=LoggedIn,
        body=LinkRequest,
    ),
    _authentication(
        method="POST",
        path=f"{_PATH}/reauthenticate",
        who="session",
        summary="Give the password again",
        handler=reauthenticate,
        response=LoggedIn,
        body=PasswordRequest,
    ),
    _authentication(
        method="POST",
        path=f"{_PATH}/logout",
        who="session",
        summary="Log out",
        handler=logout,
        response=Done,
    ),
    _authentication(
        method="POST",
        path=f"{_PATH}/password",
        who="session",
        recent_login=True,
        summary="Change the password",
        handler=change_password,
        response=Done,
        body=PasswordChange,
    ),
    _authentication(
        method="POST",
        path=f"{_PATH}/password/reset",
        who="anyone",
        summary="Set a password by a one-time link",
        handler=reset_password,
        response=Done,
        body=PasswordReset,
    ),
    _enrollment(
        method="POST",
        path=f"{_PATH}/enroll",
        who="anyone",
        summary="Enroll a machine with a one-time code",
        handler=enroll,
        response=Enrolled,
        body=EnrollRequest,
    ),
    _enrollment(
        method="POST",
        path=f"{_PATH}/enroll/code",
        who="session",
        summary="Make a one-time code",
        handler=new_enrolment_code,
        response=OneTimeCode,
        body=OneTimeCodeRequest,
        body_optional=True,
    ),
    _enrollment(
        method="POST",
        path=f"{_PATH}/device",
        who="anyone",
        summary="Ask for a device code",
        handler=authorize_device,
        response=DeviceAuthorization,
        body=MachineInfo,
    ),
    _enrollment(
        method="POST",
        path=f"{_PATH}/device/token",
        who="anyone",
        summary="Ask for the token of a device code",
        handler=device_token,
        response=Enrolled,
        body=TokenRequest,
        rate_limit=replace(_GUESSES, counted="handler"),
    ),
    _enrollment(
        method="GET",
        path=f"{_PATH}/device",
        who="session",
        summary="See which machine waits with a user code",
        handler=waiting_device,
        response=WaitingDevice,
        query=UserCodeQuery,
    ),
    _enrollment(
        method="POST",
        path=f"{_PATH}/device/approve",
        who="session",
        summary="Approve or refuse a machine",
        handler=decide_device,
        response=Done,
        body=DeviceDecision,
    ),
]
