"""The version is `outrider.__version__`; what has to repeat it has the same."""

import json
import re
import tomllib
from pathlib import Path

from outrider import __version__

ROOT = Path(__file__).parents[2]


def test_the_package_takes_its_version_from_the_sources() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["project"]["dynamic"] == ["version"]
    assert re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc)\d+)?", __version__)


def test_the_client_for_typescript_has_the_version() -> None:
    """npm needs one in this file."""
    client = json.loads((ROOT / "clients" / "typescript" / "package.json").read_text())
    assert client["version"] == __version__


def test_the_dashboard_has_no_version_of_its_own() -> None:
    assert "version" not in json.loads((ROOT / "web" / "package.json").read_text())
