"""The commands for people: a client of the API, on `outrider.sdk`.

    commands, …_commands ── target_names (which session is meant) ──▶ outrider.sdk ──▶ service
        │
        └── output (tables and colors on a terminal, else plain text, or JSON; exit codes)

`inspect_commands` read one session, `machine_commands` are `outrider machine …`, `webhook_commands`
and `worktree_commands` likewise; `event_commands` prints and forwards events; `attach` is a live
terminal. `questions` shows what agents ask, `arguments` has the arguments of several commands.
`credentials` keeps the key of `outrider login`. `Rich` is imported only where standard output is a
terminal.
"""

from typing import Final

COMMANDS: Final = frozenset(
    {
        "account",
        "approvals",
        "approve",
        "ask",
        "attach",
        "chat",
        "debug",
        "diff",
        "events",
        "files",
        "interrupt",
        "launch",
        "login",
        "ls",
        "machine",
        "queue",
        "reject",
        "run",
        "screen",
        "send",
        "status",
        "stop",
        "wait",
        "webhook",
        "worktree",
    }
)
"""Their names: other commands do not load the client."""
