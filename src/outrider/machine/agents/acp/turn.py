"""One turn: the prompt, when it counts as accepted, and how the turn ends.

The protocol answers a prompt only at the end of its turn, so there is no acknowledgement that the
agent has accepted a message. It counts as accepted as soon as the agent does something about it,
or once it has been silent for `ACCEPT_TIMEOUT`: a live agent reads its pipe in order, and one that
cannot work (no login, no such model) answers with an error at once.
"""

import asyncio
from collections.abc import Awaitable
from typing import Any, Final

from acp import RequestError
from acp.schema import InitializeResponse, PromptResponse, StopReason

from outrider.contract.commands import ChatInput, ImagePart
from outrider.contract.errors import bad_request
from outrider.machine.agents.acp.chat import AcpChat
from outrider.machine.agents.acp.content import error_text
from outrider.machine.agents.acp.login import Login
from outrider.machine.agents.acp.spec import DEFAULT_TIMEOUTS, AcpSpec
from outrider.machine.sessions.guards import Guards

ACCEPT_TIMEOUT: Final = 1.0
"""Seconds in which an agent may refuse a message; one that is silent has accepted it."""

_REQUEST_REJECTED: Final = range(-32602, -32599)
"""JSON-RPC errors of a request that was not carried out at all."""

_STOP_MESSAGES: Final[dict[StopReason, str]] = {
    "refusal": "The agent refused to go on with this",
    "max_tokens": "The answer was cut off: the model's limit of tokens is reached",
    "max_turn_requests": "The turn was cut off: the agent's limit of model requests is reached",
}


class AcpTurn:
    """A message and the turn that it starts.

    Attributes:
        outcome: how the turn ended: a stop reason, or what went wrong in a word or two.
        failure: why it failed, for a person; None if it did not.
        connection_error: why the agent could no longer be reached.
        is_interrupted: whether the turn is to be cancelled; set by who cancels it.
    """

    def __init__(self, message_id: str, text: str, chat: AcpChat, login: Login) -> None:
        self._unaccepted: tuple[str, str] | None = (message_id, text)
        self._chat = chat
        self._login = login
        self._accepted = asyncio.Event()
        self.outcome = "cancelled"
        self.failure: str | None = None
        self.connection_error: ConnectionError | None = None
        self.is_interrupted = False

    @property
    def is_accepted(self) -> bool:
        """Whether the agent has accepted the message."""
        return self._unaccepted is None

    def accept(self) -> None:
        """Count the message as accepted, and add it to the chat. Idempotent."""
        if self._unaccepted is not None:
            (message_id, text), self._unaccepted = self._unaccepted, None
            self._chat.add_user_message(message_id, text)
        self._accepted.set()

    async def follow(self, prompt: Awaitable[PromptResponse]) -> None:
        """Wait for the answer to the prompt, which is the end of the turn."""
        try:
            response = await prompt
        except RequestError as error:
            self.failure, self.outcome = self._login.error_message(error), "failed"
            rejected = self._login.is_required(error) or error.code in _REQUEST_REJECTED
            if self.is_accepted or not rejected:  # a rejected prompt leaves no trace in the chat
                self.accept()
                self._chat.add_notice(error_text(error))
        except ConnectionError as error:
            self.outcome, self.connection_error = "the agent has ended", error
        else:
            self.outcome = response.stop_reason
            self.accept()
            if response.stop_reason in _STOP_MESSAGES:
                self._chat.add_notice(_STOP_MESSAGES[response.stop_reason])

    async def wait_accepted(self, turn_task: asyncio.Task[None], drained: asyncio.Event) -> None:
        """Return once the message counts as accepted, or the turn has ended without that.

        Args:
            turn_task: ends with the turn.
            drained: set once the message has been written to the agent.
        """
        await asyncio.sleep(0)  # lets the task start to write, which clears `drained`
        await _wait_first(turn_task, drained, 2 * DEFAULT_TIMEOUTS.write)
        await _wait_first(turn_task, self._accepted, ACCEPT_TIMEOUT)
        if not turn_task.done():
            self.accept()


def prompt_of(
    message: ChatInput, agent: InitializeResponse | None, spec: AcpSpec
) -> tuple[list[dict[str, Any]], str]:
    """Return a message as the agent is sent it, and as the chat shows it.

    Pictures are sent only to agents that support them; others get the text alone.

    Raises:
        ApiError: 400, there are only pictures, and the agent does not support them.
    """
    able = None if agent is None else agent.agent_capabilities
    prompts = None if able is None else able.prompt_capabilities
    images = [part for part in message.parts if isinstance(part, ImagePart)]
    text, guards = message.as_text(), Guards(spec.guard_before)
    if not images or prompts is None or not prompts.image:
        if not text.strip():
            raise bad_request(
                f"{spec.display_name} takes no pictures: add text, or `textFallback`",
                "input",
            )
        return [{"type": "text", "text": guards.add(text)}], text
    blocks: list[dict[str, Any]] = []
    shown = []
    for part in message.parts:
        if isinstance(part, ImagePart):
            blocks.append({"type": "image", "data": part.data, "mimeType": part.mime_type})
            shown.append(f"[image: {part.mime_type}]")
        else:
            blocks.append({"type": "text", "text": guards.add(part.text)})
            shown.append(part.text)
    return blocks, "\n".join(shown)


async def _wait_first(task: asyncio.Task[None], event: asyncio.Event, seconds: float) -> None:
    """Return once the task is done or the event is set, or after so many seconds."""
    waiting = asyncio.create_task(event.wait())
    try:
        await asyncio.wait({task, waiting}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
