"""What was revoked after a backup stays revoked when the backup is restored."""

import asyncio
import subprocess
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest
from sqlalchemy import text

from outrider.contract.enrollment import Enrolled
from outrider.service.settings import Settings
from tests.conftest import running, settings
from tests.rig.people import PASSWORD, dashboard, login, person
from tests.rig.processes import PROCESS_TIMEOUT, environment, outrider
from tests.rig.site import Owner, Site
from tests.rig.stores import SQLite, Store
from tests.servers.server import program

pytestmark = pytest.mark.asyncio(loop_scope="session")

V1 = "/api/v1"
NEW_PASSWORD = "another correct horse battery"
ALL, NONE = {"machine", "key", "webhook"}, set[str]()


class Credentials(NamedTuple):
    """A machine, a key and a webhook of an account."""

    machine: Enrolled
    key: str
    webhook: str


async def created(owner: Owner, api: httpx.AsyncClient) -> Credentials:
    body = {"url": "https://example.org/", "events": ["*"]}
    made = await api.post(f"{V1}/webhooks", json=body)
    key = await owner.site.key(owner.id)
    return Credentials(await owner.enrolls(), key, made.json()["id"])


async def revoke(api: httpx.AsyncClient, credentials: Credentials) -> None:
    """Revoke them, and change the password."""
    machine, (key,) = credentials.machine.daemon_id, await key_ids(api, credentials.key)
    for method, path, body in (
        ("POST", f"daemons/{machine}/revoke", None),
        ("DELETE", f"webhooks/{credentials.webhook}", None),
        ("DELETE", f"account/keys/{key}", None),
        ("POST", "auth/password", {"current": PASSWORD, "new": NEW_PASSWORD}),
    ):
        answer = await api.request(method, f"{V1}/{path}", json=body)
        assert answer.is_success, answer.text


async def key_ids(api: httpx.AsyncClient, key: str) -> list[str]:
    keys = (await api.get(f"{V1}/account")).json()["keys"]
    return [row["id"] for row in keys if row["prefix"] == key[:8]]


async def valid(site: Site, credentials: Credentials) -> set[str]:
    """Return which of them can be used."""
    query = (
        f"SELECT 'machine' FROM machines WHERE token_hash IS NOT NULL"
        f" AND id = '{credentials.machine.daemon_id}'"
        f" UNION SELECT 'webhook' FROM webhooks WHERE active AND id = '{credentials.webhook}'"
    )
    async with site.database.read() as transaction:
        usable = set(await transaction.scalars(text(query)))
    client = site.client(credentials.key)
    return usable | {"key"} if (await client.get(f"{V1}/daemons")).is_success else usable


async def back_up(chosen: Settings, file: Path) -> None:
    if chosen.is_single_node:
        (await outrider("backup", str(file), "--json", env=env(chosen))).json()
    else:
        command = ["pg_dump", "--format=custom", f"--file={file}", str(chosen.database_url)]
        await asyncio.to_thread(postgresql_tool, *command)


async def restore(chosen: Settings, file: Path, store: Store) -> Settings:
    """Restore a backup as docs/operations.md says; return the settings of the service then."""
    if chosen.is_single_node:
        (await outrider("restore", str(file), "--force", "--json", env=env(chosen))).json()
        return chosen
    new = str(store.empty()["database_url"])
    await asyncio.to_thread(
        postgresql_tool, "pg_restore", "--no-owner", f"--dbname={new}", str(file)
    )
    restored = chosen.model_copy(update={"database_url": new})
    before = {"OUTRIDER_PREVIOUS_DATABASE_URL": str(chosen.database_url)}
    (await outrider("admin", "revoke-again", "--json", env=env(restored) | before)).json()
    return restored


def env(chosen: Settings) -> dict[str, str]:
    addresses = {} if chosen.database_url is None else {"database_url": chosen.database_url}
    return environment(chosen.data_dir, **addresses)


def postgresql_tool(name: str, *arguments: str) -> None:
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    tool = program(name, "postgresql-client", *places)
    subprocess.run([tool, *arguments], check=True, timeout=PROCESS_TIMEOUT, capture_output=True)


async def test_what_was_revoked_after_the_backup_is_revoked_again(
    store: Store, tmp_path: Path
) -> None:
    chosen, file = settings(tmp_path / "data", store), tmp_path / "backup"
    async with running(chosen) as site, site.visit():
        owner = await person(site)
        api = await dashboard(owner)
        kept, revoked = await created(owner, api), await created(owner, api)
        await back_up(chosen, file)
        await revoke(api, revoked)
        token = api.headers["Authorization"]
    restored = await restore(chosen, file, store)
    async with running(restored) as site, site.visit():
        assert await valid(site, kept) == ALL
        assert await valid(site, revoked) == NONE
        assert (await login(site, owner.email)).status_code == 401
        assert (await login(site, owner.email, NEW_PASSWORD)).status_code == 200
        session = site.client()
        session.headers["Authorization"] = token
        assert (await session.get(f"{V1}/account")).status_code == 401


async def test_a_deleted_account_is_restored_with_all_it_had(
    sqlite: SQLite, tmp_path: Path
) -> None:
    chosen, file = settings(tmp_path / "data", sqlite), tmp_path / "backup"
    async with running(chosen) as site, site.visit():
        owner = await person(site)
        credentials = await created(owner, await dashboard(owner))
        await back_up(chosen, file)
        deleted = await outrider(
            *("admin", "account", "delete", "--email", owner.email, "--yes"), env=env(chosen)
        )
        assert deleted.code == 0, deleted.err
    restored = await outrider("restore", str(file), "--force", env=env(chosen))
    assert "Accounts that the data before did not have: 1." in restored.out
    async with running(chosen) as site, site.visit():
        assert await valid(site, credentials) == ALL
        assert (await login(site, owner.email)).status_code == 200


async def test_without_the_data_before_it_says_so_and_all_can_be_revoked(
    sqlite: SQLite, tmp_path: Path
) -> None:
    chosen, file = settings(tmp_path / "data", sqlite), tmp_path / "backup"
    async with running(chosen) as site, site.visit():
        owner = await person(site)
        credentials = await created(owner, await dashboard(owner))
        await back_up(chosen, file)
    elsewhere = chosen.model_copy(update={"data_dir": tmp_path / "elsewhere"})
    restored = await outrider("restore", str(file), env=env(elsewhere))
    assert restored.code == 0, restored.err
    assert "outrider admin revoke-again --everything" in restored.out
    command = ("admin", "revoke-again", "--everything")
    refused = await outrider(*command, env=env(elsewhere))
    assert (refused.code, "--yes" in refused.err) == (2, True)
    revoked = await outrider(*command, "--yes", "--json", env=env(elsewhere))
    assert revoked.json() == {
        "machines": 1,
        "keys": 2,
        "passwords": 0,
        "webhooks": 1,
        "unknown_accounts": 0,
    }
    async with running(elsewhere) as site, site.visit():
        assert await valid(site, credentials) == NONE


async def test_a_database_before_that_cannot_be_read_changes_nothing(
    sqlite: SQLite, tmp_path: Path
) -> None:
    chosen = settings(tmp_path / "data", sqlite)
    missing = f"sqlite:///{tmp_path}/missing.db"
    outcome = await outrider("admin", "revoke-again", missing, env=env(chosen))
    assert "missing.db cannot be read" in outcome.assert_sentence()
    (await outrider("admin", "revoke-again", env=env(chosen))).assert_sentence(2)
