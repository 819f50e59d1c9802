"""docs/cli.md has every command and every option."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from typer.main import get_command

from outrider.cli.client import COMMANDS, register

TEXT = (Path(__file__).parents[3] / "docs" / "cli.md").read_text()


def test_every_command_and_option_is_described() -> None:
    app = typer.Typer()
    register(app)
    registered = vars(get_command(app))["commands"]
    assert registered.keys() == COMMANDS
    for name, command in every(registered):
        assert re.search(rf"`{name}\b", TEXT), name
        for parameter in command.params:
            long = [option for option in parameter.opts if option.startswith("--")]
            assert all(option in TEXT for option in long), (name, long)


def every(commands: dict[str, Any], group: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the commands with their full names, those of groups too."""
    for name, command in commands.items():
        inner = getattr(command, "commands", None)
        if inner is None:
            yield group + name, command
        else:
            yield from every(inner, f"{name} ")
