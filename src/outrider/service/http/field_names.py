"""Refuses misspelt names of fields in bodies and of parameters in queries.

Unknown fields are ignored, so that a client may be newer than the service. But a name that almost
equals a known one (`sessionid` for `sessionId`) is a mistake, and ignoring it would do something
that the client did not request.
"""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw, inspect

from outrider.contract.errors import bad_request
from outrider.contract.structs import Wire
from outrider.contract.text import escaped

_objects = msgspec.json.Decoder(dict[str, Raw])
_arrays = msgspec.json.Decoder(list[Raw])
_SEPARATORS = re.compile("[_-]")
_MAX_LENGTH = 64
"""The maximum length of names that are compared; known names are shorter."""


class _Object(NamedTuple):
    """The field names of one type of object; `inner` are the fields that contain objects.

    `refused` are names that would be ignored otherwise, each with the reason to refuse it: the
    `refused_fields` of the type.
    """

    known: frozenset[str]
    refused: Mapping[str, str]
    inner: "Mapping[str, _Shape]"


class _Array(NamedTuple):
    """Objects in an array."""

    items: "_Shape"


class _Tagged(NamedTuple):
    """Objects whose type depends on the value of `field`."""

    field: str
    types: Mapping[str, _Object]


_Shape = _Object | _Array | _Tagged


def check_parameter_names(model: type[Wire], names: Iterable[str]) -> None:
    """Check the names of query parameters.

    Raises:
        ApiError: 400, as for `check_field_names`.
    """
    shape = _object(model)
    for name in names:
        if name not in shape.known:
            _check_name(name, shape, "", "parameter")


def check_field_names(model: type[Wire], body: bytes, prefix: str = "") -> None:
    """Check the names in a body, at every depth but in free-form objects.

    Args:
        body: a JSON object.
        prefix: where the body stands in the one that was sent, as in `payload`.

    Raises:
        ApiError: 400, a name differs from a known one in its case or by one letter, or is refused.
    """
    _check(_object(model), body, prefix)


def _check(shape: _Shape, value: bytes | Raw, path: str) -> None:
    try:
        if isinstance(shape, _Array):
            for index, item in enumerate(_arrays.decode(value)):
                _check(shape.items, item, f"{path}[{index}]")
            return
        fields = _objects.decode(value)
    except msgspec.DecodeError:
        return  # null or another type, which the decoder refuses if it is invalid
    if isinstance(shape, _Tagged):
        tag = fields.get(shape.field)
        found = None if tag is None else shape.types.get(bytes(tag).decode().strip('"'))
        if found is None:
            return
        shape = found
    for name, inner in fields.items():
        if name not in shape.known:
            if name in shape.refused and bytes(inner) != b"null":
                raise bad_request(shape.refused[name], _joined(path, name))
            _check_name(name, shape, path, "field")
        elif name in shape.inner:
            _check(shape.inner[name], inner, _joined(path, name))


def _check_name(name: str, shape: _Object, path: str, kind: str) -> None:
    if len(name) > _MAX_LENGTH or name in shape.refused:
        return
    meant = _almost(name, [*shape.known, *shape.refused])
    if meant is not None:
        at = _joined(path, escaped(name))
        raise bad_request(f"Unknown {kind} `{at}`: did you mean `{_joined(path, meant)}`?", at)


def _almost(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that differs in case or separators, or by one letter; else None."""
    plain = _plain(name)
    return next((other for other in sorted(known) if _within_one(plain, _plain(other))), None)


def _plain(name: str) -> str:
    return _SEPARATORS.sub("", name).casefold()


def _within_one(a: str, b: str) -> bool:
    """Return whether the edit distance of two words is one at most."""
    if len(a) > len(b):
        a, b = b, a
    if len(b) - len(a) > 1:
        return False
    start = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), len(a))
    return a[start + (len(a) == len(b)) :] == b[start + 1 :]


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


@lru_cache
def _object(model: type[Wire]) -> _Object:
    described = inspect.type_info(model)
    assert isinstance(described, inspect.StructType), "a body is a structure"
    return _struct(described)


def _struct(described: inspect.StructType) -> _Object:
    inner = {field.encode_name: _shape(field.type) for field in described.fields}
    known = {field.encode_name for field in described.fields}
    if described.tag_field is not None:
        known.add(described.tag_field)
    return _Object(
        frozenset(known),
        getattr(described.cls, "refused_fields", {}),
        {name: shape for name, shape in inner.items() if shape is not None},
    )


def _shape(described: Any) -> _Shape | None:
    """Return the shape to check in a field's value; None for a scalar or free-form value."""
    match described:
        case inspect.StructType():
            return _struct(described)
        case inspect.ListType():
            items = _shape(described.item_type)
            return None if items is None else _Array(items)
        case inspect.UnionType():
            structs = [kind for kind in described.types if isinstance(kind, inspect.StructType)]
            if not structs:
                shapes = map(_shape, described.types)  # of a list or null, say
                return next((shape for shape in shapes if shape is not None), None)
            if len(structs) == 1:
                return _struct(structs[0])
            return _Tagged(
                str(structs[0].tag_field), {str(kind.tag): _struct(kind) for kind in structs}
            )
    return None
