"""The end of a program's output in an error text."""

from outrider.machine.agents.failure import NOTHING, output_end

JWT = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9." + "c3ViamVjdA" * 160 + ".c2lnbmF0dXJl"


def test_output_end_has_the_last_lines_without_blank_ones() -> None:
    text = "".join(f"  line {number}\n\n" for number in range(20))
    assert output_end(text).split("\n") == [f"line {number}" for number in range(10, 20)]
    assert output_end(" \n\n") == NOTHING


def test_a_long_secret_before_the_end_hides_nothing_else() -> None:
    """The text that is left after its redaction is much shorter."""
    shown = output_end(f"{'x' * 10_000}\n{JWT}\n{'a line of the end ' * 80}\nno credit")
    assert shown.endswith("a line of the end\nno credit")
    assert "c3ViamVjdA" not in shown


def test_a_secret_is_recognised_wherever_the_text_is_cut_off() -> None:
    for length in range(0, 3000, 100):
        assert "c3ViamVjdA" not in output_end(f"{'x' * 10_000}\n{JWT}\n{'y' * length}")


def test_a_very_long_output_has_its_end() -> None:
    assert output_end("x" * 1_000_000 + "\nno credit").endswith("x\nno credit")
