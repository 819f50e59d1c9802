"""The debug bundle: the evidence for finding out why a session has the status it has."""

from typing import Annotated, Any, Final

from msgspec import Meta

from outrider.contract.structs import Wire

MAX_RESPONSE_BYTES: Final = 256 * 1024
"""The largest response with a debug bundle: JSON, `bundle` and `text` together."""

MAX_SNAPSHOT_DEPTH: Final = 64
"""How deep the lists and objects of a `frontendSnapshot` may be nested."""

ClientSnapshot = dict[str, Any]
"""A client's own state, as any JSON object."""


class DebugBundle(Wire, kw_only=True):
    """The evidence about one session, redacted, each part limited in size."""

    session: dict[str, Any]
    """The session, as `GET …/status` of its machine shows it."""
    provider: dict[str, Any] | None
    """The kind of agent, and the path of its program; null if unknown."""
    parser: dict[str, Any]
    """What was observed of the agent and how its status was determined; fields vary by kind."""
    terminal: dict[str, Any] | None
    """`source` and `text`: the tail of the agent's screen, or of its standard error; null if it
    has neither.
    """
    messages: list[dict[str, Any]]
    """The last 20 messages of the chat, oldest first."""
    events: list[dict[str, Any]]
    """The session's last events since the start of the machine agent, oldest first."""
    versions: dict[str, str]
    """The versions of Outrider, its protocol, Python, the system, and tmux if it is used."""
    frontend_snapshot: ClientSnapshot | None
    """What the client sent."""
    redactions: dict[str, Annotated[int, Meta(ge=1)]]
    """How many secrets of each kind were removed."""
    truncated: bool
    """Whether something was cut; `omitted` says what."""
    omitted: list[str]
    """What was cut."""
    problems: list[str]
    """The parts that could not be read, and why."""
    screenshot: dict[str, Any] | None = None
    """`format`, `width`, `height` and `data` (base64) of a small picture of an IDE's window; null
    if there is none.
    """


def check_depth(value: object) -> None:
    """Refuse a value that is nested too deep.

    Raises:
        ValueError: it is nested deeper than `MAX_SNAPSHOT_DEPTH`.
    """
    level: list[object] = [value]
    for _ in range(MAX_SNAPSHOT_DEPTH + 1):
        children: list[object] = []
        for item in level:
            if isinstance(item, dict):
                children.extend(item.values())
            elif isinstance(item, list):
                children.extend(item)
        if not children:
            return
        level = children
    raise ValueError(f"`frontendSnapshot` is nested more than {MAX_SNAPSHOT_DEPTH} deep")
