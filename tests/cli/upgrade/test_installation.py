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


def found(prefix: Path, installer: str, origin: dict[str, Any], *, has_service: bool) -> Any:
    """Return the installation of an environment that has these metadata."""
    metadata = prefix / "outrider-1.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "INSTALLER").write_text(f"{installer}\n")
    if origin:
        (metadata / "direct_url.json").write_text(json.dumps(origin))
    return find(prefix, Distribution.at(metadata), PYTHON, has_service)


@pytest.mark.parametrize(
    ("installer", "mark", "origin", "expected", "commands"),
    [
        (
            "pip",
            None,
            {},
            Installer.PIP,
            ["'{}' -m pip install ./outrider-VERSION-py3-none-any.whl"],
        ),
        (
            "pip",
            None,
            FILE,
            Installer.PIP,
            ["'{}' -m pip install ./outrider-VERSION-py3-none-any.whl"],
        ),
        (
            "uv",
            None,
            {},
            Installer.UV_PIP,
            ["uv pip install --python '{}' ./outrider-VERSION-py3-none-any.whl"],
        ),
        (
            "pip",
            "pipx_metadata.json",
            {},
            Installer.PIPX,
            ["pipx install --force ./outrider-VERSION-py3-none-any.whl"],
        ),
        (
            "uv",
            "pipx_metadata.json",
            FILE,
            Installer.PIPX,
            ["pipx install --force ./outrider-VERSION-py3-none-any.whl"],
        ),
        (
            "uv",
            "uv-receipt.toml",
            {},
            Installer.UV_TOOL,
            ["uv tool install --force ./outrider-VERSION-py3-none-any.whl"],
        ),
        (
            "uv",
            "uv-receipt.toml",
            FILE,
            Installer.UV_TOOL,
            ["uv tool install --force ./outrider-VERSION-py3-none-any.whl"],
        ),
        (
            "uv",
            "uv-receipt.toml",
            FOLDER,
            Installer.UV_TOOL,
            [PULL, "uv tool install --force '/srv/my outrider'"],
        ),
        (
            "pip",
            None,
            FOLDER,
            Installer.PIP,
            [
                PULL,
                f"'{{}}' -m pip install --constraint {QUOTED}/constraints.txt {QUOTED}",
            ],
        ),
        ("pip", None, CHECKOUT, Installer.CHECKOUT, [PULL, "make -C '/srv/my outrider' up"]),
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
def test_each_installer(
    tmp_path: Path,
    installer: str,
    mark: str | None,
    origin: dict[str, Any],
    expected: Installer,
    commands: list[str],
) -> None:
    if mark is not None:
        (tmp_path / mark).touch()
    one = found(tmp_path, installer, origin, has_service=True)
    assert one.installer is expected
    assert not one.is_agent_only
    assert upgrade_commands(one) == [command.format(PYTHON) for command in commands]


def test_an_environment_in_the_cache_of_uv(tmp_path: Path) -> None:
    one = found(tmp_path / "archive-v0" / "k3J", "uv", {}, has_service=True)
    assert upgrade_commands(one) == ["uvx --from ./outrider-VERSION-py3-none-any.whl outrider up"]


def test_the_machine_agent_alone(tmp_path: Path) -> None:
    one = found(tmp_path, "pip", FILE, has_service=False)
    assert one.is_agent_only
    files = "outrider-2.0-agent.txt ./outrider-2.0-py3-none-any.whl"
    command = f"'{PYTHON}' -m pip install --no-deps --requirement {files}"
    assert upgrade_commands(one, version="2.0") == [command]


def test_damaged_metadata(tmp_path: Path) -> None:
    (tmp_path / "direct_url.json").write_text("[")
    one = find(tmp_path, Distribution.at(tmp_path), PYTHON, has_service=True)
    assert one == Installation(Installer.OTHER, PYTHON)


def test_the_index_that_was_chosen_is_used_without_its_password() -> None:
    for installer, expected in (
        (Installer.PIP, f"python -m pip install --index-url {INDEX} outrider==2.0"),
        (Installer.PIPX, f"pipx install --force --index-url {INDEX} outrider==2.0"),
        (Installer.UVX, f"uvx --default-index {INDEX} --from outrider==2.0 outrider up"),
    ):
        one = Installation(installer, "python")
        index = "https://me:hush@packages.example"
        assert upgrade_commands(one, version="2.0", index=index) == [expected]
