"""From HTTP responses to results and errors. Free of I/O."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import TypeVar

import msgspec

from outrider.contract.commands import Directory, FileContents, Files
from outrider.contract.errors import ErrorDetail
from outrider.sdk.errors import BY_STATUS, ApiError, UnexpectedResponse
from outrider.sdk.operations import Operation
from outrider.sdk.retry_policy import retry_after

T = TypeVar("T")


class _ErrorBody(msgspec.Struct):
    """The API's `ErrorBody` as a client reads it: a newer service may have other codes."""

    error: str
    code: str | None = None
    details: list[ErrorDetail] = []


def result(operation: Operation[T], status: int, headers: Mapping[str, str], body: bytes) -> T:
    """Return the result of a successful response.

    Raises:
        UnexpectedResponse: the body is not what the operation returns.
    """
    try:
        if 200 <= status < 300:
            return operation.decode(body)
        problem = f"status {status}"
    except (msgspec.DecodeError, UnicodeError) as error:
        problem = str(error)
    raise UnexpectedResponse(
        f"The answer to {operation.method} {operation.path} is not the API's ({problem}): "
        "check that the base URL is the address of the service",
        status=status,
        request_id=headers.get("x-request-id"),
    )


def error_of(status: int, headers: Mapping[str, str], body: bytes) -> ApiError:
    """Return the error of an error response, whoever sent it: a proxy may have."""
    try:
        decoded = msgspec.json.decode(body, type=_ErrorBody)
    except (msgspec.DecodeError, UnicodeError):
        decoded = _ErrorBody(f"The service answered {status} {_phrase(status)}".rstrip())
    # A proxy before the service answers with statuses of its own: they get the same classes.
    return BY_STATUS.get(status, ApiError)(
        decoded.error,
        status=status,
        code=decoded.code,
        request_id=headers.get("x-request-id"),
        details=decoded.details,
        retry_after=retry_after(headers),
    )


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""


def converted(fields: object, type_: type[T]) -> T:
    """Return a part of a response as a struct.

    Raises:
        UnexpectedResponse: it is of another form.
    """
    try:
        return msgspec.convert(fields, type_)
    except msgspec.ValidationError as error:
        raise UnexpectedResponse(f"The answer has another form than expected: {error}") from error


def directory_or_file(files: Files) -> Directory | FileContents:
    """Return the directory or the file that the API answered with."""
    fields = msgspec.to_builtins(files)
    if files.entries is msgspec.UNSET:
        return converted(fields, FileContents)
    return converted(fields, Directory)
