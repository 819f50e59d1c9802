"""What the API shows of a tool call: its patches and its end."""

import subprocess
from pathlib import Path

import pytest

from outrider.contract.resources import FileDiff
from outrider.machine.agents.tools import (
    bounded,
    exit_code_in,
    file_diff,
    hunks_diff,
    tool_in_event,
    tool_of,
)

LONG = [f"line {number}" for number in range(5000)]


def text_of(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("a\nb\nc\n", "a\nx\nc\n"),
        ("a\n", "a"),
        ("a", "a\n"),
        ("a\n", ""),
        (text_of(LONG), text_of([*LONG[:2500], "new", *LONG[2501:4999], "end"])),
        (text_of(LONG), text_of(["first", *LONG, "last"])),
        (text_of(LONG), text_of([f"other {line}" for line in LONG])),
        (text_of(LONG[:3]), text_of([*LONG[:3], *(f"more {line}" for line in LONG)])),
        (None, "a\nb\n"),
        ("a\nb\n", None),
    ],
    ids=[
        *("a line", "its end is lost", "its end is new", "emptied", "two places"),
        *("both ends", "everything", "many lines more", "a new file", "deleted"),
    ],
)
def test_a_patch_turns_the_old_file_into_the_new_one(
    tmp_path: Path, old: str | None, new: str | None
) -> None:
    file = tmp_path / "x.py"
    if old is not None:
        file.write_text(old)
    patch = file_diff(str(file), old, new).patch
    subprocess.run(  # a patch of this test
        ["git", "apply", "--unsafe-paths", "--directory=/", "-"],
        input=patch,
        cwd="/",
        text=True,
        check=True,
    )
    assert (file.read_text() if file.exists() else None) == new


def test_no_change_has_no_patch() -> None:
    assert file_diff("/x", "a\n", "a\n").patch == ""


def test_what_a_person_cannot_see_is_shown() -> None:
    patch = file_diff("/a\nb", "a\n", "a\r\n").patch
    assert patch == "--- a/a\\nb\n+++ b/a\\nb\n@@ -1 +1 @@\n-a\n+a\\r\n"


def test_hunks_become_a_patch() -> None:
    diff = hunks_diff("/x.py", [(7, 7, [" a", "-b", "+c", "+d"]), (20, 21, [" e", "-f"])])
    header = "--- a/x.py\n+++ b/x.py\n"
    assert diff.patch == header + "@@ -7,2 +7,3 @@\n a\n-b\n+c\n+d\n@@ -20,2 +21,1 @@\n e\n-f\n"
    assert hunks_diff("/x.py", []).patch == ""


def test_patches_are_cut_between_lines_with_a_mark() -> None:
    diff = file_diff("/x", text_of(LONG), text_of([f"other {line}" for line in LONG]))
    small = FileDiff(path="/y", patch="--- a/y\n+++ b/y\n@@ -1 +1 @@\n-a\n+b\n")
    first, second = bounded([diff, small], 1000)
    *lines, mark, end = first.patch.split("\n")
    assert (mark, end) == ("\\ [outrider: the rest is left out here]", "")
    assert len(first.patch) <= 1000
    assert diff.patch.startswith("\n".join(lines[3:]), diff.patch.index("\n-") + 1)
    assert lines[2] == f"@@ -1,{len(lines) - 3} +1,0 @@"
    assert second.patch == f"{mark}\n", "there is no room left"
    assert bounded([small], 1000) == [small]


def test_a_tool_call_stays_within_the_limits_of_its_fields() -> None:
    diff = FileDiff(path="/x" * 4000, patch="+\0" + "x" * 300_000)
    tool = tool_of(diff=[diff] * 100, id="t", title="a\x1bb" * 1000, status="completed")
    assert len(tool.diff) == 64
    assert sum(len(change.patch) for change in tool.diff[:1]) <= 262_144
    assert len(tool.title) == 1024
    assert len(tool.diff[0].path) == 4096
    in_event = tool_in_event(tool)
    assert in_event is not None
    assert sum(len(change.patch) for change in in_event.diff[:1]) <= 65_536


def test_a_call_whose_command_failed_has_failed() -> None:
    assert tool_of(id="t", title="a\nb").title == "a …"
    assert tool_of(id="t", title="x", exit_code=10**30).exit_code == 2**32
    assert tool_of(id="t", title="x", status="completed", exit_code=1).status == "failed"
    assert tool_of(id="t", title="x", status="completed", exit_code=0).status == "completed"
    assert tool_of(id="t", title="x", status="running", exit_code=None).status == "running"


@pytest.mark.parametrize(
    ("result", "code"),
    [
        ({"exit_code": 3}, 3),
        ({"exitCode": 0}, 0),
        ({"output": "x", "metadata": {"exit": 1}}, 1),
        ({"exit_code": None, "exit": True}, None),
        ({"metadata": []}, None),
        ("exit_code", None),
        (None, None),
    ],
)
def test_the_exit_code_in_a_result(result: object, code: int | None) -> None:
    assert exit_code_in(result) == code
