"""`outrider admin`: what each command prints and what it refuses.

The JSON of every command, exactly; docs/access.md has the commands.
"""

import time

import pytest

from outrider.contract.account import Scope
from tests.cli.operator import Operator
from tests.rig.stores import damage_table


def test_migrate_can_be_repeated(operator: Operator) -> None:
    assert operator.succeeds("migrate") == {"migrated": True}
    assert operator.succeeds("migrate") == {"migrated": True}
    assert operator.database.exists()


def test_migrate_says_that_the_database_is_damaged(operator: Operator) -> None:
    damage_table(operator.database, "machines")
    assert "cannot be read" in operator.fails("migrate")


class TestKey:
    def test_create_shows_the_key_once_and_stores_none(
        self, operator: Operator, account: str
    ) -> None:
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
        assert set(listed["scopes"]) == set(Scope)
        assert made["key"].encode() not in operator.database.read_bytes()

    @pytest.mark.parametrize(
        "given",
        [["--scope", "ide:read", "--scope", "agent:read"], ["--scope", "ide:read, agent:read"]],
    )
    def test_scopes_are_repeated_or_separated_by_commas(
        self, operator: Operator, account: str, given: list[str]
    ) -> None:
        operator.succeeds("key", "create", "--account", account, "--name", "k", *given)
        (listed,) = operator.succeeds("key", "list", "--account", account)["keys"]
        assert listed["scopes"] == ["agent:read", "ide:read"]

    @pytest.mark.parametrize(
        ("given", "seconds"), [("45s", 45), ("90m", 5400), ("12h", 43200), ("30d", 2_592_000)]
    )
    def test_a_key_expires_after_its_duration(
        self, operator: Operator, account: str, given: str, seconds: int
    ) -> None:
        arguments = ["--account", account, "--name", "k", "--expires-in", given]
        operator.succeeds("key", "create", *arguments)
        (listed,) = operator.succeeds("key", "list", "--account", account)["keys"]
        assert listed["expiresAt"] - listed["createdAt"] == seconds * 1000
        assert abs(listed["createdAt"] - time.time() * 1000) < 60_000

    @pytest.mark.parametrize("given", ["", "30", "d", "0d", "-1d", "1.5d", "30 days", "1y"])
    def test_what_is_no_duration_is_refused(
        self, operator: Operator, account: str, given: str
    ) -> None:
        arguments = ["--account", account, "--name", "k", f"--expires-in={given}"]
        assert "30d" in operator.fails("key", "create", *arguments, code=2)

    @pytest.mark.parametrize("given", ["", "ide", "ide:write", "ide:read,all"])
    def test_an_unknown_scope_is_refused_with_the_known_ones(
        self, operator: Operator, account: str, given: str
    ) -> None:
        arguments = ["--account", account, "--name", "k", "--scope", given]
        sentence = operator.fails("key", "create", *arguments, code=2)
        assert all(scope in sentence for scope in Scope)

    def test_an_unknown_account_is_refused(self, operator: Operator, account: str) -> None:
        arguments = ["--account", "b@example.org", "--name", "k"]
        assert "b@example.org" in operator.fails("key", "create", *arguments)
        assert "b@example.org" in operator.fails("key", "list", "--account", "b@example.org")

    def test_revoke_ends_a_key_once(self, operator: Operator, account: str) -> None:
        made = operator.succeeds("key", "create", "--account", account, "--name", "k")
        revoked = operator.succeeds("key", "revoke", made["id"])
        assert revoked == {"id": made["id"], "revoked": True}
        (listed,) = operator.succeeds("key", "list", "--account", account)["keys"]
        assert listed["revokedAt"] >= listed["createdAt"]
        assert made["id"] in operator.fails("key", "revoke", made["id"])
        assert "key_unknown" in operator.fails("key", "revoke", "key_unknown")


class TestEnroll:
    def test_enroll_gives_a_code_for_ten_minutes(self, operator: Operator, account: str) -> None:
        """docs/access.md, Connecting machines: a one-time code is valid for ten minutes."""
        made = operator.succeeds("enroll", "--account", account, "--nickname", "Bench")
        assert made.keys() == {"code", "expiresAt"}
        assert abs(made["expiresAt"] / 1000 - time.time() - 600) < 60

    def test_an_unknown_account_is_refused(self, operator: Operator) -> None:
        assert "a@example.org" in operator.fails("enroll", "--account", "a@example.org")


@pytest.mark.parametrize("name", ["box\x1b[2J", "two\nlines", "x" * 257])
def test_names_that_a_terminal_would_obey_are_refused(
    operator: Operator, account: str, name: str
) -> None:
    """It would reach other people's terminals."""
    assert "`nickname`" in operator.fails("enroll", "--account", account, "--nickname", name)
    assert "`name`" in operator.fails("key", "create", "--account", account, "--name", name)


def test_without_json_the_same_facts_are_in_words(operator: Operator) -> None:
    """The same facts, in words."""
    assert "a@example.org" in operator.says("account", "create", "--email", "a@example.org")
    assert "ork_" in operator.says("key", "create", "--account", "a@example.org", "--name", "k")
    listed = operator.says("key", "list", "--account", "a@example.org")
    assert "last used never" in listed
    operator.says("key", "revoke", listed.split()[0])
    assert "revoked" in operator.says("key", "list", "--account", "a@example.org")
    assert "outrider setup --server http://127.0.0.1:8400 --code " in operator.says(
        "enroll", "--account", "a@example.org"
    )
