"""Derives what the API shows of a tool call from what a CLI agent has recorded of it."""

import json
import shlex
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from outrider.contract.resources import FileDiff, FileLocation, Tool, ToolKind, ToolStatus
from outrider.machine.agents.tools import file_diff, tool_of

_KINDS: Final[dict[ToolKind, str]] = {
    "read": "read readfile readmanyfiles view viewimage notebookread",
    "edit": "edit multiedit write writefile replace applypatch patch notebookedit",
    "execute": "bash exec execcommand shell localshell runshellcommand writestdin bashoutput",
    "search": "grep glob ls list listdirectory searchfilecontent grepsearch toolsearch",
    "fetch": "webfetch websearch googlewebsearch fetch",
}
_KIND_OF: Final[dict[str, ToolKind]] = {
    name: kind for kind, names in _KINDS.items() for name in names.split()
}
_PATHS: Final = ("file_path", "filePath", "notebook_path", "absolute_path", "path", "dir_path")
_SUBJECTS: Final = (*_PATHS, "pattern", "query", "url", "description")
_COMMANDS: Final = ("command", "cmd")


def call_tool(id_: str, name: str, arguments: Any, started_at: int, **fields: Any) -> Tool:
    """Return a tool call that has begun, by the name of its tool and its arguments."""
    given = _decoded(arguments)
    # The same tool is `read_file`, `readFile` or `Read-File`, by agent and version.
    kind = _KIND_OF.get(name.replace("_", "").replace("-", "").lower(), "other")
    command = next((given[key] for key in _COMMANDS if given.get(key)), None)
    title = name
    if isinstance(command, list):
        words = [str(word) for word in command]
        # Codex runs a line in a login shell: the line is what a person knows.
        title = words[-1] if words[1:2] == ["-lc"] else shlex.join(words)
    elif isinstance(command, str):
        title = command
    elif subject := _first_text(given, _SUBJECTS):
        title = f"{name} {subject}"
    path = _first_text(given, _PATHS)
    line = given.get("offset")
    place = FileLocation(path=path, line=line if type(line) is int and line > 0 else None)
    derived: dict[str, Any] = {
        "kind": kind,
        "title": title,
        "status": "running",
        "diff": _edits(path, given) if kind == "edit" and path else [],
        "locations": [place] if path and kind in {"read", "edit"} else [],
    }
    return tool_of(id=id_, started_at=started_at, **(derived | fields))


def ended(
    tool: Tool,
    status: ToolStatus | None,
    at: int | None,
    *,
    exit_code: int | None = None,
    diff: list[FileDiff] | None = None,
) -> Tool:
    """Return a tool call that has ended, with the changes of its result if that has any."""
    fields = msgspec.structs.asdict(tool)
    fields |= {"status": status, "ended_at": at, "exit_code": exit_code}
    return tool_of(**(fields | {"diff": diff or tool.diff}))


def _edits(path: str, given: Mapping[str, Any]) -> list[FileDiff]:
    """Return the changes that the arguments of an edit have."""
    edits, diffs = given.get("edits"), []
    for edit in edits if isinstance(edits, list) else [given]:
        if not isinstance(edit, dict):
            continue
        old = _first_text(edit, ("old_string", "oldString"))
        new = _first_text(edit, ("new_string", "newString", "content"))
        if old or new:
            diffs.append(file_diff(path, old or None, new or ""))
    return diffs


def _first_text(given: Mapping[str, Any], names: tuple[str, ...]) -> str:
    texts = (given.get(name) for name in names)
    return next((text for text in texts if isinstance(text, str) and text), "")


def _decoded(arguments: Any) -> Mapping[str, Any]:
    """Return the arguments of a call; some agents record them as JSON in a string."""
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            return {}
    return arguments if isinstance(arguments, dict) else {}
