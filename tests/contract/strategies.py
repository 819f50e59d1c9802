"""Strategies for the contract's own types, read off their fields."""

from typing import Any

import msgspec
from hypothesis import strategies as st
from msgspec import inspect

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
    max_leaves=8,
)
raw_json = json_values.map(lambda value: msgspec.Raw(msgspec.json.encode(value)))


def of(kind: type) -> st.SearchStrategy[Any]:
    """Return a strategy for every value of `kind` that JSON can carry."""
    return _of(inspect.type_info(kind))


def _of(kind: inspect.Type) -> st.SearchStrategy[Any]:
    match kind:
        case inspect.StructType():
            return st.builds(kind.cls, **{field.name: _of(field.type) for field in kind.fields})
        case inspect.UnionType():
            return st.one_of([_of(choice) for choice in kind.types])
        case inspect.ListType():
            return st.lists(_of(kind.item_type), max_size=3)
        case inspect.LiteralType():
            return st.sampled_from(kind.values)
        case inspect.EnumType():
            return st.sampled_from(list(kind.cls))
        case inspect.StrType():
            return text
        case inspect.IntType():
            low = -(2**53) if kind.ge is None else kind.ge
            return st.integers(low, 2**53 if kind.le is None else kind.le)
        case inspect.FloatType():
            return st.floats(allow_nan=False, allow_infinity=False)
        case inspect.BoolType():
            return st.booleans()
        case inspect.NoneType():
            return st.none()
        case inspect.RawType():
            return raw_json
    raise NotImplementedError(kind)
