"""The bodies of responses that only say that an operation succeeded."""

from outrider.contract.structs import Wire


class Done(Wire, kw_only=True):
    """The operation succeeded."""

    success: bool = True
    """Always true: an error has another body."""


class Deleted(Wire, kw_only=True):
    """The resource has been deleted."""

    success: bool = True
    """Always true: an error has another body."""
    id: str
    """The id of what was deleted."""
