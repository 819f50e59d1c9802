"""The debug bundle: all that it takes to find out why a session shows what it shows."""

from typing import Annotated, Any, Final

from msgspec import Meta

from outrider.contract.structs import Wire

MAX_RESPONSE_BYTES: Final = 256 * 1024
"""What an answer with a bundle has at most: JSON, `bundle` and `text` together."""

MAX_SNAPSHOT_DEPTH: Final = 64
"""How deep the lists and objects of a `frontendSnapshot` may be nested."""

Snapshot = dict[str, Any]
"""What a client shows now, as JSON of its own making."""

Count = Annotated[int, Meta(ge=1)]


class DebugBundle(Wire, kw_only=True):
    """The evidence about one session: bounded in every part, and redacted."""

    session: dict[str, Any]
    """The session, as `GET …/status` of its machine shows it."""
    provider: dict[str, Any] | None
    """What kind of agent it is, and where its program was found; null if unknown."""
    parser: dict[str, Any]
    """What was read off the agent and how it was judged; the kind of agent decides the fields."""
    terminal: dict[str, Any] | None
    """`source` and `text`: the tail of the agent's screen, or of its standard error; null where it
    has neither.
    """
    messages: list[dict[str, Any]]
    """The last 20 messages of the chat, oldest first."""
    events: list[dict[str, Any]]
    """The session's last events since the machine's agent was started, oldest first."""
    versions: dict[str, str]
    """The versions of Outrider, its protocol, Python, the system, and tmux where it is used."""
    frontend_snapshot: Snapshot | None
    """What the client sent."""
    redactions: dict[str, Count]
    """How many secrets of each kind were taken out."""
    truncated: bool
    """Whether something was cut; `omitted` says what."""
    omitted: list[str]
    """What was cut."""
    problems: list[str]
    """The parts that could not be had, and why."""
    screenshot: dict[str, Any] | None = None
    """`format`, `width`, `height` and `data` (base64) of a small picture of an IDE's window; null
    where there is none.
    """


def check_depth(value: object) -> None:
    """Refuse a value that is nested too deep to be carried on.

    Raises:
        ValueError: it is deeper than `MAX_SNAPSHOT_DEPTH`.
    """
    level: list[object] = [value]
    for _ in range(MAX_SNAPSHOT_DEPTH + 1):
        below: list[object] = []
        for item in level:
            if isinstance(item, dict):
                below.extend(item.values())
            elif isinstance(item, list):
                below.extend(item)
        if not below:
            return
        level = below
    raise ValueError(f"`frontendSnapshot` is nested more than {MAX_SNAPSHOT_DEPTH} deep")
