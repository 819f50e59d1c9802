"""docs/cli.md has every command and every option."""

import re
from pathlib import Path

import typer
from typer.main import get_command

from outrider.cli.client import COMMANDS, commands

TEXT = (Path(__file__).parents[3] / "docs" / "cli.md").read_text()


def test_every_command_and_option_is_described() -> None:
    app = typer.Typer()
    commands.register(app)
    group = get_command(app)
    registered = vars(group)["commands"]
    assert registered.keys() == COMMANDS
    for name, command in registered.items():
        assert re.search(rf"`{name}\b", TEXT), name
        for parameter in command.params:
            long = [option for option in parameter.opts if option.startswith("--")]
            assert all(option in TEXT for option in long), (name, long)
