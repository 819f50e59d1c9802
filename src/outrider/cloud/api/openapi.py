"""The OpenAPI 3.1 description, made from the endpoint table."""

import re
from collections.abc import Sequence
from typing import Any

import msgspec
from apispec import APISpec

from outrider import __version__
from outrider.cloud.api.endpoint import Endpoint
from outrider.contract.errors import ErrorBody

_PARAMETER = re.compile(r"{(\w+)}")
_REF = "#/components/schemas/{name}"

_PATH_PARAMETERS = {
    "daemonId": "A machine's id, as the list of machines gives it.",
    "name": "A terminal's name.",
    "ideId": "A target id: `<daemonId>:cli:<type>`, `:acp:<type>`, `:ide:<name>` "
    "or `:session:<sessionId>`.",
}
_ERRORS = {
    "400": "The request is wrong; `details` names the fields.",
    "401": "`AUTH_REQUIRED`: no credential. `AUTH_INVALID`: one that does not work.",
    "403": "`AUTH_FORBIDDEN`: the scope is missing. `RECENT_LOGIN_REQUIRED`: only after a login.",
    "404": "Nothing such in this account.",
    "409": "The target is not in a state for it.",
    "413": "The body is over 1 MiB.",
    "429": "`RATE_LIMITED`: too many a minute. `API_LIMIT_EXCEEDED`: the month's are spent.",
    "500": "The machine is offline, or the command broke.",
    "503": "The machine's connection dropped a moment ago.",
    "504": "The machine did not answer in time.",
}


def describe(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    """Return the document that `/openapi.json` serves."""
    types = {e.response for e in endpoints} | {e.body for e in endpoints if e.body is not None}
    queries = {e.query for e in endpoints if e.query is not None}
    ordered = sorted([*types, *(queries - types), ErrorBody], key=lambda model: model.__name__)
    schemas, components = msgspec.json.schema_components(ordered, ref_template=_REF)
    references = dict(zip(ordered, schemas, strict=True))
    spec = APISpec(
        title="Outrider",
        version=__version__,
        openapi_version="3.1.0",
        info={
            "description": "Drive coding agents on many machines.",
            "license": {"name": "Apache-2.0"},
        },
    )
    for name, schema in components.items():
        spec.components.schema(name, schema)
    spec.components.security_scheme(
        "bearer",
        {"type": "http", "scheme": "bearer", "description": "An API key or a session's token."},
    )
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        operation = _operation(endpoint, references, components)
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = operation
    for path, operations in paths.items():
        spec.path(path=path, operations=operations)
    return spec.to_dict()


def _operation(
    endpoint: Endpoint, references: dict[Any, Any], components: dict[str, Any]
) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": endpoint.operation,
        "summary": endpoint.summary,
        "description": _description(endpoint),
        "tags": [endpoint.tag],
        "parameters": _parameters(endpoint, references, components),
        "responses": _responses(endpoint, references),
        "security": [] if endpoint.who == "anyone" else [{"bearer": []}],
    }
    if endpoint.body is not None:
        operation["requestBody"] = {
            "required": not endpoint.body_optional,
            "content": {"application/json": {"schema": references[endpoint.body]}},
        }
    return operation


def _description(endpoint: Endpoint) -> str:
    lines = [re.sub(r"\n    ", "\n", (endpoint.handler.__doc__ or "").strip())]
    if endpoint.scope is not None:
        lines.append(f"Scope: `{endpoint.scope}`.")
    if endpoint.who == "session":
        lines.append("For a dashboard session, not for an API key.")
    if endpoint.recent_login:
        lines.append("Needs a dashboard session with a recent login.")
    return "\n\n".join(lines)


def _parameters(
    endpoint: Endpoint, references: dict[Any, Any], components: dict[str, Any]
) -> list[dict[str, Any]]:
    parameters: list[dict[str, Any]] = [
        {
            "name": name,
            "in": "path",
            "required": True,
            "description": _PATH_PARAMETERS.get(name, ""),
            "schema": {"type": "string"},
        }
        for name in _PARAMETER.findall(endpoint.path)
    ]
    if endpoint.query is not None:
        schema = components[references[endpoint.query]["$ref"].rpartition("/")[2]]
        required = schema.get("required", [])
        parameters += [
            {"name": name, "in": "query", "required": name in required, "schema": field}
            for name, field in schema["properties"].items()
        ]
    return parameters


def _responses(endpoint: Endpoint, references: dict[Any, Any]) -> dict[str, Any]:
    error = {"application/json": {"schema": references[ErrorBody]}}
    responses: dict[str, Any] = {
        str(endpoint.status): {
            "description": "Done.",
            "content": {"application/json": {"schema": references[endpoint.response]}},
        }
    }
    for status, description in _ERRORS.items():
        responses[status] = {"description": description, "content": error}
    return responses
