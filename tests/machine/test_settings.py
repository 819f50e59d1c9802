"""Where the machine agent keeps what it knows."""

import stat
import subprocess
import sys
from pathlib import Path

import pytest

from outrider.machine.settings import (
    Connection,
    DaemonSettings,
    NotEnrolledError,
    SettingsError,
    server_url,
)

CONNECTION = Connection(
    server="https://host/base", daemon_id="machine_1", token="omt_secret", nickname="bÖx"
)


def test_a_connection_is_kept_for_its_owners_eyes_only(tmp_path: Path) -> None:
    settings = DaemonSettings(tmp_path / "a" / "b")
    settings.save_connection(CONNECTION)
    settings.save_connection(CONNECTION)
    assert settings.load_connection() == CONNECTION
    assert stat.S_IMODE(settings.connection_file.stat().st_mode) == 0o600
    assert stat.S_IMODE(settings.config_dir.stat().st_mode) == 0o700
    assert list(settings.config_dir.iterdir()) == [settings.connection_file]


def test_a_connection_does_not_show_its_token() -> None:
    assert "omt_secret" not in f"{CONNECTION} {CONNECTION!r}"


def test_the_websocket_has_the_servers_scheme_and_base() -> None:
    assert CONNECTION.websocket_url == "wss://host/base/api/v1/daemon/connect"


def test_without_a_connection_it_says_to_run_setup(tmp_path: Path) -> None:
    with pytest.raises(NotEnrolledError, match=r"run `outrider setup --server URL` first"):
        DaemonSettings(tmp_path).load_connection()


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff", b'{"server": 5}'])
def test_a_damaged_connection_is_a_sentence(tmp_path: Path, content: bytes) -> None:
    settings = DaemonSettings(tmp_path)
    settings.connection_file.write_bytes(content)
    with pytest.raises(SettingsError, match=r"cannot be read .* run `outrider setup` again"):
        settings.load_connection()


def test_a_directory_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    settings = DaemonSettings(tmp_path / "file" / "config")
    with pytest.raises(SettingsError, match=r"cannot be written .* set OUTRIDER_CONFIG_DIR"):
        settings.save_connection(CONNECTION)
    with pytest.raises(SettingsError, match="cannot be written"), settings.locked():
        pass


def test_only_one_machine_agent_has_a_directory(tmp_path: Path) -> None:
    settings = DaemonSettings(tmp_path)
    held = (
        "import sys; from pathlib import Path;"
        "from outrider.machine.settings import DaemonSettings\n"
        "with DaemonSettings(Path(sys.argv[1])).locked(): print('held', flush=True); input()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", held, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(SettingsError, match=rf"\(process {holder.pid}\)"), settings.locked():
            pass
        holder.kill()
        holder.wait()
        with settings.locked():  # a dead one holds nothing
            pass


def test_the_directory_comes_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("OUTRIDER_CONFIG_DIR", raising=False)
    default = DaemonSettings.from_environment()
    assert default.config_dir == tmp_path / ".config" / "outrider"
    assert default.tmux_socket == "outrider"
    assert default.worktrees_dir is None
    monkeypatch.setenv("OUTRIDER_CONFIG_DIR", "~/other")
    other = DaemonSettings.from_environment()
    assert other.config_dir == tmp_path / "other"
    assert other.tmux_socket.startswith("outrider-")
    monkeypatch.setenv("OUTRIDER_WORKTREES_DIR", "~/trees")
    assert DaemonSettings.from_environment().worktrees_dir == tmp_path / "trees"


@pytest.mark.parametrize("variable", ["HOME", "OUTRIDER_CONFIG_DIR", "OUTRIDER_WORKTREES_DIR"])
def test_a_directory_that_is_not_utf_8_is_a_sentence(
    variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("OUTRIDER_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setenv(variable, f"{tmp_path}/caf\udce9")
    with pytest.raises(SettingsError, match=r"caf.udce9.* is not valid UTF-8: set HOME"):
        DaemonSettings.from_environment()


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("http://localhost:8400/", "http://localhost:8400"),
        (" https://host/base/ ", "https://host/base"),
        ("http://[::1]:8400", "http://[::1]:8400"),
    ],
)
def test_a_server_url_is_kept_in_one_form(given: str, url: str) -> None:
    assert server_url(given) == url


@pytest.mark.parametrize(
    "given",
    ["", "host:8400", "ftp://host", "http://", "http://u:p@host", "http://host?x=1", "http://h:x"],
)
def test_what_is_not_a_server_url_is_a_sentence(given: str) -> None:
    with pytest.raises(SettingsError, match="is not the address of a service: give one such as"):
        server_url(given)
