"""What the tests of the command line share."""

from pathlib import Path

import pytest

from tests.cli.operator import Operator


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
