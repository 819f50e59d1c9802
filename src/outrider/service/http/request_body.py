"""Reads and decodes bodies and queries; errors name the invalid field and the reason."""

import re
from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import lru_cache
from typing import Any, TypeVar
from urllib.parse import parse_qsl

import msgspec
from msgspec import inspect
from starlette.types import Receive

from outrider.contract.errors import ApiError, bad_request
from outrider.contract.structs import Wire
from outrider.contract.text import explained
from outrider.service.http.field_names import check_field_names, check_parameter_names

MAX_BODY_BYTES = 1024 * 1024
"""The largest body of a request."""

T = TypeVar("T", bound=Wire)

_AT = re.compile(r" - at (?:`key` in )?`\$\.?(?P<path>[^`]*)`$")
_FIELD = re.compile(r"required field `(?P<field>\w+)`")
_NUMBER = re.compile(r"-?[0-9]{1,18}")
_NAMED = re.compile(r"`(?P<field>\w+)` ")
"""The beginning of a sentence about a field: those that the contract's types raise begin so."""


async def read_body(receive: Receive, length: bytes | None = None) -> bytes:
    """Return a request's body.

    Args:
        length: the value of its `Content-Length`.

    Raises:
        ApiError: 413, it is over `MAX_BODY_BYTES`. The rest is not read; with a `length` over the
            limit nothing is read.
        ConnectionError: the client disconnected before the end of the body.
    """
    if length is not None and length.isdigit() and int(length) > MAX_BODY_BYTES:
        raise _too_large()
    message = await receive()
    if message["type"] == "http.disconnect":
        raise ConnectionResetError("The client went away")
    body: bytes = message.get("body", b"")
    if message.get("more_body"):
        parts, size = [body], len(body)
        while message.get("more_body") and size <= MAX_BODY_BYTES:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ConnectionResetError("The client went away")
            parts.append(message.get("body", b""))
            size += len(parts[-1])
        body = b"".join(parts)
    if len(body) > MAX_BODY_BYTES:
        raise _too_large()
    return body


def _too_large() -> ApiError:
    return ApiError(413, f"The body is over {MAX_BODY_BYTES // 1024} KiB: send less at a time")


def decode_body(decoder: msgspec.json.Decoder[T], body: bytes, prefix: str = "") -> T:
    """Decode a body to the decoder's type.

    Args:
        prefix: the path of this body in the request's body, such as `payload`.

    Raises:
        ApiError: 400, naming the invalid or misspelt field.
    """
    try:
        body.decode()  # the decoder does not check the UTF-8 of fields that it skips
        decoded = decoder.decode(body)
    except msgspec.ValidationError as error:
        check_field_names(
            decoder.type, body, prefix
        )  # first: a misspelt field is also a missing one
        raise _wrong_field(str(error), prefix) from error
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        what = "empty" if not body.strip() else f"not JSON ({error})"
        raise bad_request(f"The body is {what}: send a JSON object") from error
    if body != b"{}":  # the payload of most commands: a decoding less
        check_field_names(decoder.type, body, prefix)
    return decoded


def decode_query(model: type[Wire], query: bytes) -> Any:
    """Decode query parameters to `model`; unknown ones are ignored, misspelt ones refused.

    Raises:
        ApiError: 400, naming the parameter and the reason.
    """
    try:
        if b"%00" in query:  # PostgreSQL does not store zero bytes in text
            raise bad_request("The query string has a zero byte in it")
        if not query:  # as most are
            return msgspec.convert({}, model)
        text = query.decode("ascii")
        pairs: dict[str, Any] = dict(parse_qsl(text, keep_blank_values=True, errors="strict"))
        check_parameter_names(model, pairs)
        for name in _numbers(model) & pairs.keys():
            if _NUMBER.fullmatch(pairs[name]):
                pairs[name] = int(pairs[name])
        return msgspec.convert(pairs, model)
    except msgspec.ValidationError as error:
        raise _wrong_field(str(error), "") from error
    except (UnicodeError, ValueError) as error:
        raise bad_request("The query string is not percent-encoded UTF-8") from error


def fields_as_sent(names: Mapping[str, str], prefix: str = "") -> AbstractContextManager[None]:
    """Rename the fields in a machine's error to the names that the client has used.

    Args:
        names: the client's name of each field that the command names differently.
        prefix: the path of the command's payload in the client's request.
    """
    return _FieldsAsSent(names, prefix)


class _FieldsAsSent:
    """The context; a class, as one made of a generator costs each request 2 us more."""

    __slots__ = ("_names", "_prefix")

    def __init__(self, names: Mapping[str, str], prefix: str) -> None:
        self._names = names
        self._prefix = prefix

    def __enter__(self) -> None:
        """Enter the context."""

    def __exit__(self, _type: object, error: BaseException | None, _traceback: object) -> None:
        """Rename the fields if the block has raised an `ApiError`."""
        if isinstance(error, ApiError):
            for detail in error.details:
                field = detail.path.removeprefix("payload.")
                parts = (self._prefix, self._names.get(field, field))
                detail.path = ".".join(part for part in parts if part)


@lru_cache
def _numbers(model: type[Wire]) -> frozenset[str]:
    """Return the parameters that are integers; all others are text, even `null`."""
    described = inspect.type_info(model)
    assert isinstance(described, inspect.StructType), "a query is a structure"
    return frozenset(
        field.encode_name
        for field in described.fields
        if any(
            isinstance(kind, inspect.IntType) for kind in getattr(field.type, "types", [field.type])
        )
    )


def _wrong_field(text: str, prefix: str) -> ApiError:
    """Convert a decoder error to an API error that names the field and the remedy."""
    at = _AT.search(text)
    reason = text[: at.start()] if at else text
    path = ".".join(part for part in (prefix, at["path"] if at else "") if part)
    missing, named = _FIELD.search(reason), _NAMED.match(reason)
    field = missing or named
    if field:
        path = ".".join(part for part in (path, field["field"]) if part)
    reason = f"the field `{path}` is missing" if missing else explained(reason)
    return ApiError(
        400,
        f"{reason[0].upper()}{reason[1:]}{f' (at `{path}`)' if path and not field else ''}",
        details=bad_request(reason, path).details,
    )
