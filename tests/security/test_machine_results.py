"""A machine answers and reports ids of other machines: a client is not led there."""

import json
from typing import Any

from outrider.contract.events import EventName
from outrider.contract.frames import Acknowledge
from tests.rig.errors import assert_error
from tests.rig.samples import ACCEPTED, CHAT, LAUNCHED, STATE, STOPPED, as_json, session
from tests.rig.waiting import eventually
from tests.security.target import Target
from tests.service.webhooks.events import agent_event

V1 = "/api/v1"


async def test_a_launch_that_answers_another_machines_session(target: Target) -> None:
    """The user's next message went there."""
    account = await target.account()
    victim_session = session(id="session_victim")
    victim = (await target.machine(victim_session, account=account)).obliges()
    evil = await target.machine(account=account)
    stolen = f"{victim.id}:session:{victim_session.id}"
    evil.obliges(launch_cli=LAUNCHED | {"id": f"{victim.id}:cli:x", "sessionTargetId": stolen})
    launched = await account.api.post(
        f"{V1}/shortcuts/{evil.id}/launch", json={"type": "claude-code"}
    )
    shown = launched.raise_for_status().json()
    assert shown["sessionTargetId"] == f"{evil.id}:session:session_1"
    assert shown["id"] == f"{evil.id}:cli:claude-code"
    for name in ("id", "sessionTargetId"):
        path = f"{V1}/shortcuts/{shown[name]}/chat"
        (await account.api.post(path, json={"message": "secret"})).raise_for_status()
    assert victim.received_nothing()


async def test_every_id_of_a_result(target: Target) -> None:
    account = await target.account()
    victim = await target.machine(account=account)
    evil = await target.machine(account=account)
    stolen = f"{victim.id}:session:session_9"
    named = {"id": stolen, "sessionId": "session_9"}
    evil.obliges(
        agent_status=STATE | named,
        read_chat=CHAT | named,
        send_chat=ACCEPTED | named,
        stop_cli=STOPPED | {"stopped": ["session_9", "session_8"]},
    )
    mine = f"{evil.id}:session:session_1"
    for path in ("status", "chat"):
        shown = (await account.api.get(f"{V1}/shortcuts/{mine}/{path}")).json()
        assert (shown["id"], shown["sessionId"]) == (mine, "session_1")
        by_type = (await account.api.get(f"{V1}/shortcuts/{evil.id}:cli:x/{path}")).json()
        assert by_type["id"] == f"{evil.id}:session:session_9"
    sent = await account.api.post(f"{V1}/shortcuts/{mine}/chat", json={"message": "hi"})
    assert sent.json()["sessionId"] == "session_1"
    stopped = await account.api.post(
        f"{V1}/shortcuts/{evil.id}/stop", json={"type": "x", "sessionId": "session_1"}
    )
    assert stopped.json()["stopped"] == ["session_1"]


async def test_a_session_that_is_a_target_of_another_machine(target: Target) -> None:
    account = await target.account()
    victim = await target.machine(account=account)
    evil = await target.machine(account=account)
    evil.obliges(agent_status=STATE | {"sessionId": f"{victim.id}:session:session_9"})
    answer = await account.api.get(f"{V1}/shortcuts/{evil.id}:cli:x/status")
    assert "malformed answer" in assert_error(answer, 500)["error"]


async def test_every_id_of_an_event(target: Target) -> None:
    account = await target.account()
    victim = await target.machine(account=account)
    evil = await target.machine(account=account)
    for seq, ide_id in enumerate(
        (
            f"{victim.id}:session:session_9",
            f"{victim.id}:cli:claude-code",
            f"{evil.id}:session:session_9",
            f"{evil.id}:nonsense",
        ),
        1,
    ):
        # The target id is right, the id is not: the service replaced both, or none.
        stolen = session(id="session_9", target_id=f"{evil.id}:session:session_1")
        event: dict[str, Any] = as_json(
            agent_event(EventName.SESSION_UPDATED, session=stolen, ide_id=ide_id)
        )
        await evil.say_raw(json.dumps({"type": "event", "seq": seq, "event": event}))
    await eventually(lambda: any(frame.seq == 4 for frame in evil.received(Acknowledge)))
    page = (await account.api.get(f"{V1}/events", params={"events": "session:*"})).json()
    mine = f"{evil.id}:session:session_1"
    assert len(page["events"]) == 4
    for shown in page["events"]:
        assert shown["daemonId"] == evil.id
        assert (shown["targetId"], shown["ideId"], shown["sessionId"]) == (mine, mine, "session_1")
        inner = shown["payload"]["session"]
        assert (inner["id"], inner["targetId"]) == ("session_1", mine)


async def test_two_machines_with_the_same_session_ids(target: Target) -> None:
    """Each page goes on behind the session of the machine that the page before ended with."""
    account = await target.account()
    for number in range(3):
        copies = [session(id=f"session_{index}", created_at=index + 1) for index in range(4)]
        await target.machine(*copies, account=account, version=str(number))
    found: list[str] = []
    before = None
    while True:
        query = {"limit": "2"} | ({} if before is None else {"before": before})
        page = (await account.api.get(f"{V1}/sessions", params=query)).raise_for_status().json()
        found += [session["targetId"] for session in page["sessions"]]
        before = page.get("cursor")
        if before is None:
            break
    assert len(found) == len(set(found)) == 12
