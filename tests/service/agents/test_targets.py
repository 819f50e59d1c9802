"""Which session a request reaches: the path's, and never another one than the body names.

Holds docs/api.md, "Targets".
"""

import asyncio
from typing import Any

import pytest

from outrider.contract.commands import COMMANDS, PUBLIC_COMMANDS, NamesSession
from outrider.contract.errors import bad_request
from outrider.contract.frames import Failure
from outrider.service.endpoints import ENDPOINTS
from tests.rig.errors import assert_error, paths
from tests.rig.machine import ScriptedMachine, payload_of
from tests.rig.samples import session
from tests.rig.site import Owner, Site

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.one_store]

BODIES: list[tuple[str, dict[str, Any]]] = [
    ("chat", {"message": "hi"}),
    ("interrupt", {}),
    ("approve", {"action": "approve"}),
    ("chat/debug", {}),
]
PAYLOADS: list[tuple[str, dict[str, Any]]] = [
    ("send_chat", {"message": "hi"}),
    ("read_chat", {}),
    ("resolve_action", {"action": "approve"}),
    ("screenshot", {}),
    ("stop_cli", {"cliType": "claude-code"}),
]


async def test_every_body_and_command_that_names_a_session_is_here() -> None:
    of_targets = {
        endpoint.path.partition("/{ideId}/")[2]
        for endpoint in ENDPOINTS
        if "{ideId}" in endpoint.path
        and any(issubclass(body, NamesSession) for body in endpoint.bodies)
    }
    assert {action for action, _ in BODIES} == of_targets
    naming = {
        command
        for command in PUBLIC_COMMANDS
        if issubclass(COMMANDS[command].payload, NamesSession)
    }
    assert {command for command, _ in PAYLOADS} == naming


async def took_nothing(machine: ScriptedMachine) -> bool:
    await machine.settled()
    return machine.received_nothing()


class TestShortcuts:
    @pytest.mark.parametrize("name", ["sessionId", "targetSessionId"])
    @pytest.mark.parametrize(("action", "body"), BODIES)
    async def test_the_machine_is_told_what_path_and_body_name(
        self, owner: Owner, action: str, body: dict[str, Any], name: str
    ) -> None:
        """The machine knows what runs now: it compares the two."""
        machine = await owner.machine()
        target = f"{machine.id}:cli:claude-code"
        path = f"/api/v1/shortcuts/{target}/{action}"
        request = owner.sends("POST", path, body | {name: "session_1", "target": target})
        await machine.answers(await machine.takes(target=target, sessionId="session_1"))
        assert (await request).status_code == 200

    @pytest.mark.parametrize(
        ("path", "named", "target", "session_id"),
        [
            ("session:a", "session:a", "session:a", None),
            ("cli:x", "session:a", "cli:x", "a"),
            ("session:a", "cli:x", "cli:x", "a"),
            ("session:a", "session:b", "session:a", "b"),
        ],
    )
    async def test_a_target_in_the_body_is_compared_too(
        self, owner: Owner, path: str, named: str, target: str, session_id: str | None
    ) -> None:
        machine = await owner.machine()
        route = f"/api/v1/shortcuts/{machine.id}:{path}/chat"
        body = {"message": "hi", "target": f"{machine.id}:{named}"}
        request = owner.sends("POST", route, body)
        taken = await machine.takes(target=f"{machine.id}:{target}", sessionId=session_id)
        await machine.answers(taken)
        assert (await request).status_code == 200

    @pytest.mark.parametrize(
        ("path", "body", "blamed"),
        [
            ("cli:x", {"target": "{}:cli:y"}, "target"),
            ("cli:x", {"target": "{}:acp:x"}, "target"),
            ("session:a", {"target": "{}:cli:x", "sessionId": "b"}, "target"),
            ("cli:x", {"sessionId": "a", "targetSessionId": "b"}, "targetSessionId"),
        ],
    )
    async def test_a_contradiction_is_a_400(
        self, owner: Owner, path: str, body: dict[str, str], blamed: str
    ) -> None:
        machine = await owner.machine()
        named = {name: value.format(machine.id) for name, value in body.items()}
        response = await owner.api.post(
            f"/api/v1/shortcuts/{machine.id}:{path}/chat", json={"message": "hi"} | named
        )
        assert paths(response) == [blamed]
        assert await took_nothing(machine)

    @pytest.mark.parametrize("name", ["x" * 250, "a%01b", "a%E2%80%AEb"])
    @pytest.mark.parametrize(("method", "action"), [("GET", "wait"), ("POST", "interrupt")])
    async def test_a_path_that_no_session_can_have_is_a_404(
        self, owner: Owner, method: str, action: str, name: str
    ) -> None:
        """Not the 400 with which a machine refuses such a value of a field."""
        machine = await owner.machine()
        path = f"/api/v1/shortcuts/{machine.id}:session:{name}/{action}"
        assert_error(await owner.api.request(method, path), 404)
        assert await took_nothing(machine)

    async def test_another_machine_of_the_account_is_a_400(self, owner: Owner) -> None:
        machine, other = await owner.machine(), await owner.machine()
        response = await owner.api.post(
            f"/api/v1/shortcuts/{machine.id}:cli:x/chat",
            json={"message": "hi", "target": f"{other.id}:cli:x"},
        )
        assert paths(response) == ["target"]
        assert await took_nothing(machine)
        assert await took_nothing(other)

    async def test_another_account_s_machine_is_a_404(self, owner: Owner, site: Site) -> None:
        """docs/access.md: as one that does not exist."""
        theirs = await (await site.account()).machine()
        machine = await owner.machine()
        sentences = []
        for id_ in (theirs.id, "machine_none"):
            response = await owner.api.post(
                f"/api/v1/shortcuts/{machine.id}:cli:x/chat",
                json={"message": "hi", "target": f"{id_}:cli:x"},
            )
            sentences.append(assert_error(response, 404)["error"].replace(id_, "…"))
        assert sentences[0] == sentences[1]
        assert await took_nothing(machine)
        assert await took_nothing(theirs)

    async def test_stop_takes_each_way_to_name_a_session(self, owner: Owner) -> None:
        machine = await owner.machine()
        target = f"{machine.id}:session:a"
        for body in (
            {"sessionId": "a"},
            {"targetSessionId": "a"},
            {"target": target},
            {"target": target, "sessionId": "a"},
        ):
            request = owner.sends(
                "POST", f"/api/v1/shortcuts/{machine.id}/stop", {"type": "codex"} | body
            )
            taken = await machine.takes(
                "stop_cli",
                target=body.get("target"),
                sessionId="a" if body.keys() & {"sessionId", "targetSessionId"} else None,
            )
            await machine.answers(taken)
            assert (await request).status_code == 200
        response = await owner.api.post(
            f"/api/v1/shortcuts/{machine.id}/stop",
            json={"type": "codex", "target": "machine_x:cli:codex"},
        )
        assert_error(response, 404)

    @pytest.mark.parametrize("name", ["target", "sessionId", "targetSessionId"])
    async def test_a_launch_names_no_session(self, owner: Owner, name: str) -> None:
        machine = await owner.machine()
        path = f"/api/v1/shortcuts/{machine.id}/launch"
        response = await owner.api.post(path, json={"type": "claude-code", name: "a"})
        assert paths(response) == [name]
        assert await took_nothing(machine)
        request = owner.sends("POST", path, {"type": "claude-code", name: None})
        await machine.answers(await machine.takes("launch_cli"))
        assert (await request).status_code == 200

    async def test_what_the_machine_blames_is_named_as_it_was_sent(self, owner: Owner) -> None:
        machine = await owner.machine()
        request = owner.sends(
            "POST",
            f"/api/v1/shortcuts/{machine.id}:cli:x/chat",
            {"message": "hi", "targetSessionId": "a"},
        )
        error = bad_request("The session is another one", "sessionId")
        failure = Failure(status=400, message=error.message, details=error.details)
        await machine.fails(await machine.takes(), failure)
        assert paths(await request) == ["targetSessionId"]


class TestCommand:
    @pytest.mark.parametrize(("kind", "payload"), PAYLOADS)
    async def test_target_session_id_is_session_id(
        self, owner: Owner, kind: str, payload: dict[str, Any]
    ) -> None:
        machine = await owner.machine()
        request = owner.sends(
            "POST",
            f"/api/v1/daemons/{machine.id}/command",
            {"type": kind, "payload": payload | {"targetSessionId": "session_1"}},
        )
        await machine.answers(await machine.takes(kind, sessionId="session_1"))
        assert (await request).status_code == 200

    @pytest.mark.parametrize(
        ("payload", "status", "blamed"),
        [
            ({"sessionId": "a", "targetSessionId": "b"}, 400, "payload.targetSessionId"),
            ({"target": "{other}:cli:x"}, 400, "payload.target"),
            ({"target": "machine_none:cli:x"}, 404, None),
            ({"target": "nonsense"}, 404, None),
            ({"target_session_id": "a"}, 400, "payload.target_session_id"),
        ],
    )
    async def test_a_contradiction_is_refused(
        self,
        owner: Owner,
        payload: dict[str, str],
        status: int,
        blamed: str | None,
    ) -> None:
        machine, other = await owner.machine(), await owner.machine()
        named = {name: value.format(other=other.id) for name, value in payload.items()}
        response = await owner.api.post(
            f"/api/v1/daemons/{machine.id}/command", json={"type": "read_chat", "payload": named}
        )
        body = assert_error(response, status)
        assert [d["path"] for d in body.get("details", [])] == [blamed] * (blamed is not None)
        assert await took_nothing(machine)
        assert await took_nothing(other)

    @pytest.mark.parametrize("name", ["target", "sessionId", "targetSessionId", "agentType"])
    async def test_a_name_beside_the_payload_is_a_400(self, owner: Owner, name: str) -> None:
        machine = await owner.machine()
        response = await owner.api.post(
            f"/api/v1/daemons/{machine.id}/command",
            json={"type": "send_chat", "payload": {"message": "hi"}, name: "a"},
        )
        assert paths(response) == [name]
        assert await took_nothing(machine)


class TestMisspeltFields:
    @pytest.mark.parametrize(
        ("name", "meant"),
        [
            ("session_id", "sessionId"),
            ("sesionId", "sessionId"),
            ("sessionIds", "sessionId"),
            ("targetsessionid", "targetSessionId"),
            ("Target", "target"),
        ],
    )
    async def test_a_near_miss_is_told_what_was_meant(
        self, owner: Owner, name: str, meant: str
    ) -> None:
        machine = await owner.machine()
        for path, body, prefix in (
            (f"shortcuts/{machine.id}:cli:x/chat", {"message": "hi", name: "x"}, ""),
            (
                f"daemons/{machine.id}/command",
                {"type": "send_chat", "payload": {"message": "hi", name: "x"}},
                "payload.",
            ),
        ):
            response = await owner.api.post(f"/api/v1/{path}", json=body)
            assert paths(response) == [prefix + name]
            assert f"did you mean `{prefix}{meant}`?" in response.json()["error"]
        assert await took_nothing(machine)

    @pytest.mark.parametrize(
        ("body", "blamed"),
        [
            ({"Message": "hi"}, "Message"),
            ({"input": {"Parts": []}}, "input.Parts"),
            (
                {"input": {"parts": [{"type": "text", "text": "a"}, {"type": "text", "txt": "b"}]}},
                "input.parts[1].txt",
            ),
            ({"input": {"textFallback": "a", "textfallback": "b"}}, "input.textfallback"),
        ],
    )
    async def test_at_every_depth_and_where_the_field_is_required(
        self, owner: Owner, body: dict[str, Any], blamed: str
    ) -> None:
        machine = await owner.machine()
        response = await owner.api.post(f"/api/v1/shortcuts/{machine.id}:cli:x/chat", json=body)
        assert paths(response) == [blamed]
        assert "did you mean" in response.json()["error"]

    async def test_other_unknown_fields_and_free_form_objects_are_left_alone(
        self, owner: Owner
    ) -> None:
        """docs/api.md, Requests: unknown fields are ignored."""
        machine = (await owner.machine()).obliges()
        target = f"/api/v1/shortcuts/{machine.id}:cli:x"
        for path, body in (
            ("chat", {"message": "hi", "unknown": 1, "sent": 2, "controls": {"Mode": "plan"}}),
            ("chat/debug", {"frontendSnapshot": {"sessionid": 1, "Target": {"message": 2}}}),
        ):
            assert (await owner.api.post(f"{target}/{path}", json=body)).status_code == 200


async def test_of_two_requests_at_once_each_reaches_its_own(owner: Owner) -> None:
    first, second = session(), session()
    machine = await owner.machine(first, second)
    requests = {
        running.id: owner.sends(
            "POST",
            f"/api/v1/shortcuts/{machine.id}:session:{running.id}/chat",
            {"message": running.id, "targetSessionId": running.id},
        )
        for running in (first, second)
    }
    for _ in requests:
        taken = await machine.takes("send_chat")
        payload = payload_of(taken)
        assert payload["sessionId"] == payload["message"]
        await machine.answers(taken)
    for response in await asyncio.gather(*requests.values()):
        assert response.status_code == 200
