"""Examples for the API's description, made from the types: one machine, one agent, one webhook.

A value is looked up by `Type.field`, then by `field`; without an entry it follows from the type and
its bounds. Tests check that each example is valid, and that requests are ones the service accepts.
"""

import re
from typing import Any, Final

import msgspec
from msgspec import inspect

_NOW: Final = 1_763_674_272_500
_MACHINE: Final = "machine_01kan5x8z3e7hr5s0gq3v2m1yd"
_SESSION: Final = "session_01kan62c1fej3s8x9c4kq7w2hb"
_MESSAGE: Final = "msg_01kan68v9pf1etbs7q4h2d6w3y"
_DELIVERY: Final = "dlv_01kan6b1v3ezkr7h5w0m3x9r4c"
_AUDIT: Final = "aud_01kan6c4t6fzq8h7w0m3x9r4ct"
_ACTION: Final = "act_01kan67m4pf9et8r2c6h1d5v0x"
_WEBHOOK: Final = "webhook_01kan69x5ve2wb0sfv5m9nq3ta"
_KEY: Final = "key_01kan5w2h8eqbt4s0gq3v2m1yd"
_USER: Final = "user_01kan5vrt2e6sa3j5s0gq3v2m1"
_EVENT: Final = "0000000000000042"
_TARGET: Final = f"{_MACHINE}:session:{_SESSION}"


VALUES: Final[dict[str, Any]] = {
    "Account.id": "acct_01kan5vrt1f9m8x0c4kq7w2hbe",
    "AccountEvent.cursor": _EVENT,
    "AccountEvent.id": "evt_01kan6a5d2fzq8h7w0m3x9r4ct",
    "AccountUser.id": _USER,
    "ActionOption.id": "1",
    "ActionOption.kind": "allow_once",
    "ActionOption.label": "Yes",
    "AgentSummary.name": "Claude",
    "ApprovalList.cursor": f"{_NOW:016d}:{_TARGET}",
    "ApprovalsQuery.after": f"{_NOW:016d}:{_TARGET}",
    "AuditQuery.before": _AUDIT,
    "AuditRecord.action": "terminal",
    "AuditRecord.id": _AUDIT,
    "AuditRecord.outcome": 200,
    "ChatInput.parts": [{"type": "text", "text": "What is on this picture?"}],
    "CliEntry.name": "Claude Code",
    "Control.id": "mode",
    "Control.options": ["default", "plan"],
    "Control.type": "select",
    "Control.value": "plan",
    "DaemonSummary.id": _MACHINE,
    "DebugBundle.frontendSnapshot": {"activeConversation": {"sessionId": _SESSION}},
    "Deleted.id": _WEBHOOK,
    "DeliveryQuery.before": _DELIVERY,
    "Delivery.id": _DELIVERY,
    "DeliveryDetails.requestBody": '{"event": "agent:generating_completed"}',
    "DeliveryDetails.requestHeaders": {"X-Service-Delivery": _DELIVERY},
    "DeliveryList.cursor": _DELIVERY,
    "ErrorBody.code": "NO_PENDING_ACTION",
    "ErrorBody.error": "The field `message` is missing",
    "ErrorDetail.message": "the field `message` is missing",
    "ErrorDetail.path": "message",
    "EventPage.cursor": _EVENT,
    "EventQuery.after": _EVENT,
    "EventQuery.deltas": "true",
    "EventQuery.events": "agent:*,machine:disconnected",
    "EventQuery.target": _TARGET,
    "FileEntry.name": "parser.py",
    "FileEntry.type": "file",
    "IdeEntry.name": "JupyterLab",
    "IdeEntry.type": "jupyterlab",
    "KeyView.id": _KEY,
    "KeyView.name": "ci",
    "LastDelivery.id": _DELIVERY,
    "LaunchIde.ideType": "jupyterlab",
    "Message.id": _MESSAGE,
    "Message.kind": "text",
    "Message.role": "user",
    "OpenTerminal.name": "build",
    "PendingAction.id": _ACTION,
    "PendingAction.message": "Edit parser.py?",
    "Provider.path": "/usr/local/bin/claude",
    "ReplacedMachine.id": _MACHINE,
    "SendChat.controls": {"mode": "plan"},
    "Session.id": _SESSION,
    "Session.name": "Claude Code",
    "SessionView.id": _SESSION,
    "SessionsQuery.q": "parser",
    "Stopped.stopped": [_SESSION],
    "SummaryItem.id": "model",
    "SummaryItem.value": "opus",
    "Tool.id": "toolu_1",
    "Usage.month": "2025-11",
    "UserView.id": _USER,
    "Waited.reason": "waiting_approval",
    "Webhook.id": _WEBHOOK,
    "Workspace.name": "project",
    "Workspace.path": "/home/ada/project",
    "Worktree.path": "/home/ada/project.worktrees/topic",
    "WorktreeRemoved.removed": "/home/ada/project.worktrees/topic",
    "accountId": "acct_01kan5vrt1f9m8x0c4kq7w2hbe",
    "acps": [],
    "action": "approve",
    "actionId": _ACTION,
    "address": "203.0.113.9",
    "after": _MESSAGE,
    "agentType": "claude-code",
    "arch": "x86_64",
    "base": "main",
    "before": _MESSAGE,
    "binary": False,
    "branch": "topic",
    "category": "cli",
    "cliType": "claude-code",
    "code": "BCDF-GHJK-LMNP",
    "command": "git status --short",
    "content": "Write a test for the parser",
    "cpus": 8,
    "current": "a password of your own",
    "cursor": _MESSAGE,
    "cwd": "/home/ada/project",
    "daemonId": _MACHINE,
    "data": "iVBORw0KGgo=",
    "delivery": "queue",
    "deliveryId": _DELIVERY,
    "dir": "/home/ada/project",
    "disabledReason": "The receiver answered 410 Gone",
    "displayName": "Claude Code",
    "duration": 12.5,
    "email": "ada@example.org",
    "error": "The receiver did not answer within 10 s",
    "eventId": "evt_01kan6a5d2fzq8h7w0m3x9r4ct",
    "exitCode": 0,
    "format": "png",
    "freeMem": 21_474_836_480,
    "height": 800,
    "hostname": "workshop",
    "id": _TARGET,
    "ideId": f"{_MACHINE}:cli:claude-code",
    "ideType": "claude-code",
    "keyId": _KEY,
    "kind": "cli",
    "label": "Model",
    "limit": 20,
    "loadavg": [0.42, 0.35, 0.3],
    "message": "Write a test for the parser",
    "messageId": _MESSAGE,
    "mimeType": "image/png",
    "model": "opus",
    "name": "build",
    "new": "another one of your own",
    "nickname": "laptop",
    "notResumable": "Gemini CLI (ACP) cannot open an earlier session again",
    "oldPath": "src/reader.py",
    "optionId": "1",
    "output": " M src/parser.py\n",
    "password": "a password of your own",
    "patch": "--- a/src/parser.py\n+++ b/src/parser.py\n@@ -7,1 +7,1 @@\n-    return None\n"
    "+    return tree\n",
    "path": "src/parser.py",
    "payload": {"chatTitle": "Fix the tests", "sessionId": _SESSION},
    "platform": "linux",
    "prefix": "ork_3fKz",
    "principal": _KEY,
    "queued": False,
    "release": "6.12.0",
    "removed": False,
    "requestId": "019aa5b2-31c4-7d10-a2f3-5b1c0e9d7f26",
    "resume": _SESSION,
    "secret": "whsec_Zm9yIGV4YW1wbGUgb25seSwgbm90IGEgc2VjcmV0",
    "sessionId": _SESSION,
    "sessionTargetId": _TARGET,
    "size": 1204,
    "state": "running",
    "status": "waiting_approval",
    "statusCode": 204,
    "target": f"{_MACHINE}:cli:claude-code",
    "targetId": _TARGET,
    "targetSessionId": _SESSION,
    "terminal": "build",
    "text": "Write a test for the parser",
    "title": "Fix the tests",
    "token": "Zm9yIGV4YW1wbGUgb25seQ",
    "totalMem": 33_554_432_000,
    "truncated": False,
    "type": "claude-code",
    "url": "https://example.org/hooks/outrider",
    "userAgent": "Mozilla/5.0",
    "userCode": "WDJB-MJHT",
    "verificationUri": "https://outrider.example.org/device",
    "verificationUriComplete": "https://outrider.example.org/device?code=WDJB-MJHT",
    "version": "1.0.0",
    "webhookId": _WEBHOOK,
    "width": 1280,
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


def field_example(model: type[msgspec.Struct], field: inspect.Field, *, is_request: bool) -> Any:
    """Return an example of a field's value, which is not null."""
    name = field.encode_name
    for key in (*(f"{cls.__name__}.{name}" for cls in model.__mro__), name):
        if key in VALUES and _fits(VALUES[key], field.type):
            return VALUES[key]
    if isinstance(field.default, bool):
        return field.default
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
            return VALUES[name] if isinstance(VALUES.get(name), str) else _words(name)
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


def _words(name: str) -> str:
    return _WORDS.sub(" ", name).lower()
