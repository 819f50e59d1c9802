"""The name of a window on the private tmux server."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Pane:
    """A window that an agent runs in: its name, tmux's id of its pane, the agent's process."""

    name: str
    id: str
    pid: int
