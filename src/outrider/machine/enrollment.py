"""Connect this machine to an account; the result is a connection token that does not expire.

Two ways, both over HTTP, because there is no WebSocket yet:

- `enroll`: a one-time code that a user created beforehand.
- `enroll_by_approval`: the device flow of RFC 8628. The machine shows a short code and polls the
  service until a user has approved or rejected that code.
"""

import socket
import ssl
import sys
import time
from collections.abc import Callable
from http.client import HTTPException
from typing import Any, Final, TypeVar
from urllib.error import HTTPError, URLError
from urllib.request import HTTPRedirectHandler, Request, build_opener

import msgspec

from outrider import __version__
from outrider.contract.enrollment import (
    DeviceAuthorization,
    Enrolled,
    EnrollRequest,
    MachineInfo,
    TokenRequest,
)
from outrider.contract.errors import ErrorBody, ErrorCode, OutriderError
from outrider.contract.structs import Wire
from outrider.contract.text import MAX_NAME, printable
from outrider.machine.settings import Connection, DaemonSettings, SettingsError, server_url

ENROLL_PATH: Final = "/api/v1/auth/enroll"
DEVICE_PATH: Final = "/api/v1/auth/device"
TOKEN_PATH: Final = "/api/v1/auth/device/token"  # noqa: S105

TIMEOUT: Final = 15.0
"""Seconds that the service has to respond."""

_MAX_RESPONSE: Final = 64 * 1024
_MAX_RETRY_AFTER: Final = 3600.0
_SLOW_DOWN_SECONDS: Final = 5.0  # RFC 8628, section 3.5: added to the interval, permanently
_MAX_INTERVAL: Final = 60.0

T = TypeVar("T")


class EnrollmentError(OutriderError):
    """The machine could not be connected. The text says what to do."""


class UnavailableError(EnrollmentError):
    """The service is unreachable or answered with a 5xx status: a retry may succeed."""


class RefusedError(EnrollmentError):
    """The service refused the request.

    Args:
        code: the error code of the response, if it has one.
        retry_after: seconds to wait before the next attempt, if the service says so.
    """

    def __init__(self, message: str, code: ErrorCode | None, retry_after: float | None) -> None:
        super().__init__(message)
        self.code = code
        self.retry_after = retry_after


def enroll(
    settings: DaemonSettings, server: str, code: str, nickname: str | None = None
) -> Connection:
    """Connect this machine to the account that issued `code`, and save the connection.

    A machine that enrolls again with the same server keeps its id. Takes up to 15 s.

    Raises:
        EnrollmentError: the service cannot be reached or refuses the code.
        SettingsError: `server` is not a URL, or the connection cannot be written.
    """
    server = server_url(server)
    settings.make_directory()  # first, because the code works once: do not spend it in vain
    request = EnrollRequest(
        code=code.strip(),
        hostname=printable(socket.gethostname())[:MAX_NAME],
        platform=sys.platform,
        version=__version__,
        nickname=nickname,
        daemon_id=_previous_id(settings, server),
    )
    return _save(settings, server, post(server, ENROLL_PATH, request, Enrolled))


def enroll_by_approval(
    settings: DaemonSettings,
    server: str,
    nickname: str | None = None,
    *,
    show: Callable[[DeviceAuthorization], None],
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Connection:
    """Connect this machine to the account of the user who approves it, and save the connection.

    Blocks until the user has decided or the code expires (10 minutes by default). While the
    service is unavailable, polling continues with a growing interval. A machine that enrolls
    again with the same server keeps its id.

    Args:
        show: shows the user the address of the page and the code.
        clock: returns monotonic seconds.

    Raises:
        EnrollmentError: the user rejects the machine or does not decide in time, or the service
            cannot be reached at the start.
        SettingsError: `server` is not a URL, or the connection cannot be written.
    """
    server = server_url(server)
    settings.make_directory()
    request = MachineInfo(
        hostname=printable(socket.gethostname())[:MAX_NAME],
        platform=sys.platform,
        version=__version__,
        nickname=nickname,
        daemon_id=_previous_id(settings, server),
    )
    authorization = post(server, DEVICE_PATH, request, DeviceAuthorization)
    expires = clock() + authorization.expires_in
    authorization.user_code = printable(authorization.user_code)
    authorization.verification_uri = printable(authorization.verification_uri)
    authorization.verification_uri_complete = printable(authorization.verification_uri_complete)
    show(authorization)
    # `interval` only grows, as RFC 8628 asks after slow_down; `pause` is the wait before the next
    # poll, which is longer while the service is unavailable or limits the rate.
    interval = pause = max(1.0, float(authorization.interval))
    while clock() + pause < expires:
        sleep(pause)
        try:
            poll = TokenRequest(device_code=authorization.device_code)
            return _save(settings, server, post(server, TOKEN_PATH, poll, Enrolled))
        except UnavailableError:
            pause = min(2 * pause, _MAX_INTERVAL)
            continue
        except RefusedError as refusal:
            match refusal.code:
                case ErrorCode.AUTHORIZATION_PENDING:
                    pause = interval
                case ErrorCode.SLOW_DOWN:
                    interval += _SLOW_DOWN_SECONDS
                    pause = interval
                case ErrorCode.RATE_LIMITED:
                    pause = max(interval, refusal.retry_after or 0.0)
                case _:
                    raise
    raise EnrollmentError("Nobody has approved this machine in time: run setup again")


def post(server: str, path: str, request: Wire, response_type: type[T]) -> T:
    """Post a request to the service and return the decoded response.

    Raises:
        UnavailableError: the service is unreachable or answered with a 5xx status.
        RefusedError: the service refused the request.
        EnrollmentError: the server is not an Outrider service, or it redirects elsewhere.
    """
    try:
        response = _opener.open(
            Request(  # noqa: S310  # server_url lets only http and https pass
                server + path,
                data=msgspec.json.encode(request),
                headers={
                    "Content-Type": "application/json",
                    "Accept": "application/json",
                    "User-Agent": f"outrider/{__version__}",
                },
                method="POST",
            ),
            timeout=TIMEOUT,
        )
        with response:
            data = response.read(_MAX_RESPONSE)
    except HTTPError as error:
        with error:
            raise _refusal(server, path, error) from error
    except (OSError, HTTPException) as error:
        reason = error.reason if isinstance(error, URLError) else error
        if isinstance(reason, ssl.SSLCertVerificationError):
            raise EnrollmentError(
                f"The certificate of {server} is not trusted here ({reason.verify_message}): add "
                "its authority to those of this system, or set SSL_CERT_FILE to a file with it"
            ) from error
        raise UnavailableError(
            f"The service at {server} cannot be reached ({reason}): "
            "check the address, and that the service runs"
        ) from error
    try:
        return msgspec.json.decode(data, type=response_type)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise EnrollmentError(
            f"What answers at {server} is not an Outrider service: check the address"
        ) from error


def _refusal(server: str, path: str, error: HTTPError) -> EnrollmentError:
    """Return the error for a response with a status of 300 or more."""
    if 300 <= error.code < 400:
        target = printable(error.headers.get("Location") or "another address").removesuffix(path)
        return EnrollmentError(
            f"The service at {server} has moved: give {target} as the server instead"
        )
    try:
        body = msgspec.json.decode(error.read(_MAX_RESPONSE), type=ErrorBody)
    except (msgspec.DecodeError, UnicodeError, OSError, HTTPException):
        body = None
    if error.code >= 500:
        return UnavailableError(
            f"The service at {server} is in trouble (HTTP {error.code}): try again later"
        )
    if body is None:
        return EnrollmentError(
            f"What answers at {server} is not an Outrider service (HTTP {error.code}): "
            "check the address"
        )
    seconds = error.headers.get("Retry-After", "")
    if error.code == 429 and seconds.isdecimal():
        return RefusedError(
            f"{printable(body.error)} (try again in {seconds} s)",
            body.code,
            min(float(seconds), _MAX_RETRY_AFTER),
        )
    return RefusedError(printable(body.error), body.code, None)


class _NoRedirect(HTTPRedirectHandler):
    """Refuses redirects: codes and tokens go only to the address that the user typed."""

    def redirect_request(self, *_: Any) -> None:
        """Return None, so that a redirect is raised as an `HTTPError`."""


_opener = build_opener(_NoRedirect)


def _save(settings: DaemonSettings, server: str, enrolled: Enrolled) -> Connection:
    connection = Connection(
        server=server,
        daemon_id=enrolled.daemon_id,
        token=enrolled.token,
        nickname=enrolled.nickname,
    )
    settings.save_connection(connection)
    return connection


def _previous_id(settings: DaemonSettings, server: str) -> str | None:
    """Return the id that this machine already has at the server, if it has one."""
    try:
        previous = settings.load_connection()
    except SettingsError:
        return None  # missing or unreadable: the new connection replaces it in either case
    return previous.daemon_id if previous.server == server else None
