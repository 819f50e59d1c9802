"""Lists in the documentation have what the code has: settings, scopes, events, errors, retries."""

import re
from pathlib import Path

import pytest

import outrider
from outrider.contract.account import Scope
from outrider.contract.errors import ErrorCode
from outrider.contract.events import EventName
from outrider.service.accounts.quota import PLANS
from outrider.service.endpoints import ENDPOINTS
from outrider.service.settings import Settings
from outrider.service.webhooks.retry_policy import SPREAD

DOCS = Path(__file__).parents[2] / "docs"
TEXT = (DOCS / "settings.md").read_text()
ROWS = dict(re.findall(r"^\| `(OUTRIDER_\w+)` \| (.+?) \|", TEXT, re.MULTILINE))
WEBHOOKS = (DOCS / "webhooks.md").read_text()

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


def column(page: str, heading: str, number: int = 0) -> list[str]:
    """Return the names in a column of the table of a page whose first column has this heading."""
    _, _, below = page.partition(f"\n| {heading} |")
    assert below, f"no table has the heading {heading}"
    table, _, _ = below.partition("\n\n")
    return [
        name
        for row in table.split("\n")[2:]
        for name in re.findall("`(.+?)`", row.split("|")[number + 1])
    ]


def test_the_events_of_webhooks() -> None:
    assert column(WEBHOOKS, "event") == list(EventName)


def test_the_scopes() -> None:
    page = (DOCS / "access.md").read_text()
    assert column(page, "scope") == list(Scope)


def scope_of(command: str, path: str) -> Scope | None:
    """Return the scope of the endpoint that a curl command requests."""
    method = re.search(r"-X (\w+)", command)
    wanted = method[1] if method else "POST" if " -d " in command else "GET"
    requested = "/api/v1" + re.sub(r"\$\w+(?::\w+:\$\w+)?", "x", path)
    (scope,) = {
        endpoint.scope
        for endpoint in ENDPOINTS
        if endpoint.method == wanted
        and re.fullmatch(re.sub(r"{\w+}", "[^/]+", endpoint.path), requested)
    }
    return scope


@pytest.mark.parametrize("page", ["control.md", "sessions.md"])
def test_the_scope_of_the_requests_of_a_section(page: str) -> None:
    documented, actual = [], []
    for section in (DOCS / page).read_text().replace("\\\n", "").split("\n## "):
        named = re.search(r"\b[Ss]cope `(\S+)`", section)
        for command, path in re.findall(r"^(curl .*\$API(/[^\s\"'?]+).*)$", section, re.MULTILINE):
            if named:
                documented.append((path, named[1]))
                actual.append((path, scope_of(command, path)))
    assert documented
    assert documented == actual


def test_the_retries_of_webhooks() -> None:
    *first, last = Settings.model_fields["webhook_retry_delays"].default
    delays = ", ".join(f"{seconds} s" for seconds in first)
    text = " ".join(WEBHOOKS.split())
    assert f"the delivery is retried after {delays} and {last} s (each ±{SPREAD * 100:g} %)" in text
    number = ("one", "two", "three", "four", "five", "six")[len(first) + 1]
    assert f"{number} attempts in all" in text
    timeout = Settings.model_fields["webhook_timeout"].default
    assert f"Respond with a 2xx within {timeout} seconds" in text


def test_the_codes_of_errors() -> None:
    """Those in lower case are of device codes (RFC 8628)."""
    codes = column((DOCS / "api.md").read_text(), "status", 1)
    assert sorted(codes) == sorted(code for code in ErrorCode if code.isupper())


def test_the_rate_limits() -> None:
    page = (DOCS / "access.md").read_text()
    windows = {
        "rate_limit_key": "a minute",
        "rate_limit_session": "a minute",
        "rate_limit_ip": "a minute",
        "rate_limit_auth": "in 5 minutes",
        "rate_limit_login": "an hour",
    }
    assert windows.keys() == {
        name for name in Settings.model_fields if name.startswith("rate_limit_")
    }
    for name, window in windows.items():
        default = Settings.model_fields[name].default
        assert f" | {default} {window} (`OUTRIDER_{name.upper()}`) | 429" in page
