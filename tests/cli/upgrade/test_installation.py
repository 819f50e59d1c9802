"""How Outrider was installed, from what installers leave, and the command that upgrades it."""

import json
from importlib.metadata import Distribution
from pathlib import Path
from typing import Any

import pytest

from outrider.cli.upgrade.installation import (
    Installation,
    Installer,
    find,
    upgrade_commands,
)

PYTHON = "/opt/my env/bin/python"
FOLDER: dict[str, Any] = {"url": "file:///srv/my%20outrider", "dir_info": {}}
CHECKOUT = FOLDER | {"dir_info": {"editable": True}}
FILE: dict[str, Any] = {"url": "file:///tmp/outrider-1-py3-none-any.whl", "archive_info": {}}
QUOTED = "'/srv/my outrider'"
PULL = f"git -C {QUOTED} pull"
INDEX = "https://packages.example"
PIP = f"'{PYTHON}' -m pip install"
WHEEL = "./outrider-VERSION-py3-none-any.whl"
PIPX, UV_TOOL = "pipx_metadata.json", "uv-receipt.toml"


def installed(prefix: Path, installer: str, origin: dict[str, Any]) -> Installation:
    """Return the installation of an environment that has these metadata.

    The path of its Python has a space in it.
    """
    metadata = prefix / "outrider-1.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "INSTALLER").write_text(f"{installer}\n")
    if origin:
        (metadata / "direct_url.json").write_text(json.dumps(origin))
    return find(prefix, Distribution.at(metadata))._replace(python=PYTHON)


@pytest.mark.parametrize(
    ("installer", "mark", "origin", "expected", "commands"),
    [
        ("pip", None, {}, Installer.PIP, [f"{PIP} {WHEEL}"]),
        ("pip", None, FILE, Installer.PIP, [f"{PIP} {WHEEL}"]),
        ("uv", None, {}, Installer.UV_PIP, [f"uv pip install --python '{PYTHON}' {WHEEL}"]),
        ("pip", PIPX, {}, Installer.PIPX, [f"pipx install --force {WHEEL}"]),
        ("uv", PIPX, FILE, Installer.PIPX, [f"pipx install --force {WHEEL}"]),
        ("uv", UV_TOOL, FILE, Installer.UV_TOOL, [f"uv tool install --force {WHEEL}"]),
        ("uv", UV_TOOL, FOLDER, Installer.UV_TOOL, [PULL, f"uv tool install --force {QUOTED}"]),
        (
            "pip",
            None,
            FOLDER,
            Installer.PIP,
            [PULL, f"{PIP} --constraint {QUOTED}/constraints.txt {QUOTED}"],
        ),
        ("pip", None, CHECKOUT, Installer.CHECKOUT, [PULL, f"make -C {QUOTED} up"]),
        (
            "pip",
            "container-image",
            FILE,
            Installer.CONTAINER,
            ["git pull", "docker build -f deploy/Dockerfile -t outrider ."],
        ),
        ("debian", None, {}, Installer.OTHER, []),
    ],
)
def test_each_installer_is_recognized_and_has_its_commands(
    tmp_path: Path,
    installer: str,
    mark: str | None,
    origin: dict[str, Any],
    expected: Installer,
    commands: list[str],
) -> None:
    if mark is not None:
        (tmp_path / mark).touch()
    installation = installed(tmp_path, installer, origin)
    assert installation.installer is expected
    assert not installation.is_agent_only
    assert upgrade_commands(installation) == commands


def test_an_environment_in_the_cache_of_uv_is_made_again(tmp_path: Path) -> None:
    installation = installed(tmp_path / "archive-v0" / "k3J", "uv", {})
    assert upgrade_commands(installation) == [f"uvx --from {WHEEL} outrider up"]


def test_the_machine_agent_alone_is_installed_without_dependencies_of_the_service() -> None:
    installation = Installation(Installer.PIP, PYTHON, is_agent_only=True)
    files = "outrider-2.0-agent.txt ./outrider-2.0-py3-none-any.whl"
    command = f"{PIP} --no-deps --requirement {files}"
    assert upgrade_commands(installation, version="2.0") == [command]


def test_damaged_metadata_count_as_another_installer(tmp_path: Path) -> None:
    (tmp_path / "direct_url.json").write_text("[")
    assert find(tmp_path, Distribution.at(tmp_path)).installer is Installer.OTHER


@pytest.mark.parametrize(
    ("installer", "expected"),
    [
        (Installer.PIP, f"python -m pip install --index-url {INDEX} outrider==2.0"),
        (Installer.PIPX, f"pipx install --force --index-url {INDEX} outrider==2.0"),
        (Installer.UVX, f"uvx --default-index {INDEX} --from outrider==2.0 outrider up"),
    ],
)
def test_the_index_that_was_chosen_is_used_without_its_password(
    installer: Installer, expected: str
) -> None:
    installation = Installation(installer, "python")
    index = "https://me:hush@packages.example"
    assert upgrade_commands(installation, version="2.0", index=index) == [expected]
