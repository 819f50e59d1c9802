"""Builds the OpenAPI 3.1 description from the endpoint table."""

import re
from collections.abc import Iterable, Sequence
from inspect import cleandoc
from typing import Any, Final, NamedTuple

from msgspec.structs import fields

from outrider import __version__
from outrider.contract.errors import ErrorBody, ErrorCode
from outrider.contract.structs import Wire
from outrider.service.http.endpoint import Endpoint
from outrider.service.http.examples import path_example
from outrider.service.http.schemas import Schemas, schema_description, without_null
from outrider.service.http.session_cookie import COOKIE

_PARAMETER: Final = re.compile(r"{(\w+)}")


_PATH_PARAMETERS: Final = {
    "daemonId": "A machine's id, as the list of machines gives it.",
    "ideId": "A target id. `<daemonId>:cli:<type>`, `:acp:<type>` and `:ide:<name>` mean the "
    "session of that type which was used last, `:session:<sessionId>` means exactly one.",
    "name": "A terminal's name.",
    "messageId": "A message's id, as sending it answers.",
    "webhookId": "A webhook's id.",
    "deliveryId": "A delivery's id.",
    "sessionId": "A dashboard session's id.",
    "keyId": "An API key's id.",
}


class _Error(NamedTuple):
    """An error response of any operation; `name` is the name of its component."""

    name: str
    description: str
    error: str
    code: str | None = None


_ERRORS: Final = {
    "400": _Error(
        "BadRequest",
        "The request is wrong; `details` names the fields.",
        "The field `message` is missing",
    ),
    "401": _Error(
        "Unauthorized",
        "`AUTH_REQUIRED`: no credential. `AUTH_INVALID`: one that does not work.",
        "Send your API key in the header `Authorization: Bearer <API_KEY>`",
        ErrorCode.AUTH_REQUIRED,
    ),
    "403": _Error(
        "Forbidden",
        "`AUTH_FORBIDDEN`: the scope is missing, or another site made the request. "
        "`RECENT_LOGIN_REQUIRED`: only after a login. `PLAN_LIMIT_EXCEEDED`: the plan has no room.",
        "This credential lacks the scope agent:control",
        ErrorCode.AUTH_FORBIDDEN,
    ),
    "404": _Error("NotFound", "Nothing such in this account.", "No machine 'x' in this account"),
    "409": _Error(
        "Conflict",
        "The target is not in a state for it; or the `Idempotency-Key` is in use.",
        "The agent asks for nothing now",
        ErrorCode.NO_PENDING_ACTION,
    ),
    "413": _Error("TooLarge", "The body is over 1 MiB.", "The body is over 1024 KiB"),
    "421": _Error(
        "Misdirected",
        "The service is not to be reached by this name.",
        "This service does not answer for the host example.org",
    ),
    "426": _Error(
        "UpgradeRequired",
        "The request is not the handshake of a WebSocket.",
        "This path takes WebSockets: connect with a client for them",
    ),
    "429": _Error(
        "TooManyRequests",
        "`RATE_LIMITED`: too many at a time; `Retry-After` says when there is room. "
        "`STREAM_LIMIT`: too many event streams. "
        "`API_LIMIT_EXCEEDED`: the month's calls are spent.",
        "Over 120 requests in 60 seconds by this API key: try again in 7 s",
        ErrorCode.RATE_LIMITED,
    ),
    "500": _Error(
        "Failed",
        "The machine is offline, or the command broke.",
        "The machine 'laptop' is offline: start `outrider daemon` on it and try again",
    ),
    "501": _Error(
        "NotSupported",
        "The machine agent is older than the service and does not know this request.",
        "The agent of the machine 'laptop' is older than this service: update it",
    ),
    "503": _Error(
        "Unavailable",
        "The machine's connection dropped a moment ago, or it has too many commands.",
        "The connection of the machine 'laptop' has dropped: try again in a few seconds",
    ),
    "504": _Error(
        "TimedOut",
        "The machine did not answer in time. What was asked may still be done.",
        "The machine 'laptop' did not answer within 60 seconds; what was asked may still be done",
    ),
}

_RETRIED: Final = frozenset({"429", "503"})

_HEADERS: Final = {
    "X-Request-Id": ("Names the request in the service's log and in the audit.", "0193…-7b1f"),
    "RateLimit-Policy": ("The limits that hold: `q` requests in `w` seconds.", '"key";q=120;w=60'),
    "RateLimit": ("What is left of them: `r` requests, more in `t` seconds.", '"key";r=119;t=42'),
    "Retry-After": ("Seconds after which the same request may succeed.", 7),
}

_TAGS: Final = {
    "Daemons": "Machines: list them, read their state, command them.",
    "Shortcuts": "Launch and stop agents, talk to them, answer what they ask.",
    "Events": "What happens to agents and machines, live.",
    "Webhooks": "Have events sent to a URL of yours.",
    "Authentication": "Dashboard sessions.",
    "Enrollment": "How machines join an account.",
    "Account": "The account's plan, keys and audit trail.",
}


_INTRODUCTION: Final = """\
Drive coding agents on many machines.

Send an API key with every request: `Authorization: Bearer <API_KEY>`. Bodies are JSON. Unknown
fields are ignored, but one that is misspelt (by one letter, or in its case) is refused. Times are
epoch milliseconds, and sizes bytes, unless a field says otherwise.

List the machines, take the id of one, launch an agent on it, send it a message, and read its
status and its chat."""


def describe(endpoints: Sequence[Endpoint[Any]], base_path: str = "") -> dict[str, Any]:
    """Return the document of `/openapi.json`, of a service that serves it below `base_path`."""
    queries = {endpoint.query for endpoint in endpoints if endpoint.query is not None}
    schemas = Schemas(
        requests={body for endpoint in endpoints for body in endpoint.bodies} | queries,
        responses={body for endpoint in endpoints for body in endpoint.responses} | {ErrorBody},
    )
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Outrider",
            "version": __version__,
            "summary": "Drive coding agents on many machines.",
            "description": _INTRODUCTION,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [
            {"url": base_path or "/", "description": "The service that this document is from."}
        ],
        "tags": [{"name": name, "description": text} for name, text in _TAGS.items()],
        "security": [{"bearer": []}, {"cookie": [], "pageSecret": []}],
        "paths": paths,
        "components": {
            "schemas": schemas.components(apart_from=queries),
            "responses": {
                error.name: _error_response(status, error, schemas)
                for status, error in _ERRORS.items()
            },
            "parameters": {"IdempotencyKey": _IDEMPOTENCY_KEY},
            "headers": {name: _header(name) for name in _HEADERS},
            "securitySchemes": {
                "bearer": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "An API key (`ork_…`), or a dashboard session's token.",
                },
                "cookie": {
                    "type": "apiKey",
                    "in": "cookie",
                    "name": COOKIE,
                    "description": "A dashboard session's cookie, as a login sets it "
                    f"(`__Host-{COOKIE}` with https, `__Secure-{COOKIE}` below a base path).",
                },
                "pageSecret": {
                    "type": "apiKey",
                    "in": "header",
                    "name": "X-Outrider-Page-Secret",
                    "description": "The secret that the browser's page sent with its login; "
                    "the cookie works only together with it.",
                },
            },
        },
    }


_IDEMPOTENCY_KEY: Final = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "Makes a retry safe: the same key with the same request gets the first answer. "
    "Kept for 24 hours.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]*$"},
    "example": "0f8fad5b-d9cb-469f-a165-70867728950e",
}


def _operation(endpoint: Endpoint[Any], schemas: Schemas) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": endpoint.operation,
        "summary": endpoint.summary,
        "description": _description(endpoint),
        "tags": [endpoint.tag],
        "parameters": _parameters(endpoint, schemas),
        "responses": _responses(endpoint, schemas),
    }
    if endpoint.who == "anyone":
        operation["security"] = []
    if endpoint.socket is not None:
        operation["x-websocket"] = {
            "description": endpoint.socket.description,
            "maxMessageBytes": endpoint.socket.max_size,
        }
    if endpoint.bodies:
        operation["requestBody"] = {
            "required": not endpoint.body_optional,
            "content": _json(endpoint.bodies, schemas),
        }
    return operation


def _description(endpoint: Endpoint[Any]) -> str:
    lines = [cleandoc(endpoint.handler.__doc__ or "")]
    if endpoint.scope is not None:
        lines.append(f"Scope: `{endpoint.scope}`.")
    if endpoint.read_scope is not None:
        lines.append(f"For reading only, `{endpoint.read_scope}` is enough.")
    if endpoint.socket is not None:
        lines.append(endpoint.socket.description)
    if endpoint.who == "session":
        lines.append("For a dashboard session, not for an API key.")
    if endpoint.recent_login:
        lines.append("Needs a dashboard session with a recent login.")
    limit = endpoint.rate_limit
    if limit is not None and limit.requests is not None:
        lines.append(f"Limit: {limit.requests} requests in {limit.seconds} s by {limit.by}.")
    return "\n\n".join(lines)


def _parameters(endpoint: Endpoint[Any], schemas: Schemas) -> list[dict[str, Any]]:
    parameters = [_path_parameter(name) for name in _PARAMETER.findall(endpoint.path)]
    if endpoint.query is not None:
        required = {f.encode_name for f in fields(endpoint.query) if f.required}
        for name, field in schemas.fields(endpoint.query).items():
            schema = {key: value for key, value in field.items() if key not in _OF_PARAMETER}
            parameters.append(
                {
                    "name": name,
                    "in": "query",
                    "required": name in required,
                    "description": field["description"],
                    "schema": without_null(schema),
                    "example": field["examples"][0],
                }
            )
    if not endpoint.may_repeat and endpoint.who != "anyone":
        parameters.append({"$ref": "#/components/parameters/IdempotencyKey"})
    return parameters


_OF_PARAMETER: Final = ("description", "examples")


def _path_parameter(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "in": "path",
        "required": True,
        "description": _PATH_PARAMETERS[name],
        "schema": {"type": "string"},
        "example": path_example(name),
    }


def _responses(endpoint: Endpoint[Any], schemas: Schemas) -> dict[str, Any]:
    content = _json(endpoint.responses, schemas) if endpoint.responses else {}
    if endpoint.stream is not None:
        content[endpoint.stream.media_type] = {
            "schema": {"type": "string", "description": endpoint.stream.description},
            "example": endpoint.stream.example,
        }
    succeeded = {
        "description": _response_description(endpoint),
        "headers": _header_references("X-Request-Id", "RateLimit-Policy", "RateLimit"),
        "content": content,
    }
    if endpoint.socket is not None:
        succeeded = {"description": "The WebSocket is open."}
    status = 101 if endpoint.socket is not None else endpoint.status
    return {str(status): succeeded} | {
        status: {"$ref": f"#/components/responses/{error.name}"}
        for status, error in _ERRORS.items()
        if status != "426" or endpoint.socket is not None
    }


def _response_description(endpoint: Endpoint[Any]) -> str:
    if len(endpoint.responses) > 1:
        return "What came of it; which of these it is depends on the request."
    if endpoint.responses:
        return schema_description(endpoint.responses[0])
    assert endpoint.stream is not None or endpoint.socket is not None, "what else?"
    return "" if endpoint.stream is None else endpoint.stream.description


def _json(models: Sequence[type[Wire]], schemas: Schemas) -> dict[str, Any]:
    """Return the content of a body that is one of `models`."""
    if len(models) == 1:
        content = {
            "schema": schemas.reference(models[0]),
            "example": schemas.example(models[0]),
        }
    else:
        content = {
            "schema": {"anyOf": [schemas.reference(model) for model in models]},
            "examples": {model.__name__: {"value": schemas.example(model)} for model in models},
        }
        field = models[0].__struct_config__.tag_field
        if field is not None:
            content["schema"] = {
                "oneOf": content["schema"]["anyOf"],
                "discriminator": {
                    "propertyName": field,
                    "mapping": {
                        str(model.__struct_config__.tag): schemas.reference(model)["$ref"]
                        for model in models
                    },
                },
            }
    return {"application/json": content}


def _error_response(status: str, error: _Error, schemas: Schemas) -> dict[str, Any]:
    names: Iterable[str] = ("X-Request-Id", "RateLimit-Policy", "RateLimit")
    if status in _RETRIED:
        names = (*names, "Retry-After")
    example = {"error": error.error} | ({} if error.code is None else {"code": error.code})
    return {
        "description": error.description,
        "headers": _header_references(*names),
        "content": {
            "application/json": {"schema": schemas.reference(ErrorBody), "example": example}
        },
    }


def _header_references(*names: str) -> dict[str, Any]:
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}


def _header(name: str) -> dict[str, Any]:
    description, example = _HEADERS[name]
    kind = "string" if isinstance(example, str) else "integer"
    return {"description": description, "schema": {"type": kind}, "example": example}
