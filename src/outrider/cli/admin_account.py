"""`outrider admin account`: create, show, change and delete accounts."""

import re
import sys
from typing import Annotated, Any

import typer

from outrider.cli.counted import counted
from outrider.cli.database_command import AsJson, account_id, now, on_database, when
from outrider.cli.printing import show_result
from outrider.cli.running import YesOption, confirm, fail, service_settings
from outrider.contract.ids import new_id
from outrider.contract.text import MAX_NAME, is_printable
from outrider.service.accounts import passwords
from outrider.service.accounts.one_time_links import RESET_SECONDS, PasswordLink, new_password_link
from outrider.service.accounts.quota import PLANS, Quota
from outrider.service.accounts.store import accounts, dashboard_sessions, users
from outrider.service.accounts.store.accounts import Account
from outrider.service.accounts.store.dashboard_sessions import DashboardSession
from outrider.service.database.engine import Database

app = typer.Typer(no_args_is_help=True, help="Accounts.")

EmailOption = Annotated[
    str,
    typer.Option("--email", "--account", help="The email of the account's user, or its id."),
]
PasswordOption = Annotated[
    str | None,
    typer.Option(
        envvar="OUTRIDER_PASSWORD",
        help="For the dashboard. Default: asked for on a terminal, otherwise a link to set it.",
    ),
]
_PLANS = ", ".join(PLANS)


@app.command("create")
def create(
    email: Annotated[str, typer.Option(help="The first user's email.")],
    plan: Annotated[
        str | None, typer.Option(help=f"One of {_PLANS}. Default: OUTRIDER_DEFAULT_PLAN.")
    ] = None,
    password: PasswordOption = None,
    as_json: AsJson = False,
) -> None:
    """Create an account with its first user."""
    chosen_plan = service_settings().default_plan if plan is None else _checked_plan(plan)
    email = email.strip()
    is_email = re.fullmatch(r"[^@\s]+@[^@\s]+", email) and is_printable(email)
    if not is_email or len(email) > MAX_NAME:
        fail(f"{email!r} is not an email address", 2)
    new_password = _chosen_password(password, email)
    new_account, new_user = new_id("acct"), new_id("user")

    async def work(database: Database) -> PasswordLink | None:
        await accounts.create(
            database,
            account_id=new_account,
            user_id=new_user,
            email=email,
            plan=chosen_plan,  # type: ignore[arg-type]  # checked above
            password_hash=None if new_password is None else passwords.hashed(new_password),
            now=now(),
        )
        if new_password is not None:
            return None
        return await new_password_link(database, new_user, service_settings().base_url)

    link = on_database(work)
    show_result(
        {"accountId": new_account, "userId": new_user} | _link_fields(link),
        f"Account {new_account} with the user {email}, on the {chosen_plan} plan."
        + _link_text(link),
        as_json,
    )


@app.command("list")
def list_accounts(
    email: Annotated[
        str | None, typer.Option("--email", "--account", help="Only the account of this user.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the accounts, oldest first."""

    async def work(database: Database) -> list[Account]:
        return await accounts.every(
            database, None if email is None else await account_id(database, email)
        )

    rows = on_database(work)
    lines = [f"{account.id}  {account.plan:<10}  {_user(account)}" for account in rows]
    data = {"accounts": [_fields(account) for account in rows]}
    show_result(data, "\n".join(lines) or "No accounts.", as_json)


@app.command("show")
def show_account(email: EmailOption, as_json: AsJson = False) -> None:
    """Show an account: its plan, its usage this month and what it owns."""

    async def work(database: Database) -> tuple[Account, accounts.Holdings, str, int]:
        account = await _account(database, email)
        month, calls = await Quota(database).used(account.id)
        return account, await accounts.holdings(database, account.id, now()), month, calls

    account, holdings, month, calls = on_database(work)
    limit = PLANS[account.plan].calls_per_month
    usage = {"month": month, "calls": calls, "limit": limit}
    text = (
        f"{account.id}  {_user(account)}\n"
        f"Created   {when(account.created_at)}\n"
        f"Plan      {account.plan}: {calls} calls in {month} of "
        f"{'unlimited' if limit is None else limit}\n"
        f"Has       {counted(holdings.machines, 'machine')}, {counted(holdings.keys, 'key')}, "
        f"{counted(holdings.webhooks, 'webhook')}, {counted(holdings.sessions, 'session')}"
    )
    show_result(_fields(account) | holdings._asdict() | {"usage": usage}, text, as_json)


@app.command("set-plan")
def set_plan(
    email: EmailOption,
    argument: Annotated[
        str | None, typer.Argument(metavar="[PLAN]", help=f"One of {_PLANS}.")
    ] = None,
    option: Annotated[str | None, typer.Option("--plan", help="The same.")] = None,
    as_json: AsJson = False,
) -> None:
    """Change the plan of an account; effective within seconds."""
    if argument is not None and option is not None:
        fail("Give the plan once", 2)
    plan = _checked_plan(argument or option or "")

    async def work(database: Database) -> Account:
        account = await _account(database, email)
        await accounts.set_plan(database, account.id, plan, now())  # type: ignore[arg-type]
        return account

    account = on_database(work)
    show_result(_ids(account) | {"plan": plan}, f"{account.email} is on the {plan} plan.", as_json)


@app.command("password")
def password(email: EmailOption, password: PasswordOption = None, as_json: AsJson = False) -> None:
    """Set a user's password, which ends all of the user's sessions.

    Without a terminal and --password it prints a link; the old password works until it is used.
    """
    account = on_database(lambda database: _account(database, email))
    new_password = _chosen_password(password, account.email)

    async def work(database: Database) -> tuple[int, PasswordLink | None]:
        if new_password is None:
            link = await new_password_link(database, account.user_id, service_settings().base_url)
            return 0, link
        password_hash = passwords.hashed(new_password)
        return await users.set_password(database, account.user_id, password_hash), None

    ended, link = on_database(work)
    if link is not None:
        text = f"The password of {account.email} is unchanged until the link is used."
        data = _ids(account) | {"changed": False} | _link_fields(link)
        show_result(data, text + _link_text(link), as_json)
    else:
        data = _ids(account) | {"changed": True, "sessionsEnded": ended}
        show_result(data, f"{account.email} has the new password; {_ended(ended)}.", as_json)


@app.command("sessions")
def list_sessions(
    email: EmailOption,
    end_all: Annotated[bool, typer.Option("--end-all", help="End all of them.")] = False,
    as_json: AsJson = False,
) -> None:
    """List the dashboard sessions of a user, or end them."""

    async def work(database: Database) -> tuple[Account, list[DashboardSession], int]:
        account = await _account(database, email)
        if end_all:
            return account, [], await dashboard_sessions.end_all(database, account.user_id)
        return account, await dashboard_sessions.of_user(database, account.user_id, now()), 0

    account, sessions, ended = on_database(work)
    if end_all:
        show_result(_ids(account) | {"ended": ended}, f"{_ended(ended).capitalize()}.", as_json)
        return
    views, lines = [], []
    for session in sessions:
        last_seen = session.last_seen_at or session.created_at
        views.append(
            {
                "id": session.id,
                "createdAt": session.created_at,
                "lastSeenAt": last_seen,
                "expiresAt": session.expires_at,
                "address": session.address,
                "userAgent": session.user_agent,
            }
        )
        address = session.address or "unknown address"
        agent = session.user_agent or ""
        lines.append(f"{session.id}  last seen {when(last_seen)}  {address}  {agent}")
    show_result(_ids(account) | {"sessions": views}, "\n".join(lines) or "No sessions.", as_json)


@app.command("delete")
def delete(
    email: EmailOption,
    yes: YesOption = False,
    as_json: AsJson = False,
) -> None:
    """Delete an account with its machines, keys, webhooks and sessions, permanently."""
    account = on_database(lambda database: _account(database, email))
    confirm(f"Delete {account.email} ({account.id}) and everything that it owns?", yes=yes)

    on_database(lambda database: accounts.remove(database, account.id, now()))
    text = f"The account {account.id} of {account.email} is deleted."
    show_result(_ids(account) | {"deleted": True}, text, as_json)


def _ended(sessions: int) -> str:
    return f"{counted(sessions, 'session')} {'was' if sessions == 1 else 'were'} ended"


async def _account(database: Database, email: str) -> Account:
    """Return an account with its first user, or end the command."""
    return (await accounts.every(database, await account_id(database, email)))[0]


def _checked_plan(plan: str) -> str:
    if plan not in PLANS:
        fail(f"Unknown plan {plan!r}: it is one of {_PLANS}", 2)
    return plan


def _chosen_password(option: str | None, email: str) -> str | None:
    """Return the password that was given, or typed on a terminal; None if there is no terminal.

    One that must not be a password ends the command; on a terminal it is asked for again.
    """
    while option is not None or sys.stdin.isatty():
        chosen: str = (
            option
            if option is not None
            else typer.prompt(
                "Password", hide_input=True, confirmation_prompt="The same again", err=True
            )
        )
        try:
            passwords.check_new(chosen, email)
        except passwords.WeakPassword as error:
            if option is not None:
                fail(str(error), 2)
            typer.echo(str(error), err=True)
        else:
            return chosen
    return None


def _user(account: Account) -> str:
    return account.email + ("" if account.has_password else "  (no password)")


def _ids(account: Account) -> dict[str, Any]:
    return {"accountId": account.id, "userId": account.user_id}


def _fields(account: Account) -> dict[str, Any]:
    return _ids(account) | {
        "email": account.email,
        "plan": account.plan,
        "createdAt": account.created_at,
        "hasPassword": account.has_password,
    }


def _link_fields(link: PasswordLink | None) -> dict[str, Any]:
    if link is None:
        return {}
    return {"passwordLink": link.url, "passwordLinkExpiresAt": link.expires_at}


def _link_text(link: PasswordLink | None) -> str:
    if link is None:
        return ""
    text = f"\nTo set the password, open within {RESET_SECONDS // 3600} hours:\n\n    {link.url}\n"
    if service_settings().public_url is None:
        text += "\n(OUTRIDER_PUBLIC_URL is not set: put the service's own address in its place.)"
    return text
