"""Connecting this machine to an account: a one-time code against a token that stays."""

import socket
import sys
from http.client import HTTPException
from typing import Any, Final
from urllib.error import HTTPError, URLError
from urllib.request import HTTPRedirectHandler, Request, build_opener

import msgspec

from outrider import __version__
from outrider.contract.enrolment import Enrolled, EnrolRequest
from outrider.contract.errors import ErrorBody, OutriderError
from outrider.daemon.settings import Connection, DaemonSettings, SettingsError, server_url

ENROL_PATH: Final = "/api/v1/auth/enroll"

_TIMEOUT: Final = 15.0
_MAX_ANSWER: Final = 64 * 1024


class EnrolmentError(OutriderError):
    """The machine could not be connected. The text says what to do."""


def enrol(
    settings: DaemonSettings, server: str, code: str, nickname: str | None = None
) -> Connection:
    """Connect this machine to the account that `code` is of, and remember the connection.

    Enrolling again keeps the machine's id, where it is the same server. Takes up to 15 s.

    Raises:
        EnrolmentError: the service cannot be reached or refuses the code.
        SettingsError: `server` is not a URL, or the connection cannot be written.
    """
    server = server_url(server)
    settings.make_directory()  # before the code is used up
    request = EnrolRequest(
        code=code.strip(),
        hostname=socket.gethostname(),
        platform=sys.platform,
        version=__version__,
        nickname=nickname,
        daemon_id=_earlier_id(settings, server),
    )
    enrolled = _ask(server, request)
    connection = Connection(
        server=server,
        daemon_id=enrolled.daemon_id,
        token=enrolled.token,
        nickname=enrolled.nickname,
    )
    settings.save_connection(connection)
    return connection


def _earlier_id(settings: DaemonSettings, server: str) -> str | None:
    try:
        earlier = settings.load_connection()
    except SettingsError:
        return None  # there is none, or none that can be read: it is about to be replaced
    return earlier.daemon_id if earlier.server == server else None


def _ask(server: str, request: EnrolRequest) -> Enrolled:
    try:
        answer = _opener.open(
            Request(  # noqa: S310  # server_url lets only http and https pass
                server + ENROL_PATH,
                data=msgspec.json.encode(request),
                headers={
                    "Content-Type": "application/json",
                    "Accept": "application/json",
                    "User-Agent": f"outrider/{__version__}",
                },
                method="POST",
            ),
            timeout=_TIMEOUT,
        )
        with answer:
            data = answer.read(_MAX_ANSWER)
    except HTTPError as error:
        with error:
            raise EnrolmentError(_refusal(server, error)) from error
    except (OSError, HTTPException) as error:
        reason = error.reason if isinstance(error, URLError) else error
        raise EnrolmentError(
            f"The service at {server} cannot be reached ({reason}): "
            "check the address, and that the service runs"
        ) from error
    try:
        return msgspec.json.decode(data, type=Enrolled)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise EnrolmentError(
            f"What answers at {server} is not an Outrider service: check the address"
        ) from error


def _refusal(server: str, error: HTTPError) -> str:
    """Return what the service says about it, or what its status means."""
    if 300 <= error.code < 400:
        target = (error.headers.get("Location") or "another address").removesuffix(ENROL_PATH)
        return f"The service at {server} has moved: give {target} as the server instead"
    try:
        body = msgspec.json.decode(error.read(_MAX_ANSWER), type=ErrorBody)
    except (msgspec.DecodeError, UnicodeError, OSError, HTTPException):
        if error.code >= 500:
            return f"The service at {server} is in trouble (HTTP {error.code}): try again later"
        return (
            f"What answers at {server} is not an Outrider service (HTTP {error.code}): "
            "check the address"
        )
    wait = error.headers.get("Retry-After")
    if error.code == 429 and wait:
        return f"{body.error} (try again in {wait} s)"
    return body.error


class _NoRedirect(HTTPRedirectHandler):
    """A code and a token go only to the address that the person has given."""

    def redirect_request(self, *_: Any) -> None:
        """Follow none: the redirect becomes an `HTTPError`."""


_opener = build_opener(_NoRedirect)
