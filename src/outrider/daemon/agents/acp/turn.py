"""One turn: a prompt from its offer to its end.

The protocol acknowledges a prompt only by the end of its turn. So a message counts as taken by
what the agent does upon it, or by its silence: a live agent reads its pipe in order, and one
that cannot work (no login, a model that it has not) says so at once.
"""

import asyncio
from collections.abc import Awaitable
from typing import Final

from acp import RequestError
from acp.schema import PromptResponse, StopReason

from outrider.daemon.agents.acp.chat import Chat
from outrider.daemon.agents.acp.content import error_text
from outrider.daemon.agents.acp.opening import Login
from outrider.daemon.agents.acp.transport import WRITE_TIMEOUT

TAKE_WAIT: Final = 1.0
"""Seconds in which an agent may refuse a message; one that is silent has taken it."""

_REFUSED: Final = range(-32602, -32599)
"""The protocol's errors of a request that was not carried out at all."""

_STOPS: Final[dict[StopReason, str]] = {
    "refusal": "The agent refused to go on with this",
    "max_tokens": "The answer was cut off: the model's limit of tokens is reached",
    "max_turn_requests": "The turn was cut off: the agent's limit of model requests is reached",
}


class Turn:
    """A message and what becomes of it.

    Attributes:
        how: how it ended: a stop reason, or what went wrong in a word or two.
        failure: why it failed, for a person; None if it did not.
        lost: why the agent could not be reached any more.
    """

    def __init__(self, message_id: str, text: str, chat: Chat, login: Login) -> None:
        self._offered: tuple[str, str] | None = (message_id, text)
        self._chat = chat
        self._login = login
        self._taken = asyncio.Event()
        self.how = "cancelled"
        self.failure: str | None = None
        self.lost: ConnectionError | None = None

    @property
    def is_taken(self) -> bool:
        """Whether the agent has taken the message."""
        return self._offered is None

    def take(self) -> None:
        """Note that the agent has the message: it belongs to the chat from here on."""
        if self._offered is not None:
            (message_id, text), self._offered = self._offered, None
            self._chat.user_said(message_id, text)
        self._taken.set()

    async def follow(self, prompt: Awaitable[PromptResponse]) -> None:
        """Follow the prompt to the end of its turn."""
        try:
            response = await prompt
        except RequestError as error:
            self.failure, self.how = self._login.refusal(error), "failed"
            refused = self._login.needed(error) or error.code in _REFUSED
            if self.is_taken or not refused:  # else it is as if it had never been sent
                self.take()
                self._chat.noted(error_text(error))
        except ConnectionError as error:
            self.how, self.lost = "the agent has ended", error
        else:
            self.how = response.stop_reason
            self.take()
            if response.stop_reason in _STOPS:
                self._chat.noted(_STOPS[response.stop_reason])

    async def settled(self, following: asyncio.Task[None], drained: asyncio.Event) -> None:
        """Return once the message counts as taken, or the turn is over without it.

        Args:
            following: the task that ends with the turn.
            drained: set once the agent has been given the message.
        """
        await asyncio.sleep(0)  # it begins to be written
        await _first(following, drained, 2 * WRITE_TIMEOUT)
        await _first(following, self._taken, TAKE_WAIT)
        if not following.done():
            self.take()


async def _first(task: asyncio.Task[None], event: asyncio.Event, seconds: float) -> None:
    """Return once the task is done or the event is set, or after so many seconds."""
    waiting = asyncio.create_task(event.wait())
    try:
        await asyncio.wait({task, waiting}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
