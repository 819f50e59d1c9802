"""What a machine of the client shows of itself."""

from outrider.contract.resources import CliEntry, Daemon, IdeEntry


class MachineFields:
    """The fields of a machine, as they were when it was read.

    Those that programs often need are properties; a new field of the API is in `daemon` at once.

    Attributes:
        daemon: all fields as the API has them.
    """

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.nickname!r} {self.id}>"

    @property
    def id(self) -> str:
        """The machine's id."""
        return self.daemon.id

    @property
    def nickname(self) -> str:
        """What its user calls the machine."""
        return self.daemon.nickname

    @property
    def hostname(self) -> str:
        """The machine's name in its network."""
        return self.daemon.hostname

    @property
    def platform(self) -> str:
        """The operating system: `linux` or `darwin`, for example."""
        return self.daemon.platform

    @property
    def version(self) -> str:
        """The version of the machine agent."""
        return self.daemon.version

    @property
    def connected(self) -> bool:
        """Whether it was connected when it was read."""
        return self.daemon.connected is not False  # absent in the list of connected machines

    @property
    def clis(self) -> list[CliEntry]:
        """The running terminal agents, one for each type."""
        return self.daemon.clis

    @property
    def acps(self) -> list[CliEntry]:
        """The running ACP agents, one for each type."""
        return self.daemon.acps

    @property
    def ides(self) -> list[IdeEntry]:
        """The running IDEs, one for each type."""
        return self.daemon.ides
