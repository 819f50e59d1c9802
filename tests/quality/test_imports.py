"""The arrows of the architecture: which package may import which."""

from pathlib import Path

import pytest
from importlinter.application.use_cases import lint_imports
from importlinter.cli import lint_imports_command  # noqa: F401  # its import registers the parts

ROOT = Path(__file__).parents[2]


def test_the_arrows_point_one_way(capsys: pytest.CaptureFixture[str]) -> None:
    """The contracts are in pyproject.toml; `lint-imports` tells the same at the prompt."""
    kept = lint_imports(config_filename=str(ROOT / "pyproject.toml"), cache_dir=None, no_logo=True)
    assert kept, capsys.readouterr().out
