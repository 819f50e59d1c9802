"""The tools, installed, and the description as a file."""

import json
import os
import subprocess
from pathlib import Path
from typing import Final

import pytest

from outrider.service.endpoints import ENDPOINTS
from outrider.service.http.openapi import describe

_ROOT: Final = Path(__file__).parents[2]


class Tools:
    """Runs the installed tools in a directory of the test's own."""

    def __init__(self, installed: Path, directory: Path) -> None:
        self.directory = directory
        self.python = installed / "venv" / "bin" / "python"
        self._path = os.pathsep.join(
            [str(installed / "node_modules" / ".bin"), str(self.python.parent), os.environ["PATH"]]
        )

    def run(self, *command: str | Path) -> str:
        """Run a command and return what it prints; fail unless it succeeds."""
        done = subprocess.run(
            command,
            cwd=self.directory,
            env=os.environ | {"PATH": self._path, "REDOCLY_TELEMETRY": "off"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=100,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout


@pytest.fixture(scope="session")
def installed() -> Path:
    """The tools' directory."""
    folder = _ROOT / ".cache" / "openapi"
    if not folder.exists():
        pytest.fail("The tools are missing: `make test-openapi` installs them")
    return folder


@pytest.fixture
def tools(installed: Path, tmp_path: Path) -> Tools:
    """The tools, with the description as `openapi.json`."""
    (tmp_path / "openapi.json").write_text(json.dumps(describe(ENDPOINTS), indent=1))
    return Tools(installed, tmp_path)
