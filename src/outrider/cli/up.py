"""`outrider up`: the service and this machine's agent in one process, set up on first use."""

import asyncio
import errno
import os
import secrets
import shutil
import stat
import sysconfig
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec
import typer

from outrider.cli.admin import issue_key
from outrider.cli.welcome import greet_person
from outrider.contract.errors import OutriderError
from outrider.contract.ids import new_id
from outrider.contract.resources import Provider
from outrider.contract.structs import Wire
from outrider.machine.app import run_daemon
from outrider.machine.enrollment import enroll
from outrider.machine.settings import DaemonSettings, NotEnrolledError
from outrider.service.accounts import passwords
from outrider.service.accounts.credentials import digest
from outrider.service.accounts.encryption import key_file
from outrider.service.accounts.enrollment import Enrollment
from outrider.service.accounts.one_time_links import LINK_SECONDS, LoginLinks
from outrider.service.accounts.principal import ALL_SCOPES
from outrider.service.accounts.store import accounts, api_keys, users
from outrider.service.components import Options
from outrider.service.database.engine import Database
from outrider.service.machines.store import machines
from outrider.service.operations.installation import prepare
from outrider.service.server import listen, listen_for_metrics, run_service
from outrider.service.settings import LOCAL_ACCOUNT, Settings
from outrider.tracing import MACHINE_AGENT, SERVICE, tracing_from_environment

EMAIL: Final = "local@outrider.invalid"
_OPEN_FILE: Final = "open.html"
_LOGIN_FILE: Final = "login.txt"
_STANDARD_OUTPUT: Final = 1
_LOOPBACK: Final = ("http://127.", "http://localhost", "http://[::1]")


class UpError(OutriderError):
    """`outrider up` cannot start. The text says what to do."""


class Local(Wire, kw_only=True):
    """The account that `up` created, stored in a file that only its owner can read."""

    account_id: str
    email: str
    password: str
    key: str


async def up(settings: Settings, stop: asyncio.Event, *, browser: bool = True) -> None:
    """Run the service and this machine's agent until `stop` is set.

    The account, its key and the machine's enrollment are created on the first start and reused
    afterwards.

    Args:
        browser: whether to open the dashboard on a person's terminal.

    Raises:
        UpError, OutriderError: something is missing or in use; the text says what to do.
    """
    if shutil.which("tmux") is None:
        raise UpError("tmux is missing: install it (apt-get install tmux) and start again")
    if settings.tls_cert is not None:
        raise UpError(
            "outrider up serves plain HTTP to this machine: unset OUTRIDER_TLS_CERT, or use "
            "outrider serve for a service with https"
        )
    _make_writable(settings.data_dir)
    listener = listen(settings)
    host, port = listener.getsockname()[:2]
    url = settings.local_url(host, port)
    local = await _local_account(settings)
    serving = asyncio.Event()
    links = LoginLinks()
    open_file = settings.data_dir / _OPEN_FILE

    def new_link() -> str:
        return f"{url}/login#once={links.issue(local.email)}"

    def greet(providers: list[Provider], machine_id: str) -> None:
        text = _greeting(url, local, new_link(), _demo_hint(providers, machine_id, url, local))
        _greet(url, text, settings.data_dir / _LOGIN_FILE)
        greet_person(settings, port, providers, new_link, open_file if browser else None)

    async def serve() -> None:
        async with tracing_from_environment(SERVICE) as tracing:
            await run_service(
                settings,
                [listener, *listen_for_metrics(settings)],
                stop,
                serving.set,
                options=Options(limit_loopback=False, login_links=links, tracing=tracing),
            )

    machine = _machine(settings, url, local, greet=greet, serving=serving, stop=stop)
    tasks = (
        asyncio.create_task(serve(), name="service"),
        asyncio.create_task(machine, name="machine"),
    )
    # When one of the two ends, for any reason, the other one is stopped too.
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    stop.set()
    await asyncio.wait(tasks)
    open_file.unlink(missing_ok=True)
    for task in tasks:
        task.result()


async def _machine(
    settings: Settings,
    url: str,
    local: Local,
    *,
    greet: Callable[[list[Provider], str], None],
    serving: asyncio.Event,
    stop: asyncio.Event,
) -> None:
    """Enroll this machine if needed, then run its agent."""
    await _first(serving, stop)
    if stop.is_set():
        return
    daemon_settings = DaemonSettings.from_environment()
    await _enroll_if_needed(settings, daemon_settings, url, local)
    machine_id = daemon_settings.load_connection().daemon_id
    is_greeted = False

    def greet_once(providers: list[Provider]) -> None:
        nonlocal is_greeted
        if not is_greeted:  # the machine connects again after each loss of the connection
            is_greeted = True
            greet(providers, machine_id)

    async with tracing_from_environment(MACHINE_AGENT) as tracing:
        await run_daemon(daemon_settings, stop, on_connected=greet_once, tracing=tracing)
    typer.echo("Stopped. Running agents continue in tmux; `outrider up` finds them again.")


async def _enroll_if_needed(
    settings: Settings, daemon_settings: DaemonSettings, url: str, local: Local
) -> None:
    database = Database(settings.sqlalchemy_url)
    try:
        with suppress(NotEnrolledError):
            connection = daemon_settings.load_connection()
            if await machines.by_token(database, digest(connection.token)) is not None:
                if connection.server != url:
                    connection.server = url
                    daemon_settings.save_connection(connection)
                return
            if not connection.server.startswith(_LOOPBACK):
                raise UpError(
                    f"This machine is enrolled with {connection.server}: set OUTRIDER_CONFIG_DIR "
                    "to another directory to run a separate service"
                )
        code = await Enrollment(database).new_code(local.account_id, None)
    finally:
        await database.close()
    # In a thread: it requests this process's own service, which needs the event loop.
    await asyncio.to_thread(enroll, daemon_settings, url, code.code)


async def _local_account(settings: Settings) -> Local:
    """Return the account of this installation; create it or its key if missing."""
    path = settings.data_dir / LOCAL_ACCOUNT
    database = Database(settings.sqlalchemy_url)
    try:
        await prepare(database, used_before=key_file(settings.data_dir).exists())
        local = _read(path)
        # The file outlives its database, as after an operator has emptied it: then it says nothing.
        if local is not None and await accounts.find(database, local.account_id) is not None:
            key_row = await api_keys.by_hash(database, digest(local.key))
            if key_row is None or key_row.revoked_at is not None:
                _, local.key = await issue_key(database, local.account_id, "local", set(ALL_SCOPES))
                _write_private(path, msgspec.json.encode(local))
            return local
        password = secrets.token_urlsafe(12)
        user = await users.by_email(database, EMAIL)
        if user is not None:
            account_id = user.account_id
            await users.set_password(database, user.id, passwords.hashed(password))
        else:
            account_id = new_id("acct")
            await accounts.create(
                database,
                account_id=account_id,
                user_id=new_id("user"),
                email=EMAIL,
                plan="enterprise",
                password_hash=passwords.hashed(password),
                now=time.time_ns() // 1_000_000,
            )
        _, key = await issue_key(database, account_id, "local", set(ALL_SCOPES))
        local = Local(account_id=account_id, email=EMAIL, password=password, key=key)
        _write_private(path, msgspec.json.encode(local))
        return local
    finally:
        await database.close()


def is_stored(output: int, environment: Mapping[str, str]) -> bool:
    """Return whether what is written to a descriptor stays: in a file, or in systemd's journal."""
    status = os.fstat(output)
    journal = f"{status.st_dev}:{status.st_ino}"
    return stat.S_ISREG(status.st_mode) or environment.get("JOURNAL_STREAM") == journal


def _greet(url: str, text: str, file: Path) -> None:
    """Say how to use the service; in the file if others could read the output later."""
    if not is_stored(_STANDARD_OUTPUT, os.environ):
        typer.echo(text)
        return
    file.unlink(missing_ok=True)  # one that others may read would stay readable
    _write_private(file, text.encode())
    typer.echo(
        f"\nOutrider is up, and this machine is connected.\n\n"
        f"  Dashboard  {url}/\n\n"
        f"This output is stored, so the login and the API key are in {file}, which only you can "
        "read.\n"
    )


def _greeting(url: str, local: Local, link: str, hint: str) -> str:
    """Return how to use the service.

    Args:
        link: the URL that opens the dashboard signed in.
    """
    return (
        f"\nOutrider is up, and this machine is connected.\n\n"
        f"  Dashboard  {url}/\n"
        f"  Login      {local.email}  {local.password}\n"
        f"  API key    {local.key}\n\n"
        "Open the dashboard signed in "
        f"(once, within {LINK_SECONDS / 60:g} minutes, on this machine):\n\n"
        f"  {link}\n\n"
        "List your machines:\n\n"
        f"  curl -H 'Authorization: Bearer {local.key}' {url}/api/v1/daemons\n\n"
        f"{hint}"
        "Ask an agent in another shell, here the demo agent:\n\n"
        f"{_path_line()}"
        f"  export OUTRIDER_URL={url} OUTRIDER_API_KEY={local.key}\n"
        '  outrider ask "$(outrider launch demo)" help\n\n'
        "Ctrl-C stops it.\n"
    )


def _demo_hint(providers: list[Provider], machine_id: str, url: str, local: Local) -> str:
    """Return how to launch the demo agent; empty if another agent is installed here."""
    if any(
        provider.installed and not provider.demo and provider.category != "ide"
        for provider in providers
    ):
        return ""
    return (
        "No agent is installed here. The demo agent needs no account (docs/demo.md):\n\n"
        f"  curl -H 'Authorization: Bearer {local.key}' {url}/api/v1/shortcuts/{machine_id}/launch "
        '-d \'{"type": "demo"}\'\n\n'
    )


def _path_line() -> str:
    """Return the line that puts `outrider` on the PATH; empty if it is there."""
    if shutil.which("outrider") is not None:
        return ""
    return f'  export PATH="{sysconfig.get_path("scripts")}:$PATH"\n'


async def _first(*events: asyncio.Event) -> None:
    """Wait until one of the events is set."""
    waits = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


def _make_writable(directory: Path) -> None:
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not os.access(directory, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise UpError(
            f"The data directory {directory} cannot be written ({error.strerror or error}): "
            "set OUTRIDER_DATA_DIR to one that can"
        ) from error


def _read(path: Path) -> Local | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Local)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise UpError(
            f"{path} cannot be read ({error}): repair it, or remove it for a new key and password"
        ) from error


def _write_private(path: Path, data: bytes) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(data)
