"""docs/agents has every built-in agent, with the facts of its provider file."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "agents"
FILES = sorted((ROOT / "src" / "outrider" / "machine" / "providers").glob("*.toml"))
PAGE_OF = {
    "claude-acp": "claude-code",
    "codex-acp": "codex",
    "gemini-acp": "gemini-cli",
    "opencode-acp": "opencode",
}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_an_agents_page(file: Path) -> None:
    spec = tomllib.loads(file.read_text())
    overview = (PAGES / "README.md").read_text()
    assert f"`{spec['type']}`" in overview or spec["display_name"].split()[-1] in overview
    if not spec["verified"] or spec.get("demo"):
        return
    page = (PAGES / f"{PAGE_OF.get(file.stem, file.stem)}.md").read_text()
    assert f"`{spec['type']}`" in page
    assert f"`{spec['install'].split(' (')[0]}`" in page
    seen = re.search(r"Seen with ([^;\n]+?)(?:;|\. |$)", file.read_text(), re.MULTILINE)
    assert seen is not None
    for version in re.findall(r"\d+\.\d+\.\d+", seen[1]):
        assert version in page, version
