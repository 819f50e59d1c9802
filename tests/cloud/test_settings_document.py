"""docs/settings.md has every setting of the code, with its default."""

import re
from pathlib import Path

import pytest

import outrider
from outrider.cloud.access.quota import PLANS
from outrider.cloud.settings import Settings

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "settings.md").read_text()
ROWS = dict(re.findall(r"^\| `(OUTRIDER_\w+)` \| (.+?) \|", TEXT, re.MULTILINE))

# These are described in words.
IN_WORDS = {
    "allowed_hosts",
    "base_path",
    "database_url",
    "public_url",
    "redis_url",
    "secret_key",
    "metrics_listen",
    "metrics_token",
    "tls_cert",
    "tls_key",
    "webhook_allow_private",
    "trusted_proxies",
}


@pytest.mark.parametrize("name", Settings.model_fields)
def test_a_setting_of_the_service(name: str) -> None:
    documented = ROWS[f"OUTRIDER_{name.upper()}"].strip("`")
    default = Settings.model_fields[name].default
    if name in IN_WORDS:
        assert not default
    else:
        shown = ",".join(map(str, default)) if isinstance(default, list) else str(default)
        assert documented == shown


def test_what_else_the_code_reads() -> None:
    package = Path(outrider.__file__).parent
    code = "\n".join(path.read_text() for path in package.rglob("*.py"))
    read = set(re.findall(r"(?:environ\.get\(|envvar=)\"(OUTRIDER_\w+)\"", code))
    assert {"OUTRIDER_CONFIG_DIR", "OUTRIDER_LOG_LEVEL", "OUTRIDER_PASSWORD"} <= read
    assert read <= ROWS.keys()


def test_the_plans() -> None:
    rows = re.findall(
        r"^\| `(\w+)` \| ([\d,]+|unlimited) \| (\d+|unlimited) \|", TEXT, re.MULTILINE
    )
    documented = {
        plan: tuple(None if n == "unlimited" else int(n.replace(",", "")) for n in numbers)
        for plan, *numbers in rows
    }
    assert documented == PLANS
