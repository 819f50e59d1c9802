"""Applies functions to the values of a struct, chosen by the types of its fields."""

import operator
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import inspect

Place = tuple[type, str]
"""A field: its struct and its name."""

Rewrite = Callable[[Any], Any]
Choose = Callable[[inspect.Type, Place | None], Rewrite | None]
"""Returns what to do with the texts, numbers or lists of a type; None: they stay as they are."""


def rewriter(kind: inspect.Type, choose: Choose, place: Place | None = None) -> Rewrite | None:
    """Return a function that rewrites values of a type; None if they all stay as they are.

    It changes nothing in place, and returns a value that stays as it is itself.
    """
    match kind:
        case inspect.StructType():
            fields = [
                (field.name, rewrite)
                for field in kind.fields
                if (rewrite := rewriter(field.type, choose, (kind.cls, field.name))) is not None
            ]
            return _rewrite_fields(fields) if fields else None
        case inspect.ListType():
            items = rewriter(kind.item_type, choose, place)
            return _rewrite_list(choose(kind, place), items)
        case inspect.UnionType():
            choices = [
                (_classes(choice), rewrite)
                for choice in kind.types
                if (rewrite := rewriter(choice, choose, place)) is not None
            ]
            return _rewrite_first(choices) if choices else None
    return choose(kind, place)


def _rewrite_fields(fields: list[tuple[str, Rewrite]]) -> Rewrite:
    def rewrite(value: msgspec.Struct) -> msgspec.Struct:
        changes = {}
        for name, rewrite_field in fields:
            old = getattr(value, name)
            if (new := rewrite_field(old)) is not old:
                changes[name] = new
        return msgspec.structs.replace(value, **changes) if changes else value

    return rewrite


def _rewrite_list(whole: Rewrite | None, items: Rewrite | None) -> Rewrite | None:
    if items is None:
        return whole

    def rewrite(values: list[Any]) -> list[Any]:
        first = values if whole is None else whole(values)
        rewritten = [items(value) for value in first]
        return first if all(map(operator.is_, rewritten, first)) else rewritten

    return rewrite


def _rewrite_first(choices: list[tuple[tuple[type, ...], Rewrite]]) -> Rewrite:
    """Rewrite a value as the first member of a union that it is, such as `str` in `str | None`."""

    def rewrite(value: Any) -> Any:
        for classes, rewrite_choice in choices:
            if isinstance(value, classes):
                return rewrite_choice(value)
        return value

    return rewrite


def _classes(kind: inspect.Type) -> tuple[type, ...]:
    match kind:
        case inspect.StructType():
            return (kind.cls,)
        case inspect.ListType():
            return (list,)
        case inspect.StrType():
            return (str,)
    return (int, float)
