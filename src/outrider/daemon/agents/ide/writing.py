"""Writes a message into an agent's input and waits until it stands in the chat."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

from outrider.daemon.agents.guards import Guards
from outrider.daemon.agents.ide.chat import GUARD, Chat
from outrider.daemon.agents.ide.following import Following
from outrider.daemon.agents.ide.provider_file import Agent
from outrider.daemon.agents.ide.window import CALL_TIMEOUT, Window, WindowError, first_line

TAKE_TIMEOUT: Final = 20.0
OPEN_TIMEOUT: Final = 10.0
TYPE_TIMEOUT: Final = 3.0
SEND_TIMEOUT: Final = 5.0
"""Seconds that the button to send may be away, or off, once the text stands in the input."""

_POLL: Final = 0.05


async def show(following: Following, window: Window, agent: Agent) -> None:
    """Make the agent's chat one that takes a message.

    Raises:
        WindowError: it does not appear.
    """
    panel = following.panels[agent.type]

    def shown() -> bool:
        return panel.seen is not None and panel.seen.shown and panel.seen.input

    if not shown():
        await window.ask("open", agent.type)
        if not await following.until(shown, OPEN_TIMEOUT):
            raise WindowError(panel.last.error or f"the chat of {agent.name} is hidden")
    await window.ask("select", agent.type)


async def write(
    window: Window,
    agent: Agent,
    chat: Chat,
    read: Callable[[], Awaitable[None]],
    *,
    message_id: str,
    text: str,
) -> None:
    """Type and send a message; return once it stands in the chat, which `read` reads.

    Raises:
        WindowError: it does not get there.
    """
    wanted = Guards(agent.guard_before, mark=GUARD).add(text)
    chat.offer(message_id, text)
    try:
        await _type(window, agent, wanted)
        await _typed(window, agent, wanted)
        await _send(window, agent)
        await _taken(chat, read)
    except BaseException:
        chat.withdraw()
        raise


async def _type(window: Window, agent: Agent, text: str) -> None:
    """Put the text into the input, in place of what stands there."""
    from playwright.async_api import Error

    frame = window.frame_of(agent.type)
    try:
        async with asyncio.timeout(CALL_TIMEOUT):
            if agent.typing == "keys":
                await window.ask("focus", agent.type)
                await window.page.keyboard.press("ControlOrMeta+a")
                await window.page.keyboard.press("Delete")
                await window.ask("paste", agent.type, text)
            else:
                inputs = frame.locator(agent.input)
                shown = inputs.locator("visible=true")
                await (shown if await shown.count() else inputs).first.fill(text, force=True)
    except TimeoutError as error:
        raise WindowError("its input does not answer") from error
    except Error as error:
        raise WindowError(f"its input takes no text: {first_line(error)}") from error


async def _typed(window: Window, agent: Agent, text: str) -> None:
    """Wait until the text stands in the input, where that can be told."""
    deadline = time.monotonic() + TYPE_TIMEOUT
    while True:
        stands = await window.ask("typed", agent.type)
        if stands is None or " ".join(str(stands).split()) == " ".join(text.split()):
            return
        if time.monotonic() > deadline:
            raise WindowError("its input did not take the text")
        await asyncio.sleep(_POLL)


async def _send(window: Window, agent: Agent) -> None:
    if agent.submit is None:
        await _press(window, agent.submit_key)
        return
    deadline = time.monotonic() + SEND_TIMEOUT
    while not await window.ask("submit", agent.type):
        if time.monotonic() > deadline:
            raise WindowError("its button to send is not there")
        await asyncio.sleep(_POLL)


async def _press(window: Window, key: str) -> None:
    from playwright.async_api import Error

    try:
        async with asyncio.timeout(CALL_TIMEOUT):
            await window.page.keyboard.press(key)
    except (TimeoutError, Error) as error:
        raise WindowError(f"the key {key} could not be pressed") from error


async def _taken(chat: Chat, read: Callable[[], Awaitable[None]]) -> None:
    deadline = time.monotonic() + TAKE_TIMEOUT
    while not chat.taken:
        if time.monotonic() > deadline:
            raise WindowError("the message did not appear in the chat")
        await asyncio.sleep(_POLL)
        await read()
