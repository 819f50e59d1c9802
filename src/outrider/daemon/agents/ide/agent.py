"""One agent of an IDE: its panel, its input and its chat."""

import time
from collections.abc import Mapping, Sequence

import structlog

from outrider.contract.commands import ChatInput
from outrider.contract.errors import ApiError
from outrider.contract.resources import ActionOption, Message, PendingAction
from outrider.daemon.agents.ide import controls, writing
from outrider.daemon.agents.ide.chats import Chats
from outrider.daemon.agents.ide.following import Following
from outrider.daemon.agents.ide.panel import REDRAWN
from outrider.daemon.agents.ide.provider_file import Agent
from outrider.daemon.agents.ide.window import WindowError

_log = structlog.get_logger(__name__)


class IdeAgent:
    """An agent of the IDE that `following` follows."""

    def __init__(self, spec: Agent, following: Following, chats: Chats) -> None:
        self.name = spec.name
        self._spec = spec
        self._kind = spec.type
        self._following = following
        self._panel = following.panels[spec.type]
        self._chats = chats

    async def ready(self) -> None:
        """Return once the window is there."""
        await self._following.ready()

    async def show(self) -> None:
        """Make the agent's chat one that takes a message."""
        try:
            await writing.show(self._following, self._following.alive(), self._spec)
        except WindowError as error:
            raise self._not_taken(error) from error

    async def deliver(self, message_id: str, message: ChatInput) -> None:
        """Write a message into the agent's input and return once it stands in the chat."""
        chat = self._chats[self._kind]
        if message_id in chat:
            return  # taken already, by the daemon that ran before this one

        async def read() -> None:
            await self._chats.read(self._kind)

        window, text = self._following.alive(), message.as_text()
        try:
            await read()
            await writing.write(window, self._spec, chat, read, message_id=message_id, text=text)
        except WindowError as error:
            raise self._not_taken(error) from error
        self._panel.sent(time.monotonic())
        self._following.look()

    async def choose(self, action: PendingAction, option: ActionOption) -> bool:
        """Click the option. A question that the page draws anew just then is waited for."""
        panel, window = self._panel, self._following.alive()
        try:
            offered = panel.asks(action.id) and await window.ask(
                "choose", self._kind, panel.question, option.id, REDRAWN * 1000
            )
        except WindowError as error:
            raise ApiError(500, f"The agent could not be answered: {error}") from error
        if offered:
            panel.answered(action.id)
        else:
            panel.refused(action.id)
        self._following.look()
        return bool(offered)

    async def change(self, values: Mapping[str, str | bool]) -> None:
        """Change what the agent's panel shows as settings."""
        await controls.change(self._following, self._following.alive(), self._panel, values)

    async def messages(self) -> Sequence[Message]:
        """Return the chat; what was read before, where its page is not there."""
        try:
            await self._chats.read(self._kind)
        except WindowError as error:
            _log.info("chat could not be read", agent=self._kind, error=str(error))
        return self._chats[self._kind].messages()

    def _not_taken(self, error: WindowError) -> ApiError:
        return ApiError(500, f"{self._following.name} did not take the message: {error}")
