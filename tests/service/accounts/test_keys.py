"""API keys: what a look-up costs, when one ends, and what the account shows of them."""

import asyncio
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import event

from outrider.contract.errors import ApiError
from outrider.contract.ids import new_id
from outrider.service.accounts import credentials
from outrider.service.accounts.authentication import Authenticator
from outrider.service.accounts.principal import ALL_SCOPES
from outrider.service.accounts.store import api_keys
from outrider.service.database.engine import Database
from tests.conftest import StartSite
from tests.rig.clock import Clock
from tests.rig.errors import assert_error
from tests.rig.people import V1, dashboard, person, sessions_of
from tests.rig.processes import environment
from tests.rig.site import Owner, Site, new_account
from tests.rig.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="session")


@contextmanager
def statements(database: Database) -> Iterator[list[str]]:
    """Collect the statements that a database is asked."""
    asked: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if "api_keys" in statement or "sessions" in statement:
            asked.append(statement)

    event.listen(database.engine.sync_engine, "before_cursor_execute", note)
    try:
        yield asked
    finally:
        event.remove(database.engine.sync_engine, "before_cursor_execute", note)


async def _id(owner: Owner, key: str | None = None) -> str:
    known = await api_keys.by_hash(owner.site.database, credentials.digest(key or owner.key))
    assert known is not None
    return known.id


class TestLookingUp:
    async def _authenticator(self, site: Site, clock: Clock, **options: int) -> Authenticator:
        return Authenticator(site.database, sessions_of(site), clock, **options)

    async def test_what_is_no_key_costs_no_look_up(self, user: Owner, clock: Clock) -> None:
        """A typo is refused without a look-up."""
        authenticator = await self._authenticator(user.site, clock)
        typo = user.key[:-7] + ("a" if user.key[-7] != "a" else "b") + user.key[-6:]
        with statements(user.site.database) as asked:
            for token in (typo, "", "ork_", "x" * 42, user.key + "0", "eyJ" + "x" * 5000, "eyJ.x"):
                with pytest.raises(ApiError):
                    await authenticator.principal(token)
            assert asked == []
            with pytest.raises(ApiError):
                await authenticator.principal(credentials.new_key())
            assert len(asked) == 1, "this one could have been a key"

    async def test_a_busy_key_costs_two_look_ups_a_second(self, user: Owner, clock: Clock) -> None:
        authenticator = await self._authenticator(user.site, clock)
        with statements(user.site.database) as asked:
            for _ in range(100):
                assert (await authenticator.principal(user.key)).account_id == user.id
                clock.passes(0.0101)
        assert len(asked) == 2

    async def test_one_revoked_elsewhere_ends_within_a_second(
        self, user: Owner, clock: Clock
    ) -> None:
        authenticator = await self._authenticator(user.site, clock)
        await authenticator.principal(user.key)
        await api_keys.revoke(user.site.database, await _id(user), 1)
        clock.passes(0.5)
        with pytest.raises(ApiError):
            await authenticator.principal(user.key)

    async def test_it_expires_to_the_millisecond_though_cached(
        self, database: Database, clock: Clock
    ) -> None:
        account = await new_account(database)
        key = credentials.new_key()
        await api_keys.add(
            database,
            key_id=new_id("key"),
            account_id=account.id,
            name="n",
            prefix=key[:8],
            digest=credentials.digest(key),
            scopes=ALL_SCOPES,
            now=1,
            expires_at=int(clock() * 1000) + 250,
        )
        authenticator = Authenticator(database, None, clock)  # type: ignore[arg-type]  # keys only
        clock.passes(0.125)
        await authenticator.principal(key)
        clock.passes(0.125)
        with pytest.raises(ApiError):
            await authenticator.principal(key)

    async def test_memory_is_bounded(self, user: Owner, clock: Clock) -> None:
        authenticator = await self._authenticator(user.site, clock, max_cached_keys=3)
        for _ in range(6):
            await authenticator.principal(await user.site.key(user.id))
            with pytest.raises(ApiError):
                await authenticator.principal(credentials.new_key())
        assert authenticator.cached_keys == 3

    async def test_last_used_is_written(self, user: Owner, clock: Clock) -> None:
        authenticator = await self._authenticator(user.site, clock)
        key = await user.site.key(user.id)
        await authenticator.principal(key)
        clock.passes(5)
        await authenticator.principal(key)
        await authenticator.save_last_used()
        known = await api_keys.by_hash(user.site.database, credentials.digest(key))
        assert known is not None
        assert known.last_used_at == int(clock() * 1000)

    async def test_the_service_writes_it_by_itself(self, start_site: StartSite) -> None:
        site = await start_site()
        owner = await person(site)
        before = int(time.time() * 1000)
        await owner.api.get(f"{V1}/daemons")
        await site.stop()
        known = await api_keys.by_hash(site.database, credentials.digest(owner.key))
        assert known is not None
        assert known.last_used_at is not None
        assert known.last_used_at >= before


class TestRevoking:
    async def test_by_the_command_line_within_a_second(self, start_site: StartSite) -> None:
        """docs/access.md, Credentials: by another process, within a second."""
        owner = await person(await start_site())
        assert (await owner.api.get(f"{V1}/daemons")).status_code == 200
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "outrider",
            "admin",
            "key",
            "revoke",
            await _id(owner),
            env=environment(owner.site.settings.data_dir, **owner.site.addresses),
            stdout=asyncio.subprocess.DEVNULL,
        )
        assert await process.wait() == 0

        async def refused() -> bool:
            return (await owner.api.get(f"{V1}/daemons")).status_code == 401

        await eventually(refused)

    async def test_by_the_dashboard_at_once(self, user: Owner) -> None:
        other = await user.site.key(user.id)
        client, page = user.site.client(other), await dashboard(user)
        assert (await client.get(f"{V1}/daemons")).status_code == 200
        key_id = await _id(user, other)
        gone = await page.delete(f"{V1}/account/keys/{key_id}")
        assert gone.json() == {"success": True, "id": key_id}
        assert_error(await client.get(f"{V1}/daemons"), 401, "AUTH_INVALID")
        assert (await user.api.get(f"{V1}/daemons")).status_code == 200
        assert_error(await page.delete(f"{V1}/account/keys/{key_id}"), 404)
        assert_error(await page.delete(f"{V1}/account/keys/%00"), 404)


class TestAccount:
    async def test_a_session_sees_everything(self, site: Site, user: Owner) -> None:
        owner = await person(site, "pro")
        await site.key(owner.id, ["ide:read"], lifetime=3_600_000)
        await site.key(owner.id, lifetime=-1)
        revoked = await site.key(owner.id)
        await api_keys.revoke(site.database, await _id(owner, revoked), 1)
        await owner.api.get(f"{V1}/daemons")
        answer = await (await dashboard(owner)).get(f"{V1}/account")
        account = answer.json()
        assert account["id"] == owner.id
        assert account["user"]["email"] == owner.email
        assert account["plan"] == "pro"
        assert account["usage"] == {
            "month": time.strftime("%Y-%m", time.gmtime()),
            "calls": 1,
            "limit": 50_000,
        }
        assert account["limits"]["callsPerMonth"] == 50_000
        assert account["limits"]["webhooks"] == 10
        assert [sorted(key["scopes"]) for key in account["keys"]] == [
            ["ide:read"],
            sorted(ALL_SCOPES),
        ]
        for key in account["keys"]:
            assert key["prefix"].startswith("ork_")
            assert len(key["prefix"]) == 8
        assert owner.key not in answer.text
        assert str(credentials.digest(owner.key)) not in answer.text

    async def test_a_key_sees_itself_only(self, user: Owner) -> None:
        reader = await user.may("agent:read")
        account = (await reader.get(f"{V1}/account")).json()
        assert [key["scopes"] for key in account["keys"]] == [["agent:read"]]
        assert account["user"] is None

    async def test_unlimited_is_null(self, user: Owner) -> None:
        account = (await user.api.get(f"{V1}/account")).json()
        assert account["plan"] == "enterprise"
        assert account["usage"]["limit"] is None
        assert account["limits"]["callsPerMonth"] is None
        assert account["limits"]["webhooks"] is None
