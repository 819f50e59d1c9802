"""The debug bundle: all that it takes to find out why a session shows what it shows."""

from typing import Annotated, Any, Final

from msgspec import Meta

from outrider.contract.structs import Wire

MAX_RESPONSE_BYTES: Final = 256 * 1024
"""What an answer with a bundle has at the most: JSON, `bundle` and `text` together."""

MAX_SNAPSHOT_DEPTH: Final = 64
"""How deep the lists and objects of a `frontendSnapshot` may be nested."""

Snapshot = dict[str, Any]
"""What a client shows now, as JSON of its own making."""

Count = Annotated[int, Meta(ge=1)]


class DebugBundle(Wire, kw_only=True):
    """The evidence about one session: bounded in every part, and redacted.

    Attributes:
        session: the session, as `GET …/status` of its machine shows it.
        provider: what kind of agent it is, and where its program was found; null if unknown.
        parser: what was read off the agent and how it was judged; the kind of agent decides
            the fields.
        terminal: `{source, text}`: the tail of the agent's screen, or of what it wrote to
            stderr; null where it has neither.
        screenshot: `{format, width, height, data}`: a small picture of an IDE's window, base64
            in `data`; null where there is none.
        messages: the last 20 of the chat, oldest first.
        events: the session's last events since this machine's agent was started, oldest first.
        versions: of Outrider, its protocol, Python, the system, and tmux where it is used.
        frontend_snapshot: what the client sent.
        redactions: how many secrets of each kind were taken out.
        truncated: whether something was cut; `omitted` says what.
        problems: the parts that could not be had, and why.
    """

    session: dict[str, Any]
    provider: dict[str, Any] | None
    parser: dict[str, Any]
    terminal: dict[str, Any] | None
    messages: list[dict[str, Any]]
    events: list[dict[str, Any]]
    versions: dict[str, str]
    frontend_snapshot: Snapshot | None
    redactions: dict[str, Count]
    truncated: bool
    omitted: list[str]
    problems: list[str]
    screenshot: dict[str, Any] | None = None


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
