"""A window of the private tmux server, in which an agent or a named terminal runs."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Pane:
    """A window: its name, tmux's id of its pane, the process in it."""

    name: str
    id: str
    pid: int
