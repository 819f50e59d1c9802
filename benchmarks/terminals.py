"""Measures live terminals: how soon a key is echoed, and what a loud terminal costs the others."""

import asyncio
import os
import pty
import select
import statistics
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import cycle, islice
from pathlib import Path
from string import ascii_lowercase
from typing import Final

from websockets.asyncio.client import ClientConnection, connect

from benchmarks.bench import Bench, Sections, median_latency
from benchmarks.machine_agent import MachineAgent, machine_agent
from benchmarks.processes import MEGABYTE, BenchmarkError
from benchmarks.report import Figure, Measure, Section, Target, percentile
from benchmarks.service import Installation
from outrider.sdk import Agent

_SOON: Final = Target("at most", 15)
_UNDISTURBED: Final = Target("at most", 2, "ratio")

_SHELL: Final = """
type = "shell"
display_name = "Shell"
command = ["bash", "--norc"]
install = "-"
settle = 0.3
[environment]
set = { PS1 = "sh> ", HISTFILE = "/dev/null" }
[[rules]]
name = "prompt"
status = "idle"
screen = 'sh>\\Z'
[[rules]]
name = "no prompt"
status = "generating"
screen = '.'
"""
"""An agent whose terminal is a shell."""

_KEYS: Final = 300
_LINE: Final = 60
"""Keys after which a new line is begun, so that a line is never wrapped."""

_PATIENCE: Final = 10.0


def terminals(bench: Bench) -> Sections:
    """Measure the terminals of agents on a real machine agent, and the same tmux without them."""
    installation = Installation(bench.stage, "service")
    with machine_agent(installation, providers={"shell": _SHELL}) as machine:
        yield _echo(machine, bench)
        yield _yes(machine, bench)


def _echo(machine: MachineAgent, bench: Bench) -> Section:
    agent = machine.launch("shell")
    runs = bench.in_turns(
        "echo",
        lambda: asyncio.run(_echo_of_terminal(machine, agent)),
        lambda: _echo_of_tmux(machine.home),
    )
    agent.stop()
    served, local = ([statistics.median(run) for run in each] for each in runs)
    above = [one - other for one, other in zip(served, local, strict=True)]
    return Section(
        "Terminals: from a key to its echo (client, service, machine agent, tmux; cat)",
        [
            Figure("median", "ms", served, local, note="baseline: tmux alone"),
            Figure("median, above tmux alone", "ms", above, target=_SOON),
            Measure("99th percentile", "ms", lambda run: percentile(run, 99)).of(runs),
        ],
    )


def _keys() -> Iterator[bytes]:
    return islice(cycle(letter.encode() for letter in ascii_lowercase), _KEYS)


@asynccontextmanager
async def _terminal(machine: MachineAgent, agent: Agent) -> AsyncIterator[ClientConnection]:
    """Open the terminal of an agent."""
    server = machine.server
    async with connect(
        f"ws{server.url.removeprefix('http')}/api/v1/shortcuts/{agent.id}/terminal",
        additional_headers=server.headers,
        compression=None,
        proxy=None,
    ) as socket:
        yield socket


async def _shown(socket: ClientConnection, text: bytes) -> None:
    """Read until the terminal shows a text."""
    shown = b""
    async with asyncio.timeout(_PATIENCE):
        while text not in shown:
            message = await socket.recv()
            assert isinstance(message, bytes)
            shown += message


async def _quiet(socket: ClientConnection) -> None:
    """Read until the terminal has shown nothing for a moment."""
    while True:
        try:
            async with asyncio.timeout(0.2):
                await socket.recv()
        except TimeoutError:
            return


async def _echo_of_terminal(machine: MachineAgent, agent: Agent) -> list[float]:
    """Return the milliseconds of each key's way to the machine and back."""
    found = []
    async with _terminal(machine, agent) as socket:
        await socket.send(b"cat\r")
        await _shown(socket, b"cat")
        await _quiet(socket)
        for number, key in enumerate(_keys(), 1):
            began = time.perf_counter()
            await socket.send(key)
            await _shown(socket, key)
            found.append((time.perf_counter() - began) * 1000)
            if not number % _LINE:
                await socket.send(b"\r")
                await _quiet(socket)
        await socket.send(b"\x03")
        await _quiet(socket)
    return found


def _echo_of_tmux(directory: Path) -> list[float]:
    """Return the milliseconds of each key's way through `cat` in a tmux of its own, alone."""
    found = []
    tmux = ["tmux", "-S", str(directory / "tmux"), "-f", "/dev/null"]
    terminal, other = pty.openpty()
    client = subprocess.Popen(
        [*tmux, "new-session", "cat"],
        cwd=directory,
        env={**os.environ, "TERM": "xterm-256color", "TMUX": ""},
        stdin=other,
        stdout=other,
        stderr=other,
        start_new_session=True,
    )
    os.close(other)
    try:
        _read(terminal, 1.0)
        for number, key in enumerate(_keys(), 1):
            began = time.perf_counter()
            os.write(terminal, key)
            if key not in _read(terminal, _PATIENCE, key):
                raise BenchmarkError("tmux does not echo")
            found.append((time.perf_counter() - began) * 1000)
            if not number % _LINE:
                os.write(terminal, b"\r")
                _read(terminal, 0.2)
    finally:
        subprocess.run([*tmux, "kill-server"], check=False, capture_output=True)
        os.close(terminal)
        client.wait(_PATIENCE)
    return found


def _read(terminal: int, seconds: float, text: bytes | None = None) -> bytes:
    """Read what a terminal shows until it is a text, or nothing for so many seconds."""
    shown = b""
    while select.select([terminal], [], [], seconds)[0]:
        shown += os.read(terminal, 65536)
        if text is not None and text in shown:
            break
    return shown


def _yes(machine: MachineAgent, bench: Bench) -> Section:
    agent, loud = machine.launch("shell"), machine.launch("shell")
    alone, beside, rates = [], [], []
    for _ in bench.each_round("a loud terminal"):
        alone.append(median_latency(agent.status, bench.seconds))
        times, rate = asyncio.run(_status_beside_yes(machine, loud, agent, bench.seconds))
        beside.append(times)
        rates.append(rate)
    agent.stop()
    loud.stop()
    return Section(
        f"Terminals: an agent's status while `yes` runs for {bench.seconds} s in another",
        [
            Figure("median", "ms", beside, alone, _UNDISTURBED, "baseline: without `yes`"),
            Figure("what the client gets of `yes`", "MB/s", rates),
        ],
    )


async def _status_beside_yes(
    machine: MachineAgent, loud: Agent, agent: Agent, seconds: float
) -> tuple[float, float]:
    """Return the same while `yes` runs and is read, and the megabytes per second that are read."""
    size = 0

    async def read(socket: ClientConnection) -> None:
        nonlocal size
        async for message in socket:
            size += len(message)

    async with _terminal(machine, loud) as socket:
        await socket.send(b"yes\r")
        await _shown(socket, b"\ny")  # the command itself may have scrolled away already
        reading = asyncio.create_task(read(socket))
        median = await asyncio.to_thread(median_latency, agent.status, seconds)
        reading.cancel()
        await asyncio.wait({reading})
        await socket.send(b"\x03")
        await _quiet(socket)  # a key that is under way when the socket closes may be lost
    return median, size / MEGABYTE / seconds
