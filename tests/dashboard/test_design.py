"""contributing/dashboard-design.md has every colour of the stylesheet; each is used."""

import re

from tests.dashboard.conftest import ROOT

_COLOUR = re.compile(r"--color-([a-z-]+): (?:light-dark\((#\w+), (#\w+)\)|(#\w+));")


def test_each_colour_is_described() -> None:
    styles = (ROOT / "web" / "src" / "styles.css").read_text()
    document = (ROOT / "contributing" / "dashboard-design.md").read_text()
    colours = {
        (name, light or both, dark or both) for name, light, dark, both in _COLOUR.findall(styles)
    }
    described = re.findall(r"^\| `([a-z-]+)` \| `(#\w+)` \| `(#\w+)` \|", document, re.MULTILINE)
    assert len(colours) > 20
    assert set(described) == colours


def test_each_colour_is_used() -> None:
    """As a variable, or as the end of a class of Tailwind's."""
    folder = ROOT / "web" / "src"
    sources = "\n".join(
        path.read_text() for path in folder.rglob("*") if path.suffix in {".css", ".ts", ".tsx"}
    )
    names = {match[1] for match in _COLOUR.finditer(sources)}
    assert len(names) > 20
    used = {name for name in names if re.search(rf"(var\(--color|[a-z])-{name}(?![\w:-])", sources)}
    assert names - used == set()
