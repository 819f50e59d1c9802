"""What the checks of this machine say, with real files and small programs on the PATH."""

import os
import shutil
import socket
from pathlib import Path
from types import SimpleNamespace

import pytest

from outrider.cli.doctor.finding import Finding, Status
from outrider.cli.doctor.local_checks import (
    check_agents,
    check_directory,
    check_disk,
    check_git,
    check_outrider,
    check_port,
    check_secret_files,
    check_settings,
    check_tmux,
)
from outrider.machine.settings import DaemonSettings
from outrider.service.settings import Settings
from tests.servers.server import reserve_ports

MB = 1024**2
CODEX = """#!/bin/sh
case "$*" in --version) echo codex 9.9;; "login status") exit {};; esac
"""
TMUX = """#!/bin/sh
if [ "$1" = -V ]; then echo {}; else echo {} >&2; exit {}; fi
"""


def assert_says(finding: Finding, status: Status, *words: str) -> None:
    """Check a finding; one that is not well has a sentence of advice."""
    assert finding.status is status, finding
    text = f"{finding.message}\n{finding.advice}"
    assert all(word in text for word in words), finding
    assert (finding.advice is None) == (status is Status.OK)
    if finding.advice is not None:
        assert finding.advice.endswith(".")


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


def test_tmux_and_git_of_this_machine_are_ok() -> None:
    assert_says(check_tmux(), Status.OK, "tmux ", "starts a server")
    assert_says(check_git(), Status.OK, "git version")


@pytest.mark.parametrize(
    ("text", "status", "words"),
    [
        (TMUX.format("tmux next-3.4", "", 0), Status.OK, ["3.4"]),
        (TMUX.format("tmux master", "", 0), Status.OK, ["master"]),
        (TMUX.format("tmux 3.1c", "", 0), Status.WARNING, ["3.1c", "3.2"]),
        (TMUX.format("tmux 3.3a", "no terminal", 1), Status.FAILED, ["no terminal"]),
        ("#!/nowhere\n", Status.FAILED, ["does not work"]),
        (None, Status.FAILED, ["not installed", "apt-get install tmux"]),
    ],
)
def test_tmux_is_checked(
    programs: Path, text: str | None, status: Status, words: list[str]
) -> None:
    if text is not None:
        program(programs, "tmux", text)
    assert_says(check_tmux(), status, *words)


def test_programs_that_are_missing_are_warned_of(programs: Path) -> None:
    assert_says(check_git(), Status.WARNING, "not installed", "install git")
    program(programs, "git", "#!/bin/sh\nexit 1\n")
    assert_says(check_git(), Status.WARNING, "does not work")
    assert_says(check_outrider(), Status.WARNING, "PATH")
    program(programs, "outrider", "")
    assert_says(check_outrider(), Status.OK)


def test_agents_are_listed_with_their_version_and_login(programs: Path, tmp_path: Path) -> None:
    settings = DaemonSettings(tmp_path / "config")
    (nothing,) = check_agents(settings)
    assert_says(nothing, Status.WARNING, "demo", "`npm ")
    own = tmp_path / "config" / "providers"
    own.mkdir(parents=True)
    (own / "mine.toml").write_text('type = "mine"\n')
    nothing, wrong = check_agents(settings)
    assert nothing.status is Status.WARNING
    assert_says(wrong, Status.FAILED, "mine.toml")
    program(programs, "codex", CODEX.format(1))
    findings = {finding.name: finding for finding in check_agents(settings)}
    assert findings.keys() == {"agent codex", "agent mine"}
    assert_says(findings["agent codex"], Status.WARNING, "codex 9.9", "not logged in", "`codex`")
    program(programs, "codex", CODEX.format(0))
    assert_says(check_agents(settings)[0], Status.OK, "codex 9.9, logged in")


def test_an_invalid_setting_of_both_sides_is_named_once() -> None:
    assert_says(check_settings([]), Status.OK)
    finding = check_settings(["OUTRIDER_PORT is wrong", "OUTRIDER_PORT is wrong"])
    assert_says(finding, Status.FAILED, "OUTRIDER_PORT is wrong")
    assert finding.message.count("OUTRIDER_PORT") == 1


@pytest.mark.parametrize(
    ("mode", "is_writable", "status", "words"),
    [
        (0o700, True, Status.OK, []),
        (None, True, Status.OK, ["not created yet"]),
        (None, False, Status.FAILED, ["cannot be created", "OUTRIDER_DATA_DIR"]),
        (0o500, False, Status.FAILED, ["cannot be written"]),
        (0o770, True, Status.FAILED, ["changed", "chmod 700"]),
        (0o755, True, Status.WARNING, ["read", "chmod 700"]),
    ],
)
def test_a_directory_is_for_this_user_only(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    mode: int | None,
    is_writable: bool,
    status: Status,
    words: list[str],
) -> None:
    folder = tmp_path / "folder"
    if mode is not None:
        folder.mkdir()
        folder.chmod(mode)
    monkeypatch.setattr(os, "access", lambda *_: is_writable)  # root may write everywhere
    finding = check_directory("data directory", folder, "OUTRIDER_DATA_DIR")
    assert_says(finding, status, str(folder), *words)


def test_a_file_in_place_of_a_directory_fails(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    for path, words in ((file, "not a directory"), (file / "below", "Not a directory")):
        assert_says(check_directory("data directory", path, "VARIABLE"), Status.FAILED, words)


def test_files_with_keys_are_for_this_user_only(tmp_path: Path) -> None:
    private, exposed, missing = tmp_path / "a", tmp_path / "b", tmp_path / "c"
    assert_says(check_secret_files([missing]), Status.OK, "none")
    private.touch(0o600)
    assert_says(check_secret_files([private, missing]), Status.OK, "a")
    exposed.touch()
    exposed.chmod(0o640)
    finding = check_secret_files([private, exposed, missing])
    assert_says(finding, Status.FAILED, f"chmod 600 {exposed}`")


@pytest.mark.parametrize(
    ("free", "status"),
    [(5000 * MB, Status.OK), (900 * MB, Status.WARNING), (100 * MB, Status.FAILED)],
)
def test_little_space_on_the_disk_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, status: Status
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    assert_says(check_disk(tmp_path / "not" / "there"), status, str(tmp_path))


def test_the_port_is_free_or_another_program_has_it() -> None:
    port, release = reserve_ports()
    assert_says(check_port(Settings(port=port), is_needed=True), Status.OK, "free")
    release()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        settings = Settings(port=listener.getsockname()[1])
        for is_needed, status in ((True, Status.FAILED), (False, Status.WARNING)):
            finding = check_port(settings, is_needed=is_needed, step_seconds=0.1)
            assert_says(finding, status, "another program", "OUTRIDER_PORT")
    foreign = check_port(Settings(host="203.0.113.1"), is_needed=True)
    assert_says(foreign, Status.FAILED, "cannot listen", "OUTRIDER_HOST")
