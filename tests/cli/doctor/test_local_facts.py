"""The facts of this machine, as programs and files tell them."""

import socket
from pathlib import Path

import pytest

from outrider.cli.doctor.local_facts import (
    agent_facts,
    disk_facts,
    git_facts,
    path_facts,
    port_facts,
    tmux_facts,
)
from outrider.machine.settings import DaemonSettings
from outrider.service.settings import Settings
from tests.servers.server import reserve_ports

TMUX = """#!/bin/sh
if [ "$1" = -V ]; then echo tmux 9.9; else echo no server >&2; exit 1; fi
"""
CODEX = """#!/bin/sh
case "$*" in --version) echo codex 9.9;; "login status") exit 1;; esac
"""


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only directory of the PATH but the system's shell."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def program(folder: Path, name: str, text: str) -> None:
    """Write a program."""
    (folder / name).write_text(text)
    (folder / name).chmod(0o755)


def test_tmux_and_git_of_this_machine() -> None:
    assert tmux_facts().failure is None
    assert (tmux_facts().version or "").startswith("tmux ")
    assert "git" in (git_facts().version or "")


def test_programs_that_are_missing(programs: Path) -> None:
    assert tmux_facts().path is None
    assert git_facts().path is None


def test_programs_that_do_not_work(programs: Path) -> None:
    program(programs, "tmux", TMUX)
    program(programs, "git", "#!/bin/sh\nexit 1\n")
    facts = tmux_facts()
    assert (facts.version, facts.failure) == ("tmux 9.9", "no server")
    assert git_facts().version is None
    program(programs, "tmux", "#!/nowhere\n")
    assert tmux_facts().failure


def test_agents(programs: Path, tmp_path: Path) -> None:
    program(programs, "codex", CODEX)
    own = tmp_path / "config" / "providers"
    own.mkdir(parents=True)
    (own / "mine.toml").write_text('type = "mine"\n')
    found, install = agent_facts(DaemonSettings(tmp_path / "config"))
    agents = {one.type: one for one in found}
    assert agents.keys() == {"codex", "mine"}
    assert (agents["codex"].version, agents["codex"].is_logged_in) == ("codex 9.9", False)
    assert agents["mine"].error is not None
    assert install.startswith("npm ")


def test_paths(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir(mode=0o700)
    assert path_facts(folder).mode == 0o40700
    missing = path_facts(folder / "a" / "b")
    assert (missing.mode, missing.is_writable) == (None, True)
    (folder / "file").touch()
    assert path_facts(folder / "file" / "below").failure
    assert disk_facts(folder / "a" / "b").free


def test_ports() -> None:
    port, release = reserve_ports()
    assert port_facts(Settings(port=port)).used_by is None
    release()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(30)
        facts = port_facts(Settings(port=listener.getsockname()[1]), 0.1)
    assert facts.used_by == "other"
    assert port_facts(Settings(host="203.0.113.1")).failure
