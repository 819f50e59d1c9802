"""`outrider providers`, as a person runs it who writes a provider file."""

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from outrider.contract.ids import new_id
from outrider.machine.agents.providers import load_providers
from outrider.machine.link.journal import Journal
from outrider.machine.sessions.record import SessionRecord
from outrider.machine.settings import DaemonSettings
from outrider.machine.tmux.server import Tmux
from tests.machine.agents.acp.conftest import provider_file
from tests.machine.agents.machine import kill_server

pytestmark = [
    pytest.mark.real_agent,
    pytest.mark.timeout(120),
    pytest.mark.xdist_group("others"),
]

PYTHON = """
type = "python"
display_name = "Python"
command = ["python3", "-q", "-i", "-S"]
args = []
install = "apt install python3"
ready_timeout = 20
settle = 0.1
[[rules]]
name = "question"
status = "waiting_approval"
screen = 'y or n\\?\\Z'
[rules.dialog]
choices = [
    { id = "y", label = "Yes", kind = "allow_once", keys = ["y", "Enter"] },
    { id = "n", label = "No", kind = "reject_once", keys = ["n", "Enter"] },
]
[[rules]]
name = "prompt"
status = "idle"
screen = '^>>>\\Z'
"""


class Shell:
    """A shell with a configuration directory of its own."""

    def __init__(self, folder: Path, sockets: Path) -> None:
        self.sockets = sockets
        self.settings = DaemonSettings(folder / "config")
        self.providers = self.settings.config_dir / "providers"
        self.providers.mkdir(parents=True)
        self.environment = {
            "HOME": str(folder),
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            "TMUX_TMPDIR": str(self.sockets),
            "OUTRIDER_CONFIG_DIR": str(self.settings.config_dir),
        }

    def write(self, text: str) -> Path:
        path = self.providers / "mine.toml"
        path.write_text(text)
        return path

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "outrider", "providers", *words],
            check=False, capture_output=True, text=True, env=self.environment, timeout=60,
        )  # fmt: skip


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    # A socket's path has room for 107 characters; pytest's own folders may take them all.
    with tempfile.TemporaryDirectory(prefix="outrider-") as sockets:
        yield Shell(tmp_path, Path(sockets))


def test_list_shows_each_provider_and_its_file(shell: Shell) -> None:
    path = shell.write(PYTHON)
    done = shell.run("list")
    assert done.returncode == 0, done.stderr
    rows = {line.split()[0]: line.split() for line in done.stdout.splitlines()}
    assert rows["python"][1:4] == ["cli", "yes", "no"]
    assert rows["python"][5] == f"~/{path.relative_to(shell.environment['HOME'])}"
    assert rows["claude-code"][3] == "yes"
    assert {"aider", "gemini-cli"} <= rows.keys()


def test_list_fits_100_columns(shell: Shell, tmp_path: Path) -> None:
    program = tmp_path / ("p" * 100) / "bin" / "my-python"
    program.parent.mkdir(parents=True)
    program.symlink_to(sys.executable)
    shell.environment["PATH"] = f"{program.parent}:{os.environ['PATH']}"
    shell.environment["HOME"] = "/nonexistent"
    shell.write(PYTHON.replace("python3", program.name))
    done = shell.run("list")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) == 100
    (mine,) = (line for line in lines if line.startswith("python "))
    assert mine.endswith("/mine.toml")
    assert f"/{program.name}  …" in mine
    assert f"installed: {program}\n" in shell.run("check", "python").stdout


def test_a_mistake_is_told_with_the_file(shell: Shell) -> None:
    path = shell.write(PYTHON + "colour = 3\n")
    for words in (["list"], ["check", "python"]):
        done = shell.run(*words)
        assert done.returncode == 1
        assert str(path) in done.stderr
        assert "colour" in done.stderr
    rows = {line.split()[0]: line.split() for line in shell.run("list").stdout.splitlines()}
    assert rows["python"][1:4] == ["cli", "error", "no"]
    assert rows["claude-code"][3] == "yes"


def test_check_tells_that_an_agent_is_ready(shell: Shell) -> None:
    shell.write(PYTHON)
    done = shell.run("check", "python")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "version:   Python 3." in done.stdout
    assert "is ready after" in done.stdout
    assert "idle, by the rule 'prompt'" in done.stdout
    assert [path for path in shell.sockets.rglob("*") if path.is_socket()] == []


def test_check_shows_what_an_agent_asks(shell: Shell) -> None:
    shell.write(PYTHON.replace("args = []", """args = ["-c", "input('Trust it? y or n?')"]"""))
    done = shell.run("check", "python")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "asks something after" in done.stdout
    assert "waiting_approval, by the rule 'question'" in done.stdout
    assert "Trust it?" in done.stdout
    assert "[y] Yes (allow_once)" in done.stdout


def test_check_tells_why_an_agent_does_not_start(shell: Shell) -> None:
    failing = "args = ['-c', 'import os; print(\"no key\", flush=True); os._exit(3)']"
    shell.write(PYTHON.replace("args = []", failing))
    done = shell.run("check", "python")
    assert done.returncode == 1
    assert "does not start: Python has ended" in done.stderr  # tmux does not always know the code
    assert "no key" in done.stderr
    assert [path for path in shell.sockets.rglob("*") if path.is_socket()] == []


def test_check_shows_what_an_acp_agent_offers(shell: Shell, tmp_path: Path) -> None:
    provider_file(tmp_path)
    done = shell.run("check", "scripted")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "login:     browser (Log in in a browser), key (Key)\n" in done.stdout
    assert "mode:      ask, of: ask, plan\n" in done.stdout
    assert "model:     small, of: small, big\n" in done.stdout
    assert "web:       False, of: on or off\n" in done.stdout
    assert '"initialize"' not in done.stdout
    traced = shell.run("check", "scripted", "--trace").stdout
    sent, received = (
        [line for line in traced.splitlines() if line.startswith(mark)] for mark in "→←"
    )
    assert '"method":"initialize"' in sent[0]
    assert '"authMethods"' in received[0]
    assert '"method":"session/new"' in sent[1]


def test_check_shows_the_login_methods_of_an_agent_that_does_not_start(
    shell: Shell, tmp_path: Path
) -> None:
    provider_file(tmp_path, "--login")
    done = shell.run("check", "scripted", "--trace")
    assert done.returncode == 1
    assert "is not logged in" in done.stderr
    assert "login:     browser (Log in in a browser), key (Key)\n" in done.stdout
    assert '"error"' in done.stdout


def test_check_of_what_is_not_there(shell: Shell) -> None:
    shell.write(PYTHON.replace("python3", "no-such-program"))
    assert "not installed" in shell.run("check", "python").stderr
    done = shell.run("check", "pyhton")
    assert done.returncode == 2
    assert "this machine knows aider" in done.stderr


async def test_capture_shows_what_decided_and_leaves_the_agent_alone(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell.write(PYTHON)
    monkeypatch.setenv("TMUX_TMPDIR", str(shell.sockets))
    settings = shell.settings
    journal, tmux = Journal(settings.journal_file), Tmux(settings.tmux_socket)
    try:
        providers = load_providers(
            settings.config_dir,
            tmux=tmux,
            journal=journal,
            note_refusal=lambda *_: None,
            environment=shell.environment,
        )
        record = SessionRecord(
            id=new_id("session"), kind="cli", type="python", name="Python",
            path=str(shell.sockets), model=None, created_at=1, last_activity_at=1,
        )  # fmt: skip
        adapter = await providers["python"].launch(record)
        journal.save_session(record)
        before = await tmux.find(record.id)
        done = await asyncio.to_thread(shell.run, "capture", f"machine:session:{record.id}")
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith(">>>")
        assert "screen:    idle, by the rule 'prompt'" in done.stdout
        assert "status:    idle" in done.stdout
        assert await tmux.find(record.id) == before
        other = new_id("session")
        unknown = await asyncio.to_thread(shell.run, "capture", other)
        assert unknown.returncode == 1
        assert f"it has {record.id} (python)" in unknown.stderr
        await adapter.close()
        gone = await asyncio.to_thread(shell.run, "capture", record.id)
        assert gone.returncode == 1
        assert "is gone" in gone.stderr
    finally:
        await tmux.close()
        journal.close()
        kill_server(settings.tmux_socket)
