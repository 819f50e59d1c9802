"""Every page is in the navigation, and every link and citation leads to a file and a heading.

`make docs` checks the built site as well; this needs no generator.
"""

import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(
    [
        *(ROOT / name for name in ("README.md", "SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md")),
        *DOCS.rglob("*.md"),
        *(ROOT / "contributing").glob("*.md"),
    ]
)

_FENCE = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`[^`\n]+`")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_ATTRIBUTE = re.compile(r"\b(?:src|srcset|href)=\"([^\"\s]+)\"")


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _listed(entry: Any) -> list[str]:
    """Return the paths of an entry of `nav`."""
    if isinstance(entry, str):
        return [entry]
    children = entry.values() if isinstance(entry, dict) else entry
    return [path for child in children for path in _listed(child)]


def test_every_page_is_in_the_navigation_once() -> None:
    configuration = tomllib.loads((DOCS / "zensical.toml").read_text())
    assert sorted(_listed(configuration["project"]["nav"])) == sorted(map(_name, PAGES)), (
        "list every page in `nav` of docs/zensical.toml"
    )


@cache
def _anchors(page: Path) -> set[str]:
    """Return the anchors of the headings, as GitHub and the site make them."""
    text = _FENCE.sub("", page.read_text())
    headings = re.findall(r"^#+ +(.+?) *$", text, re.MULTILINE)
    return {_anchor(heading) for heading in headings}


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_its_links_lead_somewhere(page: Path) -> None:
    text = _CODE.sub("", _FENCE.sub("", page.read_text()))
    for link in _LINK.findall(text) + _ATTRIBUTE.findall(text):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.is_file(), link
        assert target in PAGES or DOCS in target.parents, f"{link} is not part of the site"
        if anchor:
            assert anchor in _anchors(target), link


def _sources() -> Iterator[Path]:
    for folder in ("src", "tests", "benchmarks"):
        yield from (ROOT / folder).rglob("*.py")


def test_the_pages_that_the_code_cites_exist() -> None:
    """A citation is a path below docs/ or contributing/, and perhaps a heading's beginning."""
    wrong = []
    for path in _sources():
        text = " ".join(path.read_text().split())
        for page, heading in re.findall(
            r"\b((?:docs|contributing)/[\w/-]+\.md)\b(?:, \"([^\"]+)\")?", text
        ):
            anchor = _anchor(heading)
            if not (ROOT / page).is_file() or not any(
                found.startswith(anchor) for found in _anchors(ROOT / page)
            ):
                wrong.append(f"{_name(path)}: {page} {heading}")
    assert wrong == []
