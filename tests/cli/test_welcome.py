"""What `outrider up` adds on a person's terminal."""

import sys
from pathlib import Path
from typing import Any

import pytest

from outrider.cli.welcome import greet_person, may_open_browser, open_browser, phone_url, welcome
from outrider.service.settings import Settings
from tests.rig.samples import PROVIDER
from tests.rig.waiting import eventually

DISPLAY = {"DISPLAY": ":0"}
SSH = {"SSH_CONNECTION": "192.0.2.9 1 192.0.2.1 22"}


@pytest.mark.parametrize(
    ("environment", "system", "expected"),
    [
        (DISPLAY, "linux", True),
        ({"WAYLAND_DISPLAY": "wayland-0"}, "linux", True),
        (DISPLAY | {"CI": "true"}, "linux", False),
        ({}, "linux", False),
        (SSH, "linux", False),
        (SSH | DISPLAY, "linux", True),
        ({}, "darwin", True),
        (SSH, "darwin", False),
    ],
)
def test_the_browser_opens_only_where_its_user_sees_it(
    environment: dict[str, str], system: str, expected: bool
) -> None:
    assert may_open_browser(environment, system=system) is expected


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        ({}, None),
        ({"host": "192.0.2.7"}, "http://192.0.2.7:8401/"),
        ({"host": "2001:db8::7", "base_path": "/o"}, "http://[2001:db8::7]:8401/o/"),
        ({"host": "192.0.2.7", "allowed_hosts": "outrider.lan"}, None),
        ({"public_url": "https://outrider.example.com"}, "https://outrider.example.com/"),
        ({"public_url": "http://localhost:8400", "host": "192.0.2.7"}, None),
    ],
)
def test_the_address_for_a_phone_is_one_that_it_can_reach(
    chosen: dict[str, Any], expected: str | None, tmp_path: Path
) -> None:
    assert phone_url(Settings(data_dir=tmp_path, **chosen), 8401) == expected


def test_on_all_addresses_it_is_the_one_in_the_network(tmp_path: Path) -> None:
    address = phone_url(Settings(data_dir=tmp_path, host="0.0.0.0"), 8401)
    assert address is None or not address.startswith(("http://127.", "http://0.0.0.0"))


def test_the_text_has_the_agents_and_a_code_to_scan() -> None:
    assert welcome([], None, {}) == ""
    assert welcome([PROVIDER], None, {}) == f"Agents found here: {PROVIDER.display_name}\n"
    plain = welcome([], "http://192.0.2.7:8400/", {"NO_COLOR": "1"})
    blocks = [line for line in plain.splitlines() if set(line) & set("█▀▄")]
    assert len({len(line) for line in blocks}) == 1
    assert len(blocks) >= 14
    assert "http://192.0.2.7:8400/" in plain
    assert "\x1b" not in plain
    assert "\x1b[97;40m" in welcome([], "http://192.0.2.7:8400/", {})


def test_a_program_that_reads_the_output_gets_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def new_password_link() -> str:
        raise AssertionError("the browser opens")

    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.delenv("CI", raising=False)
    settings = Settings(data_dir=tmp_path, public_url="https://outrider.example.com")
    greet_person(settings, 8400, [PROVIDER], new_password_link, tmp_path / "open.html")
    assert capsys.readouterr().out == ""


async def test_the_browser_gets_a_file_that_only_its_user_can_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, file = tmp_path / "seen", tmp_path / "open.html"
    opener = tmp_path / ("open" if sys.platform == "darwin" else "xdg-open")
    opener.write_text(f'#!/bin/sh\nprintf "%s" "$*" >{seen}.new && mv {seen}.new {seen}\n')
    opener.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    url = "http://127.0.0.1:8400/login#once=abc"
    assert open_browser(url, file)
    await eventually(seen.exists)
    assert seen.read_text() == str(file)
    assert file.stat().st_mode & 0o777 == 0o600
    assert f'content="0; url={url}"' in file.read_text()
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    assert not open_browser(url, file)
