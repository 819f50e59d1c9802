"""Examples for the API's description, made from the types: one machine, one agent, one webhook.

A value is looked up by `Type.field`, then by `field`; without an entry it follows from the type and
its bounds. Tests check that each example is valid, and that requests are ones the service accepts.
"""

import re
from typing import Any, Final

import msgspec
from msgspec import inspect

_NOW: Final = 1_763_674_272_500
_ID: Final = "01kan5x8z3e7hr5s0gq3v2m1yd"
_TARGET: Final = f"machine_{_ID}:session:session_{_ID}"
_PREFIXES: Final = {
    "account": "acct",
    "action": "act",
    "audit_record": "aud",
    "daemon": "machine",
    "delivery": "dlv",
    "event": "evt",
    "message": "msg",
    "key_view": "key",
    "pending_action": "act",
    "session_view": "session",
    "target_session": "session",
}
"""The prefixes of ids that are not called after their type or field."""

VALUES: Final[dict[str, Any]] = {
    "AccountEvent.cursor": "0000000000000042",
    "ActionOption.kind": "allow_once",
    "ActionOption.label": "Yes",
    "AgentState.id": _TARGET,
    "ApprovalList.cursor": f"{_NOW:016d}:{_TARGET}",
    "ApprovalsQuery.after": f"{_NOW:016d}:{_TARGET}",
    "AuditQuery.before": f"aud_{_ID}",
    "Chat.id": _TARGET,
    "ChatInput.parts": [{"type": "text", "text": "What is on this picture?"}],
    "CliEntry.id": f"machine_{_ID}:cli:claude-code",
    "DebugBundle.frontendSnapshot": {"activeConversation": {"sessionId": f"session_{_ID}"}},
    "DeliveryQuery.before": f"dlv_{_ID}",
    "ErrorBody.code": "NO_PENDING_ACTION",
    "ErrorDetail.path": "message",
    "EventPage.cursor": "0000000000000042",
    "EventQuery.after": "0000000000000042",
    "EventQuery.deltas": "true",
    "EventQuery.events": "agent:*,machine:disconnected",
    "FileEntry.type": "file",
    "IdeEntry.id": f"machine_{_ID}:ide:jupyterlab",
    "IdeEntry.type": "jupyterlab",
    "LaunchIde.ideType": "jupyterlab",
    "Launched.id": _TARGET,
    "Message.kind": "text",
    "Message.role": "user",
    "SendChat.controls": {"mode": "plan"},
    "Workspace.path": "/home/ada/project",
    "acps": [],
    "action": "approve",
    "after": f"msg_{_ID}",
    "agentType": "claude-code",
    "base": "main",
    "before": f"msg_{_ID}",
    "binary": False,
    "category": "cli",
    "cliType": "claude-code",
    "code": "BCDF-GHJK-LMNP",
    "command": "git status --short",
    "content": "Write a test for the parser",
    "cursor": f"msg_{_ID}",
    "cwd": "/home/ada/project",
    "delivery": "queue",
    "dir": "/home/ada/project",
    "email": "ada@example.org",
    "error": "The receiver did not answer within 10 s",
    "exitCode": 0,
    "hostname": "workshop",
    "ideId": f"machine_{_ID}:cli:claude-code",
    "ideType": "claude-code",
    "kind": "cli",
    "limit": 20,
    "message": "Write a test for the parser",
    "name": "build",
    "new": "another one of your own",
    "nickname": "laptop",
    "output": " M src/parser.py\n",
    "password": "a password of your own",
    "path": "src/parser.py",
    "queued": False,
    "removed": False,
    "state": "running",
    "status": "waiting_approval",
    "statusCode": 204,
    "target": f"machine_{_ID}:cli:claude-code",
    "targetId": _TARGET,
    "sessionTargetId": _TARGET,
    "text": "Write a test for the parser",
    "title": "Fix the tests",
    "truncated": False,
    "type": "claude-code",
    "url": "https://example.org/hooks/outrider",
    "userCode": "WDJB-MJHT",
    "version": "1.0.0",
}
"""Examples by `Type.field`, also of a base type, or by `field`."""

_ABSENT: Final = frozenset(
    {"completedAt", "disabledReason", "endReason", "endedAt", "error", "nextAttemptAt"}
    | {"notResumable", "oldPath", "reconnecting", "source", "tool"}
)
"""Fields that a healthy resource does not have: null in its example, if they may be."""

_ALSO_SENT: Final = frozenset({"dir", "message"})
"""Optional fields that the examples of requests have too."""

_TIMES: Final = re.compile(r"(\w+A|a)t|timestamp|authTime|since")
_WORDS: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")


def example(model: type[msgspec.Struct], *, is_request: bool) -> dict[str, Any]:
    """Return an example of a type as JSON; a request has the required fields, a response all."""
    described = inspect.type_info(model)
    assert isinstance(described, inspect.StructType), "a body is a structure"
    return _struct(described, is_request=is_request)


def path_example(name: str) -> str:
    """Return an example of a parameter in a path."""
    return str(VALUES.get(name) or _id(name))


def field_example(model: type[msgspec.Struct], field: inspect.Field, *, is_request: bool) -> Any:
    """Return an example of a field's value, which is not null."""
    name = field.encode_name
    for key in (*(f"{cls.__name__}.{name}" for cls in model.__mro__), name):
        if key in VALUES and _fits(VALUES[key], field.type):
            return VALUES[key]
    if isinstance(field.default, bool):
        return field.default
    if name == "id":
        return _id(f"{model.__name__}Id")
    return _value(name, field.type, is_request=is_request)


def _struct(described: inspect.StructType, *, is_request: bool) -> dict[str, Any]:
    values: dict[str, Any] = {}
    if described.tag_field is not None:
        values[described.tag_field] = described.tag
    optional = described.fields
    if is_request:
        fields = [f for f in described.fields if f.required or f.encode_name in _ALSO_SENT]
        optional = () if fields or values else described.fields[:1]
        optional = (*fields, *optional)
    for field in optional:
        name = field.encode_name
        # A running session with an end, or a delivery with an error, would mislead a reader.
        if not is_request and name in _ABSENT and field.default is None:
            if not described.cls.__struct_config__.omit_defaults:
                values[name] = None
        else:
            values[name] = field_example(described.cls, field, is_request=is_request)
    return values


def _value(name: str, kind: inspect.Type, *, is_request: bool) -> Any:
    """Return a value of a type that is not in `VALUES`."""
    match kind:
        case inspect.Metadata(type=inner, extra_json_schema=extra):
            enum = (extra or {}).get("enum")
            return enum[0] if enum else _value(name, inner, is_request=is_request)
        case inspect.StructType():
            return _struct(kind, is_request=is_request)
        case inspect.UnionType():
            choices = [choice for choice in kind.types if not isinstance(choice, inspect.NoneType)]
            return _value(name, choices[0], is_request=is_request)
        case inspect.ListType(item_type=item):
            return [_value(name, item, is_request=is_request)]
        case inspect.DictType(value_type=value):
            return {"name": _value(name, value, is_request=is_request)}
        case inspect.LiteralType(values=values):
            return values[0]
        case inspect.EnumType(cls=enum):
            return next(iter(enum)).value
        case inspect.BoolType():
            return True
        case inspect.IntType(ge=least) | inspect.FloatType(ge=least):
            return _NOW if _TIMES.fullmatch(name) else max(1, least or 0)
        case inspect.StrType():
            if isinstance(VALUES.get(name), str):
                return VALUES[name]
            return _id(name) if name.endswith("Id") else _split(name, " ")
    return {}


def _fits(value: Any, kind: inspect.Type) -> bool:
    """Return whether a value that is looked up by name is of a field's type."""
    match kind:
        case inspect.Metadata(type=inner, extra_json_schema=extra):
            return value in (extra or {}).get("enum", [value]) and _fits(value, inner)
        case inspect.UnionType():
            return any(_fits(value, choice) for choice in kind.types)
        case inspect.StrType() | inspect.CustomType():
            return isinstance(value, str)
        case inspect.LiteralType(values=values):
            return value in values
        case inspect.EnumType(cls=enum):
            return value in [member.value for member in enum]
        case inspect.ListType():
            return isinstance(value, list)
        case inspect.DictType() | inspect.AnyType() | inspect.RawType():
            return isinstance(value, dict)
        case inspect.IntType() | inspect.FloatType():
            return isinstance(value, int | float)
    return False


def _id(name: str) -> str:
    """Return the id that a field or parameter such as `webhookId` names."""
    kind = _split(name.removesuffix("Id"), "_")
    return f"{_PREFIXES.get(kind, kind)}_{_ID}"


def _split(name: str, separator: str) -> str:
    return _WORDS.sub(separator, name).lower()
