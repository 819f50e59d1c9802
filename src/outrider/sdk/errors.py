"""The errors of the client.

OutriderError
├── ApiError            the service refused the request, or could not do it
│   ├── AuthenticationError (401)   PermissionDenied (403)   NotFound (404)
│   ├── Conflict (409)              RateLimited (429)
│   └── MachineOffline (500, 503)   CommandTimeout (504)
├── ConnectionFailed    no answer came
│   └── ResponseTimeout
├── UnexpectedResponse  what answered is not the API
├── MissingApiKey
└── ApprovalRequired, AskTimeout, SessionEnded: a turn that is not over, or never will be
"""

from collections.abc import Sequence
from typing import Final

from outrider.contract.errors import ErrorDetail, OutriderError
from outrider.contract.resources import Message, PendingAction


class ApiError(OutriderError):
    """An error response of the API. Its text is the API's sentence for people.

    Attributes:
        status: the HTTP status.
        code: the cause, such as `AGENT_BUSY`, for the errors that have one.
        request_id: the `X-Request-Id` of the response, which the service's logs have too.
        details: the invalid fields of a request (400).
        retry_after: seconds after which the request may succeed, if the service said it.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int = 0,
        code: str | None = None,
        request_id: str | None = None,
        details: Sequence[ErrorDetail] = (),
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.code = code
        self.request_id = request_id
        self.details = list(details)
        self.retry_after = retry_after


class AuthenticationError(ApiError):
    """The API key is missing, unknown, expired or revoked (401)."""


class PermissionDenied(ApiError):
    """The API key lacks the scope, or the plan has no room (403)."""


class NotFound(ApiError):
    """There is no such machine, session, webhook or nickname in the account (404)."""


class Conflict(ApiError):
    """The agent or session is not in a state for the request (409); `code` says which."""


class RateLimited(ApiError):
    """Too many requests (429); `retry_after` has the seconds to wait."""


class MachineOffline(ApiError):
    """The machine is offline, or the command broke on it (500, 503)."""


class CommandTimeout(ApiError):
    """The machine did not answer in time (504). What it began may still go on."""


class ConnectionFailed(OutriderError):
    """No answer came: the service cannot be reached, or closed the connection."""


class ResponseTimeout(ConnectionFailed, TimeoutError):
    """No answer came within the timeout. The service may still carry out the request."""


class UnexpectedResponse(OutriderError):
    """The answer is not the API's: check that `base_url` is the address of the service.

    Attributes:
        status: the HTTP status.
        request_id: the `X-Request-Id` of the response, if it has one.
    """

    def __init__(self, message: str, *, status: int = 0, request_id: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.request_id = request_id


class MissingApiKey(OutriderError):
    """There is neither `api_key` nor `OUTRIDER_API_KEY`."""


class _TurnNotOver(OutriderError):
    """The turn of a message is not over, or never will be.

    Attributes:
        cursor: the place in the chat, for `agent.reply`.
        messages: the reply so far; the last message may be incomplete.
    """

    def __init__(
        self, message: str, *, cursor: str | None = None, messages: Sequence[Message] = ()
    ) -> None:
        super().__init__(message)
        self.cursor = cursor
        self.messages = list(messages)


class ApprovalRequired(_TurnNotOver):
    """The agent asks a question that a user must approve or reject.

    Answer with `agent.approve()` or `agent.reject()`, then go on with `agent.reply(error.cursor)`.

    Attributes:
        action: the question, with the options to answer it.
    """

    def __init__(
        self,
        message: str,
        *,
        action: PendingAction | None = None,
        cursor: str | None = None,
        messages: Sequence[Message] = (),
    ) -> None:
        super().__init__(message, cursor=cursor, messages=messages)
        self.action = action


class AskTimeout(_TurnNotOver, TimeoutError):
    """The turn was not over within the timeout. It goes on; nothing was interrupted."""


class SessionEnded(_TurnNotOver):
    """The session ended before its turn was over."""


BY_STATUS: Final[dict[int, type[ApiError]]] = {
    401: AuthenticationError,
    403: PermissionDenied,
    404: NotFound,
    409: Conflict,
    429: RateLimited,
    500: MachineOffline,
    503: MachineOffline,
    504: CommandTimeout,
}
"""The error of each status; the others are an `ApiError`."""
