"""The environment variables that Outrider reads, and warnings about unknown ones."""

import difflib
import os
from collections.abc import Iterable
from typing import Final

import typer

PREFIX: Final = "OUTRIDER_"

# Repeated here, because importing the service's settings would slow down every other command.
SERVICE: Final = frozenset(
    PREFIX + name
    for name in (
        "ALLOWED_HOSTS",
        "AUDIT_REQUIRED",
        "BASE_PATH",
        "COMMAND_TIMEOUT",
        "DATABASE_URL",
        "DATA_DIR",
        "DEFAULT_PLAN",
        "DRAIN_DELAY",
        "GRACE_PERIOD",
        "HISTORY_DAYS",
        "HOST",
        "MCP_APPROVALS",
        "METRICS_LISTEN",
        "METRICS_TOKEN",
        "NODE_TIMEOUT",
        "PORT",
        "PUBLIC_URL",
        "RATE_LIMIT_AUTH",
        "RATE_LIMIT_IP",
        "RATE_LIMIT_KEY",
        "RATE_LIMIT_LOGIN",
        "RATE_LIMIT_SESSION",
        "RECENT_LOGIN",
        "REDIS_URL",
        "SECRET_KEY",
        "TLS_CERT",
        "TLS_KEY",
        "TRUSTED_PROXIES",
        "WEBHOOK_ALLOW_PRIVATE",
        "WEBHOOK_RETRY_DELAYS",
        "WEBHOOK_TIMEOUT",
    )
)
"""The settings of the service; a test compares them with `cloud.settings.Settings`."""

OTHERS: Final = frozenset(
    PREFIX + name
    for name in (
        "API_KEY",
        "CONFIG_DIR",
        "EMAIL",
        "HISTORY_MB",
        "LOG_FORMAT",
        "LOG_LEVEL",
        "PASSWORD",
        "PREVIOUS_DATABASE_URL",
        "URL",
        "WORKTREES_DIR",
    )
)
"""The settings of the machine agent, of the command line and of the client."""


def unknown(names: Iterable[str]) -> list[tuple[str, str | None]]:
    """Return the names that begin with `OUTRIDER_` but are not settings, each with the closest one.

    The closest is None if no setting is similar. Case does not matter, as in the settings.
    """
    known = SERVICE | OTHERS
    return [
        (name, _closest(name))
        for name in sorted(names)
        if name.upper().startswith(PREFIX) and name.upper() not in known
    ]


def warn_of_unknown() -> None:
    """Print a warning to standard error for each unknown variable that begins with `OUTRIDER_`."""
    for name, closest in unknown(os.environ):
        advice = f"did you mean {closest}?" if closest else "docs/settings.md lists them"
        typer.echo(f"outrider: warning: {name} is not a setting: {advice}", err=True)


def _closest(name: str) -> str | None:
    """Return the setting most similar to `name`, compared without the common prefix."""
    endings = [known.removeprefix(PREFIX) for known in sorted(SERVICE | OTHERS)]
    found = difflib.get_close_matches(name.upper().removeprefix(PREFIX), endings, 1)
    return PREFIX + found[0] if found else None
