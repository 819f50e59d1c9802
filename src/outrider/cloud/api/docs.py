"""`/docs`: the API's description as one page, which needs nothing from elsewhere."""

import json
from html import escape
from typing import Any

_STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
h2{margin-top:3rem;border-bottom:1px solid #ccc}details{margin:.6rem 0}summary{cursor:pointer}
code,pre{font:14px/1.4 ui-monospace,monospace;background:#f4f4f4;border-radius:4px}
code{padding:.1em .3em}pre{padding:.8rem;overflow:auto}
.m{font-weight:700;display:inline-block;width:4.5rem}
:root{color-scheme:light dark}
@media(prefers-color-scheme:dark){code,pre{background:#262626}}
"""


def page(document: dict[str, Any]) -> str:
    """Return the page for an OpenAPI document."""
    tags: dict[str, list[str]] = {}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            tags.setdefault(operation["tags"][0], []).append(_operation(path, method, operation))
    sections = "".join(f"<h2>{escape(tag)}</h2>{''.join(rows)}" for tag, rows in tags.items())
    schemas = "".join(
        f"<details id='{escape(name)}'><summary><code>{escape(name)}</code></summary>"
        f"<p>{escape(schema.get('description', ''))}</p>{_json(schema)}</details>"
        for name, schema in document["components"]["schemas"].items()
    )
    info = document["info"]
    title = escape(info["title"])
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{title} API</title>"
        f"<style>{_STYLE}</style><h1>{title} {escape(info['version'])}</h1>"
        f"<p>{escape(info['description'])} The same as OpenAPI 3.1: "
        f"<a href=/openapi.json>/openapi.json</a>.</p>{sections}<h2>Types</h2>{schemas}"
    )


def _operation(path: str, method: str, operation: dict[str, Any]) -> str:
    parameters = "".join(
        f"<li><code>{escape(p['name'])}</code> ({p['in']}) {escape(p.get('description', ''))}"
        for p in operation["parameters"]
    )
    body = operation.get("requestBody")
    sent = f"<p>Body:</p>{_json(body['content']['application/json']['schema'])}" if body else ""
    responses = "".join(
        f"<li><code>{status}</code> {escape(response['description'])} "
        f"{_reference(response['content']['application/json']['schema'])}"
        for status, response in operation["responses"].items()
    )
    text = "".join(f"<p>{escape(part)}</p>" for part in operation["description"].split("\n\n"))
    return (
        f"<details><summary><span class=m>{method.upper()}</span><code>{escape(path)}</code> "
        f"{escape(operation['summary'])}</summary>{text}<ul>{parameters}</ul>{sent}"
        f"<p>Responses:</p><ul>{responses}</ul></details>"
    )


def _reference(schema: dict[str, Any]) -> str:
    name = schema.get("$ref", "").rpartition("/")[2]
    return f"<a href='#{escape(name)}'>{escape(name)}</a>" if name else ""


def _json(schema: dict[str, Any]) -> str:
    return _reference(schema) or f"<pre>{escape(json.dumps(schema, indent=2))}</pre>"
