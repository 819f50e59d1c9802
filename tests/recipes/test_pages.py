"""The list of recipes has every page."""

import re

from tests.recipes.recipe import DOCS


def test_every_page_is_in_the_list() -> None:
    listed = set(re.findall(r"\(([\w-]+\.md)\)", (DOCS / "README.md").read_text()))
    assert listed == {path.name for path in DOCS.glob("*.md")} - {"README.md"}
