"""The environment variables that Outrider reads, and warnings about unknown ones."""

import difflib
import os
from collections.abc import Iterable
from typing import Final

import typer

PREFIX: Final = "OUTRIDER_"

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


def service_settings_names() -> frozenset[str]:
    """Return the variables that the service reads."""
    from outrider.service.settings import Settings

    return frozenset(PREFIX + name.upper() for name in Settings.model_fields)


def unknown(names: Iterable[str]) -> list[tuple[str, str | None]]:
    """Return the names that begin with `OUTRIDER_` but are not settings, each with the closest one.

    The closest is None if no setting is similar. Case does not matter, as in the settings.
    """
    others = [name for name in sorted(names) if name.upper().startswith(PREFIX)]
    others = [name for name in others if name.upper() not in OTHERS]
    if not others:  # the usual case: loading the service's settings would slow each command down
        return []
    settings = sorted(service_settings_names() | OTHERS)
    return [(name, _closest(name, settings)) for name in others if name.upper() not in settings]


def warn_of_unknown() -> None:
    """Print a warning to standard error for each unknown variable that begins with `OUTRIDER_`."""
    for name, closest in unknown(os.environ):
        advice = f"did you mean {closest}?" if closest else "docs/settings.md lists them"
        typer.echo(f"outrider: warning: {name} is not a setting: {advice}", err=True)


def _closest(name: str, settings: Iterable[str]) -> str | None:
    """Return the setting most similar to `name`, compared without the common prefix."""
    endings = [setting.removeprefix(PREFIX) for setting in settings]
    similar = difflib.get_close_matches(name.upper().removeprefix(PREFIX), endings, 1)
    return PREFIX + similar[0] if similar else None
