"""What the tests of the command line share."""

from pathlib import Path

import pytest

from tests.cli.operator import Operator
from tests.rig.stores import SQLite


@pytest.fixture
def operator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sqlite: SQLite) -> Operator:
    """An operator with an installation of the test's own."""
    sqlite.migrated(tmp_path / "data")
    monkeypatch.setenv("OUTRIDER_DATA_DIR", str(tmp_path / "data"))
    return Operator(tmp_path / "data")


@pytest.fixture
def account(operator: Operator) -> str:
    """The id of an account whose user is a@example.org."""
    made = operator.succeeds("account", "create", "--email", "a@example.org")
    return str(made["accountId"])
