"""Escape messages that an agent would execute as commands instead of reading them."""

import re


class Guards:
    """Escapes messages that an agent would take for commands of its own.

    Args:
        before: messages that match this pattern get `mark` in front.
        behind: messages that match this pattern get a space at the end.
    """

    def __init__(
        self, before: str | None = None, behind: str | None = None, mark: str = " "
    ) -> None:
        self._mark = mark
        self._before = None if before is None else re.compile(before)
        self._behind = None if behind is None else re.compile(behind)

    def add(self, text: str) -> str:
        """Return `text` as it is sent to the agent."""
        before = self._mark if self._before is not None and self._before.search(text) else ""
        behind = " " if self._behind is not None and self._behind.search(text) else ""
        return before + text + behind

    def remove(self, text: str) -> str:
        """Return the argument of `add`; the agent may have stripped the space at the end."""
        bare = text.removeprefix(self._mark)
        if self._before is not None and bare != text and self._before.search(bare):
            text = bare
        if self._behind is not None and text.endswith(" ") and self._behind.search(text[:-1]):
            text = text[:-1]
        return text
