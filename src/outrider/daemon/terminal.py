"""Terminal commands: one-shot shells, and named ones that live on until the daemon stops."""

import asyncio
import time
from pathlib import Path
from typing import Final

from outrider.contract.commands import Terminal, TerminalOutput
from outrider.contract.errors import ApiError, bad_request, conflict, not_found
from outrider.daemon.capture import Capture
from outrider.daemon.directories import directory
from outrider.daemon.shell import Outcome, Shell, run_once

MAX_TERMINALS: Final = 32
"""Named terminals that may live at once."""

MAX_WAITING: Final = 16
"""Commands that may wait for one named terminal."""

MAX_ARGUMENT: Final = 128 * 1024 - 1
"""Bytes of a one-shot command: what Linux takes as one argument of a program."""


class Terminals:
    """Every terminal of this machine."""

    def __init__(self) -> None:
        self._named: dict[str, NamedTerminal] = {}

    async def run(self, request: Terminal, deadline: float) -> TerminalOutput:
        """Run a command and return what it printed and how it ended.

        Args:
            request: the command; with a `name`, for the terminal that lives under it.
            deadline: event loop time at which a one-shot command is killed, and a named
                terminal's command is left to go on.

        Raises:
            ApiError: 400, `cwd` or `command` cannot be used; 409, too many terminals, or too
                many commands wait for this one; 504, the deadline has passed.
        """
        began = time.monotonic()
        _check_command(request)
        cwd = (
            None if request.cwd is None else await asyncio.to_thread(directory, request.cwd, "cwd")
        )
        if request.name is None:
            outcome = await run_once(request.command, cwd or str(Path.home()), deadline)
        else:
            outcome = await self._run_named(request.name, request.command, cwd, deadline)
        return TerminalOutput(
            terminal=request.name,
            exit_code=outcome.exit_code,
            output=outcome.output,
            truncated=outcome.truncated,
            duration_ms=round((time.monotonic() - began) * 1000),
            cwd=outcome.cwd,
        )

    async def end(self, name: str) -> None:
        """Kill the terminal of this name with all that runs in it; what waits for it gets a 409.

        Raises:
            ApiError: 404, there is none.
        """
        terminal = self._named.pop(name, None)
        if terminal is None:
            raise not_found(f"No terminal {name!r} is open on this machine")
        await terminal.close()

    async def close(self) -> None:
        """Kill every named terminal with all that runs in it."""
        terminals = list(self._named.values())
        self._named.clear()
        await asyncio.gather(*(terminal.close() for terminal in terminals))

    async def _run_named(
        self, name: str, command: str, cwd: str | None, deadline: float
    ) -> Outcome:
        terminal = self._named.get(name)
        if terminal is None:
            await self._make_room()
            terminal = self._named.setdefault(name, NamedTerminal(name))
        return await terminal.run(command, cwd, deadline)

    async def _make_room(self) -> None:
        """Delete the terminals whose shells have ended, once there are many."""
        if len(self._named) < MAX_TERMINALS:
            return
        for name, terminal in list(self._named.items()):
            if terminal.unused:
                del self._named[name]
                await terminal.close()
        if len(self._named) >= MAX_TERMINALS:
            raise conflict(
                f"{MAX_TERMINALS} named terminals are open on this machine: "
                "delete one of them, or use one of their names"
            )


class NamedTerminal:
    """A shell under a name. One that has ended is replaced by its next command."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._capture = Capture()
        self._shell: Shell | None = None
        self._is_closed = False
        self._order = asyncio.Lock()
        self._waiting = 0

    @property
    def unused(self) -> bool:
        """Whether no shell lives here and nobody is about to use one."""
        return self._waiting == 0 and (self._shell is None or self._shell.ended)

    async def run(self, command: str, cwd: str | None, deadline: float) -> Outcome:
        """Run a command after those that came before it.

        Raises:
            ApiError: 409, `MAX_WAITING` commands wait already, or the terminal was closed before
                this one began; 504, the deadline has passed while the command ran (it goes on)
                or waited (it will not run).
        """
        if self._waiting > MAX_WAITING:
            raise conflict(
                f"{MAX_WAITING} commands wait for the terminal {self._name!r} already: "
                "wait for them, or use another name"
            )
        started = False
        self._waiting += 1
        try:
            async with asyncio.timeout_at(deadline), self._order:
                shell = await self._ready(cwd)
                started = True
                return await shell.run(command, cwd)
        except TimeoutError:
            raise ApiError(504, self._late(started=started)) from None
        finally:
            self._waiting -= 1

    async def close(self) -> None:
        """Kill the shell with all that runs in it, permanently: commands that wait do not begin."""
        self._is_closed = True
        if self._shell is not None:
            await self._shell.close()

    async def _ready(self, cwd: str | None) -> Shell:
        """Return a living shell in which nothing runs."""
        if self._shell is not None:
            await self._shell.idle()
            if not self._shell.ended and not self._is_closed:
                return self._shell
            await self._shell.close()
        self._check_open()
        shell = Shell(cwd or str(Path.home()), self._capture)
        await shell.start()
        if self._is_closed:  # while it started
            await shell.close()
        self._check_open()
        self._shell = shell
        return shell

    def _check_open(self) -> None:
        if self._is_closed:
            raise conflict(f"The terminal {self._name!r} was ended before this command began")

    def _late(self, *, started: bool) -> str:
        if started:
            return (
                f"The command goes on in the terminal {self._name!r}; "
                "its output will be in that terminal's next reply"
            )
        return (
            f"An earlier command still runs in the terminal {self._name!r}; this one was not "
            "started: send it again later, or use another name"
        )


def _check_command(request: Terminal) -> None:
    if "\0" in request.command:
        raise bad_request("`command` holds a NUL character, which no shell can take", "command")
    try:
        size = len(request.command.encode())
    except UnicodeEncodeError:
        raise bad_request("`command` is not valid Unicode text", "command") from None
    if request.name is None and size > MAX_ARGUMENT:
        raise bad_request(
            f"`command` has {size} bytes, more than the {MAX_ARGUMENT} that a fresh shell takes: "
            "write it to a file and run that, or use a named terminal",
            "command",
        )
