"""`outrider admin`: what only the operator may do, straight on the database."""

import json
import re
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar

import typer

from outrider.cli.running import fail, run, service_settings
from outrider.cloud.access import passwords, secrets
from outrider.cloud.access.enrolment import Enrolment
from outrider.cloud.access.principal import ALL_SCOPES
from outrider.cloud.access.sealing import key_file
from outrider.cloud.installation import prepare
from outrider.cloud.store import accounts, api_keys
from outrider.cloud.store.database import Database
from outrider.contract.ids import new_id
from outrider.contract.text import checked_name, escaped_lines

app = typer.Typer(no_args_is_help=True, help="What only the operator may do, on the database.")
account_app = typer.Typer(no_args_is_help=True, help="Accounts.")
key_app = typer.Typer(no_args_is_help=True, help="API keys.")
app.add_typer(account_app, name="account")
app.add_typer(key_app, name="key")

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
AccountOption = Annotated[str, typer.Option(help="The account's id, or a user's email.")]

T = TypeVar("T")

_PLANS = ("free", "pro", "team", "enterprise")
_DURATION = re.compile(r"(\d+)([smhdw])")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


@app.command()
def migrate(as_json: AsJson = False) -> None:
    """Bring the database's schema up to date."""
    _on_database(_nothing)
    _show(as_json, {"migrated": True}, "The database is up to date.")


@account_app.command("create")
def account_create(
    email: Annotated[str, typer.Option(help="The first user's email.")],
    plan: Annotated[str, typer.Option(help=f"One of {', '.join(_PLANS)}.")] = "free",
    password: Annotated[
        str | None,
        typer.Option(envvar="OUTRIDER_PASSWORD", help="For the dashboard; none, no login."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make an account with its first user."""
    if plan not in _PLANS:
        fail(f"Unknown plan {plan!r}: it is one of {', '.join(_PLANS)}", 2)
    if not re.fullmatch(r"[^@\s]+@[^@\s]+", email.strip()):
        fail(f"{email!r} is not an email address", 2)
    account_id, user_id = new_id("acct"), new_id("user")
    password_hash = None if password is None else passwords.hashed(password)

    async def create(database: Database) -> None:
        await accounts.create(
            database,
            account_id=account_id,
            user_id=user_id,
            email=email,
            plan=plan,  # type: ignore[arg-type]  # checked above
            password_hash=password_hash,
            now=_now(),
        )

    _on_database(create)
    _show(
        as_json,
        {"accountId": account_id, "userId": user_id},
        f"Account {account_id} with the user {email}.",
    )


@key_app.command("create")
def key_create(
    account: AccountOption,
    name: Annotated[str, typer.Option(help="What the key is for.")],
    scope: Annotated[
        list[str] | None, typer.Option(help="May be given more than once; all without it.")
    ] = None,
    expires_in: Annotated[
        str | None, typer.Option(help="As in 30d, 12h or 90m; never without it.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Issue an API key. It is shown this once."""
    scopes = {part.strip() for value in scope or sorted(ALL_SCOPES) for part in value.split(",")}
    unknown = scopes - ALL_SCOPES
    if unknown:
        fail(
            f"Unknown scope {', '.join(sorted(unknown))}: "
            f"it is one of {', '.join(sorted(ALL_SCOPES))}",
            2,
        )
    lifetime = None if expires_in is None else _duration(expires_in)

    async def create(database: Database) -> tuple[str, str]:
        return await issue_key(
            database, await _account(database, account), name, scopes, lifetime=lifetime
        )

    key_id, key = _on_database(create)
    _show(as_json, {"id": key_id, "key": key}, f"{key}\n(shown this once; its id is {key_id})")


@key_app.command("list")
def key_list(account: AccountOption, as_json: AsJson = False) -> None:
    """List an account's keys."""

    async def of_account(database: Database) -> list[api_keys.ApiKey]:
        return await api_keys.of_account(database, await _account(database, account))

    keys = [
        {
            "id": key.id,
            "name": key.name,
            "prefix": key.prefix,
            "scopes": sorted(key.scopes),
            "createdAt": key.created_at,
            "expiresAt": key.expires_at,
            "revokedAt": key.revoked_at,
            "lastUsedAt": key.last_used_at,
        }
        for key in _on_database(of_account)
    ]
    rows = [
        f"{key['id']}  {key['prefix']}…  {key['name']}  "
        f"{'revoked' if key['revokedAt'] else 'last used ' + _when(key['lastUsedAt'])}"
        for key in keys
    ]
    _show(as_json, {"keys": keys}, "\n".join(rows) or "No keys.")


@key_app.command("revoke")
def key_revoke(
    key_id: Annotated[str, typer.Argument(metavar="ID", help="The key's id, as `list` shows it.")],
    as_json: AsJson = False,
) -> None:
    """Revoke a key; it stops working within a second."""

    async def revoke(database: Database) -> bool:
        return await api_keys.revoke(database, key_id, _now())

    if not _on_database(revoke):
        fail(f"There is no key {key_id!r} that still works")
    _show(as_json, {"id": key_id, "revoked": True}, f"{key_id} is revoked.")


@app.command()
def enroll(
    account: AccountOption,
    nickname: Annotated[str | None, typer.Option(help="A name for the machine.")] = None,
    as_json: AsJson = False,
) -> None:
    """Make a one-time code for `outrider setup --code`, good for ten minutes."""

    async def new_code(database: Database) -> tuple[str, int]:
        made = await Enrolment(database).new_code(await _account(database, account), nickname)
        return made.code, made.expires_at

    code, expires_at = _on_database(new_code)
    _show(
        as_json,
        {"code": code, "expiresAt": expires_at},
        f"{code}\n(for one machine, until {_when(expires_at)}: outrider setup --code {code})",
    )


async def issue_key(
    database: Database, account_id: str, name: str, scopes: set[str], *, lifetime: int | None = None
) -> tuple[str, str]:
    """Make an API key and return its id and the key itself. `lifetime` is milliseconds.

    Raises:
        ApiError: 400, `name` is too long or not printable.
    """
    key_id, key, now = new_id("key"), secrets.new_key(), _now()
    await api_keys.add(
        database,
        key_id=key_id,
        account_id=account_id,
        name=checked_name(name, "name"),
        prefix=key[:8],
        digest=secrets.digest(key),
        scopes=scopes,
        now=now,
        expires_at=None if lifetime is None else now + lifetime,
    )
    return key_id, key


def _on_database(work: Callable[[Database], Awaitable[T]]) -> T:
    async def with_database() -> T:
        # Not in a directory of its own: a mistyped setting would make a second, empty service.
        settings = service_settings()
        database = Database(settings.sqlalchemy_url, makes_directory=False)
        try:
            await prepare(database, used_before=key_file(settings.data_dir).exists())
            return await work(database)
        finally:
            await database.close()

    return run(with_database())


async def _nothing(_database: Database) -> None:
    """For a command that only brings the schema up to date."""


async def _account(database: Database, account: str) -> str:
    found = await accounts.find(database, account)
    if found is None:
        fail(f"There is no account {account!r}: give its id, or the email of a user of it")
    return found


def _duration(text: str) -> int:
    match = _DURATION.fullmatch(text.strip())
    if match is None or int(match[1]) == 0:
        fail(f"{text!r} is not a duration: write it as in 30d, 12h or 90m", 2)
    return int(match[1]) * _UNITS[match[2]] * 1000


def _when(millis: Any) -> str:
    if millis is None:
        return "never"
    return datetime.fromtimestamp(millis / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _now() -> int:
    return time.time_ns() // 1_000_000


def _show(as_json: bool, data: dict[str, Any], text: str) -> None:
    typer.echo(json.dumps(data) if as_json else escaped_lines(text))
