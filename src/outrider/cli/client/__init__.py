"""The commands for people: a client of the API, on `outrider.sdk`.

    …_commands ── target_names (which session is meant) ──▶ outrider.sdk ──▶ service
        │
        └── output (a session with the service, errors, exit codes) ──▶ cli.printing (tables, JSON)

`session_commands` list, launch, use and stop sessions, `inspect_commands` read one;
`machine_commands` are `outrider machine …`, `webhook_commands`
and `worktree_commands` likewise; `event_commands` prints and forwards events; `attach` is a live
terminal. `questions` shows what agents ask, `arguments` has the arguments of several commands.
`credentials` keeps the key of `outrider login`. `Rich` is imported only where standard output is a
terminal.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import typer

_MODULES: Final = {
    "session_commands": (
        *("ls", "launch", "send", "ask", "chat", "approve", "reject"),
        *("interrupt", "stop", "run", "login"),
    ),
    "attach": ("attach",),
    "event_commands": ("events",),
    "inspect_commands": (
        *("account", "approvals", "debug", "diff", "files", "queue"),
        *("screen", "status", "wait"),
    ),
    "machine_commands": ("machine",),
    "webhook_commands": ("webhook",),
    "worktree_commands": ("worktree",),
}
"""The commands of each module: functions of their names, or a group, the module's `app`."""

COMMANDS: Final = frozenset(name for names in _MODULES.values() for name in names)
"""Their names: other commands do not load the client."""


def register(app: "typer.Typer") -> None:
    """Add the commands to the command line."""
    for module_name, names in _MODULES.items():
        module = import_module(f"{__name__}.{module_name}")
        for name in names:
            if hasattr(module, name):
                app.command()(getattr(module, name))
            else:
                app.add_typer(module.app, name=name)
