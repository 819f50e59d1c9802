"""What a person reads of what an agent sends."""

import pytest
from acp.schema import FileEditToolCallContent

from outrider.machine.agents.acp.content import approval_text

LONG = "".join(f"line {number}\n" for number in range(3000))


def hidden(characters: int) -> str:
    return f"\n[outrider: {characters} more characters are not shown]"


@pytest.mark.parametrize(
    ("old", "new", "shown"),
    [
        ("a\nb\nc\n", "a\nx\nc\n", "@@ -1,3 +1,3 @@\n a\n-b\n+x\n c"),
        (None, "a\nb\n", "a\nb\n"),
        ("", "a\nb\n", "a\nb\n"),
        ("a\nb\n", "a\r\nb\n", "@@ -1,2 +1,2 @@\n-a\n+a\\r\n b"),
        ("a\x0cb\n", "a\nb\n", "@@ -1 +1,2 @@\n-a\\x0cb\n+a\n+b"),
        ("a", "a\n", "@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+a"),
        ("a\n", "a", "@@ -1 +1 @@\n-a\n+a\n\\ No newline at end of file"),
        ("a", "a\nb", "@@ -1 +1,2 @@\n a\n+b"),
        ("a\n", "", "@@ -1 +0,0 @@\n-a"),
        (None, "x" * 4000, "x" * 4000),
        (None, "x" * 4001, "x" * 4000 + hidden(1)),
        (
            LONG,
            LONG + "end\n",
            "@@ -2998,3 +2998,4 @@\n line 2997\n line 2998\n line 2999\n+end",
        ),
        ("a\n", "x" * 5000 + "\n", "@@ -1 +1 @@\n-a\n+" + "x" * 3984 + hidden(1016)),
    ],
    ids=[
        "an edit",
        "a new file",
        "an empty one",
        "another line end",
        "no line end",
        "a line end at the end",
        "no line end at the end",
        "a part of a line",
        "nothing left",
        "as long as may be",
        "too long",
        "a long file",
        "a long diff",
    ],
)
def test_the_approval_of_an_edit_shows_its_change(old: str | None, new: str, shown: str) -> None:
    edit = FileEditToolCallContent(type="diff", path="/x.py", old_text=old, new_text=new)
    text = approval_text("Edit x.py", [edit])
    assert text == f"Edit x.py\n/x.py\n{shown}"
