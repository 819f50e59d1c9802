"""What the commands print: tables and colors for people, JSON for programs."""

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from outrider.contract.text import escaped_lines

if TYPE_CHECKING:
    from rich.console import Console


def show_result(result: object, text: str, as_json: bool) -> None:
    """Print the result of a command: as JSON, or this text."""
    if as_json:
        print_json(result)
    else:
        print_text(text)


def print_raw(text: str) -> None:
    """Print a file or a patch: as it is into a pipe, escaped on a terminal."""
    if is_terminal():
        print_text(text.replace("\t", "    ").rstrip("\n"))
    else:
        sys.stdout.write(text)
        sys.stdout.flush()


def print_json(value: object) -> None:
    """Print one JSON value on one line."""
    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")
    sys.stdout.flush()


def print_text(text: str) -> None:
    """Print text of the service or an agent, without what a terminal would obey."""
    sys.stdout.write(escaped_lines(text) + "\n")
    sys.stdout.flush()


def show_table(
    result: object, columns: Sequence[str], rows: Sequence[Sequence[str]], as_json: bool
) -> None:
    """Print the result of a command: as JSON, or as this table."""
    if as_json:
        print_json(result)
    else:
        print_table(columns, rows)


def warn(text: str) -> None:
    """Print a sentence to standard error."""
    print(escaped_lines(f"outrider: {text}"), file=sys.stderr)


def moment(milliseconds: int | None) -> str:
    """Return a time of the API in this machine's time zone; empty for None."""
    if milliseconds is None:
        return ""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(milliseconds / 1000))


def is_terminal() -> bool:
    """Return whether a person reads standard output."""
    return sys.stdout.isatty()


def console() -> "Console":
    """Return a console for a person; import it only then."""
    from rich.console import Console

    return Console(highlight=False)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table: with colors on a terminal, else with tabs and without a head.

    Columns for which the terminal is too narrow continue on a second line of each row.
    """
    if not is_terminal():
        for row in rows:
            sys.stdout.write("\t".join(map(escaped_lines, row)) + "\n")  # a tab is escaped
        return
    from rich.cells import cell_len, set_cell_size
    from rich.text import Text

    screen = console()
    cells = [[escaped_lines(cell).replace("\n", " ") for cell in row] for row in rows]
    if not rows:
        cells = [["(none)", *[""] * (len(columns) - 1)]]
    widths = [max(map(cell_len, column)) for column in zip(columns, *cells, strict=True)]
    # Ids are copied into the next command, so no column but the last may be cut.
    lines = _columns_of_lines(widths, screen.width)

    def show(row: Sequence[str], style: str = "") -> None:
        for number, line in enumerate(lines):
            text = Text(_INDENT if number else "")
            for index in line:
                cell = set_cell_size(row[index], widths[index])
                text.append(cell, style or _STYLES.get(row[index], "")).append(_GAP)
            text.rstrip()
            text.truncate(screen.width, overflow="ellipsis")
            if text.plain.strip():
                screen.print(text)

    show(columns, "bold")
    for row in cells:
        show(row)


def _columns_of_lines(widths: Sequence[int], available: int) -> list[list[int]]:
    """Return the columns of each line of a row; the last column may be cut."""
    lines: list[list[int]] = [[]]
    left = available
    for index, width in enumerate(widths):
        least = min(width, _LEAST_LAST_COLUMN) if index == len(widths) - 1 else width
        if lines[-1] and least > left:
            lines.append([])
            left = available - len(_INDENT)
        lines[-1].append(index)
        left -= width + len(_GAP)
    return lines


_INDENT: Final = "    "


_GAP: Final = "   "


_LEAST_LAST_COLUMN: Final = 16


_STYLES = {"waiting_approval": "yellow", "generating": "green", "error": "red", "offline": "dim"}
