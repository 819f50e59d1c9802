"""An agent's process: its pipes, the tail of what it complains, and the end of all it started."""

import asyncio
import contextlib
import os
from asyncio.subprocess import Process
from collections.abc import Mapping, Sequence
from typing import Final

import psutil

from outrider.daemon.agents.acp.tail import Tail
from outrider.daemon.processes import ProcessGroup, family

STDERR_KEPT: Final = 16 * 1024
"""Bytes of an agent's standard error that are kept: the newest."""

_CHUNK: Final = 64 * 1024
_STDERR_PAUSE: Final = 0.002
_START_TIMEOUT: Final = 3.0
_TERMINATE_GRACE: Final = 1.0
_KILL_TIMEOUT: Final = 5.0


class AgentProcess:
    """A running agent, the leader of a session of its own. Made by `start`.

    Attributes:
        reader: its standard output.
        writer: its standard input.
        complaints: the tail of its standard error.
    """

    def __init__(
        self,
        process: Process,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        stderr: asyncio.StreamReader,
        transports: Sequence[asyncio.BaseTransport],
    ) -> None:
        self._process = process
        self._group = ProcessGroup.of(process.pid)
        self.reader = reader
        self.writer = writer
        self.complaints = Tail(STDERR_KEPT)
        self._transports = transports
        self._drain = asyncio.create_task(self._keep_tail(stderr), name=f"stderr of {self.pid}")

    @classmethod
    async def start(
        cls, argv: Sequence[str], directory: str, environment: Mapping[str, str]
    ) -> "AgentProcess":
        """Start a program with pipes to and from it.

        The pipes are our own, not asyncio's: those keep a process from counting as ended for
        as long as any child that it left behind holds one of them.

        Leaves nothing behind where it raises or is cancelled.

        Raises:
            OSError: it cannot be started.
        """
        starting = asyncio.create_task(cls._start(argv, directory, environment))
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:  # half a process cannot be ended: wait for the whole
            await asyncio.wait({starting}, timeout=_START_TIMEOUT)
            if starting.done() and starting.exception() is None:
                await starting.result().end(0)
            raise

    @classmethod
    async def _start(
        cls, argv: Sequence[str], directory: str, environment: Mapping[str, str]
    ) -> "AgentProcess":
        their_in, our_in = os.pipe()
        our_out, their_out = os.pipe()
        our_err, their_err = os.pipe()
        transports: list[asyncio.BaseTransport] = []
        try:
            writer = await _writable(our_in, transports)
            reader = await _readable(our_out, transports)
            stderr = await _readable(our_err, transports)
            process = await asyncio.create_subprocess_exec(
                *argv,
                cwd=directory,
                env=dict(environment),
                stdin=their_in,
                stdout=their_out,
                stderr=their_err,
                start_new_session=True,
            )
        except BaseException:
            for transport in transports:
                transport.close()
            raise
        finally:
            for end in (their_in, their_out, their_err):
                os.close(end)
        return cls(process, reader, writer, stderr, transports)

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
        known = await asyncio.to_thread(family, self.pid) if self.exit_code is None else []
        self.writer.close()
        if not await self._ends_within(grace):
            with contextlib.suppress(ProcessLookupError):
                self._process.terminate()
            await self._ends_within(_TERMINATE_GRACE)
        await self.sweep(known)
        await self._ends_within(_KILL_TIMEOUT)
        self._drain.cancel()
        for transport in self._transports:
            transport.close()

    async def sweep(self, known: Sequence[psutil.Process] = ()) -> None:
        """Kill what is left of it: its session, and `known` descendants that have left that."""
        await self._group.kill(known)

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


async def _readable(end: int, transports: list[asyncio.BaseTransport]) -> asyncio.StreamReader:
    reader = asyncio.StreamReader(limit=_CHUNK)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(end, "rb", 0)
    )
    transports.append(transport)
    return reader


async def _writable(end: int, transports: list[asyncio.BaseTransport]) -> asyncio.StreamWriter:
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.connect_write_pipe(
        lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), os.fdopen(end, "wb", 0)
    )
    transports.append(transport)
    return asyncio.StreamWriter(transport, protocol, None, loop)
