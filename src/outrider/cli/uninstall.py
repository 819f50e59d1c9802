"""`outrider uninstall`: says what is on this machine and how to remove it; removes nothing."""

import shlex
from pathlib import Path

from outrider.cli.running import daemon_settings, service_settings
from outrider.cli.systemd_unit import NAME, is_own, unit_file


def steps() -> list[tuple[str, list[str]]]:
    """Return what there is to do, in order: a sentence, and its commands."""
    machine, service = daemon_settings(), service_settings()
    found: list[tuple[str, list[str]]] = []
    unit = unit_file()
    if unit.exists():
        remove = "outrider daemon --uninstall" if _is_own(unit) else f"rm {shlex.quote(str(unit))}"
        found.append(
            (
                "Stop the machine agent and remove its unit.",
                [f"systemctl --user disable --now {NAME}", remove],
            )
        )
    else:
        found.append(("Stop `outrider up`, `outrider serve` and `outrider daemon`.", []))
    found.append(
        (
            "End the agents that still run in tmux.",
            [f"tmux -L {shlex.quote(machine.tmux_socket)} kill-server"],
        )
    )
    if machine.config_dir.exists():
        found.append(
            (
                "Revoke the machine in the dashboard; remove its connection, chats and stored key.",
                [_remove(machine.config_dir)],
            )
        )
    if service.data_dir.exists():
        found.append(
            (
                "Remove the service's data (`outrider backup FILE` keeps a copy).",
                [_remove(service.data_dir)],
            )
        )
    if not service.is_single_node:
        found.append(("Remove the database that OUTRIDER_DATABASE_URL names.", []))
    found.append(
        (
            "Remove the program, with what installed it.",
            ["pipx uninstall outrider", "uv tool uninstall outrider", "pip uninstall outrider"],
        )
    )
    return found


def _is_own(unit: Path) -> bool:
    """Return whether `outrider daemon --uninstall` would remove the unit."""
    try:
        return is_own(unit)
    except OSError:
        return False


def _remove(directory: Path) -> str:
    return f"rm -r {shlex.quote(str(directory))}"
