"""No text tells anybody to install Outrider by its name: it is in no package index."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PLACES = ("README.md", "SECURITY.md", "docs", "deploy", "src/outrider", "web/src", "clients")
BY_NAME = re.compile(
    r"\b(?:pip|pipx|uv|uvx) (?:(?:tool|pip|install|upgrade|run|--?\S+) )*['\"]?outrider(?![-\w/])"
)


def texts() -> list[Path]:
    """Return the files that people read, or that print what people read."""
    files = [path for place in PLACES for path in [ROOT / place, *(ROOT / place).rglob("*")]]
    kinds = {".md", ".py", ".ts", ".tsx", ".service", ".yaml", ".toml"}
    return [
        path
        for path in files
        if path.suffix in kinds and path.is_file() and "node_modules" not in path.parts
    ]


def test_nothing_says_to_install_it_by_its_name() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in texts()
        for match in BY_NAME.finditer(path.read_text())
    ]
    assert found == []
