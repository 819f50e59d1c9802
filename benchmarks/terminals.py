"""Measures live terminals: how soon a key is echoed, and what a loud terminal costs the others."""

import os
import pty
import select
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import cycle, islice
from pathlib import Path
from string import ascii_lowercase
from typing import Final, NamedTuple

from websockets.sync.client import connect

from benchmarks.bench import Bench, Sections, median_latency
from benchmarks.machine_agent import MachineAgent, machine_agent
from benchmarks.processes import MEGABYTE, BenchmarkError
from benchmarks.report import Figure, Measure, Section, Target, percentile
from benchmarks.service import Installation, Server
from outrider.sdk import Agent

_SOON: Final = Target("at most", 15)
_UNDISTURBED: Final = Target("at most", 2, "ratio")

SHELL: Final = """
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
"""The provider file of an agent whose terminal is a shell."""

_KEYS: Final = 300
_LINE: Final = 60
"""Keys after which a new line is begun, so that a line is never wrapped."""

_TIMEOUT: Final = 10.0
_QUIET: Final = 0.2


def terminals(bench: Bench) -> Sections:
    """Measure the terminals of agents on a real machine agent, and the same tmux without them."""
    installation = Installation(bench.stage, "service")
    with machine_agent(installation, providers={"shell": SHELL}) as machine:
        yield _echo(machine, bench)
        yield _yes(machine, bench)


def _echo(machine: MachineAgent, bench: Bench) -> Section:
    agent = machine.launch("shell")

    def echo_of_agent() -> list[float]:
        with _terminal(machine.server, agent) as terminal:
            terminal.type(b"cat\r")
            terminal.wait_for(b"cat")
            found = _echoes(terminal)
            terminal.type(b"\x03")
            terminal.wait_until_quiet()
            return found

    def echo_of_tmux() -> list[float]:
        with _tmux(machine.home, "cat") as terminal:
            return _echoes(terminal)

    runs = bench.in_turns("echo", echo_of_agent, echo_of_tmux)
    agent.stop()
    served, local = ([statistics.median(run) for run in each] for each in runs)
    above = [ours - bare for ours, bare in zip(served, local, strict=True)]
    return Section(
        "Terminals: from a key to its echo (client, service, machine agent, tmux; cat)",
        [
            Figure("median", "ms", served, local, note="baseline: tmux alone"),
            Figure("median, above tmux alone", "ms", above, target=_SOON),
            Measure("99th percentile", "ms", lambda run: percentile(run, 99)).of(runs),
        ],
    )


def _yes(machine: MachineAgent, bench: Bench) -> Section:
    agent, loud = machine.launch("shell"), machine.launch("shell")
    alone, beside, rates = [], [], []
    for _ in bench.each_round("a loud terminal"):
        alone.append(median_latency(agent.status, bench.seconds))
        with _terminal(machine.server, loud) as terminal, ThreadPoolExecutor(1) as thread:
            terminal.type(b"yes\r")
            terminal.wait_for(b"\ny")  # the command itself may have scrolled away already
            status, size = thread.submit(median_latency, agent.status, bench.seconds), 0
            while not status.done():
                size += len(terminal.read(_TIMEOUT))
            terminal.type(b"\x03")
            terminal.wait_until_quiet()  # a key under way when the socket closes may be lost
        beside.append(status.result())
        rates.append(size / MEGABYTE / bench.seconds)
    agent.stop()
    loud.stop()
    return Section(
        f"Terminals: an agent's status while `yes` runs for {bench.seconds} s in another",
        [
            Figure("median", "ms", beside, alone, _UNDISTURBED, "baseline: without `yes`"),
            Figure("what the client gets of `yes`", "MB/s", rates),
        ],
    )


class _Terminal(NamedTuple):
    """A client's end of a terminal.

    `read` returns what it shows next, and nothing if that takes longer than so many seconds.
    """

    type: Callable[[bytes], object]
    read: Callable[[float], bytes]

    def wait_for(self, text: bytes) -> None:
        """Read until it shows a text."""
        shown = b""
        while text not in shown:
            if not (more := self.read(_TIMEOUT)):
                raise BenchmarkError(f"a terminal does not show {text!r}")
            shown += more

    def wait_until_quiet(self, seconds: float = _QUIET) -> None:
        """Read until it has shown nothing for so many seconds."""
        while self.read(seconds):
            pass


def _echoes(terminal: _Terminal) -> list[float]:
    """Return the milliseconds from each key to its echo by `cat`, which has just been started."""
    found = []
    terminal.wait_until_quiet(1.0)
    for number, letter in enumerate(islice(cycle(ascii_lowercase), _KEYS), 1):
        began = time.perf_counter()
        terminal.type(letter.encode())
        terminal.wait_for(letter.encode())
        found.append((time.perf_counter() - began) * 1000)
        if not number % _LINE:
            terminal.type(b"\r")
            terminal.wait_until_quiet()
    return found


@contextmanager
def _terminal(server: Server, agent: Agent) -> Iterator[_Terminal]:
    """Open the terminal of an agent."""
    url = f"ws{server.url.removeprefix('http')}/api/v1/shortcuts/{agent.id}/terminal"
    with connect(url, additional_headers=server.headers, compression=None, proxy=None) as socket:

        def read(seconds: float) -> bytes:
            try:
                return socket.recv(seconds, decode=False)
            except TimeoutError:
                return b""

        yield _Terminal(socket.send, read)


@contextmanager
def _tmux(directory: Path, command: str) -> Iterator[_Terminal]:
    """Run a command in a tmux of its own, alone."""
    tmux = ["tmux", "-S", str(directory / "tmux"), "-f", "/dev/null"]
    terminal, other = pty.openpty()
    client = subprocess.Popen(
        [*tmux, "new-session", command],
        cwd=directory,
        env={**os.environ, "TERM": "xterm-256color", "TMUX": ""},
        stdin=other,
        stdout=other,
        stderr=other,
        start_new_session=True,
    )
    os.close(other)

    def read(seconds: float) -> bytes:
        ready, _, _ = select.select([terminal], [], [], seconds)
        return os.read(terminal, 65536) if ready else b""

    try:
        yield _Terminal(lambda keys: os.write(terminal, keys), read)
    finally:
        subprocess.run([*tmux, "kill-server"], check=False, capture_output=True)
        os.close(terminal)
        client.wait(_TIMEOUT)
