"""What the TOML file of an agent that speaks the protocol holds. docs/acp.md explains it."""

import re
from functools import cache
from typing import Literal

from outrider.daemon.agents.provider import ProviderSpec, Text, check_pattern


class AcpFile(ProviderSpec, kw_only=True):
    """One kind of agent that speaks the Agent Client Protocol.

    `authenticate` is the login method that is used where the agent asks for one. `login` tells
    a person how to log in, and `login_needed` matches errors that mean the same as the
    protocol's own. Messages that match `guard_before`, which the agent would take for a command
    of its own, get a space in front. `notices` matches what the agent's program says in the
    name of the model. `reopens` is false for an agent that must not be asked to open an earlier
    session, though it offers that. Times are seconds.
    """

    category: Literal["acp"]
    mode: Text | None = None
    authenticate: Text | None = None
    login: Text = "log in to it on this machine as the same user, then launch it again"
    login_needed: Text | None = None
    guard_before: Text | None = None
    notices: Text | None = None
    reopens: bool = True

    def __post_init__(self) -> None:
        for name in ("login_needed", "guard_before", "notices"):
            check_pattern(name, getattr(self, name))

    def login_pattern(self) -> re.Pattern[str] | None:
        """Return what errors match that mean a missing login."""
        return _compiled(self.login_needed)

    def notices_pattern(self) -> re.Pattern[str] | None:
        """Return what pieces of text match that the model has not said."""
        return _compiled(self.notices)


@cache
def _compiled(pattern: str | None) -> re.Pattern[str] | None:
    return None if pattern is None else re.compile(pattern)
