"""What the tests of workspaces share."""

import os
from pathlib import Path

import pytest

from outrider.contract.commands import ChangedFile, Changes
from outrider.machine.workspace.workspaces import Workspaces
from tests.machine.workspace.repositories import Repo, repository
from tests.rig.waiting import TIMEOUT


@pytest.fixture(autouse=True)
def no_settings_of_this_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "no settings"))


@pytest.fixture
def workspaces() -> Workspaces:
    return Workspaces(seconds=TIMEOUT)


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    """A repository with one commit of one file."""
    made = repository(tmp_path / "repo")
    made.commit(text="one\ntwo\n")
    return made


def by_path(changes: Changes) -> dict[str, ChangedFile]:
    return {file.path: file for file in changes.files}
