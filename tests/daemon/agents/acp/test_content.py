"""What a person reads of what an agent sends."""

import pytest
from acp.schema import FileEditToolCallContent

from outrider.daemon.agents.acp.content import approval_text

LONG = "".join(f"line {number}\n" for number in range(3000))


@pytest.mark.parametrize(
    ("old", "new", "shown"),
    [
        ("a\nb\nc\n", "a\nx\nc\n", "@@ -1,3 +1,3 @@\n a\n-b\n+x\n c"),
        (None, "a\nb\n", "a\nb\n"),
        ("", "a\nb\n", "a\nb\n"),
        (LONG, LONG + "end\n", (LONG + "end\n")[:4000]),
        ("a\n", "".join(f"{number}\n" for number in range(2000)), None),
    ],
    ids=["an edit", "a new file", "an empty one", "too long to compare", "a long diff"],
)
def test_an_edit_is_shown_as_what_it_changes(old: str | None, new: str, shown: str | None) -> None:
    edit = FileEditToolCallContent(type="diff", path="/x.py", old_text=old, new_text=new)
    text = approval_text("Edit x.py", [edit])
    assert text.startswith("Edit x.py\n/x.py\n")
    assert shown is None or text == f"Edit x.py\n/x.py\n{shown}"
    assert len(text) < 4100
