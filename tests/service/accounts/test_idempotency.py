"""Idempotency-Key: a request made twice is carried out once."""

import asyncio
from collections import Counter
from typing import Any

import httpx
import pytest
from sqlalchemy import text

from outrider.contract.errors import ApiError
from outrider.contract.frames import Command
from outrider.service.accounts.encryption import Cipher
from outrider.service.accounts.idempotency import KEPT_SECONDS, MAX_KEPT_BYTES, Answer, Idempotency
from outrider.service.database.engine import Database
from tests.conftest import StartSite
from tests.rig.clock import Clock
from tests.rig.errors import assert_error
from tests.rig.people import V1, dashboard, person
from tests.rig.samples import ACCEPTED, session
from tests.rig.site import Owner
from tests.rig.waiting import TIMEOUT, eventually

pytestmark = pytest.mark.asyncio(loop_scope="session")

HELLO = {"message": "hello"}


def key(name: str = "one") -> dict[str, str]:
    return {"Idempotency-Key": name}


class TestAtMostOnce:
    async def test_fifty_at_once_are_one_command(self, user: Owner) -> None:
        machine = (await user.machine(session())).obliges()
        chat = f"{V1}/shortcuts/{machine.id}:cli:claude-code/chat"
        await user.api.post(chat, json=HELLO)
        answers = await asyncio.gather(
            *(user.api.post(chat, json=HELLO, headers=key()) for _ in range(50))
        )
        outcomes = Counter(
            (answer.status_code, answer.headers.get("idempotency-replayed")) for answer in answers
        )
        assert outcomes.keys() <= {(200, None), (200, "true"), (409, None)}
        assert outcomes[200, None] == 1
        for answer in answers:
            if answer.status_code == 409:
                assert_error(answer, 409, "IDEMPOTENCY_IN_FLIGHT")
            else:
                assert answer.json() == ACCEPTED

    async def test_fifty_at_once_reach_the_machine_once(self, user: Owner) -> None:
        machine = await user.machine(session())
        chat = f"{V1}/shortcuts/{machine.id}:cli:claude-code/chat"
        tasks = [
            asyncio.create_task(user.api.post(chat, json=HELLO, headers=key())) for _ in range(50)
        ]
        command = await machine.takes("send_chat")
        await eventually(lambda: sum(task.done() for task in tasks) == 49)
        assert machine.received_nothing()
        await machine.answers(command)
        answers = [task.result() if task.done() else await task for task in tasks]
        assert Counter(answer.status_code for answer in answers) == {200: 1, 409: 49}
        assert machine.received(Command) == []

    async def test_a_client_that_goes_away_and_retries_sends_once(self, user: Owner) -> None:
        """A client that times out and retries a chat never sends it twice."""
        machine = await user.machine(session())
        chat = f"{V1}/shortcuts/{machine.id}:cli:claude-code/chat"
        request = asyncio.create_task(user.api.post(chat, json=HELLO, headers=key()))
        command = await machine.takes("send_chat")
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request
        in_flight = await user.api.post(chat, json=HELLO, headers=key())
        assert_error(in_flight, 409, "IDEMPOTENCY_IN_FLIGHT")
        assert in_flight.headers["retry-after"] == "1"
        await machine.answers(command)
        last: list[httpx.Response] = []

        async def replayed() -> bool:
            last[:] = [await user.api.post(chat, json=HELLO, headers=key())]
            return last[0].status_code == 200

        await eventually(replayed)
        assert last[0].headers["idempotency-replayed"] == "true"
        assert last[0].json() == ACCEPTED
        assert machine.received_nothing()


class TestReplay:
    async def test_another_body_is_refused(self, user: Owner) -> None:
        machine = (await user.machine(session())).obliges()
        target = f"{V1}/shortcuts/{machine.id}:cli:claude-code"
        first = await user.api.post(f"{target}/chat", json=HELLO, headers=key())
        assert "idempotency-replayed" not in first.headers
        other = await user.api.post(f"{target}/chat", json={"message": "bye"}, headers=key())
        assert_error(other, 400)
        path = await user.api.post(f"{target}/approve", json=HELLO, headers=key())
        assert_error(path, 400)
        again = await user.api.post(f"{target}/chat", json=HELLO, headers=key())
        assert (again.status_code, again.content) == (200, first.content)
        assert again.headers["idempotency-replayed"] == "true"
        free = await user.api.post(f"{target}/chat", json={"message": "bye"}, headers=key("two"))
        assert "idempotency-replayed" not in free.headers

    async def test_each_principal_has_its_own_keys(self, user: Owner) -> None:
        machine = (await user.machine(session())).obliges()
        chat = f"{V1}/shortcuts/{machine.id}:cli:claude-code/chat"
        await user.api.post(chat, json=HELLO, headers=key())
        for other in (await user.may("agent:control"), await dashboard(user)):
            answer = await other.post(chat, json=HELLO, headers=key())
            assert answer.status_code == 200
            assert "idempotency-replayed" not in answer.headers

    async def test_a_replay_is_checked_as_every_request(self, user: Owner) -> None:
        """Whoever has lost the scope, or the key, gets no stored answer."""
        machine = (await user.machine(session())).obliges()
        chat = f"{V1}/shortcuts/{machine.id}:cli:claude-code/chat"
        await user.api.post(chat, json=HELLO, headers=key())
        reader = await user.may("agent:read")
        assert_error(await reader.post(chat, json=HELLO, headers=key()), 403, "AUTH_FORBIDDEN")

    @pytest.mark.one_store
    @pytest.mark.parametrize("bad", ["", "a b", "é", "x" * 256])
    async def test_a_key_that_is_none(self, user: Owner, bad: str) -> None:
        path = f"{V1}/daemons/machine_x/terminal"
        headers = {b"Idempotency-Key": bad.encode()}
        assert_error(await user.api.post(path, json={"command": "id"}, headers=headers), 400)

    async def test_two_keys_are_none(self, user: Owner) -> None:
        path = f"{V1}/daemons/machine_x/terminal"
        headers = [("Idempotency-Key", "a"), ("Idempotency-Key", "b")]
        assert_error(await user.api.post(path, json={"command": "id"}, headers=headers), 400)

    async def test_a_refused_request_frees_its_key(self, user: Owner) -> None:
        """Nothing was done: offline, not there, wrong. It may be made again as it is."""
        enrolled = await user.enrolls()
        path = f"{V1}/daemons/{enrolled.daemon_id}/terminal"
        body = {"command": "id"}
        assert_error(await user.api.post(path, json={}, headers=key()), 400)
        assert_error(await user.api.post(path, json=body, headers=key()), 500)
        machine = await user.machine(session(), enrolled=enrolled)
        machine.obliges()
        answer = await user.api.post(path, json=body, headers=key())
        assert answer.status_code == 200
        assert "idempotency-replayed" not in answer.headers

    async def test_a_504_is_kept(self, start_site: StartSite) -> None:
        """What was asked may still be done: a retry must not ask for it again."""
        owner = await person(await start_site(command_timeout=0.3))
        machine = await owner.machine(session())
        chat = f"{V1}/shortcuts/{machine.id}:cli:claude-code/chat"
        first = await owner.api.post(chat, json=HELLO, headers=key())
        assert_error(first, 504)
        await machine.takes("send_chat")
        again = await owner.api.post(chat, json=HELLO, headers=key())
        assert_error(again, 504)
        assert again.headers["idempotency-replayed"] == "true"
        assert machine.received_nothing()

    async def test_it_survives_a_restart(self, start_site: StartSite) -> None:
        site = await start_site()
        owner = await person(site)
        machine = (await owner.machine(session())).obliges()
        chat = f"{V1}/shortcuts/{machine.id}:cli:claude-code/chat"
        assert (await owner.api.post(chat, json=HELLO, headers=key())).status_code == 200
        await site.stop()
        await site.start()
        again = await owner.api.post(chat, json=HELLO, headers=key())
        assert (again.status_code, again.json()) == (200, ACCEPTED)

    async def test_a_command_that_only_reads_takes_no_notice(self, user: Owner) -> None:
        """What it returns is not stored, and a repeat reads anew."""
        machine = await user.machine(session())
        body = {"type": "read_chat", "payload": {"target": f"{machine.id}:cli:claude-code"}}
        for _ in range(2):
            request = asyncio.create_task(
                user.api.post(f"{V1}/daemons/{machine.id}/command", json=body, headers=key())
            )
            await machine.answers(await machine.takes("read_chat"))
            answer = await request
            assert answer.status_code == 200, answer.text
            assert "idempotency-replayed" not in answer.headers

    async def test_a_get_takes_no_notice(self, user: Owner) -> None:
        for _ in range(2):
            answer = await user.api.get(f"{V1}/daemons", headers=key())
            assert "idempotency-replayed" not in answer.headers


class TestKept:
    async def _once(self, kept: Idempotency, body: bytes = b"{}") -> Answer:
        async def work() -> tuple[Answer, bool]:
            return Answer(200, b'{"a secret answer": 1}'), True

        return await kept.once(principal="key_1", key="k", request=("POST", "/x", body), work=work)

    async def test_for_24_hours(self, database: Database, clock: Clock) -> None:
        kept = Idempotency(database, Cipher("s" * 32), clock)
        assert not (await self._once(kept)).replayed
        clock.passes(KEPT_SECONDS)
        await kept.prune()
        assert (await self._once(kept)).replayed
        clock.passes(0.01)
        assert not (await self._once(kept, b"another")).replayed, "old ones do not stand in the way"
        clock.passes(KEPT_SECONDS + 0.01)
        await kept.prune()
        async with database.read() as connection:
            assert await connection.scalar(text("SELECT count(*) FROM idempotency_keys")) == 0

    async def test_a_long_one_is_replaced_by_an_error(
        self, database: Database, clock: Clock
    ) -> None:
        kept = Idempotency(database, Cipher("s" * 32), clock)

        async def work() -> tuple[Answer, bool]:
            return Answer(200, b"x" * (MAX_KEPT_BYTES + 1)), True

        request: Any = {"principal": "key_1", "key": "k", "request": ("POST", "/x", b"{}")}
        first = await kept.once(**request, work=work)
        assert (first.status, len(first.body)) == (200, MAX_KEPT_BYTES + 1)
        again = await kept.once(**request, work=work)
        assert (again.status, again.replayed) == (500, True)
        assert b"too long to be kept" in again.body
        async with database.read() as connection:
            stored = await connection.scalar(text("SELECT response FROM idempotency_keys"))
        assert len(stored) < 1_000

    async def test_sealed(self, database: Database, clock: Clock) -> None:
        kept = Idempotency(database, Cipher("s" * 32), clock)
        await self._once(kept)
        async with database.read() as connection:
            stored = await connection.scalar(text("SELECT response FROM idempotency_keys"))
        assert len(stored) > 20
        assert b"secret answer" not in stored

    async def test_one_that_breaks_keeps_its_key(self, database: Database, clock: Clock) -> None:
        """Interrupted: nobody can tell whether it was carried out."""
        kept = Idempotency(database, Cipher("s" * 32), clock)
        begun, never = asyncio.Event(), asyncio.Event()

        async def work() -> tuple[Answer, bool]:
            begun.set()
            await never.wait()
            return Answer(200, b"{}"), True

        request: Any = {"principal": "key_1", "key": "k", "request": ("POST", "/x", b"{}")}
        first = asyncio.create_task(kept.once(**request, work=work))
        later = Idempotency(database, Cipher("s" * 32), clock)

        async def taken() -> bool:
            with pytest.raises(ApiError) as refused:
                await later.once(**request, work=work)
            return refused.value.status == 409

        async with asyncio.timeout(TIMEOUT):
            await begun.wait()
        assert await taken()
        never.set()
        assert (await first).status == 200
