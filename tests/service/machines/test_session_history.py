"""The sessions of an account and of a machine: running and ended, paged, searched, isolated."""

from typing import Any

import pytest

from outrider.contract.events import AgentEvent, EventName
from outrider.contract.frames import Acknowledge, Change, Event
from outrider.contract.ids import new_id
from outrider.contract.resources import Session, Workspace, Worktree
from outrider.service.machines.store import session_history
from outrider.service.machines.store.session_history import OwnedSession
from tests.rig.errors import assert_error
from tests.rig.machine import ScriptedMachine
from tests.rig.samples import session
from tests.rig.site import Owner
from tests.rig.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="session")

SESSIONS = "/api/v1/sessions"


async def listed(owner: Owner, path: str = SESSIONS, **query: Any) -> list[dict[str, Any]]:
    """Return the sessions of a list."""
    response = await owner.api.get(path, params=query)
    assert response.status_code == 200, response.text
    sessions: list[dict[str, Any]] = response.json()["sessions"]
    return sessions


async def ids(owner: Owner, path: str = SESSIONS, **query: Any) -> list[str]:
    """Return the ids of a list."""
    return [item["id"] for item in await listed(owner, path, **query)]


def end_of(running: Session, seq: int, **fields: Any) -> Event:
    """Return the frame that reports an end."""
    return Event(
        seq=seq,
        event=AgentEvent(
            id=new_id("evt"),
            event=EventName.SESSION_ENDED,
            session_id=running.id,
            ide_id="x",
            ide_type=running.type,
            chat_title=running.title,
            duration=None,
            timestamp=1_700_000_002_000,
            session=session(
                **{"id": running.id, "title": running.title, "type": running.type} | fields
            ),
        ),
    )


async def ends(machine: ScriptedMachine, running: Session, seq: int, **fields: Any) -> None:
    """Report the end of a session as a machine agent does; return once it is stored."""
    await machine.say(Change(removed=[running.id]), end_of(running, seq, **fields))
    await eventually(lambda: any(ack.seq >= seq for ack in machine.received(Acknowledge)))


STOPPED: dict[str, Any] = {
    "state": "ended",
    "ended_at": 1_700_000_002_000,
    "end_reason": "crashed",
    "resumable": True,
}


async def test_a_session_from_its_begin_to_its_end(owner: Owner) -> None:
    running = session(title="The parser")
    machine = await owner.machine(running)
    path = f"/api/v1/daemons/{machine.id}/sessions"
    for where in (SESSIONS, path):
        (shown,) = await listed(owner, where, state="running")
        assert (shown["id"], shown["state"], shown["endReason"]) == (running.id, "running", None)
        assert shown["targetId"] == f"{machine.id}:session:{running.id}"
    await machine.reports(session(id=running.id, status="generating", title="The parser"))
    assert [item["status"] for item in await listed(owner, state="running")] == ["generating"]

    await ends(machine, running, 1, **STOPPED)
    for where in (SESSIONS, path):
        assert await listed(owner, where, state="running") == []
        (shown,) = await listed(owner, where, state="ended")
        assert (shown["state"], shown["endReason"]) == ("ended", "crashed")
        assert (shown["endedAt"], shown["resumable"]) == (1_700_000_002_000, True)
        assert shown["targetId"] == f"{machine.id}:session:{running.id}"
        assert await ids(owner, where) == [running.id]


async def test_an_older_machine_agent_does_not_say_why(owner: Owner) -> None:
    running = session()
    machine = await owner.machine(running)
    await ends(machine, running, 1)
    (shown,) = await listed(owner, state="ended")
    assert (shown["endReason"], shown["endedAt"]) == ("stopped", 1_700_000_002_000)


async def test_a_machine_that_is_offline(owner: Owner) -> None:
    running, two = session(), session()
    machine = await owner.machine(running, two)
    await ends(machine, two, 1, **STOPPED)
    assert len(await listed(owner)) == 2
    await machine.__aexit__(None, None, None)
    assert await ids(owner, state="running") == [running.id]
    assert await ids(owner, f"/api/v1/daemons/{machine.id}/sessions", state="ended") == [two.id]


async def test_pages_are_exact_under_equal_times(owner: Owner) -> None:
    many = [session(created_at=1_700_000_000_000 + number // 4) for number in range(10)]
    machine = await owner.machine(*many)
    for path in (SESSIONS, f"/api/v1/daemons/{machine.id}/sessions"):
        paged: list[str] = []
        while page := await ids(owner, path, limit=3, **({"before": paged[-1]} if paged else {})):
            assert len(page) <= 3
            paged += page
        newest_first = sorted(many, key=lambda item: (item.created_at, item.id), reverse=True)
        assert paged == [item.id for item in newest_first]
    assert await ids(owner, before=new_id("session")) == []


@pytest.mark.parametrize(
    ("q", "found"),
    [
        ("PARSER", ["title"]),
        ("/srv/w", ["path"]),
        ("100%", ["percent"]),
        ("0%0", []),
        ("_", ["percent"]),
        ("über", ["percent"]),
        ("workshop", ["path", "percent", "title"]),
        ("path", ["path"]),  # the id of a session
        ("nothing such", []),
    ],
)
async def test_search(owner: Owner, q: str, found: list[str]) -> None:
    plain = Workspace(path="/srv/project", name="project")
    await owner.machine(
        session(id="title", title="Fix the Parser", workspace=plain),
        session(id="path", title="x", workspace=Workspace(path="/srv/website", name="website")),
        session(id="percent", title="ÜBER 100% a_b", workspace=plain),
        enrolled=await owner.enrolls(nickname="Workshop"),
    )
    assert sorted(await ids(owner, q=q)) == found


async def test_other_accounts_see_nothing(owner: Owner) -> None:
    machine = await owner.machine(session(id="shared"))
    stranger = await owner.site.account()
    await stranger.machine(session(id="shared", title="mine"))
    assert [item["title"] for item in await listed(stranger)] == ["mine"]
    assert len(await listed(owner)) == 1
    path = f"/api/v1/daemons/{machine.id}/sessions"
    assert_error(await stranger.api.get(path), 404)
    assert len(await listed(stranger, before="shared")) == 0


@pytest.mark.parametrize(
    "query", [{"state": "paused"}, {"limit": 0}, {"limit": 1001}, {"q": "x" * 201}]
)
async def test_wrong_queries(owner: Owner, query: dict[str, Any]) -> None:
    assert_error(await owner.api.get(SESSIONS, params=query), 400)


async def test_what_is_stored_late(owner: Owner) -> None:
    """An end that is stored after the session was resumed, and a report after the end."""
    machine, database = (await owner.enrolls()).daemon_id, owner.site.database

    async def stores(running: Session) -> list[str]:
        async with database.begin() as transaction:
            await session_history.save(transaction, [OwnedSession(owner.id, machine, running)])
        page, _ = await session_history.page(database, owner.id, limit=10)
        return [known.session.state for known in page]

    assert await stores(session(id="s", last_activity_at=10)) == ["running"]
    ended = session(id="s", last_activity_at=10, **STOPPED | {"ended_at": 20})
    assert await stores(ended) == ["ended"]
    assert await stores(session(id="s", last_activity_at=15)) == ["ended"]
    assert await stores(session(id="s", last_activity_at=21)) == ["running"]
    assert await stores(ended) == ["running"]


async def test_an_end_that_was_not_reported(owner: Owner) -> None:
    machine, database = (await owner.enrolls()).daemon_id, owner.site.database
    async with database.begin() as transaction:
        await session_history.save(transaction, [OwnedSession(owner.id, machine, session())])
    known = await session_history.running(database, [machine])
    async with database.begin() as transaction:
        await session_history.end(transaction, known, 5)

    async def ended_sessions() -> list[Session]:
        page, _ = await session_history.page(database, owner.id, state="ended", limit=10)
        return [item.session for item in page]

    await session_history.prune(database, 5)
    (ended,) = await ended_sessions()
    assert (ended.ended_at, ended.end_reason) == (5, None)
    await session_history.prune(database, 6)
    assert await ended_sessions() == []


async def test_no_session_has_ended(owner: Owner) -> None:
    async with owner.site.database.begin() as transaction:
        await session_history.end(transaction, [], 5)
    database = owner.site.database
    assert await session_history.page(database, owner.id, state="ended", limit=10) == ([], False)


async def test_a_status_is_not_written(owner: Owner) -> None:
    running = session(status="idle")
    machine = await owner.machine(running)
    await listed(owner)
    await machine.reports(session(id=running.id, status="generating", title=running.title))
    await listed(owner)
    (known,) = await session_history.running(owner.site.database, [machine.id])
    assert known.session.status == "idle"
    await machine.reports(session(id=running.id, status="generating", title="another"))

    async def is_written() -> bool:
        await listed(owner)
        (known,) = await session_history.running(owner.site.database, [machine.id])
        return known.session.title == "another"

    await eventually(is_written)


async def test_a_worktree_that_was_removed_is_listed_as_removed(owner: Owner) -> None:
    path = "/srv/p_1.worktrees/Topic"

    def in_worktree(path: str) -> dict[str, Any]:
        tree = Worktree(branch="topic", path=path, created=True)
        workspace = Workspace(path=f"{path}/src", name="src")
        return {"worktree": tree, "workspace": workspace}

    running, two, other = session(), session(), session()
    machine = await owner.machine(running, two, other)
    for seq, (each, where) in enumerate(
        [(running, path), (two, path), (other, f"{path}-2")], start=1
    ):
        await ends(machine, each, seq, **STOPPED, **in_worktree(where))
    request = owner.sends("DELETE", f"/api/v1/shortcuts/{machine.id}:session:{running.id}/worktree")
    taken = await machine.takes("remove_worktree", target=f"{machine.id}:session:{running.id}")
    await machine.answers(taken, {"success": True, "removed": path})
    assert (await request).json() == {"success": True, "removed": path}
    shown = {each["id"]: each for each in await listed(owner, state="ended")}
    assert {each: shown[each]["worktree"]["removed"] for each in shown} == {
        running.id: True,
        two.id: True,
        other.id: False,
    }
    assert not shown[running.id]["resumable"]
    assert shown[other.id]["resumable"]
