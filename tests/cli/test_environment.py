"""The warning for environment variables that look like settings and are none, and wrong settings.

Holds issue 12, A9: one sentence each.
"""

from pathlib import Path

import pytest

from outrider.cli.environment import OTHERS, SERVICE, unknown
from outrider.cloud.settings import Settings
from tests.rig.processes import environment, outrider

pytestmark = pytest.mark.asyncio(loop_scope="session")

DOCUMENT = (Path(__file__).parents[2] / "docs" / "settings.md").read_text()


async def test_it_knows_every_setting() -> None:
    assert {f"OUTRIDER_{name.upper()}" for name in Settings.model_fields} == SERVICE
    assert [name for name in SERVICE | OTHERS if f"| `{name}` |" not in DOCUMENT] == []


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
async def test_the_closest_setting_is_named(name: str, closest: str | None) -> None:
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
    ("command", "name", "value"),
    [
        ("serve", "PORT", "abc"),
        ("admin migrate", "PORT", "abc"),
        ("serve", "DATABASE_URL", "mysql://root:hunter2@db/outrider"),
        ("admin migrate", "DATABASE_URL", "mysql://root:hunter2@db/outrider"),
        ("serve", "DATA_DIR", "~nobody-of-this-name/data"),
        ("serve", "REDIS_URL", "mysql://db"),
        ("serve", "LOG_LEVEL", "loud"),
        ("daemon", "LOG_LEVEL", "loud"),
        ("daemon", "LOG_FORMAT", "xml"),
        ("daemon", "CONFIG_DIR", "~nobody-of-this-name/config"),
        ("setup --server http://127.0.0.1:9", "CONFIG_DIR", "~nobody-of-this-name/config"),
    ],
)
async def test_a_wrong_setting_is_a_sentence_that_names_it(
    tmp_path: Path, command: str, name: str, value: str
) -> None:
    env = environment(tmp_path) | {f"OUTRIDER_{name}": value}
    said = (await outrider(*command.split(), env=env)).assert_sentence()
    assert f"OUTRIDER_{name}" in said
    assert "hunter2" not in said


async def test_admin_makes_no_data_directory(tmp_path: Path) -> None:
    """One that does not exist is a mistyped one: the account would be in no service's database."""
    missing = tmp_path / "data"
    arguments = ("admin", "account", "create", "--email", "a@example.org")
    said = (await outrider(*arguments, env=environment(missing))).assert_sentence()
    assert str(missing) in said
    assert "OUTRIDER_DATA_DIR" in said
    elsewhere = environment(tmp_path) | {"OUTRIDER_DATABASE_URL": f"sqlite:///{missing}/x.db"}
    (await outrider("admin", "migrate", env=elsewhere)).assert_sentence()
    assert not missing.exists()
