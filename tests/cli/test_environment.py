"""The warning for environment variables that look like settings and are none, and wrong settings.

One sentence each.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from outrider.cli.environment import OTHERS, service_settings_names, unknown
from outrider.cli.logs import set_up_logs
from outrider.cli.running import daemon_settings, service_settings
from tests.cli.operator import Operator
from tests.rig.processes import Outcome, environment, outrider

DOCUMENT = (Path(__file__).parents[2] / "docs" / "settings.md").read_text()


def test_every_setting_is_documented() -> None:
    names = service_settings_names() | OTHERS
    assert [name for name in names if f"| `{name}` |" not in DOCUMENT] == []


@pytest.mark.parametrize(
    ("name", "closest"),
    [
        ("OUTRIDER_PROT", "OUTRIDER_PORT"),
        ("OUTRIDER_DATABSE_URL", "OUTRIDER_DATABASE_URL"),
        ("OUTRIDER_DATADIR", "OUTRIDER_DATA_DIR"),
        ("OUTRIDER_TRUSTED_PROXY", "OUTRIDER_TRUSTED_PROXIES"),
        ("OUTRIDER_LOGLEVEL", "OUTRIDER_LOG_LEVEL"),
        ("outrider_prot", "OUTRIDER_PORT"),
        ("OUTRIDER_XYZZY", None),
    ],
)
def test_the_closest_setting_is_named(name: str, closest: str | None) -> None:
    assert unknown([name, "PATH", "OUTRIDER_PORT", "outrider_host"]) == [(name, closest)]


async def test_a_misspelt_variable_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    env = environment(tmp_path / "data", prot="8400", xyzzy="1")
    outcome = await outrider("admin", "migrate", "--json", env=env)
    assert outcome.json() == {"migrated": True}
    assert outcome.err.splitlines() == [
        "outrider: warning: OUTRIDER_PROT is not a setting: did you mean OUTRIDER_PORT?",
        "outrider: warning: OUTRIDER_XYZZY is not a setting: docs/settings.md lists them",
    ]


@pytest.mark.parametrize(
    ("read", "name", "value"),
    [
        (service_settings, "PORT", "abc"),
        (service_settings, "DATA_DIR", "~nobody-of-this-name/data"),
        (service_settings, "REDIS_URL", "mysql://db"),
        (daemon_settings, "CONFIG_DIR", "~nobody-of-this-name/config"),
        (set_up_logs, "LOG_LEVEL", "loud"),
        (set_up_logs, "LOG_FORMAT", "xml"),
    ],
)
def test_a_wrong_setting_is_a_sentence_that_names_it(
    read: Callable[[], object],
    name: str,
    value: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Every command reads its settings with these."""
    monkeypatch.setenv(f"OUTRIDER_{name}", value)
    with pytest.raises(SystemExit) as end:
        read()
    code = end.value.code
    assert isinstance(code, int)
    assert f"OUTRIDER_{name}" in Outcome(code, *capsys.readouterr()).assert_sentence()


@pytest.mark.parametrize(
    ("command", "name", "value"),
    [
        ("serve", "PORT", "abc"),
        ("admin migrate", "DATABASE_URL", "mysql://root:hunter2@db/outrider"),
        ("daemon", "LOG_LEVEL", "loud"),
        ("providers list", "HISTORY_DAYS", "abc"),
        ("setup --server http://127.0.0.1:9", "CONFIG_DIR", "~nobody-of-this-name/config"),
    ],
)
async def test_a_command_ends_with_that_sentence(
    tmp_path: Path, command: str, name: str, value: str
) -> None:
    env = environment(tmp_path) | {f"OUTRIDER_{name}": value}
    sentence = (await outrider(*command.split(), env=env)).assert_sentence()
    assert f"OUTRIDER_{name}" in sentence
    assert "hunter2" not in sentence


def test_admin_makes_no_data_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that does not exist is a mistyped one: the account would be in no service's database."""
    missing = tmp_path / "data"
    operator = Operator(missing)
    monkeypatch.setenv("OUTRIDER_DATA_DIR", str(missing))
    sentence = operator.fails("account", "create", "--email", "a@example.org")
    assert str(missing) in sentence
    assert "OUTRIDER_DATA_DIR" in sentence
    monkeypatch.setenv("OUTRIDER_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("OUTRIDER_DATABASE_URL", f"sqlite:///{missing}/x.db")
    operator.fails("migrate")
    assert not missing.exists()
