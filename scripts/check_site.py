"""Checks the built documentation, the directory of which is the argument.

Every link leads to a file and an anchor of the site, every page is in the navigation, nothing is
loaded from another origin, and no list or table was left as text, which Markdown on GitHub accepts
without a blank line before it.
"""

import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADING = {"img", "script", "source", "iframe", "audio", "video", "link"}
UNPARSED = re.compile(r"^(?:[-*] |\d+\. |\|)", re.MULTILINE)


class Page(HTMLParser):
    """The links, anchors and unparsed Markdown of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[tuple[str, str]] = []
        self.unparsed: list[str] = []
        self._in_paragraph = False
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        """Collect the anchors and links of an element."""
        self._in_paragraph = tag == "p" or (self._in_paragraph and tag not in {"pre", "li", "td"})
        for name, value in attributes:
            if name in {"id", "name"} and value:
                self.anchors.add(value)
            elif name in {"href", "src"} and value:
                self.links.append((tag, value))
            elif name == "srcset" and value:
                self.links += [(tag, part.split()[0]) for part in value.split(",")]

    def handle_endtag(self, tag: str) -> None:
        """Leave a paragraph."""
        self._in_paragraph = self._in_paragraph and tag != "p"

    def handle_data(self, data: str) -> None:
        """Collect lines that begin like a list or a table."""
        if self._in_paragraph and (found := UNPARSED.search(data.strip())):
            self.unparsed.append(data[found.start() : found.start() + 40])


def faults(site: Path) -> Iterator[str]:
    """Give a line for each fault."""
    pages = {path.resolve(): Page(path) for path in sorted(site.rglob("*.html"))}
    for path, page in pages.items():
        where = path.relative_to(site)
        yield from (f"{where}: not parsed: {text!r}" for text in page.unparsed)
        for tag, link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                if tag in LOADING and parts.scheme != "data":
                    yield f"{where}: loads {link}"
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            if parts.path.startswith("/") or not target.exists():
                yield f"{where}: {link} leads nowhere"
            elif target in pages and unquote(parts.fragment) not in {"", *pages[target].anchors}:
                yield f"{where}: {link} has no such anchor"
    for path in sorted(site.rglob("*.css")):
        for url in re.findall(r"url\(['\"]?(https?:[^)]*)\)", path.read_text(encoding="utf-8")):
            yield f"{path.relative_to(site)}: loads {url}"


def main() -> int:
    """Print the faults; return 1 if there are any."""
    site = Path(sys.argv[1]).resolve()
    found = sorted(set(faults(site)))
    for fault in found:
        print(fault, file=sys.stderr)  # noqa: T201
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
