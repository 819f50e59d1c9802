"""Commands on their way: answers, silence, drops, clients that go, machines that hang.

Holds docs/api.md, "Errors" (500, 503, 504), and contributing/protocol.md.
"""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import text

from outrider.contract.errors import ErrorCode
from outrider.contract.frames import MAX_COMMANDS_IN_FLIGHT, Cancel, CommandResult, Failure
from tests.conftest import StartSite, settings
from tests.rig.errors import assert_error
from tests.rig.machine import ScriptedMachine, hello, payload_of
from tests.rig.samples import STATE, session
from tests.rig.site import Owner, Site
from tests.rig.stores import Store
from tests.rig.waiting import TIMEOUT, eventually

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.one_store]


def status_of(machine_id: str) -> str:
    """Return a path whose request becomes an `agent_status` command."""
    return f"/api/v1/shortcuts/{machine_id}:cli:claude-code/status"


async def listed(owner: Owner) -> list[Any]:
    """Return the machines that the account sees."""
    daemons: list[Any] = (await owner.api.get("/api/v1/daemons")).json()["daemons"]
    return daemons


async def offline(owner: Owner) -> bool:
    """Return whether no machine counts as connected."""
    return not await listed(owner)


async def online(owner: Owner) -> bool:
    """Return whether a machine counts as connected."""
    return bool(await listed(owner))


def flood(owner: Owner, machine: ScriptedMachine) -> list[asyncio.Task[httpx.Response]]:
    """Send a machine more than fits into the buffers of its connection."""
    path = f"/api/v1/daemons/{machine.id}/terminal"
    return [owner.sends("POST", path, {"command": "x" * 900_000}) for _ in range(16)]


class TestAnswers:
    @pytest.mark.parametrize(
        ("failure", "status"),
        [
            (Failure(status=404, message="No session of the type 'codex' runs here"), 404),
            (Failure(status=500, message="tmux said: no server running"), 500),
            (Failure(status=503, message="The agent is restarting, try again"), 503),
            # Not the machine's to say: a credential, a limit, or something unheard of.
            (Failure(status=401, message="An odd status from the machine"), 500),
            (Failure(status=429, message="An odd status from the machine"), 500),
            (Failure(status=599, message="An odd status from the machine"), 500),
        ],
    )
    async def test_a_failure_is_passed_on(
        self, owner: Owner, failure: Failure, status: int
    ) -> None:
        """The machine answered with a 500: its message is passed on."""
        machine = await owner.machine()
        request = owner.sends("GET", status_of(machine.id))
        await machine.fails(await machine.takes(), failure)
        assert assert_error(await request, status)["error"] == failure.message

    @pytest.mark.parametrize(
        "code",
        [ErrorCode.NO_PENDING_ACTION, ErrorCode.APPROVAL_PENDING, ErrorCode.AMBIGUOUS_TARGET],
    )
    async def test_a_409_keeps_its_code(self, owner: Owner, code: ErrorCode) -> None:
        """docs/api.md, Errors: 409."""
        machine = await owner.machine()
        request = owner.sends("GET", status_of(machine.id))
        await machine.fails(
            await machine.takes(), Failure(status=409, message="Not in that state", code=code)
        )
        assert_error(await request, 409, code)

    @pytest.mark.parametrize(
        ("status", "shown", "code"),
        [
            (409, 409, ErrorCode.PLAN_LIMIT_EXCEEDED),
            (404, 404, ErrorCode.NO_PENDING_ACTION),
            (401, 500, ErrorCode.AUTH_INVALID),
            (429, 500, ErrorCode.RATE_LIMITED),
        ],
    )
    async def test_a_code_that_is_not_the_machine_s_to_say(
        self, owner: Owner, status: int, shown: int, code: ErrorCode
    ) -> None:
        """docs/api.md, Errors: `code` is present exactly where it says so."""
        machine = await owner.machine()
        request = owner.sends("GET", status_of(machine.id))
        failure = Failure(status=status, message="What the machine says", code=code)
        await machine.fails(await machine.takes(), failure)
        assert_error(await request, shown)

    @pytest.mark.parametrize(
        "result",
        [None, [], "text", 5, {}, STATE | {"status": "sleeping"}, STATE | {"updatedAt": "now"}],
    )
    async def test_a_malformed_result(self, owner: Owner, result: Any) -> None:
        """A result that is not what a client was promised is a 500."""
        machine = await owner.machine()
        request = owner.sends("GET", status_of(machine.id))
        taken = await machine.takes()
        if result is None:
            await machine.say(CommandResult(id=taken.id))
        else:
            await machine.answers(taken, result)
        assert "malformed" in assert_error(await request, 500)["error"]

    async def test_answers_in_any_order_reach_their_requests(self, owner: Owner) -> None:
        machine = await owner.machine()
        requests = [
            owner.sends("GET", f"/api/v1/shortcuts/{machine.id}:cli:type{number}/status")
            for number in range(20)
        ]
        taken = [await machine.takes() for _ in requests]
        for command in reversed(taken):
            answer = STATE | {"title": payload_of(command)["target"]}
            await machine.answers(command, answer)
        titles = [(await request).json()["title"] for request in requests]
        assert titles == [f"{machine.id}:cli:type{number}" for number in range(20)]

    async def test_an_answer_for_another_machines_command_is_ignored(
        self, owner: Owner, site: Site
    ) -> None:
        """A machine cannot answer what was asked of another."""
        mine = await owner.machine()
        thief = await (await site.account()).machine()
        request = owner.sends("GET", status_of(mine.id))
        taken = await mine.takes()
        await thief.answers(taken, STATE | {"title": "forged"})
        await thief.settled()
        assert not request.done()
        await mine.answers(taken, STATE | {"title": "true"})
        assert (await request).json()["title"] == "true"

    async def test_a_second_answer_is_ignored(self, owner: Owner) -> None:
        machine = await owner.machine()
        request = owner.sends("GET", status_of(machine.id))
        taken = await machine.takes()
        await machine.answers(taken, STATE | {"title": "first"})
        await machine.answers(taken, STATE | {"title": "second"})
        await machine.say(CommandResult(id="cmd_unknown"))
        assert (await request).json()["title"] == "first"
        machine.obliges()
        assert (await owner.api.get(status_of(machine.id))).json()["title"] == STATE["title"]


class TestSilence:
    async def test_no_answer_in_time(self, start_site: StartSite) -> None:
        """contributing/protocol.md, cancel: the command is cancelled, a late result is dropped."""
        owner = await (await start_site(command_timeout=0.2)).account()
        machine = await owner.machine()
        request = owner.sends("GET", status_of(machine.id))
        taken = await machine.takes()
        assert taken.timeout_ms == 200
        assert "0.2 seconds" in assert_error(await request, 504)["error"]
        assert (await machine.takes_cancel()).id == taken.id
        await machine.answers(taken, STATE | {"title": "late"})
        machine.obliges()

        async def answered() -> bool:  # a busy machine may need more than one try
            answer = await owner.api.get(status_of(machine.id))
            assert answer.status_code == 504 or answer.json()["title"] == STATE["title"]
            return answer.is_success

        await eventually(answered)

    async def test_a_machine_that_stops_reading_blocks_no_other(self, owner: Owner) -> None:
        """Its neighbours and the service go on; it gets its commands when it reads again."""
        stuck, lively = await owner.machine(), (await owner.machine()).obliges()
        stuck.stops_reading()
        waiting = flood(owner, stuck)
        for _ in range(10):
            assert (await owner.api.get(status_of(lively.id))).status_code == 200
        assert not any(request.done() for request in waiting)
        stuck.obliges().reads_again()
        for request in waiting:
            assert (await request).status_code == 200

    async def test_commands_that_a_machine_does_not_read_end_in_time(
        self, start_site: StartSite
    ) -> None:
        owner = await (await start_site(command_timeout=0.2)).account()
        machine = await owner.machine()
        machine.stops_reading()
        for request in flood(owner, machine):
            assert_error(await request, 504)
        machine.reads_again()

    async def test_at_most_so_many_commands_wait_for_one_machine(self, owner: Owner) -> None:
        """contributing/protocol.md: 256 in flight, further ones are refused."""
        machine = await owner.machine()
        path, body = status_of(machine.id), {"command": "id"}

        def asks() -> asyncio.Task[httpx.Response]:
            # A client of its own: looking through hundreds of a client's connections takes seconds.
            return asyncio.create_task(owner.site.client(owner.key).get(path))

        waiting = [asks() for _ in range(MAX_COMMANDS_IN_FLIGHT)]
        taken = [await machine.takes() for _ in waiting]
        for method, route, headers in (
            ("GET", path, {}),
            ("POST", f"/api/v1/daemons/{machine.id}/terminal", {"Idempotency-Key": "once"}),
        ):
            refused = await owner.api.request(method, route, headers=headers, json=body)
            assert "unanswered" in assert_error(refused, 503)["error"]
            assert refused.headers["retry-after"] == "1"
        await machine.answers(taken[0])
        assert (await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED))[0]
        again = asks()
        taken.append(await machine.takes())
        for command in taken[1:]:
            await machine.answers(command)
        answers = await asyncio.gather(*waiting, again)
        machine.obliges()
        answers.append(await owner.api.request(method, route, headers=headers, json=body))
        assert {answer.status_code for answer in answers} == {200}
        assert "idempotency-replayed" not in answers[-1].headers, "a refusal does not use the key"


class TestClientGone:
    async def test_the_machine_is_told(self, owner: Owner) -> None:
        """contributing/protocol.md: a cancel, when nobody waits for the answer any more."""
        machine = await owner.machine()
        request = owner.sends("GET", status_of(machine.id))
        taken = await machine.takes()
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request
        assert (await machine.takes_cancel()).id == taken.id
        await machine.answers(taken)
        machine.obliges()
        assert (await owner.api.get(status_of(machine.id))).status_code == 200

    async def test_an_answered_command_is_not_cancelled(self, owner: Owner) -> None:
        machine = (await owner.machine()).obliges()
        assert (await owner.api.get(status_of(machine.id))).status_code == 200
        await machine.settled()
        assert machine.received(Cancel) == []


async def test_a_machine_that_is_listed_takes_commands(owner: Owner) -> None:
    """It is listed from its hello on, and welcome once that is saved: a command waits for it."""
    enrolled = await owner.enrolls()
    assert await offline(owner)  # and a call of the month's is counted, which writes as well
    machine = ScriptedMachine(owner.site.gateway, enrolled.token, hello())
    arrival = text("UPDATE machines SET nickname = nickname WHERE id = :id")
    async with owner.site.database.begin() as transaction:
        await transaction.execute(arrival, {"id": enrolled.daemon_id})  # nobody else can now
        arriving = asyncio.create_task(machine.__aenter__())
        await eventually(lambda: online(owner))
        request = owner.sends("GET", status_of(enrolled.daemon_id))
        done, _ = await asyncio.wait({request}, timeout=0.2)
        assert not done
    await arriving
    try:
        machine.obliges()
        assert (await request).status_code == 200
    finally:
        await machine.__aexit__(None, None, None)


class TestGracePeriod:
    async def test_a_command_under_way_when_the_socket_drops(self, owner: Owner) -> None:
        """503 at once, not at the timeout."""
        machine = await owner.machine()
        request = owner.sends("GET", status_of(machine.id))
        await machine.takes()
        await machine.drops()
        async with asyncio.timeout(TIMEOUT):
            assert_error(await request, 503)

    async def test_within_it_the_machine_counts_as_connected(self, owner: Owner) -> None:
        """Listed, `connected`, and 503 for commands."""
        running = session()
        machine = await owner.machine(running)
        await machine.drops()

        async def dropped() -> bool:
            return (await owner.api.get(status_of(machine.id))).status_code == 503

        await eventually(dropped)
        (daemon,) = await listed(owner)
        assert daemon["clis"][0]["sessionId"] == running.id
        shown = (await owner.api.get(f"/api/v1/daemons/{machine.id}/status")).json()
        assert shown["connected"] is True

    async def test_after_it_the_machine_is_offline_with_its_last_state(
        self, start_site: StartSite
    ) -> None:
        """500 for commands, not listed, `connected` false with the last state."""
        owner = await (await start_site(grace_period=0.05)).account()
        first, last = session(), session(type="codex", status="generating")
        machine = await owner.machine(first)
        await machine.reports(last, removed=[first.id])
        await machine.drops()
        await eventually(lambda: offline(owner))
        assert "offline" in assert_error(await owner.api.get(status_of(machine.id)), 500)["error"]
        shown = (await owner.api.get(f"/api/v1/daemons/{machine.id}/status")).json()
        assert shown["connected"] is False
        assert [item["id"] for item in shown["sessions"]] == [last.id]
        assert shown["machine"]["hostname"] == "workbench"
        assert shown["clis"][0]["status"] == "generating"

    async def test_a_reconnect_within_it_goes_on_as_before(self, start_site: StartSite) -> None:
        owner = await (await start_site(grace_period=2)).account()
        enrolled, other = await owner.enrolls(), await owner.machine()
        machine = await owner.machine(enrolled=enrolled)
        await machine.drops()
        again = (await owner.machine(enrolled=enrolled)).obliges()
        assert (await owner.api.get(status_of(again.id))).status_code == 200
        await other.drops()

        async def other_is_offline() -> bool:
            return other.id not in {daemon["id"] for daemon in await listed(owner)}

        await eventually(other_is_offline)  # its grace period began after the reconnect
        assert [daemon["id"] for daemon in await listed(owner)] == [again.id]
        assert (await owner.api.get(status_of(again.id))).status_code == 200

    async def test_a_restart_of_the_service_begins_one(self, start_site: StartSite) -> None:
        """A machine that was connected counts as connected for its time."""
        site = await start_site()
        owner = await site.account()
        enrolled, running = await owner.enrolls(), session()
        machine = await owner.machine(running, enrolled=enrolled)
        asleep = await owner.enrolls()
        await site.stop()
        assert (await machine.closed())[0] == 1001
        await site.start()
        (daemon,) = await listed(owner)
        assert (daemon["id"], daemon["clis"][0]["sessionId"]) == (machine.id, running.id)
        assert_error(await owner.api.get(status_of(machine.id)), 503)
        assert_error(await owner.api.get(status_of(asleep.daemon_id)), 500)
        back = (await owner.machine(enrolled=enrolled)).obliges()
        assert (await owner.api.get(status_of(back.id))).status_code == 200

    async def test_offline_before_the_restart_is_offline_after_it(
        self, start_site: StartSite
    ) -> None:
        site = await start_site(grace_period=0)
        owner = await site.account()
        machine = await owner.machine()
        await machine.drops()
        await eventually(lambda: offline(owner))
        await site.stop()
        await site.start()
        assert await offline(owner)


class TestStopping:
    async def test_a_command_under_way_ends_first(self, start_site: StartSite) -> None:
        """The service answers what it has begun, and then stops."""
        site = await start_site()
        owner = await site.account()
        machine = await owner.machine()
        request = owner.sends("GET", status_of(machine.id))
        taken = await machine.takes()
        stopping = asyncio.create_task(site.stop())
        await machine.answers(taken)
        assert (await request).status_code == 200
        await stopping

    async def test_a_machine_that_never_answers_does_not_hold_it(
        self, tmp_path: Path, store: Store
    ) -> None:
        """What gets no answer in the time for it gets a 503."""
        site = Site(settings(tmp_path, store), drain_seconds=0.2)
        await site.start()
        try:
            owner = await site.account()
            machine = await owner.machine()
            request = owner.sends("GET", status_of(machine.id))
            await machine.takes()
            async with asyncio.timeout(TIMEOUT):
                await site.stop()
            assert_error(await request, 503)
        finally:
            await site.close()
