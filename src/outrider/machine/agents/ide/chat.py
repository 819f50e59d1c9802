"""The chats of an IDE's agents: read from the page, and messages written into the page.

    page ─ rows ─▶ Chats.read ─▶ IdeChat.merge ─▶ chat log      (a row's key ─▶ message id: journal)
    write_message ─▶ type ─▶ send ─▶ read until the expected row has arrived

The page's rows have keys of their own; the journal keeps which message each key stands for, so
that ids stay the same after a restart.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from outrider.contract.resources import Message, MessageKind, Role
from outrider.machine.agents.ide.spec import AgentSpec
from outrider.machine.agents.ide.status import StatusMonitor
from outrider.machine.agents.ide.window import CALL_TIMEOUT, Window, WindowError, first_line
from outrider.machine.link.journal import Journal
from outrider.machine.sessions.chat_log import ChatLog, Entry
from outrider.machine.sessions.clock import Clock
from outrider.machine.sessions.guards import Guards
from outrider.machine.sessions.record import SessionRecord

GUARD = "\u200b"
"""Precedes a message that the agent would take for a command; it is invisible."""

ARRIVAL_TIMEOUT: Final = 20.0
"""Seconds until the chat shows a message that was sent."""

OPEN_TIMEOUT: Final = 10.0
TYPE_TIMEOUT: Final = 3.0
SEND_TIMEOUT: Final = 5.0
"""Seconds that the send button may be absent or disabled after the text was typed."""

_POLL: Final = 0.05


class Row(msgspec.Struct, kw_only=True):
    """One row of a chat as the page's script reports it. `key` never changes."""

    key: str
    role: Role
    kind: MessageKind = "text"
    content: str


class IdeChat:
    """The messages of one agent.

    Args:
        kind: the agent's type, the prefix of its rows' names in the journal.
    """

    def __init__(self, session_id: str, kind: str, chat_log: ChatLog, journal: Journal) -> None:
        self._session_id = session_id
        self._prefix = f"{kind}:"
        self._chat_log = chat_log
        self._journal = journal
        self._entries: dict[str, Entry] = {}
        self._known = journal.message_ids(session_id)
        self._expected: tuple[str, str] | None = None
        self._answered = False

    def __contains__(self, message_id: str) -> bool:
        return message_id in self._chat_log

    def expect(self, message_id: str, text: str) -> None:
        """Expect a row of the user with this text, which becomes the message `message_id`."""
        self._expected = (message_id, text)
        self._answered = False

    def cancel_expected(self) -> None:
        """Stop expecting a row."""
        self._expected = None

    @property
    def has_arrived(self) -> bool:
        """Whether the expected row has arrived."""
        return self._expected is None

    @property
    def answered(self) -> bool:
        """Whether the agent has written anything after the last expected message."""
        return self._answered

    def merge(self, rows: Sequence[Row]) -> None:
        """Merge the page's rows, in order; rows that the page no longer shows are kept."""
        turn = 0
        for row in rows:
            content = row.content.removeprefix(GUARD) if row.role == "user" else row.content
            if row.role == "user":
                turn = self._turn(row.key, content, turn)
            name = self._name(row.key, turn)
            entry = self._entry(name)
            if entry is None:
                self._add(name, row, content)
            elif _plain(entry.content) != _plain(content):
                self._chat_log.replace(entry, content, row.role)

    def messages(self, start: int = 0) -> list[Message]:
        """Return the known messages from index `start` on, oldest first."""
        return self._chat_log.messages(start)

    @property
    def unfinished_count(self) -> int:
        """The number of the newest messages that may still change during a turn.

        The page redraws what the agent writes after the newest message of the user.
        """
        count = 0
        for message in reversed(self._chat_log.messages()):
            if message.role == "user":
                break
            count += 1
        return count

    def save(self) -> None:
        """Write what has not been written yet."""
        self._chat_log.save()

    def _turn(self, key: str, content: str, least: int) -> int:
        """Return how often the page has used this key for another message, at least `least`.

        A reloaded page may have lost its newest messages and use their keys for the next
        ones. The number then distinguishes the two: `key`, `key~1`, `key~2`…
        """
        turn = least
        while (entry := self._entry(self._name(key, turn))) is not None:
            if _plain(entry.content) == _plain(content):
                break
            if self._entry(self._name(key, turn + 1)) is None and not self._is_expected(content):
                break
            turn += 1
        return turn

    def _name(self, key: str, turn: int) -> str:
        return self._prefix + (f"{key}~{turn}" if turn else key)

    def _is_expected(self, content: str) -> bool:
        return self._expected is not None and _plain(content) == _plain(self._expected[1])

    def _entry(self, name: str) -> Entry | None:
        entry = self._entries.get(name)
        if entry is None and (message_id := self._known.get(name)) is not None:
            entry = self._chat_log.get(message_id)
            if entry is not None:
                self._entries[name] = entry
        return entry

    def _add(self, name: str, row: Row, content: str) -> None:
        message_id = self._known.get(name)
        expected = self._expected
        if expected is not None and row.role == "user" and self._is_expected(content):
            # the text as it was sent: a page may collapse white space
            (message_id, content), self._expected = expected, None
        elif row.role != "user" and self._expected is None:
            self._answered = True
        entry = self._chat_log.add(row.role, row.kind, content, message_id)
        self._entries[name] = entry
        self._known[name] = entry.id
        self._journal.save_message_id(self._session_id, name, entry.id)


def _plain(text: str) -> str:
    return " ".join(text.split())


class Chats:
    """The chats of all agents of an IDE.

    Args:
        folder: the directory of the chat logs.
        on_read: called with the type of an agent whose chat has been read.
    """

    def __init__(
        self,
        monitor: StatusMonitor,
        record: SessionRecord,
        folder: Path,
        journal: Journal,
        clock: Clock,
        *,
        on_read: Callable[[str], None],
    ) -> None:
        self._on_read = on_read
        self._monitor = monitor
        self._session_id = record.id
        self._chats = {
            kind: IdeChat(record.id, kind, ChatLog(folder / f"{kind}.jsonl", clock), journal)
            for kind in monitor.panels
        }
        self._read_lock = asyncio.Lock()
        self._must_read_again = False
        self._catch_up_task: asyncio.Task[None] | None = None

    def __getitem__(self, kind: str) -> IdeChat:
        return self._chats[kind]

    def completed_messages(self, kind: str, start: int, *, is_turn_over: bool) -> Sequence[Message]:
        """Return the messages of an agent from index `start` on that will not change."""
        chat = self._chats[kind]
        messages = chat.messages(start)
        if messages and not is_turn_over:
            messages = messages[: max(0, len(messages) - chat.unfinished_count)]
        if messages:
            chat.save()
        return messages

    async def read(self, kind: str) -> None:
        """Merge what the page shows of the chat now; do nothing without a page.

        Raises:
            WindowError: the page does not answer, or not with a chat.
        """
        window = self._monitor.window
        if self._monitor.end_message is not None or window is None or window.state != "there":
            return
        # One read at a time: two would both take a new row for unknown, and add it twice.
        async with self._read_lock:
            rows = await window.call("read", kind)
            try:
                self._chats[kind].merge(msgspec.convert(rows, list[Row]))
            except msgspec.ValidationError as error:
                raise WindowError(f"its chat cannot be read: {error}") from error
        self._on_read(kind)

    def catch_up(self) -> None:
        """Read the chat in the background, so that new messages get a time and outlive the page.

        This also detects the answer of an agent that shows no sign of work.
        """
        panel = self._monitor.panel
        self._must_read_again = True
        if self._catch_up_task is not None and not self._catch_up_task.done():
            return

        async def check() -> None:
            try:
                while self._must_read_again:  # a change during a read may not be in it
                    self._must_read_again = False
                    await self.read(panel.kind)
            except WindowError:
                return
            if panel.awaits_answer and self._chats[panel.kind].answered:
                panel.set_answer_begun()
                asyncio.get_running_loop().call_soon(self._monitor.refresh)

        self._catch_up_task = asyncio.create_task(check(), name=f"read {self._session_id}")

    async def stop(self) -> None:
        """Stop reading."""
        if self._catch_up_task is not None:
            self._catch_up_task.cancel()
            await asyncio.wait({self._catch_up_task}, timeout=1)

    def save(self) -> None:
        """Write what has not been written yet."""
        for chat in self._chats.values():
            chat.save()


async def show_chat(monitor: StatusMonitor, window: Window, agent: AgentSpec) -> None:
    """Open and select the agent's chat, so that it accepts a message.

    Raises:
        WindowError: it does not appear.
    """
    panel = monitor.panels[agent.type]

    def shown() -> bool:
        return panel.report is not None and panel.report.shown and panel.report.input

    if not shown():
        await window.call("open", agent.type)
        if not await monitor.wait_until(shown, OPEN_TIMEOUT):
            raise WindowError(panel.last.error or f"the chat of {agent.name} is hidden")
    await window.call("select", agent.type)


async def write_message(
    window: Window,
    agent: AgentSpec,
    chat: IdeChat,
    read: Callable[[], Awaitable[None]],
    *,
    message_id: str,
    text: str,
) -> None:
    """Type and send a message; return once the chat, which `read` reads, shows it.

    Raises:
        WindowError: it does not appear there.
    """
    # Expected before it is typed: a page may show the row at once.
    wanted = Guards(agent.guard_before, mark=GUARD).add(text)
    chat.expect(message_id, text)
    try:
        await _type(window, agent, wanted)
        await _wait_typed(window, agent, wanted)
        await _send(window, agent)
        await _wait_arrived(chat, read)
    except BaseException:
        chat.cancel_expected()
        raise


async def _type(window: Window, agent: AgentSpec, text: str) -> None:
    """Replace the content of the input by the text."""
    from playwright.async_api import Error

    frame = window.frame_of(agent.type)
    try:
        async with asyncio.timeout(CALL_TIMEOUT):
            if agent.typing == "keys":
                await window.call("focus", agent.type)
                await window.page.keyboard.press("ControlOrMeta+a")
                await window.page.keyboard.press("Delete")
                await window.call("paste", agent.type, text)
            else:
                inputs = frame.locator(agent.input)
                shown = inputs.locator("visible=true")
                await (shown if await shown.count() else inputs).first.fill(text, force=True)
    except TimeoutError as error:
        raise WindowError("its input does not answer") from error
    except Error as error:
        raise WindowError(f"its input takes no text: {first_line(error)}") from error


async def _wait_typed(window: Window, agent: AgentSpec, text: str) -> None:
    """Wait until the input has the text, where its content can be read."""
    deadline = time.monotonic() + TYPE_TIMEOUT
    while True:
        content = await window.call("typed", agent.type)
        if content is None or " ".join(str(content).split()) == " ".join(text.split()):
            return
        if time.monotonic() > deadline:
            raise WindowError("its input did not take the text")
        await asyncio.sleep(_POLL)


async def _send(window: Window, agent: AgentSpec) -> None:
    if agent.submit is None:
        await _press(window, agent.submit_key)
        return
    deadline = time.monotonic() + SEND_TIMEOUT
    while not await window.call("submit", agent.type):
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


async def _wait_arrived(chat: IdeChat, read: Callable[[], Awaitable[None]]) -> None:
    deadline = time.monotonic() + ARRIVAL_TIMEOUT
    while not chat.has_arrived:
        if time.monotonic() > deadline:
            raise WindowError("the message did not appear in the chat")
        await asyncio.sleep(_POLL)
        await read()
