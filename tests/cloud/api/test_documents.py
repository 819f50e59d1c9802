"""The pages of docs/ that list values of the API list all of them, and no others."""

import re
from pathlib import Path

from outrider.cloud.settings import Settings
from outrider.contract.account import Scope
from outrider.contract.errors import ErrorCode
from outrider.contract.events import EventName

DOCS = Path(__file__).parents[3] / "docs"


def cells(page: str, heading: str, column: int) -> list[str]:
    """Return what is marked as code in a column of the table with this first heading."""
    _, _, rest = (DOCS / page).read_text().partition(f"\n| {heading} |")
    _, *rows = rest.partition("\n\n")[0].splitlines()[1:]
    return [name for row in rows for name in re.findall(r"`([^`]+)`", row.split(" | ")[column])]


def test_the_events() -> None:
    assert cells("webhooks.md", "event", 0) == list(EventName)


def test_the_scopes() -> None:
    assert cells("access.md", "scope", 0) == list(Scope)


def test_the_codes_of_errors() -> None:
    """Those in lower case are of device codes (RFC 8628): docs/access.md has them."""
    codes = cells("api.md", "status", 1)
    assert len(codes) == len(set(codes))
    assert set(codes) == {code for code in ErrorCode if code.isupper()}


def test_the_delays_of_webhooks() -> None:
    *delays, last = map(str, Settings.model_fields["webhook_retry_delays"].default)
    said = f"retried after {' s, '.join(delays)} s and {last} s"
    assert said in " ".join((DOCS / "webhooks.md").read_text().split())
