"""Target ids, which the API calls `ideId`, also those of CLI and ACP agents.

`<daemonId>:ide:<name>`, `<daemonId>:cli:<type>`, `<daemonId>:acp:<type>` name the most
recently used session of that type; `<daemonId>:session:<sessionId>` names one exactly.
"""

from typing import Final, Literal, NamedTuple, get_args

TargetKind = Literal["ide", "cli", "acp", "session"]

SESSION_VARIABLE: Final = "AGENT_SESSION_ID"
"""The environment variable with the session's id, for a CLI or ACP agent and its children."""

_KINDS = frozenset(get_args(TargetKind))


class Target(NamedTuple):
    """A parsed target id. `name` is an IDE's name, a provider type, or a session id."""

    daemon_id: str
    kind: TargetKind
    name: str

    def __str__(self) -> str:
        return f"{self.daemon_id}:{self.kind}:{self.name}"


def parse_target(text: str) -> Target | None:
    """Return the target that `text` names, or None if it is malformed."""
    parts = text.split(":", 2)
    if len(parts) != 3 or parts[1] not in _KINDS or not parts[0] or not parts[2]:
        return None
    return Target(parts[0], parts[1], parts[2])  # type: ignore[arg-type]  # checked above
