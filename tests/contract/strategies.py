"""Strategies for the contract's own types, read off their fields."""

from collections.abc import Callable
from typing import Any

import msgspec
from hypothesis import strategies as st
from msgspec import inspect

from outrider.contract.text import NO_NUL, PRINTABLE

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
names = st.text(st.characters(exclude_categories=["Cs", "Cc", "Cf", "Zl", "Zp"]), max_size=20)
lines = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
_BY_PATTERN = {None: text, PRINTABLE: names, NO_NUL: lines}

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
    max_leaves=8,
)
raw_json = json_values.map(lambda value: msgspec.Raw(msgspec.json.encode(value)))


def of(kind: type) -> st.SearchStrategy[Any]:
    """Return a strategy for every value of `kind` that JSON can carry."""
    return _of(inspect.type_info(kind), _within)


def beyond(kind: type) -> st.SearchStrategy[Any]:
    """Return a strategy for values of `kind` whose texts, lists and numbers keep to no limits."""
    return _of(inspect.type_info(kind), _beyond)


def _of(kind: inspect.Type, leaf: Callable[[inspect.Type], Any]) -> st.SearchStrategy[Any]:
    match kind:
        case inspect.StructType():
            fields = {field.name: _of(field.type, leaf) for field in kind.fields}
            return st.builds(kind.cls, **fields)
        case inspect.UnionType():
            return st.one_of([_of(choice, leaf) for choice in kind.types])
        case inspect.ListType():
            items = _of(kind.item_type, leaf)
            longest = kind.max_length
            if leaf is _within or longest is None:
                return st.lists(items, max_size=3)
            item = _of(kind.item_type, _within)
            return st.lists(items, max_size=3) | item.map(lambda item: [item] * (longest + 1))
    strategy: st.SearchStrategy[Any] = leaf(kind)
    return strategy


def _beyond(kind: inspect.Type) -> st.SearchStrategy[Any]:
    match kind:
        case inspect.StrType():
            longest = kind.max_length or 0
            letters = st.text(max_size=20) | st.sampled_from(["\0", "\x1b[2J", "\ud800", "\n"])
            return letters | st.sampled_from("x\x1bé").map(lambda letter: letter * (longest + 1))
        case inspect.IntType():
            return st.integers(-(2**80), 2**80)
        case inspect.FloatType():
            return st.floats(allow_nan=False, allow_infinity=False)
    return _within(kind)


def _within(kind: inspect.Type) -> st.SearchStrategy[Any]:
    match kind:
        case inspect.LiteralType():
            return st.sampled_from(kind.values)
        case inspect.EnumType():
            return st.sampled_from(list(kind.cls))
        case inspect.StrType():
            return _BY_PATTERN[kind.pattern]
        case inspect.IntType():
            low = -(2**53) if kind.ge is None else kind.ge
            return st.integers(low, 2**53 if kind.le is None else kind.le)
        case inspect.FloatType():
            return st.floats(kind.ge, kind.le, allow_nan=False, allow_infinity=False)
        case inspect.BoolType():
            return st.booleans()
        case inspect.NoneType():
            return st.none()
        case inspect.RawType():
            return raw_json
    raise NotImplementedError(kind)
