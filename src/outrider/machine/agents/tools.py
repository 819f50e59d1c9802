"""Builds what the API shows of a tool call: its patches, its exit code, its end. Free of I/O."""

import difflib
import io
import re
from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import Any, Final

import msgspec

from outrider.contract.events import MAX_EVENT_DIFF
from outrider.contract.limits import fitted
from outrider.contract.resources import MAX_DIFF, FileDiff, Tool
from outrider.machine.sessions.chat_log import json_size

MAX_COMPARED: Final = 2000
"""Lines up to which two texts are compared: that takes quadratic time.

Lines at the beginning and at the end that are the same do not count.
"""

_LINE_ENDS: Final = {ord(end): repr(end)[1:-1] for end in "\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"}
"""What a person cannot see, or what ends a line elsewhere, as it is shown in a diff."""

_NO_NEWLINE: Final = "\n\\ No newline at end of file"

_CUT: Final = "\\ [outrider: the rest is left out here]"
_CONTEXT: Final = 3
_HUNK: Final = re.compile(r"@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@")
_EXIT_CODES: Final = ("exit_code", "exitCode", "exit")


def file_diff(path: str, old: str | None, new: str | None) -> FileDiff:
    """Return the change of a file; None is the text of a file that does not exist."""
    if old and new and not (old.endswith("\n") or new.endswith("\n")):
        old, new = f"{old}\n", f"{new}\n"  # parts of a file, or no difference at its end
    # Most edits change a few lines of a long file, and comparing takes quadratic time: the
    # equal lines at both ends are left out before.
    before, after = lines_of(old or ""), lines_of(new or "")
    start = _same(zip(before, after, strict=False))
    end = _same(zip(reversed(before[start:]), reversed(after[start:]), strict=False))
    first = max(start - _CONTEXT, 0)
    last = max(end - _CONTEXT, 0)
    left, right = before[first : len(before) - last], after[first : len(after) - last]
    if max(len(left), len(right)) <= MAX_COMPARED:
        lines = list(difflib.unified_diff(left, right, n=_CONTEXT))[2:]
        lines = [_moved(line, first) if line.startswith("@@") else line for line in lines]
    else:
        left, right = before[start : len(before) - end], after[start : len(after) - end]
        lines = [
            _hunk(start + bool(left), len(left), start + bool(right), len(right)),
            *(f"-{line}" for line in left),
            *(f"+{line}" for line in right),
        ]
    return _patch(path, lines, is_new=old is None, is_deleted=new is None)


def hunks_diff(path: str, hunks: Iterable[tuple[int, int, Sequence[str]]]) -> FileDiff:
    """Return the change of a file that an agent has as hunks.

    Args:
        hunks: of each the first line before and after the change, and its lines with their marks.
    """
    lines = []
    for old_start, new_start, changes in hunks:
        old = sum(not change.startswith(("+", "\\")) for change in changes)
        new = sum(not change.startswith(("-", "\\")) for change in changes)
        lines.append(_hunk(old_start, old, new_start, new))
        lines += [f"{change}\n" for change in changes]
    return _patch(path, lines)


def patch_diff(path: str, patch: str) -> FileDiff:
    """Return the change of a file that an agent has as a unified patch, with or without names."""
    lines = lines_of(patch if patch.endswith("\n") else f"{patch}\n")
    first = next((n for n, line in enumerate(lines) if line.startswith("@@")), len(lines))
    return _patch(path, lines[first:])


def bounded(diffs: Sequence[FileDiff], limit: int) -> list[FileDiff]:
    """Return the patches cut to `limit` bytes of JSON together; each cut one ends with a mark."""
    result = []
    for diff in diffs:
        # Counted as JSON: a control character has six bytes there.
        size = json_size(diff.patch)
        if size > limit:
            diff = FileDiff(path=diff.path, patch=_cut(diff.patch, limit))  # noqa: PLW2901
            size = limit
        limit -= size
        result.append(diff)
    return result


def tool_of(*, title: str, diff: Sequence[FileDiff] = (), **fields: Any) -> Tool:
    """Return a tool call within the limits of its fields, with the first line of its title.

    A command that failed is a failed call, whatever the agent calls it.
    """
    first, *others = title.strip().split("\n", 1)
    tool = Tool(title=f"{first} …" if others else first, diff=bounded(diff, MAX_DIFF), **fields)
    if tool.exit_code and tool.status == "completed":
        tool.status = "failed"
    return fitted(tool)


def tool_in_event(tool: Tool | None) -> Tool | None:
    """Return a tool call as it is in an event."""
    if tool is None or not tool.diff:
        return tool
    return msgspec.structs.replace(tool, diff=bounded(tool.diff, MAX_EVENT_DIFF))


def exit_code_in(result: Any) -> int | None:
    """Return the exit code that the result of a tool has; None if it has none."""
    if not isinstance(result, dict):
        return None
    for name in _EXIT_CODES:
        code = result.get(name)
        if isinstance(code, int) and not isinstance(code, bool):
            return code
    return exit_code_in(result.get("metadata"))


def lines_of(text: str) -> list[str]:
    r"""Return the lines of a text with their ends; only `\n` ends one, unlike with `splitlines`."""
    return io.StringIO(text, newline="\n").readlines()


def _patch(
    path: str, lines: Sequence[str], *, is_new: bool = False, is_deleted: bool = False
) -> FileDiff:
    r"""Return a patch whose reader sees each change.

    Other line ends are shown as `\r`, for example, and a last line that has no line end as git
    shows that.
    """
    if not lines:
        return FileDiff(path=path, patch="")
    name = path.replace("\n", "\\n").lstrip("/")
    shown = [
        "--- /dev/null" if is_new else f"--- a/{name}",
        "+++ /dev/null" if is_deleted else f"+++ b/{name}",
        *(line[:-1] if line.endswith("\n") else line + _NO_NEWLINE for line in lines),
        "",
    ]
    return FileDiff(path=path, patch="\n".join(shown).translate(_LINE_ENDS))


def _same(pairs: Iterable[tuple[str, str]]) -> int:
    """Return how many of the first pairs have two equal lines."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _hunk(old_start: int, old: int, new_start: int, new: int) -> str:
    return f"@@ -{old_start},{old} +{new_start},{new} @@\n"


def _moved(header: str, lines: int) -> str:
    """Return the first line of a hunk of texts whose first `lines` lines were left out."""
    if not lines:
        return header
    old, new = re.findall(r"[-+](\d+)", header)
    header = header.replace(f"-{old}", f"-{int(old) + lines}", 1)
    return header.replace(f"+{new}", f"+{int(new) + lines}", 1)


def _cut(patch: str, limit: int) -> str:
    """Return the first lines of a patch, with the right numbers in its last hunk, and a mark."""
    room = limit - json_size(f"{_CUT}\n") - len("0000000000")
    lines: list[str] = []
    for line in patch.split("\n")[:-1]:
        room -= json_size(f"{line}\n")
        if room < 0:
            break
        lines.append(line)
    headers = [number for number, line in enumerate(lines) if line.startswith("@@")]
    if headers and (match := _HUNK.match(lines[headers[-1]])):
        body = lines[headers[-1] + 1 :]
        old = sum(not line.startswith(("+", "\\")) for line in body)
        new = sum(not line.startswith(("-", "\\")) for line in body)
        lines[headers[-1]] = _hunk(int(match[1]), old, int(match[2]), new)[:-1]
    return "\n".join([*lines, _CUT, ""])
