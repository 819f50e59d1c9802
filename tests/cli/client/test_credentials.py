"""Which key a command uses, and where it is stored."""

from pathlib import Path

import pytest

from outrider.cli.client.credentials import Credentials, CredentialsError, file, load, save
from outrider.sdk.configuration import configuration


@pytest.fixture(autouse=True)
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of the stored key, and an environment without a key."""
    monkeypatch.setenv("OUTRIDER_CONFIG_DIR", str(tmp_path))
    for name in ("OUTRIDER_URL", "OUTRIDER_API_KEY", "OUTRIDER_PORT"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def test_a_damaged_file_is_an_error_only_if_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    file().write_text("{")
    monkeypatch.setenv("OUTRIDER_API_KEY", "ork_1")
    with pytest.raises(CredentialsError, match="outrider login"):
        load()
    monkeypatch.setenv("OUTRIDER_URL", "http://127.0.0.1:9")
    assert load() == Credentials("http://127.0.0.1:9", "ork_1")


def test_a_write_that_fails_leaves_no_key_behind(config: Path) -> None:
    file().mkdir()
    with pytest.raises(CredentialsError, match="cannot be written"):
        save("http://127.0.0.1:9", "ork_1")
    assert list(config.iterdir()) == [file()]


def test_the_port_alone_names_the_service_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    save("https://outrider.example.org", "ork_saved")
    monkeypatch.setenv("OUTRIDER_PORT", "9123")
    assert load() == Credentials("https://outrider.example.org", "ork_saved")
    monkeypatch.setenv("OUTRIDER_API_KEY", "ork_1")
    assert load() == Credentials("http://127.0.0.1:9123", "ork_1")
    assert configuration(None, None).api_url == "http://127.0.0.1:9123/api/v1"
    monkeypatch.setenv("OUTRIDER_PORT", "0")  # any free one
    assert load() == Credentials("https://outrider.example.org", "ork_1")
    assert configuration(None, None).api_url == "http://127.0.0.1:8400/api/v1"
