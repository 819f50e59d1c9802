"""What machines say, written by hand as it is on the wire: camelCase JSON."""

from typing import Any, Final

import msgspec

from outrider.contract.frames import Command
from outrider.contract.ids import new_id
from outrider.contract.resources import Machine, Provider, Session, Workspace
from outrider.contract.structs import Wire

MACHINE: Final = Machine(
    hostname="workbench",
    platform="linux",
    arch="x86_64",
    release="6.1.0",
    cpus=8,
    total_mem=16_000_000_000,
    free_mem=8_000_000_000,
    loadavg=[0.5, 0.25, 0.125],
    uptime=3600.5,
)
PROVIDER: Final = Provider(
    type="claude-code",
    category="cli",
    display_name="Claude Code",
    installed=True,
    path="/usr/bin/claude",
    verified=True,
)
HOUSE_PROVIDER: Final = Provider(
    type="house-agent",
    category="cli",
    display_name="House agent",
    installed=True,
    path="/opt/house",
    verified=False,
)
"""A provider that only this machine describes."""


def session(kind: Any = "cli", type: str = "claude-code", **fields: Any) -> Session:  # noqa: A002
    """Return a session as a machine reports it."""
    values: dict[str, Any] = {
        "id": new_id("session"),
        "target_id": "the service sets this",
        "kind": kind,
        "type": type,
        "name": type.title(),
        "status": "idle",
        "title": f"A chat with {type}",
        "workspace": Workspace(path="/srv/project", name="project"),
        "created_at": 1_700_000_000_000,
        "last_activity_at": 1_700_000_001_000,
    }
    return Session(**values | fields)


def as_json(value: Wire) -> Any:
    """Return a structure as a client would read it."""
    return msgspec.json.decode(msgspec.json.encode(value))


_ACTION: Final = {
    "id": "act_1",
    "message": "Run `make`?",
    "options": [{"id": "1", "label": "Yes", "kind": "allow_once"}],
    "diff": None,
}

CHAT: Final = {
    "success": True,
    "id": "a target id",
    "sessionId": "session_1",
    "agentType": "claude-code",
    "title": "Fix the build",
    "status": "waiting_approval",
    "messages": [
        {
            "id": "msg_1",
            "index": 0,
            "role": "user",
            "kind": "text",
            "content": "Hello, wörld 🎉",
            "timestamp": 1_700_000_000_000,
            "tool": None,
            "source": None,
        }
    ],
    "pendingAction": _ACTION,
    "totalMessages": 1,
    "type": "claude-code",
    "state": "running",
    "resumable": False,
}
ACCEPTED: Final = {
    "success": True,
    "messageId": "msg_2",
    "sessionId": "session_1",
    "status": "generating",
    "queued": False,
    "cursor": "msg_2",
}
TURN: Final = {
    "success": True,
    "sessionId": "session_1",
    "reason": "idle",
    "cursor": "msg_3",
    "status": "idle",
    "messages": CHAT["messages"],
    "pendingAction": None,
}
RESOLVED: Final = {
    "success": True,
    "action": "approve",
    "actionId": "act_1",
    "optionId": "1",
    "status": "generating",
}
PICTURE: Final = {"success": True, "format": "png", "width": 640, "height": 480, "data": "aGk="}
LAUNCHED: Final = {
    "success": True,
    "id": "machine_1:cli:claude-code",
    "sessionId": "session_1",
    "sessionTargetId": "machine_1:session:session_1",
    "kind": "cli",
    "type": "claude-code",
    "status": "idle",
}
STOPPED: Final = {"success": True, "stopped": ["session_1"]}
STATE: Final = {
    "success": True,
    "id": "a target id",
    "sessionId": "session_1",
    "agentType": "claude-code",
    "status": "idle",
    "title": None,
    "summaryMetadata": {"items": [{"id": "model", "label": "Model", "value": "stub"}]},
    "controls": [
        {"id": "mode", "label": "Mode", "type": "select", "options": ["a", "b"], "value": "a"}
    ],
    "workspace": {"path": "/srv/project", "name": "project"},
    "pendingAction": None,
    "error": None,
    "updatedAt": 1_700_000_000_000,
}
INTERRUPTED: Final = {"success": True, "status": "idle"}
QUEUE: Final = {
    "success": True,
    "messages": [{"messageId": "msg_3", "text": "And then", "createdAt": 1_700_000_000_000}],
}
WITHDRAWN: Final = {"success": True, "messageId": "msg_3"}
SCREEN: Final = {
    "success": True,
    "columns": 110,
    "rows": 36,
    "text": "hi\n>",
    "ansi": "\x1b[31mhi\x1b[0m\n>",
    "cursor": {"x": 1, "y": 1},
}
CHANGES: Final = {
    "success": True,
    "branch": "main",
    "base": "HEAD",
    "ahead": 0,
    "files": [
        {
            "path": "a.py",
            "oldPath": None,
            "status": "modified",
            "additions": 1,
            "deletions": 0,
            "binary": False,
        }
    ],
    "patch": "diff --git a/a.py b/a.py\n",
    "truncated": False,
}
FILES: Final = {
    "success": True,
    "path": "src",
    "entries": [{"name": "a.py", "type": "file", "size": 3}],
    "truncated": False,
}
TERMINALS: Final = {"success": True, "terminals": [{"name": "build", "busy": False}]}
OUTPUT: Final = {
    "success": True,
    "terminal": None,
    "exitCode": 0,
    "output": "hi\n",
    "truncated": False,
    "durationMs": 3,
    "cwd": "/srv",
}
CLOSED: Final = {"success": True, "terminal": "build"}
DEBUG: Final = {
    "success": True,
    "bundle": {
        "session": {"id": "session_1", "status": "idle"},
        "provider": {"type": "claude-code", "installed": True},
        "parser": {"rule": "idle: prompt"},
        "terminal": {"source": "screen", "text": "> "},
        "messages": CHAT["messages"],
        "events": [],
        "versions": {"outrider": "9.9.9"},
        "frontendSnapshot": {"activeConversation": {"sessionId": "session_1"}},
        "redactions": {"jwt": 1},
        "truncated": True,
        "omitted": ["messages: the first 2 of 20"],
        "problems": [],
        "screenshot": None,
    },
    "text": "# Outrider debug bundle",
}

RESULTS: Final[dict[str, dict[str, Any]]] = {
    "send_chat": ACCEPTED,
    "send_chat_now": ACCEPTED,
    "interrupt": INTERRUPTED,
    "read_queue": QUEUE,
    "withdraw": WITHDRAWN,
    "read_screen": SCREEN,
    "read_changes": CHANGES,
    "read_files": FILES,
    "read_chat": CHAT,
    "resolve_action": RESOLVED,
    "screenshot": PICTURE,
    "launch_ide": LAUNCHED | {"kind": "ide", "type": "jupyterlab"},
    "launch_cli": LAUNCHED,
    "launch_in_worktree": LAUNCHED,
    "resume": LAUNCHED,
    "stop_cli": STOPPED,
    "stop_and_remove_worktree": STOPPED,
    "remove_worktree": {"success": True, "removed": "/srv/project.worktrees/topic"},
    "agent_status": STATE,
    "terminal": OUTPUT,
    "close_terminal": CLOSED,
    "list_terminals": TERMINALS,
    "chat_debug": DEBUG,
    "read_turn": TURN,
}
"""A good result of each command."""


def response_to(command: Command, machine_id: str) -> dict[str, Any]:
    """Return the response to a command that its machine answers with the result in `RESULTS`.

    Its ids are of the machine, and of the session that the command names.
    """
    result, payload = dict(RESULTS[command.command]), msgspec.json.decode(command.payload)
    kind, _, name = (payload.get("target") or "").partition(":")[2].partition(":")
    session_id = payload.get("sessionId") or (name if kind == "session" else None)
    session_id = session_id or result.get("sessionId")
    ids = {"sessionId": session_id, "sessionTargetId": f"{machine_id}:session:{session_id}"}
    ids["id"] = ids["sessionTargetId"]
    if "sessionTargetId" in result:
        names = [payload[name] for name in ("cliType", "ideType", "type") if name in payload]
        ids |= {"type": names[0], "id": f"{machine_id}:{result['kind']}:{names[0]}"}
    return result | {name: value for name, value in ids.items() if name in result}
