"""The private tmux server: nothing of a user's is run or expanded there, and replies stay apart."""

import asyncio
import os
import shutil
import signal
import subprocess
import tempfile
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from outrider.contract.commands import LaunchCli
from outrider.contract.errors import ApiError
from outrider.machine.agents.cli.launcher import launch_command, launch_file
from outrider.machine.agents.pane import Pane
from outrider.machine.tmux.control import TmuxError, TmuxGone
from outrider.machine.tmux.server import MAX_TITLE, Tmux
from tests.machine.agents.kind import AgentKind
from tests.machine.agents.machine import Agent, Machine, kill_server, machine, until
from tests.rig.waiting import TIMEOUT

RUNS = "#(cd;touch ran)"
"""A format that runs a command in HOME, where tmux expands it."""

NAMES = [
    f"d{RUNS}",
    f"##{RUNS}#[x",
    "#S",
    "#{pane_id}",
    "#{E:@x}#,%H",
    'it\'s "quoted" `id` $(id) $HOME',
    "a;b",
    "with spaces",
    "-o",
    "~root",
    "line\nbreak",
    "\x1b]0;title\x07 \x01\x7f",
    "back\\slash\\",
    "ünïcödé 漢字",
]
"""Directories whose names tmux, a shell or a terminal would act on."""

WHERE = """
type = "where"
display_name = "Where"
command = ["sh", "-c", 'exec python3 -S "$HOME/where.py"']
install = "-"
settle = 0.1
[input]
prompt = '> '
[[rules]]
name = "prompt"
status = "idle"
screen = '^> \\Z|^>\\Z'
[[rules]]
name = "no prompt"
status = "generating"
screen = '.'
"""

SCRIPT = """
import os
with open(os.environb[b"HOME"] + b"/where.%d" % os.getpid(), "wb") as file:
    file.write(os.getcwdb() + b"\\0" + os.environb[b"PWD"])
while True:
    print("you said", input("> "))
"""


def nothing(home: Path, project: Path, model: str) -> None:
    """Put the program of the agent into its HOME."""
    home.mkdir()
    (home / "where.py").write_text(SCRIPT)


KIND = AgentKind(type="where", seed=nothing, environment=lambda model: {})


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The HOME of the tmux server."""
    own = tmp_path / "tmux"
    own.mkdir()
    monkeypatch.setenv("HOME", str(own))
    return own


@pytest.fixture
async def box(tmp_path: Path, home: Path) -> AsyncIterator[Machine]:
    providers = tmp_path / "config" / "providers"
    providers.mkdir(parents=True)
    (providers / "where.toml").write_text(WHERE)
    async with machine(tmp_path, KIND, tmp_path, "") as running:
        yield running


@pytest.fixture
async def tmux() -> AsyncIterator[Tmux]:
    """A tmux server without agents."""
    made = Tmux(f"outrider-test-{uuid.uuid4().hex[:8]}")
    yield made
    await made.close()
    kill_server(made.socket)


async def shows(tmux: Tmux, pane: Pane, text: str) -> None:
    """Wait until a pane shows this text."""
    async with asyncio.timeout(60):
        while text not in (await tmux.snapshot(pane)).text:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


def started_in(agent: Agent) -> list[bytes]:
    """Return the directory that the agent was started in, and the one that PWD said."""
    return (agent.machine.folder / "home" / f"where.{agent.pid}").read_bytes().split(b"\0")


async def test_agents_start_exactly_in_their_directories(box: Machine, home: Path) -> None:
    directories = [box.folder / name for name in NAMES]
    for directory in directories:
        directory.mkdir()
    agents = await asyncio.gather(*map(box.launch, directories))
    for agent, directory in zip(agents, directories, strict=True):
        assert started_in(agent) == [os.fsencode(directory)] * 2
        assert agent.session.record.workspace.path == str(directory)
    assert not (home / "ran").exists()


@pytest.fixture
def not_utf_8(tmp_path: Path) -> str:
    """A directory whose name is not UTF-8."""
    directory = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9")
    Path(directory).mkdir()
    return directory


async def test_a_name_that_is_not_utf_8_is_refused(
    box: Machine, not_utf_8: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The API cannot show one; only HOME can be one, where a launch names no directory."""
    monkeypatch.setenv("HOME", not_utf_8)
    with pytest.raises(ApiError, match=r"caf\\xe9.*is not UTF-8") as refused:
        await box.sessions.launcher.launch_cli(LaunchCli(cli_type="where"))
    assert refused.value.status == 400


@pytest.mark.parametrize("exists", [True, False])
def test_the_launcher_enters_any_directory(not_utf_8: str, tmp_path: Path, exists: bool) -> None:
    directory = not_utf_8 if exists else f"{not_utf_8}/gone"
    order = tmp_path / "order"
    argv = ["python3", "-c", "import os; os.write(1, os.getcwdb())"]
    order.write_bytes(launch_file(argv, os.environ, directory))
    done = subprocess.run(launch_command(order), check=False, capture_output=True)
    if exists:
        assert done.stdout == os.fsencode(directory)
    else:
        assert (done.returncode, done.stderr[:32]) == (1, b"The directory cannot be entered:")


@pytest.mark.parametrize("name", [f"d{RUNS}", "line\nbreak"])
async def test_the_daemon_s_own_directories_are_not_expanded_either(
    box: Machine, home: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = box.folder / name
    directory.mkdir()
    monkeypatch.chdir(directory)  # tmux takes it over
    monkeypatch.setattr(tempfile, "tempdir", str(directory))
    agent = await box.launch()
    assert started_in(agent) == [os.fsencode(box.project)] * 2
    await agent.turn("a message")
    assert not (home / "ran").exists()
    assert [message.content for message in await agent.messages()] == [
        "a message",
        "you said a message",
    ]


async def test_a_title_is_only_text(box: Machine, home: Path, tmux: Tmux) -> None:
    title = f"#S {RUNS} #{{pane_id}}"
    pane = await tmux.open("a", ["sh", "-c", 'printf "\\033]2;%s\\007ready" "$0"; cat', title])
    await shows(tmux, pane, "ready")
    assert (await tmux.snapshot(pane)).title == title
    long = await tmux.open("b", ["sh", "-c", "printf '\\033]2;%9999d\\007ready' 1; cat"])
    await shows(tmux, long, "ready")
    assert len((await tmux.snapshot(long)).title) <= MAX_TITLE
    assert not (home / "ran").exists()


async def test_a_message_is_only_text(home: Path, tmux: Tmux) -> None:
    pane = await tmux.open("a", ["cat"])
    text = f"#S {RUNS} #{{pane_id}}; kill-server"
    await tmux.paste(pane, text)
    await shows(tmux, pane, text)
    assert not (home / "ran").exists()


# Replies


async def test_a_command_that_is_refused_leaves_the_replies_in_step(tmux: Tmux) -> None:
    pane = await tmux.open("a", ["sh", "-c", "echo hello; exec cat"])
    await shows(tmux, pane, "hello")
    for text in ("line\nbreak", "\r", "\0", "\x1b"):
        with pytest.raises(TmuxError, match="control character"):
            await tmux.run("display-message", "-p", text)
        assert await tmux.run("display-message", "-p", "mine") == ["mine"]
    assert (await tmux.snapshot(pane)).text.startswith("hello")


async def test_hooks_of_a_person_are_no_replies(tmux: Tmux) -> None:
    await tmux.open("a", ["cat"])
    hook = ["set-hook", "-g", "after-display-message", "set-environment X y"]
    await asyncio.to_thread(subprocess.run, ["tmux", "-L", tmux.socket, *hook], check=True)
    texts = ["one", "two", "three"]
    replies = await asyncio.gather(*(tmux.run("display-message", "-p", text) for text in texts))
    assert replies == [[text] for text in texts]


FORGER = """
stty -echo
while read -r time number; do
    lines=
    for ahead in $(seq 1 24); do
        lines="$lines%%end $time $((number + ahead)) 1\\n"
        lines="$lines%%end $((time + 1)) $((number + ahead)) 1\\n"
    done
    printf "\\033[H\\033[2J$lines"
done
"""
"""Shows lines that end the reply to a look: with its time, and the number of its command."""


async def test_a_screen_that_looks_like_the_end_of_a_reply(tmux: Tmux, tmp_path: Path) -> None:
    """The client has lost step; it is replaced, and no other agent notices."""
    other = await tmux.open("other", ["sh", "-c", "echo the other; exec cat"])
    await shows(tmux, other, "the other")
    (tmp_path / "forger").write_text(FORGER)
    pane = await tmux.open("forger", ["bash", f"{tmp_path}/forger"])
    async with asyncio.timeout(60):
        with pytest.raises(TmuxError, match="lost"):
            await _look_for_ever(tmux, pane, other)
    await tmux.kill(pane)
    assert (await tmux.snapshot(other)).text.startswith("the other")


async def _look_for_ever(tmux: Tmux, pane: Pane, other: Pane) -> None:
    while True:
        await tmux.paste(pane, await _last_command(tmux))
        await tmux.press(pane, ["Enter"])
        for _ in range(4):  # a screen has room for the numbers of few looks
            await tmux.snapshot(pane)
            assert (await tmux.snapshot(other)).text.startswith("the other")


async def _last_command(tmux: Tmux) -> str:
    """Return the time and the number of a command.

    Its client must not connect while another one ends, as in a loop of the forger: tmux 3.3a
    crashes when it tells a control client of that which has not said all of who it is.
    """

    def ask() -> str:
        command = ["tmux", "-L", tmux.socket, "-C", "display-message", "-p", "x"]
        pipe = subprocess.PIPE  # a control client ends with its input
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as client:
            assert client.stdout is not None
            return client.stdout.read()

    _, time, number, _ = (await asyncio.to_thread(ask)).splitlines()[0].split()
    return f"{time} {number}"


async def test_a_client_that_is_killed_is_replaced(tmux: Tmux, tmp_path: Path) -> None:
    """What it was asked has failed, but nobody takes the agents for gone."""
    pane = await tmux.open("a", ["sh", "-c", "echo hello; exec cat"])
    await shows(tmux, pane, "hello")
    (client,) = await tmux.run("display-message", "-p", "#{client_pid}")
    begun = tmp_path / "begun"
    slow = asyncio.create_task(tmux.run("run-shell", f"touch {begun}; sleep 9"))
    await until(begun.exists)
    os.kill(int(client), signal.SIGKILL)
    with pytest.raises(TmuxError, match="lost") as lost:
        await slow
    assert not isinstance(lost.value, TmuxGone)
    assert (await tmux.snapshot(pane)).text.startswith("hello")


SLOW_TMUX = """#!/bin/sh
cd "$(dirname "$0")"
mv gate begun 2>/dev/null && read -r _ <begun
exec {tmux} "$@"
"""
"""The first one that is started waits at the gate."""


async def test_a_client_whose_connecting_was_cancelled_is_replaced(
    tmux: Tmux, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one has all its settings: it reports the end of a program."""
    (tmp_path / "tmux").write_text(SLOW_TMUX.format(tmux=shutil.which("tmux")))
    (tmp_path / "tmux").chmod(0o700)
    os.mkfifo(tmp_path / "gate")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    gate = os.open(tmp_path / "gate", os.O_RDWR)
    try:
        opening = asyncio.create_task(tmux.open("a", ["cat"]))
        await until((tmp_path / "begun").exists)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        os.write(gate, b"\n")
        pane = await tmux.open("b", ["cat"])
    finally:
        os.close(gate)
    changed = asyncio.Event()
    tmux.subscribe(pane, changed.set)
    os.kill(pane.pid, signal.SIGKILL)
    has_ended = False
    async with asyncio.timeout(TIMEOUT):
        while not has_ended:
            await changed.wait()  # before a snapshot, which would notice the end by itself
            changed.clear()
            has_ended = (await tmux.snapshot(pane)).ended


@pytest.mark.parametrize(("end", "status"), [("exit 0", 0), ("exit 3", 3), ("kill -9 $$", -1)])
async def test_how_a_program_has_ended(tmux: Tmux, end: str, status: int) -> None:
    pane = await tmux.open("a", ["sh", "-c", f"read x; {end}"])
    changed = asyncio.Event()
    tmux.subscribe(pane, changed.set)
    await tmux.press(pane, ["Enter"])
    async with asyncio.timeout(TIMEOUT):
        while not (snapshot := await tmux.snapshot(pane)).ended:
            await changed.wait()
            changed.clear()
    assert snapshot.exit_status == status


@pytest.mark.parametrize("leaves_socket", [True, False])
async def test_a_server_that_has_ended_is_gone(tmux: Tmux, leaves_socket: bool) -> None:
    """It is neither started again by a snapshot, nor polled without end."""
    pane = await tmux.open("a", ["cat"])
    tmux.subscribe(pane, lambda: None)
    server = int(*await tmux.run("display-message", "-p", "#{pid}"))
    with capture_logs() as logs:
        if leaves_socket:
            os.kill(server, signal.SIGKILL)
        else:
            kill_server(tmux.socket)
        for _ in range(5):
            with pytest.raises(TmuxGone):
                await tmux.snapshot(pane)
        await tmux.close()
    assert [entry["event"] for entry in logs].count("tmux server ended") <= 1


@pytest.mark.parametrize("step", ["new-window", "resize-window"])
async def test_a_window_whose_opening_is_cancelled_is_closed(
    tmux: Tmux, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Nobody knows of it: it would stay, with its program."""
    run = tmux.run

    async def cancelled(*command: str) -> list[str]:
        if command[0] == step:
            opening.cancel()
        return await run(*command)

    await tmux.open("other", ["cat"])
    monkeypatch.setattr(tmux, "run", cancelled)
    opening = asyncio.create_task(tmux.open("cancelled", ["cat"]))
    await asyncio.wait({opening})
    assert opening.cancelled()
    names = [pane.name for pane in await tmux.panes()]
    assert "other" in names
    assert "cancelled" not in names


async def test_a_program_that_has_ended_makes_tmux_reap_its_children(tmux: Tmux) -> None:
    """It may have missed the signal: then no hook of the window would run."""
    await tmux.open("brief", ["true"])
    async with asyncio.timeout(TIMEOUT):
        while "run-shell -b true" not in "\n".join(await tmux.run("show-messages")):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    assert await tmux.run("display-message", "-p", "in step") == ["in step"]


async def test_a_line_without_an_end_breaks_nothing(tmux: Tmux) -> None:
    endless = "head -c 6000000 /dev/zero | tr '\\0' x; echo; echo the end; exec cat"
    pane = await tmux.open("a", ["sh", "-c", endless], history=60_000)
    await shows(tmux, pane, "the end")
    _, lines = await tmux.history(pane)
    assert lines[0].startswith("xxx")
    assert lines[1] == "the end"
    assert "the end" in (await tmux.snapshot(pane)).text
