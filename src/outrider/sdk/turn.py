"""Collects the reply to a message, from waits and from events. Free of I/O."""

import math
from typing import Final, NamedTuple

import msgspec

from outrider.contract.commands import Accepted, Verdict
from outrider.contract.event_stream import StreamHeartbeat, StreamReady
from outrider.contract.events import TRUNCATION_NOTE, EventName
from outrider.contract.resources import Message, PendingAction
from outrider.contract.waiting import Waited
from outrider.sdk.decoding import converted
from outrider.sdk.errors import ApprovalRequired, AskTimeout, MachineOffline, SessionEnded
from outrider.sdk.results import Delta, Event, Reply

MAX_WAIT: Final = 60
"""Seconds that one request may wait."""

STREAMED: Final = (
    EventName.CHAT_MESSAGE,
    EventName.GENERATING_COMPLETED,
    EventName.ERROR,
    EventName.WAITING_APPROVAL,
    EventName.SESSION_ENDED,
)
"""The events that a stream of one turn needs."""

_SECONDS_BEYOND: Final = 10.0
"""How much longer than its wait a request may take."""


class WaitTimes(NamedTuple):
    """For one request: the seconds that the service waits, and those that the client does."""

    service: int
    client: float


def wait_times(left: float) -> WaitTimes:
    """Return the times of a wait when `left` seconds are left of the whole.

    The service waits whole seconds; within the last one, the client ends the request.
    """
    seconds = min(MAX_WAIT, math.floor(left))
    if seconds < 1:
        return WaitTimes(1, max(left, 0.001))
    return WaitTimes(seconds, seconds + _SECONDS_BEYOND)


def answer_of(action: PendingAction, answer: str) -> tuple[Verdict, str | None]:
    """Return the verdict, and the id of the option, of an answer to a question.

    Args:
        answer: `approve`, `reject` or the id of one of the options.

    Raises:
        ValueError: it is none of these.
    """
    match answer:
        case "approve" | "reject":
            return answer, None
    for option in action.options:
        if option.id == answer:
            return ("reject" if option.kind.startswith("reject") else "approve"), option.id
    ids = ", ".join(option.id for option in action.options)
    raise ValueError(f"{answer!r} is no answer: give approve, reject or the id of an option: {ids}")


class Turn:
    """The reply to one message, as far as it is known.

    Args:
        cursor: the cursor of the message, or of an earlier wait.
    """

    def __init__(self, cursor: str | None) -> None:
        self.cursor = cursor
        self._messages: dict[str, Message] = {}

    @property
    def messages(self) -> list[Message]:
        """The messages of the reply so far."""
        return list(self._messages.values())

    def receive(self, waited: Waited) -> Reply | None:
        """Take the answer of a wait; return the reply if the turn is over.

        Raises:
            ApprovalRequired: the agent asks a question.
            MachineOffline: the machine is offline.
            SessionEnded: the session was stopped, or its agent ended.
        """
        for message in waited.messages:  # an incomplete one comes again, under the same id
            self._messages[message.id] = message
        self.cursor = waited.cursor or self.cursor
        match waited.reason:
            case "idle" | "error":
                return Reply(messages=self.messages, status=waited.reason, cursor=self.cursor)
            case "waiting_approval":
                action = waited.pending_action
                raise ApprovalRequired(
                    "The agent asks for approval" + (f": {action.message}" if action else ""),
                    action=action,
                    cursor=self.cursor,
                    messages=self.messages,
                )
            case "offline":
                raise MachineOffline(
                    "The machine went offline before the turn was over", status=500
                )
            case "ended":
                raise self.ended()
            case _:
                return None

    def failed(self, reply: Reply, reason: str | None) -> Reply:
        """Return a reply with the reason why it failed; without one, with what the agent said."""
        said = " ".join(message.content for message in reply.messages if message.role == "system")
        error = reason or said or "The turn failed: the agent did not say why"
        return msgspec.structs.replace(reply, error=error)

    def ended(self) -> SessionEnded:
        """Return the error for a session that ended before the turn was over."""
        text = "The session ended before the turn was over"
        return SessionEnded(text, messages=self.messages)

    def timed_out(self, timeout: float) -> AskTimeout:
        """Return the error for a turn that was not over in time."""
        return AskTimeout(
            f"The turn was not over after {timeout:g} seconds; it goes on",
            cursor=self.cursor,
            messages=self.messages,
        )


class _StreamedText:
    """The text of a message as its deltas have it, when a consumer applies them."""

    def __init__(self) -> None:
        self.content = ""
        self._revision = -1

    def receive(self, delta: Delta) -> Delta | None:
        """Return a delta as the consumer can apply it.

        None where earlier ones were left out: the next that replaces, or the end, has the text.
        """
        if delta.op == "append" and 0 < delta.revision != self._revision + 1:
            return None
        if delta.op == "append" and delta.revision == 0 and self.content:
            # The machine agent was restarted, and begins anew.
            delta = msgspec.structs.replace(delta, op="replace")
        self._revision = delta.revision
        self.content = delta.text if delta.op == "replace" else self.content + delta.text
        return delta

    def completed(self, message: Message, target_id: str) -> Delta:
        """Return the delta after which the text is the message's."""
        # A screen that was drawn anew need not begin with what was sent before.
        is_addition = message.content.startswith(self.content)
        return Delta(
            target_id=target_id,
            message_id=message.id,
            revision=self._revision + 1,
            op="append" if is_addition else "replace",
            text=message.content[len(self.content) :] if is_addition else message.content,
        )


class StreamedTurn:
    """Selects from a session's events what belongs to the reply to one message.

    The events of an earlier turn may come after the message was accepted: a wait is answered by the
    machine, which stores its events a moment later. So events belong to this turn only once the
    user's message has come. Deltas do not wait for it: they may overtake events.

    Args:
        accepted: the answer to the message, None if it is not sent yet. If it is in the queue, the
            deltas before the user's message belong to another turn.

    Attributes:
        is_in_chat: whether the user's message has come, so that events may be of its turn.
    """

    def __init__(self, accepted: Accepted | None) -> None:
        self._message_id = None if accepted is None else accepted.message_id
        self._has_begun = accepted is not None and not accepted.queued
        self.is_in_chat = False
        self._first_index = 0
        self._seen: set[str] = set()
        self._texts: dict[str, _StreamedText] = {}

    def receive(self, frame: Event | Delta) -> list[Delta | Message]:
        """Return what a consumer gets for this frame."""
        if isinstance(frame, Delta):
            if not self._has_begun or frame.message_id in self._seen:
                return []
            text = self._texts.setdefault(frame.message_id, _StreamedText())
            delta = text.receive(frame)
            return [] if delta is None else [delta]
        if frame.event != EventName.CHAT_MESSAGE:
            return []
        message = converted(frame.payload.get("message"), Message)
        if message.id == self._message_id:
            self._has_begun = self.is_in_chat = True
            self._first_index = message.index
            return []
        # A message that was cut for its event comes whole with the end of the turn.
        is_whole = not message.content.endswith(TRUNCATION_NOTE)
        if self.is_in_chat and is_whole:
            return self.rest([message], frame.target_id or "")
        return []

    def rest(self, messages: list[Message], target_id: str) -> list[Delta | Message]:
        """Return those of the whole reply that the consumer has not got.

        Before each one comes what its deltas lack: they may be fewer than the text, because they
        are sent at intervals and left out for slow clients.
        """
        parts: list[Delta | Message] = []
        for message in messages:
            if not self._is_new(message):
                continue
            text = self._texts.pop(message.id, None)
            if text is None and message.kind == "text":
                text = _StreamedText()
            if text is not None and text.content != message.content:
                parts.append(text.completed(message, target_id))
            parts.append(message)
        return parts

    def _is_new(self, message: Message) -> bool:
        if message.role == "user" or message.index < self._first_index or message.id in self._seen:
            return False
        self._seen.add(message.id)
        return True


def may_end_turn(frame: Event | Delta | StreamReady | StreamHeartbeat) -> bool:
    """Return whether the turn may be over after this frame; a request of `wait` then shows it.

    Also after a heartbeat, every 10 seconds: an event may have been missed.
    """
    if isinstance(frame, Event):
        return frame.event in STREAMED and frame.event != EventName.CHAT_MESSAGE
    return isinstance(frame, StreamHeartbeat)
