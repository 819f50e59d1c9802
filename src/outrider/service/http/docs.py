"""Renders `/docs`: the API's description as one page without external resources."""

import json
import re
from html import escape
from typing import Any, Final

_STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem}
h2{margin-top:3rem;border-bottom:1px solid #8884}details{margin:.6rem 0}summary{cursor:pointer}
details>*:not(summary){margin-left:1.2rem}h3{font-size:1em;margin:1.2rem 0 .2rem}
code,pre{font:14px/1.4 ui-monospace,monospace;background:light-dark(#eee,#2a2a2a)}
code,pre{border-radius:4px}
code{padding:.1em .3em}pre{padding:.8rem;white-space:pre-wrap}code,pre{overflow-wrap:anywhere}
table{border-collapse:collapse;width:calc(100% - 1.2rem)}
tr{border-top:1px solid #8884}td{padding:.3rem .6rem .3rem 0;vertical-align:top}
td:first-child code{overflow-wrap:normal}
@media(max-width:45rem){table,tbody,tr,td{display:block}table{width:auto}td{padding:.1rem 0}}
.m{font-weight:700;display:inline-block;width:4.5rem}.e{color:light-dark(#666,#aaa)}
:root{color-scheme:light dark;background:light-dark(#fff,#161616);color:light-dark(#111,#eee)}
a{color:light-dark(#0645ad,#8ab4f8)}
"""

POLICY: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; object-src 'none'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
"""The Content-Security-Policy of the page."""

_CODE: Final = re.compile(r"`([^`]+)`")


def page(document: dict[str, Any]) -> str:
    """Return the page for an OpenAPI document."""
    return _Page(document).html()


class _Page:
    def __init__(self, document: dict[str, Any]) -> None:
        self._document = document
        self._components: dict[str, dict[str, Any]] = document["components"]

    def html(self) -> str:
        """Return the whole page."""
        info = self._document["info"]
        title = escape(info["title"])
        return (
            f"<!doctype html><html lang=en><meta charset=utf-8><title>{title} API</title>"
            f"<meta name=viewport content='width=device-width'><style>{_STYLE}</style>"
            f"<main><h1>{title} {escape(info['version'])}</h1>{_paragraphs(info['description'])}"
            f"<p>The same as OpenAPI 3.1: <a href=openapi.json>/openapi.json</a>.</p>"
            f"{''.join(map(self._tag, self._document['tags']))}"
            f"<h2>Errors</h2>{self._errors()}<h2>Types</h2>{self._types()}</main>"
        )

    def _tag(self, tag: dict[str, str]) -> str:
        operations = "".join(
            self._operation(path, method, operation)
            for path, operations in self._document["paths"].items()
            for method, operation in operations.items()
            if tag["name"] in operation["tags"]
        )
        text = _paragraphs(tag["description"])
        return f"<h2>{escape(tag['name'])}</h2>{text}{operations}"

    def _operation(self, path: str, method: str, operation: dict[str, Any]) -> str:
        parameters = "".join(
            _row(p["name"], f"in the {p['in']}", p["description"], p["example"])
            for p in map(self._resolve, operation["parameters"])
        )
        status, succeeded = next(iter(operation["responses"].items()))
        parts = [_paragraphs(operation["description"])]
        if parameters:
            parts.append(f"<h3>Parameters</h3><table>{parameters}</table>")
        if "requestBody" in operation:
            body = self._content(operation["requestBody"], show_required=True)
            parts.append(f"<h3>Body</h3>{body}")
        parts.append(f"<h3>Response, {status}</h3>{_paragraphs(succeeded['description'])}")
        if "content" in succeeded:  # a WebSocket has none
            parts.append(self._content(succeeded))
        return (
            f"<details id='{escape(operation['operationId'])}'><summary>"
            f"<span class=m>{method.upper()}</span><code>{escape(path)}</code> "
            f"{escape(operation['summary'])}</summary>{''.join(parts)}</details>"
        )

    def _content(self, holder: dict[str, Any], *, show_required: bool = False) -> str:
        media_type, content = next(iter(holder["content"].items()))  # JSON comes first
        if media_type != "application/json":
            return f"<p>{escape(media_type)}</p><pre>{escape(content['example'])}</pre>"
        schema = content["schema"]
        one_of = schema.get("oneOf") or schema.get("anyOf") or [schema]
        examples = content.get("examples", {"": {"value": content.get("example")}}).values()
        shown = "".join(_json(example["value"]) for example in examples)
        kinds = " or ".join(map(_type, one_of))
        fields = ""
        if len(one_of) == 1:
            fields = self._fields(self._resolve(schema), show_required=show_required)
        return f"<p>{kinds}</p>{fields}{shown}"

    def _fields(self, schema: dict[str, Any], *, show_required: bool = False) -> str:
        required = schema.get("required", []) if show_required else []
        rows = "".join(
            _row(
                name,
                _type(field) + (", required" if name in required else ""),
                field.get("description", ""),
                *field.get("examples", []),
            )
            for name, field in schema.get("properties", {}).items()
        )
        return f"<table>{rows}</table>" if rows else ""

    def _errors(self) -> str:
        statuses = next(iter(next(iter(self._document["paths"].values())).values()))["responses"]
        rows = []
        for status, reference in statuses.items():
            if "$ref" in reference:
                error = self._resolve(reference)
                rows.append(
                    f"<tr><td>{status}<td>{_text(error['description'])}"
                    f"{_json(error['content']['application/json']['example'])}"
                )
        return f"<table>{''.join(rows)}</table>"

    def _types(self) -> str:
        return "".join(
            f"<details id='{escape(name)}'><summary><code>{escape(name)}</code></summary>"
            f"{_paragraphs(schema.get('description', ''))}"
            f"{self._fields(schema) or _paragraphs(_type(schema))}</details>"
            for name, schema in self._components["schemas"].items()
        )

    def _resolve(self, part: dict[str, Any]) -> dict[str, Any]:
        if "$ref" not in part:
            return part
        _, _, kind, name = part["$ref"].split("/")
        component: dict[str, Any] = self._components[kind][name]
        return component


def _row(name: str, kind: str, text: str, *examples: Any) -> str:
    shown = "".join(
        f"<br><span class=e>such as</span> <code>{escape(json.dumps(example))}</code>"
        for example in examples
    )
    return f"<tr><td><code>{escape(name)}</code><td>{kind}<td>{_text(text)}{shown}"


def _type(schema: dict[str, Any]) -> str:
    """Return the type of a value as HTML."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f"<a href='#{name}'>{name}</a>"
    if "enum" in schema:
        return " | ".join(f"<code>{escape(json.dumps(value))}</code>" for value in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(map(_type, schema["anyOf"]))
    if "items" in schema:
        return f"array of {_type(schema['items'])}"
    return escape(str(schema.get("type", "any value")))


def _paragraphs(text: str) -> str:
    return "".join(f"<p>{_text(part)}</p>" for part in text.split("\n\n") if part)


def _text(text: str) -> str:
    """Return a description as HTML; text in backquotes becomes code."""
    return _CODE.sub(r"<code>\1</code>", escape(text))


def _json(value: Any) -> str:
    return f"<pre>{escape(json.dumps(value, indent=2, ensure_ascii=False))}</pre>"
