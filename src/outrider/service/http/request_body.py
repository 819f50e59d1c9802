"""Reads and decodes bodies and queries; errors name the invalid field and the reason.

Unknown fields are ignored, so that a client may be newer than the service. But a name that almost
equals a known one (`sessionid` for `sessionId`) is refused: ignoring it would send a message to
another session than the client has named (SECURITY.md, "Doing something twice, or to another
agent").
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, TypeVar
from urllib.parse import parse_qsl

import msgspec
from msgspec import inspect
from starlette.types import Receive

from outrider.contract.errors import ApiError, bad_request
from outrider.contract.structs import Wire
from outrider.contract.text import escaped, explained

MAX_BODY_BYTES = 1024 * 1024
"""The largest body of a request."""

T = TypeVar("T", bound=msgspec.Struct)

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
    # Before the first `receive`, which would make the server send `100 Continue`.
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
        names = msgspec.json.decode(body)
        # First: a misspelt field is also a missing one.
        _check_names(_type_info(decoder.type), names, prefix)
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise _wrong_field(str(error), prefix) from error
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        what = "empty" if not body.strip() else f"not JSON ({error})"
        raise bad_request(f"The body is {what}: send a JSON object") from error


def decode_query(model: type[Wire], query: bytes) -> Any:
    """Decode query parameters to `model`; unknown ones are ignored, misspelt ones refused.

    Raises:
        ApiError: 400, naming the parameter and the reason.
    """
    try:
        if b"%00" in query:  # PostgreSQL does not store zero bytes in text
            raise bad_request("The query string has a zero byte in it")
        text = query.decode("ascii")
        pairs: dict[str, Any] = dict(parse_qsl(text, keep_blank_values=True, errors="strict"))
        described = _type_info(model)
        _check_names(described, pairs, "", "parameter")
        for field in described.fields:  # all others are text, even `null`
            choices = getattr(field.type, "types", [field.type])
            is_number = any(isinstance(choice, inspect.IntType) for choice in choices)
            if is_number and _NUMBER.fullmatch(pairs.get(field.encode_name, "")):
                pairs[field.encode_name] = int(pairs[field.encode_name])
        return msgspec.convert(pairs, model)
    except msgspec.ValidationError as error:
        raise _wrong_field(str(error), "") from error
    except (UnicodeError, ValueError) as error:
        raise bad_request("The query string is not percent-encoded UTF-8") from error


@contextmanager
def fields_as_sent(names: Mapping[str, str], prefix: str = "") -> Iterator[None]:
    """Rename the fields in a machine's error to the names that the client has used.

    Args:
        names: the client's name of each field that the command names differently.
        prefix: the path of the command's payload in the client's request.
    """
    try:
        yield
    except ApiError as error:
        for detail in error.details:
            field = detail.path.removeprefix("payload.")
            detail.path = _join(prefix, names.get(field, field))
        raise


@lru_cache
def _type_info(model: type[msgspec.Struct]) -> inspect.StructType:
    described = inspect.type_info(model)
    assert isinstance(described, inspect.StructType), "a body and a query are structures"
    return described


def _check_names(kind: inspect.Type, value: Any, path: str, what: str = "field") -> None:
    """Check the names in a decoded body or query, at every depth but in free-form objects.

    Raises:
        ApiError: 400, a name differs from a known one in its case or by one letter, or the type
            refuses it (`refused_fields`).
    """
    match kind, value:
        case inspect.ListType(item_type=item), list():
            for index, element in enumerate(value):
                _check_names(item, element, f"{path}[{index}]")
        case inspect.UnionType(types=choices), _:
            for choice in choices:
                _check_names(choice, value, path)
        case inspect.StructType(), dict():
            if kind.tag_field is not None and value.get(kind.tag_field) != kind.tag:
                return  # another one of a union
            fields = {field.encode_name: field.type for field in kind.fields}
            refused = getattr(kind.cls, "refused_fields", {})
            for name, inner in value.items():
                if name in fields:
                    _check_names(fields[name], inner, _join(path, name))
                elif name in refused and inner is not None:
                    raise bad_request(refused[name], _join(path, name))
                elif name not in refused and name != kind.tag_field:
                    _check_name(name, _known_names(kind.cls), path, what)


def _check_name(name: str, known: Mapping[str, str], path: str, what: str) -> None:
    plain = _plain(name)
    for other, meant in known.items():
        if _within_one_letter(plain, other):
            at = _join(path, escaped(name))
            raise bad_request(f"Unknown {what} `{at}`: did you mean `{_join(path, meant)}`?", at)


@lru_cache
def _known_names(model: type[msgspec.Struct]) -> Mapping[str, str]:
    """Return the names of a type's fields, in alphabetical order, as they are compared."""
    refused = getattr(model, "refused_fields", {})
    tag = model.__struct_config__.tag_field
    names = {*model.__struct_encode_fields__, *refused, *(() if tag is None else (tag,))}
    return {_plain(name): name for name in sorted(names)}


def _plain(name: str) -> str:
    return name.replace("_", "").replace("-", "").casefold()


def _within_one_letter(a: str, b: str) -> bool:
    """Return whether the edit distance of two words is one at most."""
    if abs(len(a) - len(b)) > 1:
        return False
    if len(a) > len(b):
        a, b = b, a
    start = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), len(a))
    return a[start + (len(a) == len(b)) :] == b[start + 1 :]


def _join(*parts: str) -> str:
    return ".".join(part for part in parts if part)


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
