"""A private PostgreSQL."""

import os
import pwd
import shutil
import signal
import subprocess
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Final

from tests.servers.server import TIMEOUT, Identity, Server, ServerError, program

_USER: Final = "outrider"

_SETTINGS: Final = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "300",
    "shared_buffers": "32MB",
    # A server that is killed loses nothing by this; a machine that loses power would.
    "fsync": "off",
    "full_page_writes": "off",
    "autovacuum": "off",
    "max_wal_senders": "0",
    "wal_level": "minimal",
}


class Postgres(Server):
    """PostgreSQL of whatever version Debian has, as the user `postgres` where we are root.

    Args:
        settings: what is to be otherwise in `postgresql.conf`, such as `fsync="on"`.
    """

    name = "postgres"
    stop_signal = signal.SIGINT  # "fast": it does not wait for clients to leave

    def __init__(self, **settings: str) -> None:
        self._programs = _programs()
        super().__init__()
        self._settings = {**_SETTINGS, **settings, "port": str(self.port)}
        self.identity = _identity()
        if self.identity:
            shutil.chown(self.directory, self.identity["user"], self.identity["group"])

    @property
    def command(self) -> Sequence[str]:
        """The server itself, in the foreground."""
        pairs = self._settings.items()
        options = [word for name, value in pairs for word in ("-c", f"{name}={value}")]
        return [str(self._programs / "postgres"), "-D", str(self._data), *options]

    def start(self) -> None:
        """Start the server; the first time on an empty cluster.

        Raises:
            ServerError: it cannot make its cluster, or is not ready within `TIMEOUT`.
        """
        if not self._data.exists():
            arguments = ["--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync"]
            self._run("initdb", "--pgdata", str(self._data), "--username", _USER, *arguments)
        super().start()

    def is_ready(self) -> bool:
        """Return whether the server takes connections."""
        arguments = ["--quiet", "--host=127.0.0.1", f"--port={self.port}", "--timeout=1"]
        return self._call("pg_isready", *arguments).returncode == 0

    def url(self, database: str) -> str:
        """Return a database's address, as `OUTRIDER_DATABASE_URL` takes it."""
        return f"postgresql://{_USER}@127.0.0.1:{self.port}/{database}"

    def create(self, database: str, template: str = "template0") -> str:
        """Make a database, a copy of `template`, that nobody is connected to; return its address.

        Raises:
            ServerError: there is one of that name, or the template is in use.
        """
        where = ["--host=127.0.0.1", f"--port={self.port}", f"--username={_USER}"]
        self._run("createdb", *where, *self._strategy, f"--template={template}", database)
        return self.url(database)

    @cached_property
    def _strategy(self) -> list[str]:
        """How to copy: the files take half the processor time of the log. Unknown before 15."""
        option = "--strategy"
        return [f"{option}=file_copy"] if option in self._call("createdb", "--help").stdout else []

    @property
    def _data(self) -> Path:
        return self.directory / "data"

    def _run(self, name: str, *arguments: str) -> None:
        done = self._call(name, *arguments)
        if done.returncode != 0:
            raise ServerError(f"{name} failed: {done.stderr.strip()}")

    def _call(self, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self._programs / name), *arguments],
            cwd="/",
            **self.identity,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=False,
        )


def _programs() -> Path:
    """Return the directory of PostgreSQL's programs; Debian keeps them off the PATH."""
    directories = Path("/usr/lib/postgresql").glob("*/bin")
    newest_first = sorted(directories, key=lambda path: float(path.parent.name), reverse=True)
    return program("initdb", "postgresql", *newest_first).resolve().parent


def _identity() -> Identity:
    """Return as whom it runs: PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return {}
    names = {user.pw_name: user for user in pwd.getpwall()}
    user = names.get("postgres") or names["nobody"]
    return {"user": user.pw_name, "group": user.pw_gid, "extra_groups": []}
