"""Escape messages that an agent would execute as commands instead of reading them."""

from outrider.machine.agents.patterns import Pattern, pattern


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
        self._before = None if before is None else pattern(before)
        self._behind = None if behind is None else pattern(behind)

    def add(self, text: str) -> str:
        """Return `text` as it is sent to the agent."""
        before = self._mark if _matches(self._before, text) else ""
        behind = " " if _matches(self._behind, text) else ""
        return before + text + behind

    def remove(self, text: str) -> str:
        """Return the argument of `add`; the agent may have stripped the space at the end."""
        bare = text.removeprefix(self._mark)
        if bare != text and _matches(self._before, bare):
            text = bare
        if text.endswith(" ") and _matches(self._behind, text[:-1]):
            text = text[:-1]
        return text


def _matches(guard: Pattern | None, text: str) -> bool:
    """Return whether a text must be escaped: in doubt, where the pattern timed out, it must."""
    return guard is not None and guard.matches(text, otherwise=True)
