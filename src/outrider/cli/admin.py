"""`outrider admin`: the operator's commands, which work directly on the database."""

import re
from typing import Annotated

import typer

from outrider.cli import admin_account
from outrider.cli.backup import revoked_again_text, revoked_since
from outrider.cli.database_command import AsJson, account_id, check, now, on_database, when
from outrider.cli.printing import show_result
from outrider.cli.running import YesOption, confirm, fail, service_settings
from outrider.contract.errors import checked_name
from outrider.contract.ids import new_id
from outrider.service.accounts import credentials
from outrider.service.accounts.enrollment import Enrollment
from outrider.service.accounts.principal import ALL_SCOPES
from outrider.service.accounts.store import api_keys
from outrider.service.database import revocations
from outrider.service.database.engine import Database

app = typer.Typer(
    no_args_is_help=True, help="The operator's commands; they work directly on the database."
)
key_app = typer.Typer(no_args_is_help=True, help="API keys.")
app.add_typer(admin_account.app, name="account")
app.add_typer(key_app, name="key")

AccountOption = Annotated[str, typer.Option(help="The account's id, or a user's email.")]

_DURATION = re.compile(r"(\d+)([smhdw])")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


@app.command()
def migrate(as_json: AsJson = False) -> None:
    """Bring the database's schema up to date, and check that it can be read."""
    on_database(check)
    show_result({"migrated": True}, "The database is up to date.", as_json)


@app.command("revoke-again")
def revoke_again(
    previous: Annotated[
        str | None,
        typer.Argument(
            envvar="OUTRIDER_PREVIOUS_DATABASE_URL",
            help="The URL of the database before the restore, or its SQLite file.",
        ),
    ] = None,
    everything: Annotated[
        bool,
        typer.Option("--everything", help="Revoke all machines and keys, and pause all webhooks."),
    ] = False,
    yes: YesOption = False,
    as_json: AsJson = False,
) -> None:
    """After a restore, revoke what was revoked after the backup; stop the service first.

    The database before the restore says what that is. If it is lost, --everything is safe.
    """
    if everything is (previous is not None):
        fail("Give the database before the restore, or --everything", 2)
    if everything:
        confirm("Revoke all machines and keys of all accounts, and pause all webhooks?", yes=yes)

    async def work(database: Database) -> revocations.Revoked:
        if previous is None:
            return await revocations.revoke_all(database, now())
        return await revoked_since(database, previous)

    revoked = on_database(work)
    show_result(revoked._asdict(), revoked_again_text(revoked), as_json)


@key_app.command("create")
def key_create(
    account: AccountOption,
    name: Annotated[str, typer.Option(help="What the key is for.")],
    scope: Annotated[
        list[str] | None, typer.Option(help="A scope; may be repeated. Default: all scopes.")
    ] = None,
    expires_in: Annotated[
        str | None, typer.Option(help="Such as 30d, 12h or 90m. Default: never.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Create an API key. It is shown only once."""
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
            database, await account_id(database, account), name, scopes, lifetime=lifetime
        )

    key_id, key = on_database(create)
    show_result(
        {"id": key_id, "key": key}, f"{key}\n(shown only once; its id is {key_id})", as_json
    )


@key_app.command("list")
def key_list(account: AccountOption, as_json: AsJson = False) -> None:
    """List an account's keys."""

    async def of_account(database: Database) -> list[api_keys.ApiKey]:
        return await api_keys.of_account(database, await account_id(database, account))

    keys, lines = [], []
    for key in on_database(of_account):
        keys.append(
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
        )
        state = "revoked" if key.revoked_at else f"last used {when(key.last_used_at)}"
        lines.append(f"{key.id}  {key.prefix}…  {key.name}  {state}")
    show_result({"keys": keys}, "\n".join(lines) or "No keys.", as_json)


@key_app.command("revoke")
def key_revoke(
    key_id: Annotated[str, typer.Argument(metavar="ID", help="The key's id, as `list` shows it.")],
    as_json: AsJson = False,
) -> None:
    """Revoke a key; it stops working within a second."""
    if not on_database(lambda database: api_keys.revoke(database, key_id, now())):
        fail(f"There is no active key {key_id!r}")
    show_result({"id": key_id, "revoked": True}, f"{key_id} is revoked.", as_json)


@app.command()
def enroll(
    account: AccountOption,
    nickname: Annotated[str | None, typer.Option(help="A name for the machine.")] = None,
    as_json: AsJson = False,
) -> None:
    """Create a one-time code for `outrider setup --code`, valid for ten minutes."""

    async def new_code(database: Database) -> tuple[str, int]:
        created = await Enrollment(database).new_code(await account_id(database, account), nickname)
        return created.code, created.expires_at

    code, expires_at = on_database(new_code)
    command = f"outrider setup --server {service_settings().base_url} --code {code}"
    show_result(
        {"code": code, "expiresAt": expires_at},
        f"{code}\n(for one machine, until {when(expires_at)}: {command})",
        as_json,
    )


async def issue_key(
    database: Database, account_id: str, name: str, scopes: set[str], *, lifetime: int | None = None
) -> tuple[str, str]:
    """Create an API key; return its id and the key. `lifetime` is in milliseconds.

    Raises:
        ApiError: 400, `name` is too long or not printable.
    """
    key_id, key, created_at = new_id("key"), credentials.new_key(), now()
    await api_keys.add(
        database,
        key_id=key_id,
        account_id=account_id,
        name=checked_name(name, "name"),
        prefix=key[:8],
        digest=credentials.digest(key),
        scopes=scopes,
        now=created_at,
        expires_at=None if lifetime is None else created_at + lifetime,
    )
    return key_id, key


def _duration(text: str) -> int:
    match = _DURATION.fullmatch(text.strip())
    if match is None or int(match[1]) == 0:
        fail(f"{text!r} is not a duration: write it like 30d, 12h or 90m", 2)
    return int(match[1]) * _UNITS[match[2]] * 1000
