"""`outrider backup` and `outrider restore` as their user sees them."""

import json
from pathlib import Path

from typer.testing import CliRunner

from outrider.cli.main import app
from tests.cli.operator import Operator


def test_a_restored_backup_has_the_deleted_account(
    operator: Operator, account: str, tmp_path: Path
) -> None:
    data = operator.database.parent
    (data / "secret.key").write_text("k" * 32 + "\n")
    (data / "secret.key").chmod(0o600)
    runner, file = CliRunner(), str(tmp_path / "backup.zip")

    made = runner.invoke(app, ["backup", file])
    assert made.exit_code == 0, made.output
    assert "keep it as safe as a password" in made.stdout
    again = runner.invoke(app, ["backup", file])
    assert again.exit_code == 1
    assert again.stderr.startswith(f"outrider: {file} exists already")
    as_json = runner.invoke(app, ["backup", file, "--force", "--json"])
    assert json.loads(as_json.stdout)["hasSecretKey"] is True

    operator.succeeds("account", "delete", "--email", "a@example.org", "--yes")
    restored = runner.invoke(app, ["restore", file, "--force"])
    assert restored.exit_code == 0, restored.output
    assert "outrider.db.before-restore-" in restored.stdout
    assert operator.row("SELECT id FROM accounts") == (account,)
