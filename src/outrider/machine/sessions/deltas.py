"""The text of messages that agents are writing, as deltas: what was added since the last one.

Deltas are for those who watch a session now. They are lost with the connection, and the complete
message follows as an event in any case.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from outrider.contract.events import MAX_EVENT_CONTENT
from outrider.contract.frames import Delta

DELTA_INTERVAL: Final = 0.05
"""Seconds between two deltas of a message."""


class DeltaSink(Protocol):
    """Sends deltas; see `contract.link.outbox`."""

    def delta_watch(self, session_id: str) -> int | None:
        """Return a number that changes whenever deltas are asked for anew; None if none are."""

    def delta(self, delta: Delta) -> bool:
        """Send a delta; return whether there was room for it."""


class Deltas:
    """The deltas of one agent's chat.

    Args:
        open_texts: returns the texts of the messages that the agent is writing, by id.
    """

    def __init__(
        self, session_id: str, open_texts: Callable[[], Mapping[str, str]], sink: DeltaSink
    ) -> None:
        self._session_id = session_id
        self._open_texts = open_texts
        self._sink = sink
        self._watch: int | None = None
        self._sent: dict[str, str] = {}
        self._revisions: dict[str, int] = {}
        self._timer: asyncio.TimerHandle | None = None

    def changed(self) -> None:
        """Report that the chat may have changed: what is new is sent soon."""
        if self._timer is None and self._sink.delta_watch(self._session_id) is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(DELTA_INTERVAL, self._send)

    def stop(self) -> None:
        """Send nothing more."""
        if self._timer is not None:
            self._timer.cancel()

    def _send(self) -> None:
        self._timer = None
        watch = self._sink.delta_watch(self._session_id)
        if watch is None:
            return
        texts = self._open_texts()
        self._revisions = {message_id: self._revisions.get(message_id, 0) for message_id in texts}
        # Who begins to watch has none of the text: it is sent from its beginning.
        sent = {} if watch != self._watch else self._sent
        self._watch, self._sent = watch, {}
        for message_id, text in texts.items():
            if len(text) > MAX_EVENT_CONTENT:
                continue  # the complete message is cut as well
            before = sent.get(message_id)
            if text == before or self._send_one(message_id, before, text):
                self._sent[message_id] = text

    def _send_one(self, message_id: str, before: str | None, text: str) -> bool:
        """Send what was added to a message; the whole text if the rest is not known to be there."""
        revision = self._revisions[message_id]
        is_addition = before is not None and text.startswith(before)
        delta = Delta(
            session_id=self._session_id,
            message_id=message_id,
            revision=revision,
            op="append" if is_addition or not revision else "replace",
            text=text[len(before) :] if is_addition and before is not None else text,
        )
        self._revisions[message_id] = revision + 1
        return self._sink.delta(delta)
