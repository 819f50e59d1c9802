"""JSON Schemas of the contract's structures, with the descriptions and examples of their fields.

A field's description is the docstring below it, as in

    class Workspace(Wire):
        path: str
        '''The directory, an absolute path.'''

which editors show too. It is read from the source, because Python discards it.
"""

import ast
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from inspect import cleandoc, getsource
from typing import Any, Final

import msgspec
from msgspec import inspect

from outrider.contract.structs import Wire
from outrider.service.http.examples import example, field_example

REFERENCE: Final = "#/components/schemas/{name}"

Schema = dict[str, Any]


class Schemas:
    """The components of an OpenAPI document.

    Args:
        requests: types of bodies and queries. Their optional fields may be left out.
        responses: types of responses. Their fields are always there.
    """

    def __init__(self, requests: Iterable[type[Wire]], responses: Iterable[type[Wire]]) -> None:
        sent, returned = _reachable(requests), _reachable(responses)
        self._sent = sent.keys()
        ordered = sorted({**sent, **returned}, key=lambda model: model.__name__)
        _, components = msgspec.json.schema_components(ordered, ref_template=REFERENCE)
        self._components: dict[str, Schema] = components
        for model in ordered:
            described, schema = sent.get(model) or returned[model], components[model.__name__]
            self._document(described, schema, is_request=model in sent)

    def reference(self, model: type[Wire]) -> Schema:
        """Return the reference to a type's schema."""
        return {"$ref": REFERENCE.format(name=model.__name__)}

    def fields(self, model: type[Wire]) -> dict[str, Schema]:
        """Return the schemas of a type's fields, by their names."""
        fields: dict[str, Schema] = self._components[model.__name__]["properties"]
        return fields

    def example(self, model: type[Wire]) -> Any:
        """Return an example of a type; a request contains only the required fields."""
        return example(model, is_request=model in self._sent)

    def components(self, apart_from: Iterable[type[Wire]] = ()) -> dict[str, Schema]:
        """Return the schemas by their names, without those of some types."""
        left_out = {model.__name__ for model in apart_from}
        return {name: schema for name, schema in self._components.items() if name not in left_out}

    def _document(self, described: inspect.StructType, schema: Schema, *, is_request: bool) -> None:
        schema.pop("title", None)
        schema["description"] = schema_description(described.cls)
        properties: dict[str, Schema] = schema["properties"]
        docs = field_docs(described.cls)
        for field in described.fields:
            schema_of_field = properties[field.encode_name]
            text, default = docs.get(field.name, ""), schema_of_field.pop("default", None)
            if is_request and default not in (None, [], {}):
                # In the description and not as `default`: code generators treat a field with a
                # default as always present, and would require it.
                text += f" Default: `{msgspec.json.encode(default).decode()}`."
            schema_of_field["description"] = text
            value = field_example(described.cls, field, is_request=is_request)
            schema_of_field["examples"] = [value]
        if described.tag_field is not None:
            properties[described.tag_field] |= {
                "description": "Tells this kind from the others.",
                "examples": [described.tag],
            }
        if not is_request:
            unset = {f.encode_name for f in described.fields if _may_be_unset(f)}
            schema["required"] = [name for name in properties if name not in unset]
            if described.cls.__struct_config__.omit_defaults:  # absent, not null
                schema["required"] = [f.encode_name for f in described.fields if f.required]
                schema["properties"] = {
                    name: without_null(value) for name, value in properties.items()
                }


def _may_be_unset(field: inspect.Field) -> bool:
    """Return whether a field's default is UNSET, which is not encoded: the field is absent then."""
    has_default = (field.default, field.default_factory) != (msgspec.NODEFAULT, msgspec.NODEFAULT)
    return not field.required and not has_default


@cache
def field_docs(model: type[msgspec.Struct]) -> Mapping[str, str]:
    """Return the docstrings of a type's fields, including inherited ones."""
    docs: dict[str, str] = {}
    for cls in reversed(model.__mro__):
        if issubclass(cls, Wire) and cls is not Wire:
            docs |= _module_docs(cls.__module__).get(cls.__qualname__, {})
    return docs


@cache
def _module_docs(name: str) -> Mapping[str, Mapping[str, str]]:
    """Return the docstrings of fields in a module, by class and field."""
    tree = ast.parse(getsource(sys.modules[name]))
    return {node.name: _class_docs(node) for node in tree.body if isinstance(node, ast.ClassDef)}


def _class_docs(node: ast.ClassDef) -> dict[str, str]:
    docs = {}
    for field, after in zip(node.body, node.body[1:], strict=False):
        match field, after:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                docs[name] = cleandoc(text).replace("\n", " ")
    return docs


def _reachable(models: Iterable[type[Wire]]) -> dict[type[msgspec.Struct], inspect.StructType]:
    """Return these structures and all that they contain."""
    found: dict[type[msgspec.Struct], inspect.StructType] = {}
    waiting: list[Any] = [inspect.type_info(model) for model in models]
    while waiting:
        match waiting.pop():
            case inspect.StructType() as described if described.cls not in found:
                found[described.cls] = described
                waiting += [field.type for field in described.fields]
            case inspect.UnionType() as union:
                waiting += union.types
            case inspect.ListType(item_type=item) | inspect.DictType(value_type=item):
                waiting.append(item)
    return found


def without_null(schema: Schema) -> Schema:
    """Return the schema of a value that is left out rather than null."""
    choices = [choice for choice in schema.get("anyOf", []) if choice != {"type": "null"}]
    if len(choices) != 1:
        return schema
    (choice,) = choices
    return {**{name: value for name, value in schema.items() if name != "anyOf"}, **choice}


def schema_description(model: type[msgspec.Struct]) -> str:
    """Return what a type's docstring says."""
    return cleandoc(model.__doc__ or "")
