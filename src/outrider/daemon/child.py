"""Child processes that inherit standard input, output and error, and no other descriptor.

asyncio's own are not used. On uvloop `create_subprocess_exec` ignores `close_fds`, and marks the
copies that it makes of the child's standard descriptors as inheritable: every command of a terminal
would have the pipes on which its shell is told what to do and reports how that ended.
"""

import asyncio
import os
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import Final

import uvloop

from outrider.daemon.processes import ProcessGroup

_LIMIT: Final = 64 * 1024


class Child:
    """A running child, the leader of a session of its own. Made by `start`.

    Attributes:
        group: the child and all that it starts.
        stdin, stdout, stderr: the ends on this side of those that are a `PIPE`.
    """

    def __init__(
        self,
        process: "subprocess.Popen[bytes]",
        transports: Sequence[asyncio.BaseTransport],
        stdin: asyncio.StreamWriter | None,
        stdout: asyncio.StreamReader | None,
        stderr: asyncio.StreamReader | None,
    ) -> None:
        self._process = process
        self.group = ProcessGroup.of(process.pid)
        self._transports = transports
        self._ended = asyncio.Event()
        self.stdin = stdin
        self.stdout = stdout
        self.stderr = stderr
        self._watch(asyncio.get_running_loop())

    @property
    def pid(self) -> int:
        """The process's number."""
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """How it ended: negative for a signal, None while it runs."""
        return self._process.returncode

    async def wait(self) -> int:
        """Return how it ended, once it has, whatever its own children still hold open."""
        await self._ended.wait()
        assert self._process.returncode is not None
        return self._process.returncode

    async def output(self) -> bytes:
        """Return all of its standard output, once it has ended and nobody can write more."""
        assert self.stdout is not None
        said = await self.stdout.read()
        await self.wait()
        return said

    def terminate(self) -> None:
        """Send SIGTERM. Harmless where it has ended."""
        self._process.terminate()

    def kill(self) -> None:
        """Send SIGKILL. Harmless where it has ended."""
        self._process.kill()

    def close(self) -> None:
        """Close the pipes on this side."""
        for transport in self._transports:
            transport.close()

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """See to it that `_reap` is called when the process ends."""
        try:
            handle = os.pidfd_open(self.pid)
        except (AttributeError, OSError):  # no Linux, or an old one

            def wait() -> None:
                self._process.wait()
                loop.call_soon_threadsafe(self._ended.set)

            threading.Thread(target=wait, name=f"wait for {self.pid}", daemon=True).start()
        else:
            loop.add_reader(handle, self._reap, loop, handle)

    def _reap(self, loop: asyncio.AbstractEventLoop, handle: int) -> None:
        loop.remove_reader(handle)
        os.close(handle)
        self._process.wait()
        self._ended.set()


async def start(
    argv: Sequence[str | Path],
    *,
    cwd: str | None = None,
    env: Mapping[str, str] | None = None,
    stdin: int = DEVNULL,
    stdout: int = DEVNULL,
    stderr: int = DEVNULL,
    limit: int = _LIMIT,
) -> Child:
    """Start a program.

    Leaves nothing behind where it raises or is cancelled.

    Args:
        argv: the program and its arguments.
        env: its whole environment; None for this process's.
        stdin, stdout, stderr: `PIPE`, `DEVNULL`, a file descriptor, or for the last one `STDOUT`.
        limit: bytes of output that are read ahead, and the longest line.

    Raises:
        OSError: it cannot be started.
        ValueError: an argument has a zero byte.
    """
    theirs: list[int] = []
    transports: list[asyncio.BaseTransport] = []
    writer: asyncio.StreamWriter | None = None
    output: asyncio.StreamReader | None = None
    errors: asyncio.StreamReader | None = None
    try:
        if stdin == PIPE:
            stdin, ours = os.pipe()
            theirs.append(stdin)
            writer = await _writer(ours, transports)
        if stdout == PIPE:
            ours, stdout = os.pipe()
            theirs.append(stdout)
            output = await _reader(ours, limit, transports)
        if stderr == PIPE:
            ours, stderr = os.pipe()
            theirs.append(stderr)
            errors = await _reader(ours, limit, transports)
        # Returns once the program is executed, a millisecond later, as asyncio's own does.
        process = subprocess.Popen(  # noqa: ASYNC220
            argv,
            cwd=cwd,
            env=env,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            close_fds=True,
            start_new_session=True,
        )
    except BaseException:
        for transport in transports:
            transport.close()
        raise
    finally:
        for end in theirs:
            os.close(end)
    return Child(process, transports, writer, output, errors)


async def _reader(
    end: int, limit: int, transports: list[asyncio.BaseTransport]
) -> asyncio.StreamReader:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit)
    transport, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader),
        open(end, "rb", 0, closefd=_closes(loop)),  # noqa: ASYNC230, SIM115
    )
    transports.append(transport)
    return reader


async def _writer(end: int, transports: list[asyncio.BaseTransport]) -> asyncio.StreamWriter:
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.connect_write_pipe(
        lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()),
        open(end, "wb", 0, closefd=_closes(loop)),  # noqa: ASYNC230, SIM115
    )
    transports.append(transport)
    return asyncio.StreamWriter(transport, protocol, None, loop)


def _closes(loop: asyncio.AbstractEventLoop) -> bool:
    """Tell whether the file object of a pipe is what closes its descriptor.

    uvloop closes it by itself, and the file object a second time: by then the number may be that
    of a file which another thread has opened (https://github.com/MagicStack/uvloop/issues/763).
    """
    return not isinstance(loop, uvloop.Loop)
