"""`outrider uninstall`: says what is on this machine and how to remove it; removes nothing."""

import shlex
from contextlib import suppress

from outrider.cli.running import daemon_settings, service_settings
from outrider.cli.systemd_unit import NAME, is_own, unit_file


def steps() -> list[tuple[str, list[str]]]:
    """Return what there is to do, in order: a sentence, and its commands."""
    machine, service = daemon_settings(), service_settings()
    steps: list[tuple[str, list[str]]] = []
    unit = unit_file()
    if unit.exists():
        remove = f"rm {shlex.quote(str(unit))}"
        # One that cannot be read is not ours to judge: `rm` removes it in any case.
        with suppress(OSError):
            remove = "outrider daemon --uninstall" if is_own(unit) else remove
        stop = f"systemctl --user disable --now {NAME}"
        steps.append(("Stop the machine agent and remove its unit.", [stop, remove]))
    else:
        steps.append(("Stop `outrider up`, `outrider serve` and `outrider daemon`.", []))
    tmux = f"tmux -L {shlex.quote(machine.tmux_socket)} kill-server"
    steps.append(("End the agents that still run in tmux.", [tmux]))
    for directory, sentence in (
        (
            machine.config_dir,
            "Revoke the machine in the dashboard; remove its connection, chats and stored key.",
        ),
        (
            service.data_dir,
            "Remove the service's data (`outrider backup FILE` keeps a copy).",
        ),
    ):
        if directory.exists():
            steps.append((sentence, [f"rm -r {shlex.quote(str(directory))}"]))
    if not service.is_single_node:
        steps.append(("Remove the database that OUTRIDER_DATABASE_URL names.", []))
    programs = ["pipx uninstall outrider", "uv tool uninstall outrider", "pip uninstall outrider"]
    return [*steps, ("Remove the program, with what installed it.", programs)]
