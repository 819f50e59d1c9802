"""Type messages and keys into an agent's terminal."""

import asyncio
import re
import time
from collections.abc import Sequence
from typing import Final

from outrider.machine.agents.cli.screen import ScreenRules
from outrider.machine.agents.cli.spec import Input
from outrider.machine.agents.pane import Pane
from outrider.machine.agents.provider_spec import fill_placeholders
from outrider.machine.sessions.guards import Guards
from outrider.machine.tmux.server import PaneSnapshot, Tmux

PASTE_TIMEOUT: Final = 3.0
"""Seconds to wait for a pasted text to appear; then it is submitted anyway."""

CLEAR_TIMEOUT: Final = 0.5
"""Seconds to wait for an effect of the keys that clear the input; without one, it is empty."""

MAX_LINES: Final = 500
"""Lines of a message that is typed line by line: each takes 30 ms or more."""

_MAX_CLEAR: Final = 200
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class Keyboard:
    """The keyboard of one agent. All methods raise TmuxError if the terminal is gone."""

    def __init__(self, tmux: Tmux, pane: Pane, rules: ScreenRules, keys: Input) -> None:
        self._tmux = tmux
        self._pane = pane
        self._rules = rules
        self._keys = keys

    async def type(self, lines: Sequence[str]) -> PaneSnapshot:
        """Type these lines and submit each; return the screen before the last was submitted."""
        await self.clear()
        for line in lines[:-1]:
            before = await self._tmux.snapshot(self._pane)
            await self._paste(line)
            await self.submit()
            # Input that arrives while the agent does not read is echoed twice: by the terminal
            # at once, and by the agent when it reads. So wait for each line.
            await self._wait_until_drawn(before, pause=0.01)
        before = await self._tmux.snapshot(self._pane)
        await self._paste(lines[-1])
        screen = await self._wait_until_drawn(before, pause=0.03)  # Enter must come after it
        await asyncio.sleep(self._keys.pause)
        await self.submit()
        return screen

    async def _paste(self, text: str) -> None:
        if text:
            await self._tmux.paste(self._pane, text)

    async def _wait_until_drawn(self, before: PaneSnapshot, pause: float) -> PaneSnapshot:
        """Return the screen once it differs from `before` and is stable for `pause` seconds.

        After `PASTE_TIMEOUT` the newest one is returned in any case.
        """
        last, deadline = before, time.monotonic() + PASTE_TIMEOUT
        while time.monotonic() < deadline:
            await asyncio.sleep(pause)
            shown = await self._tmux.snapshot(self._pane)
            if shown.text != before.text and (shown, shown.cursor) == (last, last.cursor):
                return shown
            last = shown
        return last

    async def submit(self) -> None:
        """Press the keys that submit the input."""
        await self.press(self._keys.submit)

    async def press(self, keys: list[str] | tuple[str, ...]) -> None:
        """Press keys, by tmux's names for them."""
        await self._tmux.press(self._pane, keys)

    async def clear(self) -> None:
        """Clear the input; an agent may have restored an old prompt in it."""
        keys = self._keys.clear
        shown = await self._tmux.snapshot(self._pane)
        for _ in range(_MAX_CLEAR):
            if not keys or self._rules.input_is_empty(shown.text):
                return
            await self.press(keys)
            before = shown
            deadline = time.monotonic() + CLEAR_TIMEOUT
            while shown.text == before.text:
                if time.monotonic() > deadline:
                    return  # the keys have no effect: the input is empty
                await asyncio.sleep(0.02)
                shown = await self._tmux.snapshot(self._pane)


def lines_to_type(keys: Input, guards: Guards, message_id: str, text: str) -> list[str]:
    """Return the texts to type and submit for a message: one, unless the input is single-line.

    Otherwise the text may contain line breaks, which the agent accepts as part of one message.
    """
    lines = text.rstrip("\n").split("\n")
    if not keys.single_line:
        return [guards.add(text)]
    multi_line = keys.multi_line
    if len(lines) == 1 or multi_line is None:
        return [guards.add(line) for line in lines]
    token = {"token": message_id.rpartition("_")[2]}
    return [
        fill_placeholders(multi_line.begin, token),
        *(guards.add(line) if line.strip() else line or multi_line.blank for line in lines),
        fill_placeholders(multi_line.end, token),
    ]


def typeable(text: str) -> str:
    """Return a message without control characters, which a terminal would execute."""
    return _CONTROL.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
