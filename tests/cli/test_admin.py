"""`outrider admin`: what each command prints and what it refuses.

Holds contract.md, "Command line and settings": the JSON of every command, exactly.
"""

import json
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from outrider.cli import admin
from outrider.cloud.access import passwords

SCOPES = {
    "ide:read",
    "ide:control",
    "agent:read",
    "agent:control",
    "terminal:exec",
    "webhook:manage",
}


class Operator:
    """Somebody at the command line of one installation."""

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

    def fails(self, *arguments: str, code: int = 1) -> str:
        """Run a command that is refused; return the sentence that says why."""
        result = self._runner.invoke(admin.app, [*arguments, "--json"])
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


@pytest.fixture
def operator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Operator:
    """An operator with an installation of the test's own."""
    (tmp_path / "data").mkdir()
    monkeypatch.setenv("OUTRIDER_DATA_DIR", str(tmp_path / "data"))
    return Operator(tmp_path / "data")


@pytest.fixture
def account(operator: Operator) -> str:
    """The id of an account whose user is a@example.org."""
    made = operator.succeeds("account", "create", "--email", "a@example.org")
    return str(made["accountId"])


def test_migrate_can_be_repeated(operator: Operator) -> None:
    assert operator.succeeds("migrate") == {"migrated": True}
    assert operator.succeeds("migrate") == {"migrated": True}
    assert operator.database.exists()


class TestAccount:
    def test_create(self, operator: Operator) -> None:
        made = operator.succeeds("account", "create", "--email", "a@example.org", "--plan", "team")
        assert made.keys() == {"accountId", "userId"}
        assert made["accountId"].startswith("acct_")
        assert made["userId"].startswith("user_")
        assert operator.row("SELECT plan FROM accounts") == ("team",)

    def test_the_plan_is_free_without_one(self, operator: Operator, account: str) -> None:
        assert operator.row("SELECT plan FROM accounts") == ("free",)

    @pytest.mark.parametrize("given", ["option", "environment"])
    def test_the_password(
        self, operator: Operator, monkeypatch: pytest.MonkeyPatch, given: str
    ) -> None:
        """contract.md: OUTRIDER_PASSWORD may stand for --password; only argon2id is kept."""
        arguments = ["account", "create", "--email", "a@example.org"]
        if given == "option":
            arguments += ["--password", "correct horse"]
        else:
            monkeypatch.setenv("OUTRIDER_PASSWORD", "correct horse")
        operator.succeeds(*arguments)
        (kept,) = operator.row("SELECT password_hash FROM users")
        assert kept.startswith("$argon2id$")
        assert passwords.matches(kept, "correct horse")
        assert not passwords.matches(kept, "wrong horse")

    @pytest.mark.parametrize("email", ["a@example.org", "A@Example.org", " a@example.org "])
    def test_an_email_belongs_to_one_user(
        self, operator: Operator, account: str, email: str
    ) -> None:
        assert "exists already" in operator.fails("account", "create", "--email", email)

    @pytest.mark.parametrize("email", ["", "nobody", "a@", "@b", "a b@c", "a@b@c"])
    def test_what_is_no_email(self, operator: Operator, email: str) -> None:
        assert "not an email" in operator.fails("account", "create", "--email", email, code=2)

    def test_unknown_plan(self, operator: Operator) -> None:
        said = operator.fails("account", "create", "--email", "a@b", "--plan", "gold", code=2)
        assert all(plan in said for plan in ("free", "pro", "team", "enterprise"))


class TestKey:
    def test_create(self, operator: Operator, account: str) -> None:
        """Without scopes it has every one; the key itself is not kept."""
        made = operator.succeeds("key", "create", "--account", "a@example.org", "--name", "ci")
        assert made.keys() == {"id", "key"}
        assert made["id"].startswith("key_")
        assert made["key"].startswith("ork_")
        (listed,) = operator.succeeds("key", "list", "--account", account)["keys"]
        assert listed.keys() == {
            "id",
            "name",
            "prefix",
            "scopes",
            "createdAt",
            "expiresAt",
            "revokedAt",
            "lastUsedAt",
        }
        assert (listed["id"], listed["name"], listed["expiresAt"]) == (made["id"], "ci", None)
        assert set(listed["scopes"]) == SCOPES
        assert made["key"].encode() not in operator.database.read_bytes()

    @pytest.mark.parametrize(
        "given",
        [["--scope", "ide:read", "--scope", "agent:read"], ["--scope", "ide:read, agent:read"]],
    )
    def test_scopes(self, operator: Operator, account: str, given: list[str]) -> None:
        operator.succeeds("key", "create", "--account", account, "--name", "k", *given)
        (listed,) = operator.succeeds("key", "list", "--account", account)["keys"]
        assert listed["scopes"] == ["agent:read", "ide:read"]

    @pytest.mark.parametrize(
        ("given", "seconds"), [("45s", 45), ("90m", 5400), ("12h", 43200), ("30d", 2_592_000)]
    )
    def test_expiry(self, operator: Operator, account: str, given: str, seconds: int) -> None:
        arguments = ["--account", account, "--name", "k", "--expires-in", given]
        operator.succeeds("key", "create", *arguments)
        (listed,) = operator.succeeds("key", "list", "--account", account)["keys"]
        assert listed["expiresAt"] - listed["createdAt"] == seconds * 1000
        assert abs(listed["createdAt"] - time.time() * 1000) < 60_000

    @pytest.mark.parametrize("given", ["", "30", "d", "0d", "-1d", "1.5d", "30 days", "1y"])
    def test_what_is_no_duration(self, operator: Operator, account: str, given: str) -> None:
        arguments = ["--account", account, "--name", "k", f"--expires-in={given}"]
        assert "30d" in operator.fails("key", "create", *arguments, code=2)

    @pytest.mark.parametrize("given", ["", "ide", "ide:write", "ide:read,all"])
    def test_unknown_scope(self, operator: Operator, account: str, given: str) -> None:
        arguments = ["--account", account, "--name", "k", "--scope", given]
        said = operator.fails("key", "create", *arguments, code=2)
        assert all(scope in said for scope in SCOPES)

    def test_unknown_account(self, operator: Operator, account: str) -> None:
        arguments = ["--account", "b@example.org", "--name", "k"]
        assert "b@example.org" in operator.fails("key", "create", *arguments)
        assert "b@example.org" in operator.fails("key", "list", "--account", "b@example.org")

    def test_revoke(self, operator: Operator, account: str) -> None:
        made = operator.succeeds("key", "create", "--account", account, "--name", "k")
        revoked = operator.succeeds("key", "revoke", made["id"])
        assert revoked == {"id": made["id"], "revoked": True}
        (listed,) = operator.succeeds("key", "list", "--account", account)["keys"]
        assert listed["revokedAt"] >= listed["createdAt"]
        assert made["id"] in operator.fails("key", "revoke", made["id"])
        assert "key_unknown" in operator.fails("key", "revoke", "key_unknown")


class TestEnroll:
    def test_enroll(self, operator: Operator, account: str) -> None:
        """contract.md: a one-time code, good for ten minutes."""
        made = operator.succeeds("enroll", "--account", account, "--nickname", "Bench")
        assert made.keys() == {"code", "expiresAt"}
        assert abs(made["expiresAt"] / 1000 - time.time() - 600) < 60

    def test_unknown_account(self, operator: Operator) -> None:
        assert "a@example.org" in operator.fails("enroll", "--account", "a@example.org")


@pytest.mark.parametrize("name", ["box\x1b[2J", "two\nlines", "x" * 257])
def test_a_name_that_is_none(operator: Operator, account: str, name: str) -> None:
    """It would reach other people's terminals."""
    assert "`nickname`" in operator.fails("enroll", "--account", account, "--nickname", name)
    assert "`name`" in operator.fails("key", "create", "--account", account, "--name", name)


def test_without_json_people_are_told(operator: Operator) -> None:
    """The same facts, in words."""
    assert "a@example.org" in operator.says("account", "create", "--email", "a@example.org")
    assert "ork_" in operator.says("key", "create", "--account", "a@example.org", "--name", "k")
    listed = operator.says("key", "list", "--account", "a@example.org")
    assert "last used never" in listed
    operator.says("key", "revoke", listed.split()[0])
    assert "revoked" in operator.says("key", "list", "--account", "a@example.org")
    assert "outrider setup --code" in operator.says("enroll", "--account", "a@example.org")
