"""`outrider daemon --install` and `--uninstall`: the machine agent as a systemd user unit."""

import os
import sys
from pathlib import Path
from typing import Final

from outrider.contract.errors import OutriderError
from outrider.machine.settings import DaemonSettings

NAME: Final = "outrider-daemon"

_MARK: Final = "# Written by `outrider daemon --install`, which replaces it."

# What the agent needs of the environment in which it was installed. No secrets: the file is not.
_VARIABLES: Final = (
    "PATH",  # where agents and tmux are found
    "LANG",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "OUTRIDER_CONFIG_DIR",
    "OUTRIDER_HISTORY_DAYS",
    "OUTRIDER_HISTORY_MB",
    "OUTRIDER_WORKTREES_DIR",
    "OUTRIDER_LOG_FORMAT",
    "OUTRIDER_LOG_LEVEL",
)

_UNIT: Final = """\
{mark}
[Unit]
Description=Outrider machine agent
After=network-online.target

[Service]
Type=exec
{environment}
EnvironmentFile=-%h/.config/outrider/daemon.env
ExecStart={command}
# The agents run in tmux and outlive it: only the machine agent itself is stopped.
KillMode=process
TimeoutStopSec=10
Restart=always
RestartSec=10
# The agents count too: what they take must not take the machine down. One that is killed for it
# does not end the others.
MemoryMax=90%
OOMPolicy=continue
UMask=0077

[Install]
WantedBy=default.target
"""


class UnitError(OutriderError):
    """The unit cannot be written or removed. The text says what to do."""


def unit_file() -> Path:
    """Return the path of the unit of this user."""
    chosen = os.environ.get("XDG_CONFIG_HOME")
    folder = Path(chosen) if chosen else Path("~/.config").expanduser()
    return folder / "systemd" / "user" / f"{NAME}.service"


def install(settings: DaemonSettings) -> Path:
    """Write the unit, with the PATH and the settings of this environment; return its path.

    Raises:
        UnitError: there is a unit that somebody else wrote, or the file cannot be written.
        SettingsError: this machine is not enrolled.
    """
    settings.load_connection()  # a unit that fails every ten seconds helps nobody
    file = unit_file()
    try:
        if file.exists() and not is_own(file):
            raise UnitError(
                f"{file} exists and was not written by this command: remove it, or keep using it"
            )
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(_unit())
    except OSError as error:
        raise UnitError(f"{file} cannot be written: {error.strerror or error}") from error
    return file


def is_own(file: Path) -> bool:
    """Return whether `install` has written this unit.

    Raises:
        OSError: it cannot be read.
    """
    return file.read_bytes().startswith(_MARK.encode())


def uninstall() -> Path:
    """Remove the unit; return where it was.

    Raises:
        UnitError: there is none, somebody else wrote it, or it cannot be removed.
    """
    file = unit_file()
    try:
        if not is_own(file):
            raise UnitError(f"{file} was not written by this command: remove it yourself")
        file.unlink()
    except FileNotFoundError:
        raise UnitError(f"There is no unit {file}") from None
    except OSError as error:
        raise UnitError(f"{file} cannot be removed: {error.strerror or error}") from error
    return file


def _unit() -> str:
    variables = [(name, os.environ[name]) for name in _VARIABLES if os.environ.get(name)]
    return _UNIT.format(
        mark=_MARK,
        environment="\n".join(f"Environment={_quoted(f'{name}={v}')}" for name, v in variables),
        # `$` begins a variable there, and nowhere else in a unit.
        command=f"{_quoted(sys.executable).replace('$', '$$')} -m outrider daemon",
    )


def _quoted(text: str) -> str:
    """Return a word of a unit file, quoted. Raises UnitError if it has control characters."""
    if not text.isprintable():
        raise UnitError(f"{text!r} has control characters, which a unit cannot have")
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'
