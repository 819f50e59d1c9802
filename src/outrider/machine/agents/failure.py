"""Error texts about an agent that did not start or has ended: redacted, with a hint if known."""

from typing import Final

from outrider.contract.errors import ApiError, ErrorCode, conflict
from outrider.machine.agents.provider_spec import ProviderSpec
from outrider.machine.redaction.redactor import Redactor

_LINES: Final = 10
_CHARACTERS: Final = 1500
_WINDOW: Final = 64 * 1024
"""Characters that are redacted: so many that a secret which is cut at their start is not kept."""

NOTHING: Final = "(nothing)"
"""What `output_end` returns for an output without text."""


def output_end(text: str) -> str:
    """Return the last lines of a program's output, without blank lines and without secrets."""
    redacted = Redactor().text(text[-_WINDOW:])
    lines = [line.strip() for line in redacted.splitlines() if line.strip()]
    return "\n".join(lines[-_LINES:])[-_CHARACTERS:] or NOTHING


def start_failure(spec: ProviderSpec, error: ApiError) -> ApiError:
    """Return why an agent did not start, redacted, with the hint of the provider spec.

    An error of the request itself (400) is returned as it is.
    """
    if error.status < 500:
        return error
    message, hint = Redactor().text(error.message), spec.hint(error.message)
    return ApiError(error.status, message if hint is None else f"{message}\n{hint}")


def not_resumable(reason: str) -> ApiError:
    """Return the error (409 `NOT_RESUMABLE`) of a session that cannot be continued."""
    return conflict(f"The session cannot be resumed: {reason}", ErrorCode.NOT_RESUMABLE)
