"""The configuration directory of a machine agent: its connection, journal and lock files."""

import hashlib
import math
import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec

from outrider.contract.errors import OutriderError
from outrider.contract.structs import Wire
from outrider.lock_file import FileLockedError, locked_file

CONNECT_PATH: Final = "/api/v1/daemon/connect"


class SettingsError(OutriderError):
    """The configuration on this machine cannot be used. The text says what to do."""


class NotEnrolledError(SettingsError):
    """This machine is not connected to an account yet."""


class Connection(Wire, kw_only=True):
    """The result of enrollment: the service's base URL, this machine's id and its token."""

    server: str
    daemon_id: str
    token: str
    nickname: str

    def __repr__(self) -> str:
        return f"Connection(server={self.server!r}, daemon_id={self.daemon_id!r})"

    @property
    def websocket_url(self) -> str:
        """The URL of the daemon's WebSocket."""
        return f"ws{self.server.removeprefix('http')}{CONNECT_PATH}"


@dataclass(frozen=True)
class DaemonSettings:
    """The settings of one machine agent: its configuration directory, and what it keeps.

    Attributes:
        config_dir: `OUTRIDER_CONFIG_DIR`.
        history_days: days for which ended sessions are kept (`OUTRIDER_HISTORY_DAYS`).
        history_mb: megabytes that their chats may have (`OUTRIDER_HISTORY_MB`).
        worktrees_dir: where git worktrees are created (`OUTRIDER_WORKTREES_DIR`); None: beside
            each repository.
    """

    config_dir: Path
    history_days: float = 90
    history_mb: float = 1024
    worktrees_dir: Path | None = None

    @classmethod
    def from_environment(cls) -> "DaemonSettings":
        """Return the settings of the environment; the directory is `~/.config/outrider` by default.

        Raises:
            SettingsError: the home directory does not exist, a path is not valid UTF-8 (the journal
                and the service's frames are JSON), or a number is not above 0.
        """
        chosen = os.environ.get("OUTRIDER_CONFIG_DIR")
        worktrees = os.environ.get("OUTRIDER_WORKTREES_DIR")
        try:
            path = Path(chosen).expanduser().absolute() if chosen else _default_directory()
            for used in (str(path), worktrees or "", os.environ.get("HOME", "")):
                used.encode()
            return cls(
                config_dir=path,
                history_days=_number("OUTRIDER_HISTORY_DAYS", cls.history_days),
                history_mb=_number("OUTRIDER_HISTORY_MB", cls.history_mb),
                worktrees_dir=Path(worktrees).expanduser().absolute() if worktrees else None,
            )
        except UnicodeEncodeError as error:
            raise SettingsError(
                f"The directory {error.object!r} is not valid UTF-8: set HOME, "
                "OUTRIDER_CONFIG_DIR and OUTRIDER_WORKTREES_DIR to directories whose names are"
            ) from error
        except RuntimeError as error:
            raise SettingsError(
                "The setting OUTRIDER_CONFIG_DIR or OUTRIDER_WORKTREES_DIR is wrong: "
                f"there is no home directory for {chosen or '~'!r} or {worktrees or '~'!r}"
            ) from error

    @property
    def connection_file(self) -> Path:
        """The file with the connection; only its owner can read it."""
        return self.config_dir / "connection.json"

    @property
    def journal_file(self) -> Path:
        """The SQLite file of the journal."""
        return self.config_dir / "journal.db"

    @property
    def lock_file(self) -> Path:
        """The file whose lock the machine agent holds while it runs."""
        return self.config_dir / "daemon.lock"

    @property
    def chats_folder(self) -> Path:
        """The folder of the chats of sessions."""
        return self.config_dir / "chats"

    @property
    def tmux_socket(self) -> str:
        """The name of the private tmux server: `outrider`, or one derived from the directory.

        So two machine agents of one user with different directories do not share windows.
        """
        if self.config_dir == _default_directory():
            return "outrider"
        return f"outrider-{hashlib.sha256(os.fsencode(self.config_dir)).hexdigest()[:8]}"

    def load_connection(self) -> Connection:
        """Return the connection that `outrider setup` has saved.

        Raises:
            NotEnrolledError: there is no connection file.
            SettingsError: the file cannot be read.
        """
        path = self.connection_file
        try:
            connection = msgspec.json.decode(path.read_bytes(), type=Connection)
        except FileNotFoundError:
            raise NotEnrolledError(
                "This machine is not connected to an account yet: "
                "run `outrider setup --server URL` first"
            ) from None
        except (OSError, msgspec.DecodeError, UnicodeError) as error:
            raise SettingsError(
                f"{path} cannot be read ({error}): repair it, or run `outrider setup` again"
            ) from error
        connection.server = server_url(connection.server)
        return connection

    def save_connection(self, connection: Connection) -> None:
        """Save the connection atomically, readable by its owner only.

        Raises:
            SettingsError: the directory cannot be written.
        """
        data = msgspec.json.format(msgspec.json.encode(connection), indent=2)
        self.make_directory()
        try:
            handle, name = tempfile.mkstemp(dir=self.config_dir, prefix=".connection-")
            try:
                with os.fdopen(handle, "wb") as file:  # mkstemp makes it with mode 0600
                    file.write(data + b"\n")
                    file.flush()
                    os.fsync(file.fileno())
                Path(name).replace(self.connection_file)
            except BaseException:
                Path(name).unlink(missing_ok=True)
                raise
        except OSError as error:
            raise self._not_writable(error) from error

    def make_directory(self) -> None:
        """Create the directory with mode 0700 if it is missing; check that it is writable.

        Raises:
            SettingsError: it cannot be created or written.
        """
        try:
            self.config_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise self._not_writable(error) from error
        if not os.access(self.config_dir, os.W_OK | os.X_OK):
            raise self._not_writable(PermissionError(0, "Permission denied"))

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the directory's lock: only one machine agent uses it at a time.

        Raises:
            SettingsError: another machine agent holds it, or it cannot be written.
        """
        self.make_directory()
        with ExitStack() as stack:
            try:
                stack.enter_context(locked_file(self.lock_file))
            except FileLockedError as error:
                raise SettingsError(
                    f"A machine agent runs with {self.config_dir} already "
                    f"(process {error.holder}): "
                    "stop that one first, or choose another OUTRIDER_CONFIG_DIR"
                ) from None
            except OSError as error:
                raise self._not_writable(error) from error
            yield

    def _not_writable(self, error: OSError) -> SettingsError:
        return SettingsError(
            f"The configuration directory {self.config_dir} cannot be written "
            f"({error.strerror}): change its permissions, or set OUTRIDER_CONFIG_DIR to another"
        )


def _number(name: str, default: float) -> float:
    """Return a setting that is a number above 0. Raises SettingsError."""
    text = os.environ.get(name)
    try:
        value = float(text) if text else default
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise SettingsError(f"The setting {name} is wrong: it must be a number above 0")
    return value


def _default_directory() -> Path:
    return Path("~/.config/outrider").expanduser()


def server_url(text: str) -> str:
    """Return the validated base URL of a service, without a trailing slash.

    Raises:
        SettingsError: it is not an http or https URL of a server.
    """
    url = text.strip().rstrip("/")
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable or parts.username or parts.password or parts.query or parts.fragment:
        raise SettingsError(
            f"{text!r} is not the address of a service: give one such as https://host:8400"
        )
    return f"{parts.scheme}://{parts.netloc}{parts.path}"
