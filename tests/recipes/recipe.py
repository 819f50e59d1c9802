"""The programs of docs/recipes, run as their readers would run them."""

import asyncio
import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import Self

from tests.rig.processes import PROCESS_TIMEOUT
from tests.rig.waiting import TIMEOUT

DOCS = Path(__file__).parents[2] / "docs" / "recipes"
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: str, language: str) -> list[str]:
    """Return the code blocks of a page."""
    text = (DOCS / page).read_text()
    return [code for name, code in _BLOCK.findall(text) if name == language]


class Recipe:
    """The program of a page, as a process; killed at the end at the latest."""

    def __init__(self, page: str, *arguments: str, env: dict[str, str]) -> None:
        (self._code,) = blocks(page, "python")
        self._arguments = arguments
        self._env = env
        self._process: asyncio.subprocess.Process

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", self._code, *self._arguments,
            env=self._env,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        return self

    async def __aexit__(self, *_: object) -> None:
        with suppress(ProcessLookupError):
            self._process.kill()
        await self._process.communicate()

    async def line(self) -> str:
        """Return the next line that it prints."""
        assert self._process.stdout is not None
        async with asyncio.timeout(PROCESS_TIMEOUT):
            return (await self._process.stdout.readline()).decode()

    async def ends(self) -> tuple[int, str]:
        """Return its exit code and what it still prints."""
        async with asyncio.timeout(PROCESS_TIMEOUT + TIMEOUT):
            out, _ = await self._process.communicate()
        assert self._process.returncode is not None
        return self._process.returncode, out.decode()
