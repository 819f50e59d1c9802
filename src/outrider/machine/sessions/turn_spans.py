"""The spans of a session's turns, each below the span of the command that sent its message.

    execute send_chat ──────────┐
          ·    agent turn ───────────────────────┐  idle, waiting for an approval, or failed
          ·    └ deliver message ──┐             the agent has accepted the message
          waits in the queue

A message that is in the queue when the daemon restarts has no spans.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from outrider.contract.errors import ApiError
from outrider.machine.sessions.core.turn import Turn
from outrider.tracing import Span, Tracing, current

_MAX_WAITING: Final = 64
"""Messages of a session whose traces are kept until they are delivered."""


class TurnSpans:
    """The spans of one session. Without a trace in the command, they cost nothing."""

    def __init__(self, tracing: Tracing, session_id: str, agent_type: str) -> None:
        self._tracing = tracing
        self._attributes = {"outrider.session.id": session_id, "outrider.agent.type": agent_type}
        self._waiting: OrderedDict[str, str] = OrderedDict()
        """The `traceparent` of each message that is not delivered yet."""
        self._turns: dict[str, Span] = {}

    def submitted(self, message_id: str) -> None:
        """Keep the current trace for a message."""
        traceparent = current().traceparent
        if traceparent is None:
            return
        self._waiting[message_id] = traceparent
        if len(self._waiting) > _MAX_WAITING:
            self._waiting.popitem(last=False)

    @contextmanager
    def delivery(self, message_id: str) -> Iterator[None]:
        """Trace the delivery of a message; its turn begins with it."""
        traceparent = self._waiting.get(message_id)
        if traceparent is None:
            yield
            return
        attributes = {**self._attributes, "outrider.message.id": message_id}
        turn = self._tracing.start("agent turn", "internal", traceparent, attributes)
        try:
            with self._tracing.start(
                "deliver message", "internal", turn.traceparent, self._attributes
            ):
                yield
        except BaseException:
            turn.fail("not delivered")
            turn.end()
            raise  # of a queued message, the next attempt has a span of its own
        del self._waiting[message_id]
        self._turns[message_id] = turn

    def end_finished(self, turn_of: Callable[[str], Turn | None]) -> None:
        """End the spans of turns that are over, or wait for an approval.

        Args:
            turn_of: returns the turn of a message; see `AgentCore.turn`.
        """
        if not self._turns:
            return
        for message_id, span in list(self._turns.items()):
            try:
                turn = turn_of(message_id)
            except ApiError:  # taken back
                turn = None
            outcome = "unknown" if turn is None else turn.status
            if outcome != "generating":
                self._end(message_id, span, outcome)

    def close(self) -> None:
        """End every span: the session has ended, or the daemon stops."""
        for message_id, span in list(self._turns.items()):
            self._end(message_id, span, "stopped")

    def _end(self, message_id: str, span: Span, outcome: str) -> None:
        del self._turns[message_id]
        span.set("outrider.turn.outcome", outcome)
        if outcome == "error":
            span.fail(outcome)
        span.end()
