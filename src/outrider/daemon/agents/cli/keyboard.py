"""Type into an agent's terminal."""

import asyncio
import re
import time
from typing import Final

from outrider.daemon.agents.cli.provider_file import Input
from outrider.daemon.agents.cli.screen import Judge
from outrider.daemon.agents.cli.tmux import Pane, Snapshot, Tmux

PASTE_TIMEOUT: Final = 3.0
"""Seconds that a text may take to be drawn before it is submitted all the same."""

CLEAR_TIMEOUT: Final = 0.5
"""Seconds after which keys that clear the input and change nothing have found it empty."""

_MAX_CLEAR: Final = 200
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class Keyboard:
    """The keyboard of one agent. Its calls raise TmuxError where the terminal is gone."""

    def __init__(self, tmux: Tmux, pane: Pane, judge: Judge, keys: Input) -> None:
        self._tmux = tmux
        self._pane = pane
        self._judge = judge
        self._keys = keys

    async def type(self, text: str) -> Snapshot:
        """Type `text` and submit it; return what the screen was just before it was submitted."""
        await self.clear()
        before = await self._tmux.snapshot(self._pane)
        await self._tmux.paste(self._pane, text)
        last = before
        deadline = time.monotonic() + PASTE_TIMEOUT
        while time.monotonic() < deadline:  # until it has been drawn: Enter must come after it
            await asyncio.sleep(0.03)
            shown = await self._tmux.snapshot(self._pane)
            if shown.text == last.text != before.text:
                break
            last = shown
        await asyncio.sleep(self._keys.pause)
        await self.submit()
        return last

    async def submit(self) -> None:
        """Press the keys that submit what stands in the input."""
        await self.press(self._keys.submit)

    async def press(self, keys: list[str] | tuple[str, ...]) -> None:
        """Press keys, by tmux's names for them."""
        await self._tmux.press(self._pane, keys)

    async def clear(self) -> None:
        """Take away what stands in the input; an agent may have put an old prompt back."""
        keys = self._keys.clear
        shown = await self._tmux.snapshot(self._pane)
        for _ in range(_MAX_CLEAR):
            if not keys or self._judge.input_is_empty(shown.text):
                return
            await self.press(keys)
            before = shown
            deadline = time.monotonic() + CLEAR_TIMEOUT
            while shown.text == before.text:
                if time.monotonic() > deadline:
                    return  # there is nothing that these keys take away
                await asyncio.sleep(0.02)
                shown = await self._tmux.snapshot(self._pane)


def typeable(text: str) -> str:
    """Return a message without the control characters that a terminal would act on."""
    return _CONTROL.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
