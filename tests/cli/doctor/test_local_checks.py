"""Every finding about this machine, one by one."""

from pathlib import Path

import pytest

from outrider.cli.doctor.finding import Finding, Status
from outrider.cli.doctor.local_checks import (
    AgentFacts,
    DiskFacts,
    PathFacts,
    PortFacts,
    ProgramFacts,
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

HERE = Path("/srv/data")
MB = 1024**2


def assert_says(finding: Finding, status: Status, *words: str) -> None:
    """Check a finding; one that is not well has a sentence of advice."""
    assert finding.status is status, finding
    said = f"{finding.message}\n{finding.advice}"
    assert all(word in said for word in words), finding
    assert (finding.advice is None) == (status is Status.OK)
    if finding.advice is not None:
        assert finding.advice.endswith(".")


@pytest.mark.parametrize(
    ("facts", "status", "words"),
    [
        (ProgramFacts("/usr/bin/tmux", "tmux 3.3a"), Status.OK, ["3.3a"]),
        (ProgramFacts("/usr/bin/tmux", "tmux next-3.4"), Status.OK, ["3.4"]),
        (ProgramFacts("/usr/bin/tmux", "tmux master"), Status.OK, ["master"]),
        (ProgramFacts(None), Status.FAILED, ["not installed", "apt-get install tmux"]),
        (ProgramFacts("/usr/bin/tmux", "tmux 3.1c"), Status.WARNING, ["3.1c", "3.2"]),
        (ProgramFacts("/usr/bin/tmux", "tmux 3.3a", "no terminal"), Status.FAILED, ["no terminal"]),
    ],
)
def test_tmux(facts: ProgramFacts, status: Status, words: list[str]) -> None:
    assert_says(check_tmux(facts), status, *words)


@pytest.mark.parametrize(
    ("facts", "status", "words"),
    [
        (ProgramFacts("/usr/bin/git", "git version 2.39.5"), Status.OK, ["2.39.5"]),
        (ProgramFacts(None), Status.WARNING, ["not installed", "install git"]),
        (ProgramFacts("/usr/bin/git"), Status.WARNING, ["does not work"]),
    ],
)
def test_git(facts: ProgramFacts, status: Status, words: list[str]) -> None:
    assert_says(check_git(facts), status, *words)


def test_the_command() -> None:
    assert_says(check_outrider("1.0", "3.11", "/bin/outrider"), Status.OK, "1.0", "3.11")
    assert_says(check_outrider("1.0", "3.11", None), Status.WARNING, "PATH")


def test_agents() -> None:
    codex = AgentFacts("codex", "Codex", "codex", "codex-cli 1")
    broken = AgentFacts("mine", "mine", "mine", error="mine.toml: no command")
    (found,) = check_agents([codex], "npm i")
    assert_says(found, Status.OK, "Codex", "codex-cli 1")
    assert found.name == "agent codex"
    (found,) = check_agents([codex._replace(is_logged_in=True)], "npm i")
    assert_says(found, Status.OK, "logged in")
    (found,) = check_agents([codex._replace(is_logged_in=False)], "npm i")
    assert_says(found, Status.WARNING, "not logged in", "`codex`")
    (found,) = check_agents([], "npm i")
    assert_says(found, Status.WARNING, "demo", "`npm i`")
    nothing, wrong = check_agents([broken], "npm i")
    assert_says(nothing, Status.WARNING, "demo")
    assert_says(wrong, Status.FAILED, "mine.toml")


def test_settings() -> None:
    assert_says(check_settings([]), Status.OK)
    twice = check_settings(["OUTRIDER_PORT is wrong", "OUTRIDER_PORT is wrong"])
    assert_says(twice, Status.FAILED, "OUTRIDER_PORT is wrong")
    assert twice.message.count("OUTRIDER_PORT") == 1


@pytest.mark.parametrize(
    ("facts", "status", "words"),
    [
        (PathFacts(HERE, 0o40700), Status.OK, []),
        (PathFacts(HERE), Status.OK, ["not created yet"]),
        (PathFacts(HERE, None, False), Status.FAILED, ["cannot be created", "OUTRIDER_DATA_DIR"]),
        (PathFacts(HERE, 0o40500, False), Status.FAILED, ["cannot be written"]),
        (PathFacts(HERE, 0o100600), Status.FAILED, ["not a directory"]),
        (PathFacts(HERE, failure="Input/output error"), Status.FAILED, ["Input/output error"]),
        (PathFacts(HERE, 0o40770), Status.FAILED, ["changed", f"chmod 700 {HERE}"]),
        (PathFacts(HERE, 0o40755), Status.WARNING, ["read", f"chmod 700 {HERE}"]),
    ],
)
def test_a_directory(facts: PathFacts, status: Status, words: list[str]) -> None:
    finding = check_directory("data directory", facts, "OUTRIDER_DATA_DIR")
    assert_says(finding, status, str(HERE), *words)


def test_secret_files() -> None:
    private, exposed = PathFacts(HERE / "a", 0o100600), PathFacts(HERE / "b", 0o100640)
    missing = PathFacts(HERE / "c")
    assert_says(check_secret_files([private, missing]), Status.OK, "a")
    assert_says(check_secret_files([missing]), Status.OK, "none")
    found = check_secret_files([private, exposed, missing])
    assert_says(found, Status.FAILED, "chmod 600 /srv/data/b`")


@pytest.mark.parametrize(
    ("free", "status"),
    [
        (5000 * MB, Status.OK),
        (900 * MB, Status.WARNING),
        (100 * MB, Status.FAILED),
        (None, Status.WARNING),
    ],
)
def test_the_disk(free: int | None, status: Status) -> None:
    assert_says(check_disk(DiskFacts(HERE, free)), status, str(HERE))


@pytest.mark.parametrize(
    ("facts", "is_needed", "status", "words"),
    [
        (PortFacts("127.0.0.1", 8400), True, Status.OK, ["free"]),
        (PortFacts("127.0.0.1", 0), True, Status.OK, ["free"]),
        (PortFacts("127.0.0.1", 8400, "outrider"), True, Status.OK, ["Outrider listens"]),
        (PortFacts("127.0.0.1", 8400, "other"), True, Status.FAILED, ["OUTRIDER_PORT"]),
        (PortFacts("127.0.0.1", 8400, "other"), False, Status.WARNING, ["OUTRIDER_PORT"]),
        (PortFacts("127.0.0.1", 80, failure="denied"), True, Status.FAILED, ["denied"]),
    ],
)
def test_the_port(facts: PortFacts, is_needed: bool, status: Status, words: list[str]) -> None:
    assert_says(check_port(facts, is_needed=is_needed), status, *words)
