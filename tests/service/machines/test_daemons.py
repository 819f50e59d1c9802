"""The routes of "Daemons": what each takes, refuses and answers.

The fields of each response: `/docs`, and `outrider.contract.resources`.
"""

from typing import Any

import msgspec
import pytest

from outrider.contract.commands import PUBLIC_COMMANDS
from outrider.contract.errors import ErrorDetail
from outrider.contract.frames import Failure
from outrider.contract.resources import ActionOption, AgentSummary, PendingAction, Session
from tests.rig.errors import assert_error, paths
from tests.rig.machine import payload_of
from tests.rig.people import dashboard, person
from tests.rig.samples import HOUSE_PROVIDER, MACHINE, PROVIDER, as_json, response_to, session
from tests.rig.site import Owner, Site
from tests.rig.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="session")

DAEMON_FIELDS = {
    "id",
    "hostname",
    "nickname",
    "platform",
    "cdpConnected",
    "ides",
    "clis",
    "acps",
    "version",
    "connectedAt",
    "lastSeenAt",
}
CLI_FIELDS = {"id", "type", "name", "sessionId", "status", "title", "workspace", "lastActivityAt"}
STATUS_FIELDS = DAEMON_FIELDS | {
    "connected",
    "machine",
    "sessions",
    "availableProviders",
    "timestamp",
}
SESSION_FIELDS = {
    "id",
    "targetId",
    "kind",
    "type",
    "name",
    "status",
    "title",
    "workspace",
    "model",
    "createdAt",
    "lastActivityAt",
    "pendingAction",
    "error",
}


class TestList:
    async def test_machines_that_never_connected_are_not_listed(self, owner: Owner) -> None:
        await owner.enrolls()
        assert (await owner.api.get("/api/v1/daemons")).json() == {"daemons": []}

    async def test_fields_of_a_machine_and_its_entries(self, owner: Owner) -> None:
        """Exactly these, with null for what is not known."""
        cli, acp = session(), session("acp", "claude-acp")
        ide = session(
            "ide",
            "jupyterlab",
            cdp_connected=True,
            agents=[AgentSummary(type="claude", name="Claude", status="idle")],
        )
        machine = await owner.machine(cli, acp, ide)
        (shown,) = (await owner.api.get("/api/v1/daemons")).json()["daemons"]
        assert shown.keys() == DAEMON_FIELDS
        assert shown["id"] == machine.id
        assert (shown["hostname"], shown["nickname"], shown["platform"], shown["version"]) == (
            "workbench",
            "Bench",
            "linux",
            "9.9.9",
        )
        assert shown["cdpConnected"] is True
        assert abs(shown["connectedAt"] - shown["lastSeenAt"]) < 10_000
        assert shown["clis"] == [
            {
                "id": f"{machine.id}:cli:claude-code",
                "type": "claude-code",
                "name": cli.name,
                "sessionId": cli.id,
                "status": "idle",
                "title": cli.title,
                "workspace": {"path": "/srv/project", "name": "project"},
                "lastActivityAt": cli.last_activity_at,
            }
        ]
        (shown_acp,) = shown["acps"]
        assert shown_acp.keys() == CLI_FIELDS
        assert shown_acp["id"] == f"{machine.id}:acp:claude-acp"
        (shown_ide,) = shown["ides"]
        assert shown_ide.keys() == CLI_FIELDS | {"cdpConnected", "agents"}
        assert shown_ide["id"] == f"{machine.id}:ide:jupyterlab"
        assert shown_ide["agents"] == [{"type": "claude", "name": "Claude", "status": "idle"}]

    async def test_an_entry_is_the_most_recently_used_session_of_its_type(
        self, owner: Owner
    ) -> None:
        """One entry for each running type: the session used last."""
        old, new = session(last_activity_at=1000), session(last_activity_at=2000)
        other = session(type="codex", last_activity_at=500)
        machine = await owner.machine(new, old, other)

        async def shown() -> dict[str, str]:
            (daemon,) = (await owner.api.get("/api/v1/daemons")).json()["daemons"]
            return {entry["type"]: entry["sessionId"] for entry in daemon["clis"]}

        assert await shown() == {"claude-code": new.id, "codex": other.id}
        old.last_activity_at = 3000
        await machine.reports(old)
        assert await shown() == {"claude-code": old.id, "codex": other.id}
        await machine.reports(removed=[old.id, other.id])
        assert await shown() == {"claude-code": new.id}

    async def test_of_very_many_types_those_used_last_are_listed(self, owner: Owner) -> None:
        sessions = [
            session(type=f"type-{number}", title="t" * 1000, last_activity_at=number)
            for number in range(300)
        ]
        machine = await owner.machine(*sessions)
        response = await owner.api.get("/api/v1/daemons")
        assert 50_000 < len(response.content) < 70_000
        (daemon,) = response.json()["daemons"]
        listed = {entry["sessionId"] for entry in daemon["clis"]}
        assert listed == {newest.id for newest in sessions[-len(listed) :]}
        status = (await owner.api.get(f"/api/v1/daemons/{machine.id}/status")).json()
        assert len(status["sessions"]) == 300


ACTION = PendingAction(
    id="act_1",
    message="Run it?",
    options=[ActionOption(id="1", label="Yes", kind="allow_once")],
)


class TestAll:
    """`?state=all`: the machines that are offline too."""

    async def test_offline_machines_are_listed_and_say_so(self, owner: Owner, site: Site) -> None:
        shelf = await owner.enrolls(nickname="Shelf")
        machine = await owner.machine(session())
        await (await person(site)).machine()
        shown = (await owner.api.get("/api/v1/daemons?state=all")).json()["daemons"]
        assert {daemon["id"]: daemon["connected"] for daemon in shown} == {
            shelf.daemon_id: False,
            machine.id: True,
        }
        assert all(daemon.keys() == DAEMON_FIELDS | {"connected"} for daemon in shown)

    async def test_an_offline_machine_has_its_last_state(self, site: Site) -> None:
        owner = await person(site)
        machine = await owner.machine(session())
        async with await dashboard(owner) as api:
            await api.post(f"/api/v1/daemons/{machine.id}/disconnect")
        (shown,) = (await owner.api.get("/api/v1/daemons?state=all")).json()["daemons"]
        assert (shown["connected"], shown["clis"][0]["type"]) == (False, "claude-code")
        assert (await owner.api.get("/api/v1/daemons?state=connected")).json()["daemons"] == []

    async def test_a_lost_connection_is_shown(self, owner: Owner) -> None:
        """In the grace period, in which the machine still counts as connected."""
        machine = await owner.machine(session())
        await machine.drops()

        async def is_reconnecting() -> bool:
            (daemon,) = (await owner.api.get("/api/v1/daemons?state=all")).json()["daemons"]
            assert daemon["connected"] is True
            return daemon.get("reconnecting") is True

        await eventually(is_reconnecting)

    async def test_another_state(self, owner: Owner) -> None:
        response = await owner.api.get("/api/v1/daemons?state=offline")
        assert_error(response, 400)
        assert paths(response) == ["state"]


class TestApprovals:
    """docs/control.md, "See what all agents ask"."""

    async def test_questions_of_every_machine_oldest_first(self, owner: Owner, site: Site) -> None:
        old = waiting(last_activity_at=1000)
        new = waiting(type="codex", last_activity_at=2000)
        first, second = await owner.machine(new, session()), await owner.machine(old)
        await (await person(site)).machine(waiting())
        shown = (await owner.api.get("/api/v1/approvals")).json()["approvals"]
        assert shown == [
            {
                "action": as_json(ACTION),
                "targetId": f"{machine.id}:session:{asking.id}",
                "sessionId": asking.id,
                "type": asking.type,
                "title": asking.title,
                "workspace": {"path": "/srv/project", "name": "project"},
                "daemonId": machine.id,
                "nickname": "Bench",
                "createdAt": asking.last_activity_at,
            }
            for machine, asking in ((second, old), (first, new))
        ]

    async def test_an_answered_question_is_gone(self, owner: Owner) -> None:
        asking = waiting()
        machine = await owner.machine(asking)
        await machine.reports(session(id=asking.id))
        assert (await owner.api.get("/api/v1/approvals")).json() == {"approvals": []}

    async def test_the_scope(self, owner: Owner) -> None:
        reader, other = await owner.may("agent:read"), await owner.may("ide:read")
        assert (await reader.get("/api/v1/approvals")).status_code == 200
        assert_error(await other.get("/api/v1/approvals"), 403, "AUTH_FORBIDDEN")


def waiting(**fields: Any) -> Session:
    """Return a session that asks a question."""
    return session(status="waiting_approval", pending_action=ACTION, **fields)


class TestStatus:
    async def test_fields(self, owner: Owner) -> None:
        """Exactly these fields, with null for what is not known."""
        running = session(model="big")
        machine = await owner.machine(running)
        shown = (await owner.api.get(f"/api/v1/daemons/{machine.id}/status")).json()
        assert shown.keys() == STATUS_FIELDS
        assert shown["connected"] is True
        assert shown["machine"] == as_json(MACHINE)
        (shown_session,) = shown["sessions"]
        assert shown_session.keys() >= SESSION_FIELDS
        assert shown_session["model"] == "big"
        assert {"claude-code", "house-agent"} == {p["type"] for p in shown["availableProviders"]}
        for provider in shown["availableProviders"]:
            assert provider.keys() == {
                "type",
                "category",
                "displayName",
                "installed",
                "path",
                "verified",
            }

    async def test_a_wrong_provider_file_is_shown(self, owner: Owner) -> None:
        wrong = msgspec.structs.replace(
            HOUSE_PROVIDER, installed=False, path=None, error="/x/house.toml: nonsense"
        )
        machine = await owner.machine(providers=[PROVIDER, wrong])
        shown = (await owner.api.get(f"/api/v1/daemons/{machine.id}/status")).json()
        errors = {p["type"]: p.get("error") for p in shown["availableProviders"]}
        assert errors == {"claude-code": None, "house-agent": "/x/house.toml: nonsense"}
        assert "error" not in shown["availableProviders"][0]

    async def test_the_service_sets_target_ids_itself(self, owner: Owner) -> None:
        """A machine cannot pass its session off as another machine's."""
        lie = session(target_id="machine_other:session:session_other")
        machine = await owner.machine(lie)
        later = session(target_id="machine_other:session:session_other")
        await machine.reports(later)
        shown = (await owner.api.get(f"/api/v1/daemons/{machine.id}/status")).json()
        assert {s["targetId"] for s in shown["sessions"]} == {
            f"{machine.id}:session:{lie.id}",
            f"{machine.id}:session:{later.id}",
        }

    async def test_a_machine_that_never_connected(self, owner: Owner) -> None:
        """A machine that is known but offline: 200, `connected` false, and its last state."""
        enrolled = await owner.enrolls(nickname="Shelf")
        shown = (await owner.api.get(f"/api/v1/daemons/{enrolled.daemon_id}/status")).json()
        assert shown.keys() == STATUS_FIELDS
        assert shown["nickname"] == "Shelf"
        assert shown["connected"] is False
        assert (shown["machine"], shown["sessions"], shown["connectedAt"]) == (None, [], None)

    async def test_an_unknown_machine(self, owner: Owner) -> None:
        assert_error(await owner.api.get("/api/v1/daemons/machine_x/status"), 404)


COMMANDS: list[tuple[str, dict[str, Any]]] = [
    ("send_chat", {"message": "Hi, wörld 🎉"}),
    ("send_chat", {"input": {"parts": [{"type": "text", "text": "hi"}], "textFallback": "hi"}}),
    ("send_chat", {"message": "hi", "sessionId": "s", "agentType": "a"}),
    ("read_chat", {}),
    ("read_chat", {"limit": 5, "after": "msg_1"}),
    ("resolve_action", {"action": "approve"}),
    ("resolve_action", {"action": "reject", "actionId": "act_1", "optionId": "2"}),
    ("screenshot", {}),
    ("screenshot", {"width": 64}),
    ("screenshot", {"width": 4096}),
    ("launch_ide", {"ideType": "jupyterlab"}),
    ("launch_ide", {"ideType": "jupyterlab", "enableCdp": False}),
    ("launch_cli", {"cliType": "claude-code", "dir": "/srv", "model": "big"}),
    ("stop_cli", {"cliType": "claude-code"}),
]


class TestCommand:
    async def test_every_public_command_is_here(self) -> None:
        assert {command for command, _ in COMMANDS} == PUBLIC_COMMANDS

    @pytest.mark.one_store
    @pytest.mark.parametrize(("kind", "payload"), COMMANDS)
    async def test_reaches_the_machine_and_its_result_comes_back(
        self, owner: Owner, kind: str, payload: dict[str, Any]
    ) -> None:
        """The response is the machine's result, with `success: true`."""
        machine = await owner.machine()
        request = owner.sends(
            "POST",
            f"/api/v1/daemons/{machine.id}/command",
            {"type": kind, "payload": payload | {"unknownField": 1}},
        )
        taken = await machine.takes(kind, **payload)
        assert taken.id.startswith("cmd_")
        assert taken.timeout_ms == 60_000
        await machine.answers(taken)
        response = await request
        assert response.status_code == 200
        assert response.json() == response_to(taken, machine.id)

    @pytest.mark.parametrize(
        "body", ['{"type":"read_chat"}', '{"type":"read_chat","payload":null}']
    )
    async def test_the_payload_may_be_left_out(self, owner: Owner, body: str) -> None:
        machine = await owner.machine()
        request = owner.sends("POST", f"/api/v1/daemons/{machine.id}/command", content=body)
        taken = await machine.takes("read_chat")
        assert payload_of(taken) == {}
        await machine.answers(taken)
        assert (await request).status_code == 200

    @pytest.mark.one_store
    @pytest.mark.parametrize(
        ("body", "blamed"),
        [
            (b"", ""),
            (b"not json", ""),
            (b"\xff\xfe", ""),
            (b"[" * 100_000, ""),
            (b"[]", ""),
            (b"{}", "type"),
            (b'{"type":7}', "type"),
            (b'{"type":"format_disk","payload":{}}', "type"),
            (b'{"type":"terminal","payload":{"command":"id"}}', "type"),
            (b'{"type":"Send_Chat","payload":{"message":"x"}}', "type"),
            (b'{"type":"read_chat","payload":[]}', "payload"),
            (b'{"type":"read_chat","payload":{"unknown":"\xff"}}', ""),
            (b'{"type":"read_chat","payload":{"limit":0}}', "payload.limit"),
            (b'{"type":"read_chat","payload":{"target":""}}', "payload.target"),
            (b'{"type":"send_chat"}', "payload.message"),
            (b'{"type":"send_chat","payload":null}', "payload.message"),
            (b'{"type":"send_chat","payload":{"message":" \\n\\t"}}', "payload.message"),
            (b'{"type":"send_chat","payload":{"input":{"parts":[]}}}', "payload.input"),
            (
                b'{"type":"send_chat","payload":{"input":{"parts":[{"type":"text"}]}}}',
                "payload.input.parts[0].text",
            ),
            (b'{"type":"resolve_action","payload":{"action":"maybe"}}', "payload.action"),
            (b'{"type":"screenshot","payload":{"width":63}}', "payload.width"),
            (b'{"type":"screenshot","payload":{"width":4097}}', "payload.width"),
            (b'{"type":"launch_ide","payload":{}}', "payload.ideType"),
            (
                b'{"type":"launch_ide","payload":{"ideType":"vscode","enableCdp":1}}',
                "payload.enableCdp",
            ),
            (b'{"type":"launch_cli","payload":{"cliType":"codex","dir":3}}', "payload.dir"),
            (b'{"type":"stop_cli","payload":{}}', "payload.cliType"),
        ],
    )
    async def test_bad_bodies(self, owner: Owner, body: bytes, blamed: str) -> None:
        """docs/api.md, Errors: `details` name the field."""
        machine = await owner.machine()
        response = await owner.api.post(f"/api/v1/daemons/{machine.id}/command", content=body)
        assert paths(response) == [blamed]
        await machine.settled()
        assert machine.received_nothing()

    @pytest.mark.one_store
    @pytest.mark.parametrize(
        ("kind", "payload", "field", "blamed"),
        [
            ("launch_cli", {"cliType": "emacs"}, "cliType", "payload.cliType"),
            ("launch_cli", {"cliType": "codex"}, "type", "payload.cliType"),
            ("launch_cli", {"cliType": "codex", "dir": "/no"}, "dir", "payload.dir"),
            ("launch_ide", {"ideType": "kiro"}, "type", "payload.ideType"),
            ("send_chat", {"message": "hi"}, "payload.message", "payload.message"),
            ("read_chat", {}, "", "payload"),
        ],
    )
    async def test_what_the_machine_blames_is_named_as_it_was_sent(
        self, owner: Owner, kind: str, payload: dict[str, str], field: str, blamed: str
    ) -> None:
        """docs/api.md, Errors: `details` has the path in the request, as in `payload.message`."""
        machine = await owner.machine()
        path = f"/api/v1/daemons/{machine.id}/command"
        request = owner.sends("POST", path, {"type": kind, "payload": payload})
        details = [ErrorDetail(path=field, message="It is wrong")]
        failure = Failure(status=400, message="It is wrong, really", details=details)
        await machine.fails(await machine.takes(kind), failure)
        assert paths(await request) == [blamed]


class TestTerminals:
    async def test_they_are_listed_and_ended(self, owner: Owner) -> None:
        machine = await owner.machine()
        path = f"/api/v1/daemons/{machine.id}/terminals"
        request = owner.sends("GET", path)
        await machine.answers(await machine.takes("list_terminals"))
        assert (await request).json()["terminals"] == [{"name": "build", "busy": False}]
        request = owner.sends("DELETE", f"{path}/build-1.x_y")
        await machine.answers(await machine.takes("close_terminal", name="build-1.x_y"))
        assert (await request).json() == {"success": True, "terminal": "build"}

    @pytest.mark.one_store
    @pytest.mark.parametrize("name", ["-x", "a b", "a%0A", "a%00", "x" * 65, ".."])
    async def test_what_is_no_name_is_a_404(self, owner: Owner, name: str) -> None:
        machine = await owner.machine()
        path = f"/api/v1/daemons/{machine.id}/terminals/{name}"
        assert_error(await owner.api.delete(path), 404)
        await machine.settled()
        assert machine.received_nothing()

    async def test_a_command_reaches_the_machine(self, owner: Owner) -> None:
        machine = await owner.machine()
        body = {"command": "echo hi", "name": "build-1.x_y", "cwd": "/srv"}
        request = owner.sends("POST", f"/api/v1/daemons/{machine.id}/terminal", body)
        await machine.answers(await machine.takes("terminal", **body))
        assert (await request).json() == {
            "success": True,
            "terminal": None,
            "exitCode": 0,
            "output": "hi\n",
            "truncated": False,
            "durationMs": 3,
            "cwd": "/srv",
        }

    @pytest.mark.one_store
    @pytest.mark.parametrize(
        ("body", "blamed"),
        [
            (b"{}", "command"),
            (b'{"command":"  "}', "command"),
            (b'{"command":5}', "command"),
            (b'{"command":"id","cwd":""}', "cwd"),
            (b'{"command":"id","name":"-x"}', "name"),
            (b'{"command":"id","name":"../x"}', "name"),
            (b'{"command":"id","name":"a\\n"}', "name"),
            (b'{"command":"id","name":"' + b"a" * 65 + b'"}', "name"),
            (b'{"command":"id","x":"\xff"}', ""),
            (b"", ""),
        ],
    )
    async def test_bad_bodies(self, owner: Owner, body: bytes, blamed: str) -> None:
        machine = await owner.machine()
        response = await owner.api.post(f"/api/v1/daemons/{machine.id}/terminal", content=body)
        assert paths(response) == [blamed]
