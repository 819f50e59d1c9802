"""The errors of Outrider, and the body of error responses.

An `ApiError` is raised where the cause is known, on the machine as well as in the service. Those of
a machine are sent in a `result` frame, and the service responds with them unchanged.
"""

from enum import StrEnum
from typing import Final

import msgspec

from outrider.contract.structs import Wire
from outrider.contract.text import MAX_NAME, Name, Text, escaped, is_printable


class ErrorCode(StrEnum):
    """Machine-readable causes, for the errors that have one."""

    AUTH_REQUIRED = "AUTH_REQUIRED"
    AUTH_INVALID = "AUTH_INVALID"
    AUTH_FORBIDDEN = "AUTH_FORBIDDEN"
    RECENT_LOGIN_REQUIRED = "RECENT_LOGIN_REQUIRED"
    PLAN_LIMIT_EXCEEDED = "PLAN_LIMIT_EXCEEDED"
    RATE_LIMITED = "RATE_LIMITED"
    API_LIMIT_EXCEEDED = "API_LIMIT_EXCEEDED"
    NO_PENDING_ACTION = "NO_PENDING_ACTION"
    APPROVAL_PENDING = "APPROVAL_PENDING"
    AMBIGUOUS_TARGET = "AMBIGUOUS_TARGET"
    NOT_GENERATING = "NOT_GENERATING"
    AGENT_BUSY = "AGENT_BUSY"
    ALREADY_SENT = "ALREADY_SENT"
    NO_REPOSITORY = "NO_REPOSITORY"
    NOT_RESUMABLE = "NOT_RESUMABLE"
    WORKTREE_DIRTY = "WORKTREE_DIRTY"
    IDEMPOTENCY_IN_FLIGHT = "IDEMPOTENCY_IN_FLIGHT"
    STREAM_LIMIT = "STREAM_LIMIT"
    # RFC 8628, section 3.5: why a machine has no token yet, or will not get one.
    AUTHORIZATION_PENDING = "authorization_pending"
    SLOW_DOWN = "slow_down"
    EXPIRED_TOKEN = "expired_token"  # noqa: S105
    ACCESS_DENIED = "access_denied"


MACHINE_CODES: Final = frozenset(
    {
        ErrorCode.NO_PENDING_ACTION,
        ErrorCode.APPROVAL_PENDING,
        ErrorCode.AMBIGUOUS_TARGET,
        ErrorCode.NOT_GENERATING,
        ErrorCode.NOT_RESUMABLE,
        ErrorCode.WORKTREE_DIRTY,
        ErrorCode.AGENT_BUSY,
        ErrorCode.ALREADY_SENT,
        ErrorCode.NO_REPOSITORY,
    }
)
"""The codes that a machine may give, with a 409; the others are about credentials and limits."""


class ErrorDetail(Wire, kw_only=True):
    """An invalid field: its path in the body or query, and what to do about it."""

    path: Name
    """The field's path in the body or query, as in `payload.message`; empty for the body itself."""
    message: Text
    """What is wrong with it."""


class ErrorBody(Wire, omit_defaults=True, kw_only=True):
    """The body of every response that is an error."""

    error: str
    """What went wrong and what to do about it, for people."""
    code: ErrorCode | None = None
    """The cause, for programs. Only errors that have one have this field."""
    details: list[ErrorDetail] | msgspec.UnsetType = msgspec.UNSET
    """The invalid fields. Only with 400."""


class OutriderError(Exception):
    """The base of every error that Outrider raises on purpose. Its text is for a person."""


class ApiError(OutriderError):
    """A request that failed or was refused, with its HTTP status.

    Args:
        status: an HTTP status, 400 to 599.
        message: a sentence that says what a person can do.
        code: the cause, for the errors that have one.
        details: the invalid fields; only with 400.
        retry_after: seconds after which the same request may succeed.
        safe_to_retry: whether nothing has been changed, so that the request may be repeated.
            By default true for statuses below 500.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: ErrorCode | None = None,
        details: list[ErrorDetail] | None = None,
        retry_after: float | None = None,
        safe_to_retry: bool | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.details = details or []
        self.retry_after = retry_after
        self.safe_to_retry = status < 500 if safe_to_retry is None else safe_to_retry

    def body(self) -> ErrorBody:
        """Return the body of the response. Only a 400 has `details`."""
        details = self.details if self.status == 400 else msgspec.UNSET
        return ErrorBody(error=self.message, code=self.code, details=details)


def bad_request(message: str, path: str = "") -> ApiError:
    """Return a 400; `path` names the invalid field, as in `payload.message`."""
    return ApiError(400, message, details=[ErrorDetail(path=path, message=message)])


def not_found(message: str) -> ApiError:
    """Return a 404."""
    return ApiError(404, message)


def conflict(message: str, code: ErrorCode | None = None) -> ApiError:
    """Return a 409: the target's state does not allow the request."""
    return ApiError(409, message, code=code)


def checked_name(text: str, field: str) -> str:
    """Validate a name that was not decoded from a body, and return it.

    Raises:
        ApiError: 400, it is too long or not printable; the text names `field`.
    """
    if len(text) > MAX_NAME:
        raise bad_request(f"`{field}` is longer than {MAX_NAME} characters", field)
    if not is_printable(text):
        raise bad_request(f"`{field}` holds a control character: {escaped(text)!r}", field)
    return text
