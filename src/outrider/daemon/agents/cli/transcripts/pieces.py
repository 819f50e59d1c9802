"""The messages of a record on their way into a chat."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from outrider.contract.ids import derived_id
from outrider.contract.resources import Message
from outrider.daemon.agents.cli.transcripts.record import Guards

Role = Literal["user", "assistant", "tool", "system"]
Kind = Literal["text", "thinking", "tool_call", "tool_result"]


@dataclass(frozen=True)
class Piece:
    """One message as recorded; `key` is what the record knows it by, for ever.

    `prompt` marks a message of the user, which may have been sent through Outrider.
    """

    key: str
    role: Role
    kind: Kind
    content: str
    timestamp: int
    prompt: bool = False


def as_messages(
    pieces: Sequence[Piece], ids: Mapping[str, str], guards: Guards, conversation: str
) -> list[Message]:
    """Return the chat; an id is derived from the record's own where it is not in `ids`."""
    messages = []
    for index, piece in enumerate(pieces):
        known = ids.get(piece.key) if piece.prompt else None
        messages.append(
            Message(
                id=known or derived_id("msg", piece.timestamp, conversation, piece.key),
                index=index,
                role=piece.role,
                kind=piece.kind,
                content=piece.content if known is None else guards.remove(piece.content),
                timestamp=piece.timestamp,
            )
        )
    return messages
