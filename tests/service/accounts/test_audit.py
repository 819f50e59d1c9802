"""The audit trail: what is in it, what never is, and who sees it."""

import asyncio
import json
import time
from typing import Any

import pytest
from sqlalchemy import select
from sqlalchemy.exc import OperationalError

from outrider.contract.commands import PUBLIC_COMMANDS
from outrider.contract.events import Refused
from outrider.contract.frames import AcknowledgeRefusals, Refusal
from outrider.contract.ids import is_id
from outrider.service.accounts.audit import A_MINUTE, KEPT_SECONDS, MAX_WAITING, Audit
from outrider.service.accounts.store import audit as store
from outrider.service.database import tables
from outrider.service.database.engine import Database
from tests.conftest import StartSite
from tests.rig.clock import Clock
from tests.rig.errors import assert_error
from tests.rig.people import PASSWORD, V1, dashboard, logged_in, login, person
from tests.rig.samples import session
from tests.rig.site import Owner, Site

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def trail(owner: Owner, **query: Any) -> list[dict[str, Any]]:
    """Return the account's records, newest first."""
    answer = await (await dashboard(owner)).get(f"{V1}/audit", params=query)
    assert answer.status_code == 200, answer.text
    records: list[dict[str, Any]] = answer.json()["records"]
    return records


class TestWhatIsRecorded:
    async def test_changes_commands_and_refusals(self, user: Owner) -> None:
        machine = (await user.machine(session())).obliges()
        target = f"{machine.id}:cli:claude-code"
        chat = await user.api.post(f"{V1}/shortcuts/{target}/chat", json={"message": "hi"})
        await user.api.post(f"{V1}/daemons/{machine.id}/terminal", json={"command": "id"})
        await user.api.post(f"{V1}/daemons/{machine.id}/terminal", json={})
        await user.api.post(f"{V1}/daemons/machine_x/revoke")
        reader = await user.may("agent:read")
        await reader.get(f"{V1}/daemons")
        await reader.get(f"{V1}/daemons/{machine.id}/status")
        # These change nothing, and are let in.
        await user.api.get(f"{V1}/daemons")
        await user.api.get(f"{V1}/shortcuts/{target}/chat")
        await user.api.get(f"{V1}/daemons/machine_x/status")
        records = await trail(user)
        assert [(r["action"], r["target"], r["outcome"]) for r in reversed(records)] == [
            ("send_chat", target, 200),
            ("terminal", machine.id, 200),
            ("terminal", machine.id, 400),
            ("revoke", "machine_x", 403),
            ("list_daemons", None, 403),
            ("daemon_status", machine.id, 403),
        ]
        first = records[-1]
        assert first.keys() == {
            "id",
            "at",
            "principal",
            "action",
            "target",
            "outcome",
            "address",
            "requestId",
        }
        assert is_id("aud", first["id"])
        assert is_id("key", first["principal"])
        assert first["address"] == "127.0.0.1"
        assert first["requestId"] == chat.headers["x-request-id"]
        assert records[0]["principal"] != first["principal"]

    async def test_of_the_commands_those_that_may_change_something(self, user: Owner) -> None:
        machine = (await user.machine(session())).obliges()
        path = f"{V1}/daemons/{machine.id}/command"
        asked = {
            "send_chat": {"message": "hi"},
            "read_chat": {},
            "resolve_action": {"action": "approve"},
            "screenshot": {},
            "launch_ide": {"ideType": "jupyterlab"},
            "launch_cli": {"cliType": "claude-code"},
            "stop_cli": {"cliType": "claude-code"},
        }
        assert asked.keys() == {str(command) for command in PUBLIC_COMMANDS}
        noted = {}
        for command, payload in asked.items():
            before = len(await trail(user))
            answer = await user.api.post(path, json={"type": command, "payload": payload})
            assert answer.status_code == 200, answer.text
            noted[command] = len(await trail(user)) - before
        assert {command for command, records in noted.items() if not records} == {
            "read_chat",
            "screenshot",
        }
        await user.api.post(path, json={"type": "no_such"})
        reader = await user.may("agent:read")
        await reader.post(path, json={"type": "read_chat"})
        assert [(r["action"], r["outcome"]) for r in (await trail(user))[:2]] == [
            ("command", 403),
            ("command", 400),
        ]

    async def test_what_a_session_does(self, user: Owner) -> None:
        token = (await login(user.site, user.email)).json()["token"]
        page = user.site.client(token)
        await page.post(f"{V1}/auth/enroll/code")
        await page.post(f"{V1}/auth/logout")
        assert [(r["action"], r["outcome"]) for r in await trail(user)] == [
            ("logout", 200),
            ("new_enrolment_code", 200),
            ("login", 200),
        ]

    async def test_a_machine_that_joins(self, user: Owner) -> None:
        code = (await (await dashboard(user)).post(f"{V1}/auth/enroll/code")).json()["code"]
        body = {"code": code, "hostname": "h", "platform": "p"}
        await user.site.client().post(f"{V1}/auth/enroll", json=body)
        first = (await trail(user))[0]
        assert (first["action"], first["outcome"], first["principal"]) == ("enroll", 200, None)

    async def test_what_a_machine_refused_its_agents(self, user: Owner) -> None:
        machine = await user.machine(session())
        now = int(time.time() * 1000)
        for seq, (target, at) in enumerate(
            [("/etc/shadow", now - 60_000), ("/a\0\n\x1b[2J" + "x" * 900, now + 10**9)], start=1
        ):
            refusal = Refused(
                session_id="session_1",
                action="agent.fs_read_refused",
                target=target,
                timestamp=at,
                suppressed=seq - 1,
            )
            await machine.say(Refusal(seq=seq, refused=refusal))
            assert await machine.hears_refusals_acknowledged() == AcknowledgeRefusals(seq=seq)
        second, first = await trail(user)
        assert first["target"] == "session_1 /etc/shadow"
        assert (first["principal"], first["action"], first["outcome"]) == (
            machine.id,
            "agent.fs_read_refused",
            403,
        )
        assert first["at"] == now - 60_000
        assert second["at"] < now + 60_000  # no machine tells of the future
        assert second["target"].startswith("session_1 /a\ufffd\ufffd\ufffd[2Jxx")
        assert second["target"].endswith("xx (and 1 before it)")
        assert await trail(await person(user.site)) == []

    async def test_a_machine_that_floods_it(self, user: Owner) -> None:
        machine = await user.machine(session())
        refusal = Refused(session_id="s", action="agent.fs_read_refused", target="/", timestamp=1)
        for seq in range(1, 3 * A_MINUTE):
            await machine.say(Refusal(seq=seq, refused=refusal))
        for seq in range(1, 3 * A_MINUTE):
            assert (
                await machine.hears_refusals_acknowledged()
            ).seq == seq  # acknowledged: it is not repeated
        assert len(await trail(user, limit=500)) <= 2 * A_MINUTE

    async def test_refusals_by_a_limit(self, start_site: StartSite) -> None:
        owner = await person(await start_site(rate_limit_key=1))
        for _ in range(3):  # one, or two where a minute ends between them, is let in
            await owner.api.get(f"{V1}/daemons")
        assert {(r["action"], r["outcome"]) for r in await trail(owner)} == {("list_daemons", 429)}

    async def test_a_flood_of_refused_strangers_is_one_record_a_minute(
        self, database: Database, clock: Clock
    ) -> None:
        audit = Audit(database, clock)

        def refuse(address: str = "192.0.2.1") -> None:
            audit.note(
                principal=None,
                account_id=None,
                action="list_daemons",
                target=None,
                outcome=401,
                address=address,
                request_id="r",
            )

        for _ in range(1000):
            refuse()
        assert audit.waiting == 1
        refuse("192.0.2.2")
        assert audit.waiting == 2
        clock.passes(60)
        refuse()
        assert audit.waiting == 3
        for number in range(20_000):
            refuse(f"address {number}")
        assert audit.waiting == MAX_WAITING

    async def test_strangers_of_one_network_are_one(self, database: Database, clock: Clock) -> None:
        """Whoever has one IPv6 address has the 2^64 of its /64; what is noted tells it."""
        await database.migrate()
        audit = Audit(database, clock)

        def refuse(address: str, account_id: str | None = None) -> None:
            audit.note(
                principal=None,
                account_id=account_id,
                action="list_daemons",
                target=None,
                outcome=401,
                address=address,
                request_id="r",
            )

        for number in range(1000):
            refuse(f"2001:db8:1:2::{number:x}")
        refuse("2001:db8:1:3::1")
        refuse("192.0.2.1")
        refuse("2001:db8:1:2::1", "acct_a")
        await audit.write()
        query = select(tables.audit.c.address).order_by(tables.audit.c.id)
        async with database.read() as connection:
            noted = list(await connection.scalars(query))
        assert noted == [
            "2001:db8:1:2::/64",
            "2001:db8:1:3::/64",
            "192.0.2.1",
            "2001:db8:1:2::1",
        ]


class TestWhatNeverIs:
    @pytest.mark.one_store
    async def test_no_secret_and_no_word_of_a_chat_is_anywhere_in_the_database(
        self, start_site: StartSite
    ) -> None:
        site = await start_site()
        owner = await person(site)
        machine = (await owner.machine(session())).obliges()
        page = await dashboard(owner)
        secrets: list[str] = [PASSWORD, "wrong-PASSWORD-72", owner.key.removeprefix("ork_")]
        secrets.append((await logged_in(owner)).token.split(".")[2])
        await login(site, owner.email, "wrong-PASSWORD-72")
        await page.post(f"{V1}/auth/reauthenticate", json={"password": "wrong-PASSWORD-72"})
        renewed = await page.post(
            f"{V1}/auth/reauthenticate",
            json={"password": PASSWORD},
            headers={"Idempotency-Key": "renew"},
        )
        secrets.append(renewed.json()["token"].split(".")[2])
        code = (await page.post(f"{V1}/auth/enroll/code")).json()["code"]
        body = {"code": code, "hostname": "h", "platform": "p"}
        joined = await site.client().post(f"{V1}/auth/enroll", json=body)
        secrets += [code, joined.json()["token"].removeprefix("omt_")]
        asked = (await site.client().post(f"{V1}/auth/device", json=body)).json()
        secrets += [asked["deviceCode"], asked["userCode"]]
        await page.get(f"{V1}/auth/device", params={"userCode": asked["userCode"]})
        await page.post(f"{V1}/auth/device/approve", json={"userCode": asked["userCode"]})
        given = await site.client().post(
            f"{V1}/auth/device/token", json={"deviceCode": asked["deviceCode"]}
        )
        secrets.append(given.json()["token"].removeprefix("omt_"))
        for headers in ({}, {"Idempotency-Key": "chat"}):
            secrets.append(f"planted-chat-{len(headers)}")
            await owner.api.post(
                f"{V1}/shortcuts/{machine.id}:cli:claude-code/chat",
                json={"message": secrets[-1]},
                headers=headers,
            )
        secrets.append("planted-command")
        await owner.api.post(
            f"{V1}/daemons/{machine.id}/terminal", json={"command": f"echo {secrets[-1]}"}
        )
        # Somebody mixes up an id and the secret itself.
        await page.delete(f"{V1}/account/keys/{owner.key}")
        await owner.api.get(f"{V1}/daemons?access_token=planted-query")
        await owner.api.post(f"{V1}/daemons/{given.json()['token']}/revoke")
        secrets.append("planted-query")
        made = await page.post(
            f"{V1}/webhooks", json={"url": "http://127.0.0.1:9/hook", "events": ["*"]}
        )
        secrets.append(made.json()["secret"].removeprefix("whsec_"))
        assert any(r["target"] == "…" for r in await trail(owner))
        await site.stop()
        files = [path for path in site.settings.data_dir.iterdir() if path.name != "secret.key"]
        assert files
        found = [s for s in secrets for path in files if s.encode() in path.read_bytes()]
        assert found == []
        assert any(owner.email.encode() in path.read_bytes() for path in files), "the search works"


class TestReading:
    async def test_it_comes_in_pages(self, user: Owner) -> None:
        for number in range(5):
            await user.api.post(f"{V1}/daemons/machine_{number}/revoke")
        everything = await trail(user)
        assert [r["target"] for r in everything] == [f"machine_{n}" for n in (4, 3, 2, 1, 0)]
        first = await trail(user, limit=2)
        second = await trail(user, limit=2, before=first[-1]["id"])
        third = await trail(user, limit=2, before=second[-1]["id"])
        assert first + second + third == everything
        assert await trail(user, before=third[-1]["id"]) == []

    @pytest.mark.one_store
    @pytest.mark.parametrize(
        "query", ["limit=0", "limit=1001", "limit=x", "before=x", "before=%00"]
    )
    async def test_a_bad_query(self, user: Owner, query: str) -> None:
        assert_error(await (await dashboard(user)).get(f"{V1}/audit?{query}"), 400)

    async def test_another_account_sees_nothing_of_it(self, site: Site, user: Owner) -> None:
        await user.api.post(f"{V1}/daemons/machine_1/revoke")
        record = (await trail(user))[0]
        other = await person(site)
        assert await trail(other) == []
        assert await trail(other, before=record["id"]) == []

    async def test_what_strangers_do_is_in_no_account(self, site: Site, user: Owner) -> None:
        await login(site, "nobody@example.org", "x")
        assert await trail(user) == []

    async def test_it_is_kept_for_90_days(self, database: Database, clock: Clock) -> None:
        audit = Audit(database, clock)

        async def kept() -> list[str]:
            records = await audit.of_account("acct_a", limit=10, before=None)
            return [record.request_id for record in records]

        for name in ("old", "young"):
            _note(audit, name)
            clock.passes(1)
        await audit.write()
        clock.passes(KEPT_SECONDS - 2)
        await audit.prune()
        assert await kept() == ["young", "old"]
        clock.passes(3600)
        await audit.prune()
        assert await kept() == []


class TestWriting:
    async def test_what_cannot_be_written_now_is_written_later(
        self, database: Database, clock: Clock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        audit = Audit(database, clock)
        _note(audit, "one")
        with monkeypatch.context() as patch:

            async def full(*_: Any) -> None:
                raise OperationalError("insert", {}, Exception("disk full"))

            patch.setattr(store, "add", full)
            with pytest.raises(OperationalError):
                await audit.write()
        _note(audit, "two")
        records = await audit.of_account("acct_a", limit=10, before=None)
        assert [record.request_id for record in records] == ["two", "one"]

    async def test_a_batch_that_was_written_and_cut_short_is_there_once(
        self, database: Database, clock: Clock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        add = store.add

        async def cut_short(*arguments: Any) -> None:
            await add(*arguments)
            raise asyncio.CancelledError

        audit = Audit(database, clock)
        _note(audit, "one")
        with monkeypatch.context() as patch:
            patch.setattr(store, "add", cut_short)
            with pytest.raises(asyncio.CancelledError):
                await audit.write()
        assert audit.waiting == 1
        await audit.write()
        assert audit.waiting == 0
        assert len(await audit.of_account("acct_a", limit=10, before=None)) == 1


def _note(audit: Audit, name: str) -> None:
    audit.note(
        principal="key_1",
        account_id="acct_a",
        action="terminal",
        target="machine_1",
        outcome=200,
        address="192.0.2.1",
        request_id=name,
    )


async def test_a_record_is_json_that_a_client_can_read(user: Owner) -> None:
    await user.api.post(f"{V1}/daemons/machine_%22%0a/revoke")
    assert json.loads(json.dumps(await trail(user)))[0]["target"] == 'machine_"\n'
