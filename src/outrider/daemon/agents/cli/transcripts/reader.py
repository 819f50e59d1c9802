"""What the readers of the agents' records have in common: finding in them is each one's own."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

import msgspec

from outrider.contract.ids import derived_id
from outrider.contract.resources import Message
from outrider.daemon.agents.guards import Guards
from outrider.daemon.agents.transcript import bounded

Role = Literal["user", "assistant", "tool", "system"]
Kind = Literal["text", "thinking", "tool_call", "tool_result"]


MAX_MILLIS: Final = 2**53 - 1


@dataclass(frozen=True)
class Piece:
    """One message as recorded; `key` is what the record knows it by, for ever.

    `prompt` marks a message of the user, which may have been sent through Outrider. Content and
    timestamp are made fit for a message, whatever the record says.
    """

    key: str
    role: Role
    kind: Kind
    content: str
    timestamp: int
    prompt: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "content", bounded(self.content))
        object.__setattr__(self, "timestamp", min(max(self.timestamp, 0), MAX_MILLIS))


class Reader:
    """The chat of one conversation, as far as it was read.

    A reader adds to `_pieces`, and to `_prompts` the key and the text of what the user said.

    Args:
        conversation: what the ids of its messages are derived from, with their keys.
    """

    def __init__(self, conversation: str) -> None:
        self._conversation = conversation
        self._pieces: list[Piece] = []
        self._prompts: list[tuple[str, str]] = []
        self._ids: dict[str, str] = {}
        self._left_out = 0
        self.title: str | None = None
        self.model: str | None = None
        self.failure: str | None = None

    @property
    def prompts(self) -> int:
        """How many messages of the user the record holds."""
        return len(self._prompts)

    def sent(self, text: str, after: int) -> str | None:
        """Return the key of the user message `text` behind the first `after` prompts."""
        wanted = self._comparable(text)
        found = (key for key, said in self._prompts[after:] if self._comparable(said) == wanted)
        return next(found, None)

    def messages(self, ids: Mapping[str, str], guards: Guards) -> list[Message]:
        """Return the whole chat; an id is derived from the record's where it is not given."""
        return self._as_messages(self._pieces, ids, guards)

    def _as_messages(
        self, pieces: Iterable[Piece], ids: Mapping[str, str], guards: Guards
    ) -> list[Message]:
        messages = []
        for index, piece in enumerate(pieces):
            known = ids.get(piece.key) if piece.prompt else None
            messages.append(
                Message(
                    id=known or self._id(piece),
                    index=index,
                    role=piece.role,
                    kind=piece.kind,
                    content=piece.content if known is None else guards.remove(piece.content),
                    timestamp=piece.timestamp,
                )
            )
        return messages

    def _id(self, piece: Piece) -> str:
        """Return the id that this piece always has; making it costs more than the message."""
        known = self._ids.get(piece.key)
        if known is None:
            known = derived_id("msg", piece.timestamp, self._conversation, piece.key)
            self._ids[piece.key] = known
        return known

    def _leave_out(self, size: int) -> None:
        """Put a note in place of an entry of the record that is too long to be read."""
        self._left_out += 1
        at = self._pieces[-1].timestamp if self._pieces else 0
        note = f"[outrider: an entry of {size} bytes is left out here]"
        self._pieces.append(Piece(f"left out {self._left_out}", "system", "text", note, at))

    def _comparable(self, text: str) -> str:
        """Return a text as the agent may have changed it before it was recorded."""
        return text.strip()


def milliseconds(timestamp: str | None) -> int:
    """Return the epoch milliseconds of an ISO 8601 time, 0 where it is none."""
    try:
        return round(datetime.fromisoformat(timestamp or "").timestamp() * 1000)
    except (ValueError, OverflowError, OSError):  # the year 1 has no epoch seconds everywhere
        return 0


def as_json(value: object) -> str:
    """Return a value that was decoded from JSON as JSON again."""
    try:
        return msgspec.json.encode(value).decode()
    except RecursionError:  # decoded with a little more stack to spare
        return '"[outrider: nested too deeply]"'
