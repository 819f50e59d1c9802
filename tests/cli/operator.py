"""Somebody at the command line of one installation."""

import json
import sqlite3
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from outrider.cli import admin


class Operator:
    """Runs `outrider admin` on a data directory."""

    def __init__(self, data_dir: Path) -> None:
        self.database = data_dir / "outrider.db"
        self._runner = CliRunner()

    def succeeds(self, *arguments: str) -> Any:
        """Run a command with `--json`; return what it printed."""
        result = self._runner.invoke(admin.app, [*arguments, "--json"])
        assert result.exit_code == 0, result.output
        (line,) = result.stdout.splitlines()
        return json.loads(line)

    def says(self, *arguments: str) -> str:
        """Run a command for people; return what it printed."""
        result = self._runner.invoke(admin.app, arguments)
        assert result.exit_code == 0, result.output
        return result.stdout

    def fails(self, *arguments: str, code: int = 1, typed: str | None = None) -> str:
        """Run a command that is refused; return the sentence that says why.

        Args:
            typed: its standard input, which is no terminal.
        """
        result = self._runner.invoke(admin.app, [*arguments, "--json"], input=typed)
        assert result.exit_code == code, result.output
        assert result.stdout == ""
        (line,) = result.stderr.splitlines()
        assert line.startswith("outrider: ")
        return line

    def row(self, query: str) -> Any:
        """Return the first row of a query on the database."""
        connection = sqlite3.connect(self.database)
        try:
            return connection.execute(query).fetchone()
        finally:
            connection.close()
