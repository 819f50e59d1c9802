"""Settings that cannot work are refused in a sentence. Holds docs/settings.md."""

from pathlib import Path

import pytest

from outrider.cli.running import service_settings
from outrider.service.accounts.encryption import SecretKeyError, secret_key
from outrider.service.database.engine import Database, DatabaseError
from outrider.service.settings import Settings


def test_the_data_directory_is_in_the_home_directory() -> None:
    assert Settings().data_dir == Path("~/.local/share/outrider").expanduser()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OUTRIDER_PORT", "http"),
        ("OUTRIDER_PORT", "70000"),
        ("OUTRIDER_COMMAND_TIMEOUT", "0"),
        ("OUTRIDER_COMMAND_TIMEOUT", "soon"),
        ("OUTRIDER_GRACE_PERIOD", "-1"),
        ("OUTRIDER_RATE_LIMIT_KEY", "0"),
        ("OUTRIDER_TRUSTED_PROXIES", "somewhere"),
        ("OUTRIDER_PUBLIC_URL", "outrider.example.com"),
        ("OUTRIDER_PUBLIC_URL", "ftp://outrider.example.com"),
        ("OUTRIDER_PUBLIC_URL", "https://"),
        ("OUTRIDER_PUBLIC_URL", "https://outrider.example.com/path"),
        ("OUTRIDER_PUBLIC_URL", "https://me:secret@outrider.example.com"),
        ("OUTRIDER_PUBLIC_URL", "https://outrider.example.com:https"),
        ("OUTRIDER_PUBLIC_URL", "https://outrider.example.com?query"),
        ("OUTRIDER_BASE_PATH", "outrider"),
        ("OUTRIDER_BASE_PATH", "/a//b"),
        ("OUTRIDER_BASE_PATH", "/../etc"),
        ("OUTRIDER_BASE_PATH", "/a;b"),
    ],
)
def test_a_wrong_setting_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit) as end:
        service_settings()
    assert end.value.code == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"outrider: The setting {name} is wrong: ")


@pytest.mark.parametrize(
    "url",
    [
        "nonsense",
        "mysql://u:hunter2@localhost/x",
        "mysql+nothing://u:hunter2@localhost/x",
        "postgresql://u:hunter2@host:port/x",
        "sqlite+pysqlite:///x",
        "sqlite:////dev/null/x.db",
    ],
)
def test_a_database_that_cannot_be_used(url: str) -> None:
    with pytest.raises(DatabaseError) as error:
        Database(Settings(database_url=url).sqlalchemy_url)
    assert "hunter2" not in str(error.value)
    assert "OUTRIDER_DATA" in str(error.value)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://outrider:hunter2@127.0.0.1/outrider",
        "postgresql:///outrider?host=127.0.0.1&password=hunter2",
    ],
)
def test_the_name_of_a_database_has_no_password(url: str) -> None:
    name = Database(Settings(database_url=url).sqlalchemy_url).name
    assert "outrider" in name
    assert "hunter2" not in name


def test_the_public_url_has_one_form() -> None:
    assert Settings(public_url="https://Outrider.Example.com:8443/").public_url == (
        "https://outrider.example.com:8443"
    )
    assert Settings(public_url="").public_url is None


@pytest.mark.parametrize(
    ("changes", "allowed"),
    [
        ({}, True),
        ({"host": "::1"}, True),
        ({"host": "localhost"}, True),
        ({"public_url": "http://localhost:8400"}, True),
        ({"public_url": "http://[::1]:8400"}, True),
        ({"host": "0.0.0.0"}, False),
        ({"host": "10.0.0.5"}, False),
        ({"trusted_proxies": "127.0.0.1"}, False),
        ({"public_url": "https://outrider.example.com"}, False),
        ({"public_url": "http://127.0.0.1.example.com"}, False),
        ({"public_url": "http://10.0.0.5:8400"}, False),
        ({"trusted_proxies": "127.0.0.1", "webhook_allow_private": True}, True),
        ({"webhook_allow_private": False}, False),
    ],
)
def test_private_webhooks_are_only_for_a_service_that_nobody_else_reaches(
    changes: dict[str, object], allowed: bool
) -> None:
    """docs/settings.md: refused behind a proxy, or with a public URL."""
    assert Settings(**changes).allow_private_webhooks is allowed  # type: ignore[arg-type]


class TestSecretKey:
    """docs/settings.md: made on first start, mode 0600 in the data directory."""

    def test_made_once(self, tmp_path: Path) -> None:
        made = secret_key(None, tmp_path / "data")
        assert len(made) >= 32
        assert secret_key(None, tmp_path / "data") == made
        (file,) = (tmp_path / "data").iterdir()
        assert file.stat().st_mode & 0o777 == 0o600

    def test_chosen(self, tmp_path: Path) -> None:
        assert secret_key("x" * 16, tmp_path / "data") == "x" * 16
        assert not (tmp_path / "data").exists()

    def test_too_short(self, tmp_path: Path) -> None:
        with pytest.raises(SecretKeyError, match="OUTRIDER_SECRET_KEY"):
            secret_key("x" * 15, tmp_path)

    @pytest.mark.parametrize("left", ["", "\n", "half-a-key"])
    def test_a_file_whose_writing_was_cut_short(self, tmp_path: Path, left: str) -> None:
        """Nobody's session is signed with a key that anybody can guess."""
        (tmp_path / "secret.key").write_text(left)
        with pytest.raises(SecretKeyError, match="damaged"):
            secret_key(None, tmp_path)

    @pytest.mark.parametrize("mode", [0o640, 0o604, 0o602, 0o620, 0o644, 0o777])
    def test_a_file_that_others_may_read_or_write(self, tmp_path: Path, mode: int) -> None:
        made = secret_key(None, tmp_path)
        (tmp_path / "secret.key").chmod(mode)
        with pytest.raises(SecretKeyError, match=f"{mode:04o}.*chmod 600"):
            secret_key(None, tmp_path)
        (tmp_path / "secret.key").chmod(0o400)
        assert secret_key(None, tmp_path) == made
