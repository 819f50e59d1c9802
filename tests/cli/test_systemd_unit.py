"""The systemd user unit of the machine agent, and what `outrider uninstall` says."""

import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from outrider.cli.main import app
from outrider.machine.settings import Connection, DaemonSettings

DEPLOYED = Path(__file__).parents[2] / "deploy" / "outrider-daemon.service"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of a user whose machine is enrolled."""
    home = tmp_path / 'a "home" 100%'
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setenv("OUTRIDER_API_KEY", "ork_secret")
    DaemonSettings.from_environment().save_connection(
        Connection(server="http://127.0.0.1:1", daemon_id="machine_1", token="t", nickname="n")
    )
    return home


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def directives(unit: str) -> list[str]:
    return [line for line in unit.splitlines() if line and not line.startswith("#")]


def test_it_is_the_deployed_one_with_this_environment(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", '/opt/a b/bin:/opt/100%/bin:/opt/"q"\\bin')
    done = run("daemon", "--install")
    assert done.exit_code == 0, done.output
    assert "systemctl --user enable --now outrider-daemon" in done.stdout
    file = home / ".config" / "systemd" / "user" / "outrider-daemon.service"
    unit = file.read_text()
    mine, deployed = directives(unit), directives(DEPLOYED.read_text())
    assert 'Environment="PATH=/opt/a b/bin:/opt/100%%/bin:/opt/\\"q\\"\\\\bin"' in mine
    assert f'ExecStart="{sys.executable}" -m outrider daemon' in mine
    assert "ork_secret" not in unit
    own = ("Environment=", "ExecStart=")
    assert [line for line in mine if not line.startswith(own)] == [
        line for line in deployed if not line.startswith(own)
    ]
    assert run("daemon", "--install").exit_code == 0  # again, as after an update

    removed = run("daemon", "--uninstall")
    assert removed.exit_code == 0, removed.output
    assert "systemctl --user disable --now outrider-daemon" in removed.stdout
    assert not file.exists()
    assert "There is no unit" in run("daemon", "--uninstall").stderr


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_finds_no_fault(home: Path, tmp_path: Path) -> None:
    assert run("daemon", "--install").exit_code == 0
    file = home / ".config" / "systemd" / "user" / "outrider-daemon.service"
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=stat.S_IRWXU)
    verified = subprocess.run(
        ["systemd-analyze", "--user", "verify", "--man=no", file],
        env={"HOME": str(home), "XDG_RUNTIME_DIR": str(runtime), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (verified.returncode, verified.stderr) == (0, "")


def test_somebody_elses_unit_is_kept(home: Path) -> None:
    file = home / ".config" / "systemd" / "user" / "outrider-daemon.service"
    file.parent.mkdir(parents=True)
    file.write_text("[Unit]\n")
    refused = run("daemon", "--install")
    assert refused.exit_code == 1
    assert "was not written by this command" in refused.stderr
    refused = run("daemon", "--uninstall")
    assert refused.exit_code == 1
    assert "was not written by this command" in refused.stderr
    assert file.read_text() == "[Unit]\n"
    shown = run("uninstall").stdout
    assert f"rm '{file}'" in shown
    assert "outrider daemon --uninstall" not in shown


def test_a_machine_that_is_not_enrolled(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTRIDER_CONFIG_DIR", str(home / "other"))
    refused = run("daemon", "--install")
    assert refused.exit_code == 1
    assert "outrider setup" in refused.stderr
    assert not (home / ".config" / "systemd").exists()


def test_uninstall_goes_on_where_the_unit_cannot_be_read(home: Path) -> None:
    unit = home / ".config" / "systemd" / "user" / "outrider-daemon.service"
    unit.mkdir(parents=True)  # which root cannot read either
    shown = run("uninstall")
    assert shown.exit_code == 0, shown.output
    assert f"rm '{unit}'" in shown.stdout


def test_uninstall_does_not_guess_the_name_of_a_database(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTRIDER_DATABASE_URL", "postgresql://db.example.org/fleet")
    shown = run("uninstall").stdout
    assert "the database that OUTRIDER_DATABASE_URL names" in shown
    assert "dropdb" not in shown


def test_uninstall_names_what_is_there_and_removes_nothing(home: Path) -> None:
    assert run("daemon", "--install").exit_code == 0
    before = sorted(home.rglob("*"))
    shown = run("uninstall")
    assert shown.exit_code == 0, shown.output
    assert "outrider daemon --uninstall" in shown.stdout
    assert f"rm -r '{home}/.config/outrider'" in shown.stdout
    assert ".local/share/outrider" not in shown.stdout  # no service was ever started here
    assert sorted(home.rglob("*")) == before
