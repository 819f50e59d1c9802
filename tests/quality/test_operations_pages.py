"""The operator's pages name metrics, log events and error codes that the code has."""

import re
from functools import cache
from pathlib import Path

import pytest

from outrider.contract.errors import ErrorCode

ROOT = Path(__file__).parents[2]
PAGES = ("monitoring.md", "troubleshooting.md")

_SPAN = re.compile(r"`([^`\n]+)`")
_METRIC = re.compile(r"\boutrider_[a-z_]+\b")
_LOG_EVENT = re.compile(r"[a-z]+(?:[ ,:;'-]+\w+)+")


@cache
def _code() -> str:
    package = ROOT / "src" / "outrider"
    return "\n".join(path.read_text() for path in sorted(package.rglob("*.py")))


def _text(page: str) -> str:
    return (ROOT / "docs" / page).read_text()


@pytest.mark.parametrize("page", PAGES)
def test_its_metrics_exist(page: str) -> None:
    for name in set(_METRIC.findall(_text(page))):
        base = re.sub(r"_(?:total|bucket|count|sum)$", "", name)
        assert f'"{base}"' in _code(), name


@pytest.mark.parametrize("page", PAGES)
def test_its_log_events_exist(page: str) -> None:
    """Every span of several lower-case words that is no command is the name of a log event."""
    spans = [span for span in _SPAN.findall(_text(page)) if _LOG_EVENT.fullmatch(span)]
    events = [span for span in spans if not span.startswith(("outrider ", "chmod ", "tmux "))]
    assert events
    for event in events:
        assert f'"{event}"' in _code(), event


def test_its_error_codes_exist() -> None:
    found = re.findall(r"\b\d{3} `([A-Z_]+)`", _text("troubleshooting.md") + _text("api.md"))
    assert found
    assert set(found) <= {code.value for code in ErrorCode}


def test_every_error_code_is_in_the_reference() -> None:
    documented = set(re.findall(r"`([A-Z_]+)`", _text("api.md")))
    assert {code.value for code in ErrorCode if code.isupper()} <= documented
