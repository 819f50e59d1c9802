"""Selects the messages of a chat for a response: a page of it, or those of a turn.

A cursor for `GET …/wait` says which turn to wait for and which message the client has last. It is
opaque to clients:

    msg_1          the message msg_1, and the turn that it began
    msg_1~msg_5    the turn that msg_1 began, of which the client has the messages up to msg_5
    0              the beginning of a chat

A message of the agent, or one that a person typed, has no turn of its own: the status of the agent
counts.
"""

from typing import Final, NamedTuple

from outrider.contract.commands import ReadChat
from outrider.contract.errors import bad_request
from outrider.contract.resources import AgentStatus, Message
from outrider.contract.sizes import messages_within
from outrider.machine.sessions.core.turn import Turn

_START: Final = "0"
_SEPARATOR: Final = "~"


class ChatCursor(NamedTuple):
    """A position in a chat: behind `message`; None is its beginning.

    `turn` is the message whose turn is waited for; None for the agent's present one.
    """

    turn: str | None
    message: str | None

    def __str__(self) -> str:
        if self.turn is None or self.turn == self.message:
            return self.message or _START
        return f"{self.turn}{_SEPARATOR}{self.message or _START}"


def parse_cursor(text: str) -> ChatCursor:
    """Return the cursor that a client has sent; whether its messages exist is not checked."""
    turn, separator, message = text.partition(_SEPARATOR)
    turn_id = None if turn == _START else turn
    return ChatCursor(turn_id, message if separator else turn_id)


def messages_of_turn(
    chat: list[Message], after: ChatCursor | None, turn: Turn | None, status: AgentStatus
) -> tuple[list[Message], str]:
    """Return the messages of a turn behind `after`, and the cursor behind them.

    Without `after`, they are those behind the last message of a user. A message that the agent may
    still be writing is returned, but the cursor is before it, so that it is returned again.

    Args:
        turn: the turn of `after`, if the core knows it.
        status: the turn's status; the agent's, if the core does not know the turn.

    Raises:
        ApiError: 400, the chat has no such message.
    """
    if after is None:
        last = next((m.id for m in reversed(chat) if m.role == "user"), None)
        after = ChatCursor(None, last)
    positions = {message.id: index for index, message in enumerate(chat)}
    start = 0
    if after.message is not None:
        if after.message in positions:
            start = positions[after.message] + 1
        elif turn is None:
            raise bad_request(
                f"{str(after)!r} is no cursor of this session: take that of a message that was "
                "sent to it, or of an earlier wait for it",
                "after",
            )
        else:  # it is in the queue, or the agent has accepted it and does not show it yet
            return [], str(after)
    end = len(chat)
    if turn is not None and turn.next_id is not None:
        end = positions.get(turn.next_id, end)
    selected = messages_within(chat[start:end], newest=False)
    is_over, read = status in {"idle", "error"}, selected
    if status == "generating":
        read = selected[:-1]
    return selected, str(
        ChatCursor(None if is_over else after.turn, read[-1].id if read else after.message)
    )


def select_messages(messages: list[Message], query: ReadChat) -> list[Message]:
    """Return the messages between `query.after` and `query.before`, oldest first.

    Of these, the first `query.limit` if `after` is given, otherwise the last `query.limit`; and as
    many of them as fit into a response.

    Raises:
        ApiError: 400, the chat has no message with the id `after` or `before`.
    """
    start = 0 if query.after is None else _position(messages, query.after, "after") + 1
    end = len(messages) if query.before is None else _position(messages, query.before, "before")
    messages = messages[start:end]
    if query.after is not None:
        return messages_within(messages[: query.limit] if query.limit else messages, newest=False)
    return messages_within(messages[-query.limit :] if query.limit else messages, newest=True)


def _position(messages: list[Message], message_id: str, field: str) -> int:
    for index, message in enumerate(messages):
        if message.id == message_id:
            return index
    raise bad_request(f"This chat has no message {message_id!r}", field)
