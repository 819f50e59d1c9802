"""Renders `/docs`: the API's description as one page, without scripts or external resources.

Not Redoc or Scalar: they need scripts of one to three megabytes, which this page's policy forbids.
"""

import json
import re
from html import escape
from typing import Any, Final

_STYLE: Final = """
body{font:16px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem}
h2{margin-top:3rem}h3{font-size:1em}details{margin:.6rem 0}summary{cursor:pointer}
code,pre{font:14px/1.4 ui-monospace,monospace;background:light-dark(#eee,#2a2a2a)}
pre{padding:.8rem;white-space:pre-wrap}code,pre{overflow-wrap:anywhere;border-radius:4px}
tr{border-top:1px solid #8884}td{padding:.3rem .6rem .3rem 0;vertical-align:top}
:root{color-scheme:light dark;background:light-dark(#fff,#161616);color:light-dark(#111,#eee)}
a{color:light-dark(#0645ad,#8ab4f8)}
"""

POLICY: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; object-src 'none'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
"""The Content-Security-Policy of the page."""

Part = dict[str, Any]
"""A part of an OpenAPI document."""


def page(document: Part) -> str:
    """Return the page for an OpenAPI document."""
    info, components = document["info"], document["components"]
    title = escape(info["title"])
    operations = [
        (tag, _operation(path, method, operation, components))
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        for tag in operation["tags"]
    ]
    sections = "".join(
        f"<h2>{escape(tag['name'])}</h2>{_paragraphs(tag['description'])}"
        + "".join(text for name, text in operations if name == tag["name"])
        for tag in document["tags"]
    )
    errors = "".join(
        f"<h3>{escape(name)}</h3>{_paragraphs(error['description'])}{_content(error)}"
        for name, error in components["responses"].items()
    )
    types = "".join(map(_schema, components["schemas"], components["schemas"].values()))
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{title} API</title>"
        f"<meta name=viewport content='width=device-width'><style>{_STYLE}</style>"
        f"<main><h1>{title} {escape(info['version'])}</h1>{_paragraphs(info['description'])}"
        f"<p>The same as OpenAPI 3.1: <a href=openapi.json>/openapi.json</a>.</p>"
        f"{sections}<h2>Errors</h2>{errors}<h2>Types</h2>{types}</main>"
    )


def _operation(path: str, method: str, operation: Part, components: Part) -> str:
    parts = [_paragraphs(operation["description"])]
    rows = ""
    for parameter in operation["parameters"]:
        if "$ref" in parameter:
            parameter = components["parameters"][parameter["$ref"].rpartition("/")[2]]  # noqa: PLW2901
        where = f"in the {parameter['in']}"
        rows += _row(parameter["name"], where, parameter["description"], [parameter["example"]])
    if rows:
        parts.append(f"<h3>Parameters</h3><table>{rows}</table>")
    if "requestBody" in operation:
        parts.append(f"<h3>Body</h3>{_content(operation['requestBody'])}")
    status, success = next(iter(operation["responses"].items()))
    parts.append(f"<h3>Response, {status}</h3>{_paragraphs(success['description'])}")
    parts.append(_content(success))
    summary = f"<b>{method.upper()}</b> <code>{escape(path)}</code> {escape(operation['summary'])}"
    return _details(operation["operationId"], summary, "".join(parts))


def _content(holder: Part) -> str:
    """Return the types and examples of a body."""
    shown = ""
    for media_type, content in holder.get("content", {}).items():
        examples = [example["value"] for example in content.get("examples", {}).values()]
        shown += f"<p>{escape(media_type)}: {_type(content['schema'])}</p>"
        for example in examples or [content["example"]]:
            is_text = isinstance(example, str)
            text = example if is_text else json.dumps(example, indent=2, ensure_ascii=False)
            shown += f"<pre>{escape(text)}</pre>"
    return shown


def _schema(name: str, schema: Part) -> str:
    required = schema.get("required", [])
    rows = "".join(
        _row(
            field,
            _type(value) + (", required" if field in required else ""),
            value.get("description", ""),
            value.get("examples", []),
        )
        for field, value in schema.get("properties", {}).items()
    )
    fields = f"<table>{rows}</table>" if rows else f"<p>{_type(schema)}</p>"
    return _details(
        name, f"<code>{escape(name)}</code>", _paragraphs(schema["description"]) + fields
    )


def _details(anchor: str, summary: str, text: str) -> str:
    return f"<details id='{escape(anchor)}'><summary>{summary}</summary>{text}</details>"


def _row(name: str, kind: str, text: str, examples: list[Any]) -> str:
    shown = "".join(f"<br>Example: <code>{escape(json.dumps(value))}</code>" for value in examples)
    return f"<tr><td><code>{escape(name)}</code><td>{kind}<td>{_text(text)}{shown}"


def _type(schema: Part) -> str:
    """Return the type of a value as HTML."""
    choices = schema.get("anyOf") or schema.get("oneOf")
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f"<a href='#{name}'>{name}</a>"
    if "enum" in schema:
        return " | ".join(f"<code>{escape(json.dumps(value))}</code>" for value in schema["enum"])
    if choices:
        return " or ".join(map(_type, choices))
    if "items" in schema:
        return f"array of {_type(schema['items'])}"
    return escape(str(schema.get("type", "any value")))


def _paragraphs(text: str) -> str:
    return "".join(f"<p>{_text(part)}</p>" for part in text.split("\n\n") if part)


def _text(text: str) -> str:
    """Return a description as HTML; text in backquotes becomes code."""
    return re.sub("`([^`]+)`", r"<code>\1</code>", escape(text))
