"""An agent's process: its pipes, the tail of what it complains, and the end of all it started."""

import asyncio
from collections.abc import Mapping, Sequence
from subprocess import PIPE
from typing import Final

from outrider.daemon.agents.acp.tail import Tail
from outrider.daemon.child import Child, start

STDERR_KEPT: Final = 16 * 1024
"""Bytes of an agent's standard error that are kept: the newest."""

_CHUNK: Final = 64 * 1024
_STDERR_PAUSE: Final = 0.002
_TERMINATE_GRACE: Final = 1.0
_KILL_TIMEOUT: Final = 5.0


class AgentProcess:
    """A running agent, the leader of a session of its own. Made by `start`.

    Attributes:
        reader: its standard output.
        writer: its standard input.
        complaints: the tail of its standard error.
    """

    def __init__(self, child: Child) -> None:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stderr is not None
        self._process = child
        self.reader = child.stdout
        self.writer = child.stdin
        self.complaints = Tail(STDERR_KEPT)
        self._drain = asyncio.create_task(
            self._keep_tail(child.stderr), name=f"stderr of {self.pid}"
        )

    @classmethod
    async def start(
        cls, argv: Sequence[str], directory: str, environment: Mapping[str, str]
    ) -> "AgentProcess":
        """Start a program with pipes to and from it.

        Leaves nothing behind where it raises or is cancelled.

        Raises:
            OSError: it cannot be started.
        """
        child = await start(
            argv, cwd=directory, env=environment, stdin=PIPE, stdout=PIPE, stderr=PIPE, limit=_CHUNK
        )
        return cls(child)

    @property
    def pid(self) -> int:
        """The process's number."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """How it ended: negative for a signal, None while it runs."""
        return self._process.returncode

    async def ended(self) -> None:
        """Return once the process itself has ended, whatever it left behind."""
        await self._process.wait()

    async def end(self, grace: float) -> None:
        """End it and everything that it started.

        Its standard input is closed first, which asks a well-behaved agent to go; after
        `grace` seconds it is asked by a signal, and in the end nobody is asked any more.
        """
        known = await self._process.group.members()
        self.writer.close()
        if await self._ends_within(grace):
            await self._process.group.kill(known)
        else:
            await self._process.group.end(_TERMINATE_GRACE, known)
        await self._ends_within(_KILL_TIMEOUT)
        self._drain.cancel()
        self._process.close()

    async def sweep(self) -> None:
        """Kill what is left of it."""
        await self._process.group.kill()

    async def _ends_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._process.wait()
        except TimeoutError:
            return False
        return True

    async def _keep_tail(self, stderr: asyncio.StreamReader) -> None:
        """Read for ever, slowly enough that a flood does not keep everything else waiting."""
        while data := await stderr.read(_CHUNK):
            self.complaints.add(data)
            await asyncio.sleep(_STDERR_PAUSE)
