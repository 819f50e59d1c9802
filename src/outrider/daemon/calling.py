"""One question to the service over HTTP, before there is a connection: for the enrollment."""

from http.client import HTTPException
from typing import Any, Final, TypeVar
from urllib.error import HTTPError, URLError
from urllib.request import HTTPRedirectHandler, Request, build_opener

import msgspec

from outrider import __version__
from outrider.contract.errors import ErrorBody, ErrorCode, OutriderError
from outrider.contract.structs import Wire
from outrider.contract.text import printable

TIMEOUT: Final = 15.0
"""Seconds that the service has to answer."""

_MAX_ANSWER: Final = 64 * 1024

T = TypeVar("T")


class EnrollmentError(OutriderError):
    """The machine could not be connected. The text says what to do."""


class UnavailableError(EnrollmentError):
    """The service cannot be reached or is in trouble: it may answer later."""


class RefusedError(EnrollmentError):
    """The service refuses.

    Args:
        code: the cause, where it has one.
        wait: seconds after which it may be asked again, where it says so.
    """

    def __init__(self, message: str, code: ErrorCode | None, wait: float | None) -> None:
        super().__init__(message)
        self.code = code
        self.wait = wait


def ask(server: str, path: str, request: Wire, answer: type[T]) -> T:
    """Post a request and return the answer.

    Raises:
        UnavailableError: there is none now.
        RefusedError: it is a refusal.
        EnrollmentError: what answers is not an Outrider service, or has moved.
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
            data = response.read(_MAX_ANSWER)
    except HTTPError as error:
        with error:
            raise _refusal(server, path, error) from error
    except (OSError, HTTPException) as error:
        reason = error.reason if isinstance(error, URLError) else error
        raise UnavailableError(
            f"The service at {server} cannot be reached ({reason}): "
            "check the address, and that the service runs"
        ) from error
    try:
        return msgspec.json.decode(data, type=answer)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise EnrollmentError(
            f"What answers at {server} is not an Outrider service: check the address"
        ) from error


def _refusal(server: str, path: str, error: HTTPError) -> EnrollmentError:
    """Return what the service says about it, or what its status means."""
    if 300 <= error.code < 400:
        target = printable(error.headers.get("Location") or "another address").removesuffix(path)
        return EnrollmentError(
            f"The service at {server} has moved: give {target} as the server instead"
        )
    try:
        body = msgspec.json.decode(error.read(_MAX_ANSWER), type=ErrorBody)
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
    wait = error.headers.get("Retry-After", "")
    if error.code == 429 and wait.isdecimal():
        return RefusedError(
            f"{printable(body.error)} (try again in {wait} s)", body.code, min(float(wait), 3600.0)
        )
    return RefusedError(printable(body.error), body.code, None)


class _NoRedirect(HTTPRedirectHandler):
    """A code and a token go only to the address that the person has given."""

    def redirect_request(self, *_: Any) -> None:
        """Follow none: the redirect becomes an `HTTPError`."""


_opener = build_opener(_NoRedirect)
