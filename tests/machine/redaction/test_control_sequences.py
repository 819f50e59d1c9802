"""Control sequences go, what a terminal would show stays."""

import pytest

from outrider.machine.redaction.control_sequences import has_moves, strip_controls


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain\ttext\n", "plain\ttext\n"),
        ("a\x1b[31mb\x1b[0;1mc", "abc"),
        ("a\x9b31mb", "ab"),
        ("a\x1b[?25lb\x1b(Bc\x1b=d\x1b", "abcd"),
        ("\x1b]0;title\x07a\x1b]8;;https://u:p@h\x1b\\link\x1b]8;;\x1b\\", "alink"),
        ("\x1b]0;title without an end\nnext", "\nnext"),
        ("\x1bPq#0\x1b\\a\x9ddcs\x9cb", "ab"),
        (r"a\u001b[31mb\x1b[1mc\033[0md\e[4me^[[mf", "abcdef"),
        (r"\\u001b[31ma", "a"),
        ("x\bxy\b\bz", "z"),
        ("_\ba_\bb", "ab"),
        ("one\r\ntwo\rthree", "one\ntwo\nthree"),
        ("nul\x00 bell\x07 delete\x7f", "nul bell delete"),
        ("gh\u200bp_\u00adx\ufeffy", "ghp_xy"),
        ("👩‍💻 नमस्‍ते", "👩‍💻 नमस्‍ते"),
        (r"C:\users\e[1] [a-z]\x1", r"C:\users\e[1] [a-z]\x1"),
    ],
)
def test_what_is_left(text: str, shown: str) -> None:
    assert strip_controls(text) == shown
    assert strip_controls(shown) == shown


def test_moves_are_gaps_or_nothing() -> None:
    text = "a\x1b[5Cb\x1b[2;3Hc\x1b[31md"
    assert has_moves(text)
    assert strip_controls(text) == "a b\ncd"
    assert strip_controls(text, gaps=False) == "abcd"
    assert not has_moves("a\x1b[31mb")
