"""Child processes that inherit stdin, stdout and stderr and no other file descriptor.

`start` is used in place of `asyncio.create_subprocess_exec`: on uvloop that ignores `close_fds`,
and makes its copies of the child's standard descriptors inheritable, so that every command in a
terminal would hold the pipes through which its shell gets commands and reports their end.

`run` starts a program that is expected to end, and returns its output.

`PipeReader` reads a pipe whose write end several processes may share, such as the output of a
shell and of what it starts.
"""

import asyncio
import fcntl
import os
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import Final
from weakref import WeakKeyDictionary

import uvloop

from outrider.machine.system.processes import ProcessGroup

_LIMIT: Final = 64 * 1024
_CHUNK: Final = 64 * 1024
_END_GRACE: Final = 0.5

_turns: Final = WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock]()
"""Held while a program is started, one lock for each event loop."""


class Child:
    """A child process that leads its own session. Created by `start`.

    Attributes:
        group: the child and everything that it starts.
        stdin, stdout, stderr: this side's ends of those that are a `PIPE`.
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
        """The process id."""
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """The exit status: negative for a signal, None while the process runs."""
        return self._process.returncode

    async def wait(self) -> int:
        """Wait for the process to end and return its status; its children may run on."""
        await self._ended.wait()
        assert self._process.returncode is not None
        return self._process.returncode

    async def output(self) -> bytes:
        """Return all of its standard output, after every writer has closed it."""
        assert self.stdout is not None
        data = await self.stdout.read()
        await self.wait()
        return data

    def terminate(self) -> None:
        """Send SIGTERM; does nothing if the process has ended."""
        self._process.terminate()

    def kill(self) -> None:
        """Send SIGKILL; does nothing if the process has ended."""
        self._process.kill()

    def close(self) -> None:
        """Close the pipes on this side."""
        for transport in self._transports:
            transport.close()

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Arrange that the process is reaped and `_ended` set when it ends."""
        try:
            handle = os.pidfd_open(self.pid)
        except (AttributeError, OSError):  # not Linux, or a kernel before 5.3

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

    If it raises or is cancelled, no process and no descriptor is left.

    Args:
        argv: the program and its arguments.
        env: its whole environment; None to inherit this process's.
        stdin, stdout, stderr: `PIPE`, `DEVNULL` or a file descriptor; `STDOUT` for stderr only.
        limit: bytes of output that are buffered, and the longest line.

    Raises:
        OSError: it cannot be started.
        ValueError: an argument has a zero byte.
    """
    child_ends: list[int] = []
    transports: list[asyncio.BaseTransport] = []
    writer: asyncio.StreamWriter | None = None
    output: asyncio.StreamReader | None = None
    errors: asyncio.StreamReader | None = None
    try:
        if stdin == PIPE:
            stdin, our_end = os.pipe()
            child_ends.append(stdin)
            writer = await _writer(our_end, transports)
        if stdout == PIPE:
            our_end, stdout = os.pipe()
            child_ends.append(stdout)
            output = await _reader(our_end, limit, transports)
        if stderr == PIPE:
            our_end, stderr = os.pipe()
            child_ends.append(stderr)
            errors = await _reader(our_end, limit, transports)
        # Blocks the loop until the program has been executed, milliseconds, as asyncio's does.
        # The lock lets the loop run between two starts: 256 in a row would block it for a second.
        async with _turns.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
            await asyncio.sleep(0)
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
        for end in child_ends:
            os.close(end)
    return Child(process, transports, writer, output, errors)


async def run(
    argv: Sequence[str | Path],
    *,
    seconds: float,
    cwd: str | None = None,
    env: Mapping[str, str] | None = None,
    stdin: bytes | None = None,
    stderr: int = DEVNULL,
) -> tuple[int, bytes]:
    """Run a program; return its exit status and output, and end everything that it started.

    It is ended as well if it takes longer than `seconds`, or if the caller is cancelled.

    Args:
        stdin: what it reads; None for nothing.
        stderr: `DEVNULL`, or `STDOUT` to have it in the output.

    Raises:
        OSError: it cannot be started.
        TimeoutError: it, or a process that holds its output, still runs after `seconds`.
    """
    process = await start(
        argv,
        cwd=cwd,
        env=env,
        stdin=DEVNULL if stdin is None else PIPE,
        stdout=PIPE,
        stderr=stderr,
    )
    try:
        async with asyncio.timeout(seconds):
            if process.stdin is not None:
                process.stdin.write(stdin or b"")
                with suppress(ConnectionError):  # it has ended: its status says why
                    await process.stdin.drain()
                process.stdin.close()
            output = await process.output()
            return await process.wait(), output
    finally:
        try:
            await process.group.end(_END_GRACE)
        finally:
            process.close()


async def _reader(
    end: int, limit: int, transports: list[asyncio.BaseTransport]
) -> asyncio.StreamReader:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit)
    transport, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader),
        open(end, "rb", 0, closefd=_file_closes_descriptor(loop)),  # noqa: ASYNC230, SIM115
    )
    transports.append(transport)
    return reader


async def _writer(end: int, transports: list[asyncio.BaseTransport]) -> asyncio.StreamWriter:
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.connect_write_pipe(
        lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()),
        open(end, "wb", 0, closefd=_file_closes_descriptor(loop)),  # noqa: ASYNC230, SIM115
    )
    transports.append(transport)
    return asyncio.StreamWriter(transport, protocol, None, loop)


def _file_closes_descriptor(loop: asyncio.AbstractEventLoop) -> bool:
    """Return whether the file object of a pipe has to close its descriptor.

    uvloop closes the descriptor by itself. If the file object closed it a second time, the number
    could by then belong to a file that another thread has opened
    (https://github.com/MagicStack/uvloop/issues/763).
    """
    return not isinstance(loop, uvloop.Loop)


class PipeReader:
    """A pipe whose bytes are passed to `sink` as they arrive.

    With a `path`, it is made there, for programs that are not started from this process.

    Attributes:
        write_end: the descriptor to pass to a child; call `close_write_end` after its start.
        ended: set when every writer has closed the pipe.
    """

    def __init__(self, sink: Callable[[bytes], None], path: Path | None = None) -> None:
        self._sink = sink
        if path is None:
            self._read_end, self.write_end = os.pipe()
        else:
            os.mkfifo(path, 0o600)
            self._read_end = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            self.write_end = os.open(path, os.O_WRONLY)  # without one, it would be at its end
        os.set_blocking(self._read_end, False)
        self.ended = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._read_end, self._read)

    def close_write_end(self) -> None:
        """Close this process's copy of the write end; until then the pipe cannot end."""
        os.close(self.write_end)
        self.write_end = -1

    def drain(self) -> None:
        """Read what is in the pipe now: at least all output of processes that have ended.

        Bounded by the pipe's capacity, so that a process that keeps writing cannot keep it here.
        """
        for _ in range(1 + self._capacity() // _CHUNK):
            if self._read_end < 0 or self.ended.is_set() or not self._read():
                return

    def close(self) -> None:
        """Stop reading. A process that still writes gets SIGPIPE."""
        if self._read_end >= 0:
            self._loop.remove_reader(self._read_end)
            os.close(self._read_end)
            self._read_end = -1
        if self.write_end >= 0:
            self.close_write_end()

    def _read(self) -> bool:
        """Read one chunk; return whether there may be more."""
        try:
            data = os.read(self._read_end, _CHUNK)
        except BlockingIOError:
            return False
        if data:
            self._sink(data)
            return True
        self._loop.remove_reader(self._read_end)
        self.ended.set()
        return False

    def _capacity(self) -> int:
        get_size = getattr(fcntl, "F_GETPIPE_SZ", None)
        return _CHUNK if get_size is None else fcntl.fcntl(self._read_end, get_size)
