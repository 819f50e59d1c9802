"""The commands for people: a client of the API, on `outrider.sdk`.

    commands ── target_names (which session is meant) ──▶ outrider.sdk ──▶ service
        │
        └── output (tables and colors on a terminal, else plain text, or JSON; exit codes)

`credentials` keeps the key of `outrider login`; `event_commands` prints and forwards events;
`attach` is a live terminal. `Rich` is imported only where standard output is a terminal.
"""

from typing import Final

COMMANDS: Final = frozenset(
    {
        "approve",
        "ask",
        "attach",
        "chat",
        "events",
        "interrupt",
        "launch",
        "login",
        "ls",
        "reject",
        "run",
        "send",
        "stop",
    }
)
"""Their names: other commands do not load the client."""
