"""The routes of "Shortcuts": what each takes, refuses and answers.

Holds docs/api.md, docs/control.md, docs/sessions.md and docs/changes.md.
"""

from typing import Any
from urllib.parse import quote

import pytest

from outrider.contract.errors import ErrorCode, ErrorDetail
from outrider.contract.frames import Failure
from outrider.service.endpoints import ENDPOINTS
from tests.rig.errors import assert_error, paths
from tests.rig.machine import payload_of
from tests.rig.samples import RESULTS, response_to, session
from tests.rig.site import Owner

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.one_store]

ROUTES: list[tuple[str, str, Any, str]] = [
    ("POST", "chat", {"message": "hi"}, "send_chat"),
    ("GET", "chat", None, "read_chat"),
    ("POST", "approve", {"action": "reject", "actionId": "act_1"}, "resolve_action"),
    ("GET", "status", None, "agent_status"),
    ("POST", "chat", {"message": "hi", "delivery": "interrupt"}, "send_chat_now"),
    ("POST", "interrupt", None, "interrupt"),
    ("POST", "interrupt", {"agentType": "claude"}, "interrupt"),
    ("GET", "queue", None, "read_queue"),
    ("DELETE", "queue/msg_3", None, "withdraw"),
    ("DELETE", "worktree", None, "remove_worktree"),
    ("GET", "screen", None, "read_screen"),
    ("GET", "diff", None, "read_changes"),
    ("GET", "files", None, "read_files"),
    ("GET", "chat/debug", None, "chat_debug"),
    ("POST", "chat/debug", None, "chat_debug"),
    ("POST", "chat/debug", {"frontendSnapshot": {"a": [1, "b"]}}, "chat_debug"),
]


async def test_the_routes_are_all_those_of_a_target() -> None:
    """`wait` and `terminal` are not one command each: test_waiting.py, test_terminals.py."""
    own_tests = {("GET", "wait"), ("GET", "terminal")}
    table = {
        (endpoint.method, endpoint.path.partition("/{ideId}/")[2].format(messageId="msg_3"))
        for endpoint in ENDPOINTS
        if "{ideId}" in endpoint.path
    }
    assert {(method, action) for method, action, _, _ in ROUTES} | own_tests == table


class TestTargets:
    @pytest.mark.parametrize(("method", "action", "body", "command"), ROUTES)
    async def test_each_form_raw_and_encoded(
        self, owner: Owner, method: str, action: str, body: Any, command: str
    ) -> None:
        """A target arrives raw or percent-encoded; both work."""
        running = session()
        machine = await owner.machine(running)
        for form in ("cli:claude-code", "acp:x", "ide:vscode", f"session:{running.id}"):
            target = f"{machine.id}:{form}"
            for path in (target, quote(target, safe="")):
                request = owner.sends(method, f"/api/v1/shortcuts/{path}/{action}", body)
                taken = await machine.takes(command, **(body or {}), target=target)
                await machine.answers(taken)
                response = await request
                assert response.status_code == 200
                assert response.json() == response_to(taken, machine.id)

    @pytest.mark.parametrize(("method", "action", "body", "command"), ROUTES)
    async def test_what_has_not_the_form_of_a_target(
        self, owner: Owner, method: str, action: str, body: Any, command: str
    ) -> None:
        machine = (await owner.machine()).id
        ends = ("", ":", ":cli", ":cli:", "::x", ":terminal:x", ":CLI:x")
        for target in (*(f"{machine}{end}" for end in ends), ":cli:x", "::"):
            path = f"/api/v1/shortcuts/{target}/{action}"
            assert_error(await owner.api.request(method, path, json=body), 404)

    async def test_a_query_cannot_point_elsewhere(self, owner: Owner) -> None:
        """The path names the target. What a body names beside it: test_targets.py."""
        machine = await owner.machine()
        target = f"{machine.id}:cli:claude-code"
        for query in ("?target=other&sessionId=session_other", "?target=&sessionId="):
            request = owner.sends("GET", f"/api/v1/shortcuts/{target}/chat{query}")
            taken = await machine.takes("read_chat", target=target, sessionId=None)
            await machine.answers(taken)
            assert (await request).status_code == 200


class TestSend:
    @pytest.mark.parametrize(
        "body",
        [
            {"message": "hi"},
            {"message": "hi", "agentType": "claude"},
            {"input": {"parts": [{"type": "text", "text": "hi"}]}},
            {"input": {"textFallback": "hi"}},
            {"input": {"parts": [{"type": "image", "mimeType": "image/png", "data": "aGk="}]}},
            {"message": "", "input": {"textFallback": "input wins"}},
            {"message": "x" * 500_000},
        ],
    )
    async def test_both_forms(self, owner: Owner, body: dict[str, Any]) -> None:
        """`message` or `input`, also with image parts."""
        machine = await owner.machine()
        request = owner.sends("POST", f"/api/v1/shortcuts/{machine.id}:cli:x/chat", body)
        taken = await machine.takes("send_chat")
        sent = payload_of(taken)
        assert sent.get("message") == body.get("message")
        if "input" in body:
            assert sent["input"]["parts"] == body["input"].get("parts", [])
        await machine.answers(taken)
        assert (await request).json().keys() == {
            "success",
            "messageId",
            "sessionId",
            "status",
            "queued",
            "cursor",
        }


class TestRead:
    async def test_query_reaches_the_machine(self, owner: Owner) -> None:
        machine = await owner.machine()
        request = owner.sends(
            "GET",
            f"/api/v1/shortcuts/{machine.id}:ide:x/chat"
            "?limit=1000&after=msg_1&before=msg_9&agentType=claude%20one&other=1",
        )
        taken = await machine.takes(
            "read_chat", limit=1000, after="msg_1", before="msg_9", agentType="claude one"
        )
        await machine.answers(taken)
        assert (await request).json() == response_to(taken, machine.id)

    @pytest.mark.parametrize("text", ["null", "true", "12", "1.5"])
    async def test_text_is_text_whatever_it_looks_like(self, owner: Owner, text: str) -> None:
        machine = await owner.machine()
        path = f"/api/v1/shortcuts/{machine.id}:ide:x/chat?agentType={text}"
        request = owner.sends("GET", path)
        await machine.answers(await machine.takes("read_chat", agentType=text))
        assert (await request).status_code == 200


class TestLaunch:
    @pytest.mark.parametrize(
        ("body", "command", "payload"),
        [
            (
                {"type": "claude-code", "dir": "/srv", "model": "big"},
                "launch_cli",
                {"cliType": "claude-code", "dir": "/srv", "model": "big"},
            ),
            ({"type": "gemini-acp"}, "launch_cli", {"cliType": "gemini-acp"}),
            ({"type": "house-agent"}, "launch_cli", {"cliType": "house-agent"}),
            ({"type": "kiro", "dir": "/srv"}, "launch_ide", {"ideType": "kiro", "dir": "/srv"}),
        ],
    )
    async def test_every_kind(
        self, owner: Owner, body: dict[str, Any], command: str, payload: dict[str, Any]
    ) -> None:
        """An IDE, CLI or ACP, of the machine's own providers too."""
        machine = await owner.machine()
        request = owner.sends("POST", f"/api/v1/shortcuts/{machine.id}/launch", body)
        taken = await machine.takes(command, **payload)
        await machine.answers(taken)
        assert (await request).json() == response_to(taken, machine.id)

    @pytest.mark.parametrize("kind", ["claude-code", "gemini-acp", "kiro"])
    async def test_resume(self, owner: Owner, kind: str) -> None:
        """docs/sessions.md, "Resume a session that has ended"."""
        machine = await owner.machine()
        body = {"type": kind, "resume": "session_1"}
        request = owner.sends("POST", f"/api/v1/shortcuts/{machine.id}/launch", body)
        taken = await machine.takes("resume", type=kind, sessionId="session_1")
        await machine.answers(taken)
        assert (await request).json() == response_to(taken, machine.id)

    async def test_a_worktree(self, owner: Owner) -> None:
        """docs/sessions.md, worktrees: older machines would ignore it."""
        machine = await owner.machine()
        for worktree in ({"branch": "topic"}, {"branch": "topic", "base": "main"}):
            body = {"type": "codex", "dir": "/srv", "model": "big", "worktree": worktree}
            request = owner.sends("POST", f"/api/v1/shortcuts/{machine.id}/launch", body)
            taken = await machine.takes(
                "launch_in_worktree",
                cliType="codex",
                dir="/srv",
                model="big",
                worktree={"base": None} | worktree,
            )
            await machine.answers(taken)
            assert (await request).json() == response_to(taken, machine.id)

    @pytest.mark.parametrize(
        ("kind", "payload", "blamed"),
        [
            ("launch_cli", {"cliType": "codex", "worktree": {"branch": "x"}}, "worktree"),
            ("launch_cli", {"cliType": "codex", "resume": "session_1"}, "resume"),
            ("launch_ide", {"ideType": "kiro", "worktree": {"branch": "x"}}, "worktree"),
            ("stop_cli", {"cliType": "codex", "removeWorktree": True}, "removeWorktree"),
        ],
    )
    async def test_a_command_that_would_ignore_it(
        self, owner: Owner, kind: str, payload: dict[str, Any], blamed: str
    ) -> None:
        machine = await owner.machine()
        body = {"type": kind, "payload": payload}
        response = await owner.api.post(f"/api/v1/daemons/{machine.id}/command", json=body)
        assert_error(response, 400)
        assert paths(response) == [f"payload.{blamed}"]

    async def test_an_unknown_type_is_told_the_known_ones(self, owner: Owner) -> None:
        """An unknown provider type: 400."""
        machine = await owner.machine()
        response = await owner.api.post(
            f"/api/v1/shortcuts/{machine.id}/launch", json={"type": "emacs"}
        )
        error = assert_error(response, 400)["error"]
        assert "house-agent" in error
        assert "jupyterlab" in error


@pytest.mark.parametrize(
    ("action", "kind", "field", "blamed"),
    [
        ("launch", "jupyterlab", "ideType", "type"),
        ("launch", "codex", "cliType", "type"),
        ("launch", "codex", "type", "type"),
        ("launch", "codex", "dir", "dir"),
        ("stop", "emacs", "cliType", "type"),
    ],
)
async def test_what_the_machine_blames_is_named_as_it_was_sent(
    owner: Owner, action: str, kind: str, field: str, blamed: str
) -> None:
    """docs/api.md, Errors: `details` has the path in the request."""
    machine = await owner.machine()
    request = owner.sends("POST", f"/api/v1/shortcuts/{machine.id}/{action}", {"type": kind})
    details = [ErrorDetail(path=field, message="It is wrong")]
    failure = Failure(status=400, message="It is wrong, really", details=details)
    await machine.fails(await machine.takes(), failure)
    assert paths(await request) == [blamed]


class TestStop:
    async def test_happy_path(self, owner: Owner) -> None:
        """`POST …/stop {type, sessionId?, dir?}`."""
        machine = await owner.machine()
        body = {"type": "codex", "sessionId": "session_1", "dir": "/srv"}
        request = owner.sends("POST", f"/api/v1/shortcuts/{machine.id}/stop", body)
        taken = await machine.takes("stop_cli", cliType="codex", sessionId="session_1", dir="/srv")
        await machine.answers(taken)
        assert (await request).json() == {"success": True, "stopped": ["session_1"]}

    async def test_with_its_worktree(self, owner: Owner) -> None:
        """docs/sessions.md, worktrees: older machines would ignore it."""
        machine = await owner.machine()
        body = {"type": "codex", "sessionId": "session_1", "removeWorktree": True}
        request = owner.sends("POST", f"/api/v1/shortcuts/{machine.id}/stop", body)
        failure = Failure(status=409, message="It has changes", code=ErrorCode.WORKTREE_DIRTY)
        taken = await machine.takes("stop_and_remove_worktree", sessionId="session_1")
        await machine.fails(taken, failure)
        assert_error(await request, 409, "WORKTREE_DIRTY")
        body["removeWorktree"] = False
        request = owner.sends("POST", f"/api/v1/shortcuts/{machine.id}/stop", body)
        await machine.answers(await machine.takes("stop_cli"))
        assert (await request).status_code == 200


class TestControl:
    """docs/control.md and docs/changes.md, and the parameters of reading a chat."""

    @pytest.mark.parametrize(
        ("delivery", "command"),
        [("queue", "send_chat"), ("reject", "send_chat_now"), ("interrupt", "send_chat_now")],
    )
    async def test_a_delivery_that_older_machines_would_ignore_has_a_command_of_its_own(
        self, owner: Owner, delivery: str, command: str
    ) -> None:
        machine = await owner.machine()
        body = {"message": "hi", "delivery": delivery}
        for path, sent in (
            (f"shortcuts/{machine.id}:cli:x/chat", body),
            (f"daemons/{machine.id}/command", {"type": "send_chat", "payload": body}),
        ):
            request = owner.sends("POST", f"/api/v1/{path}", sent)
            await machine.answers(await machine.takes(command, **body))
            assert (await request).json() == RESULTS[command]

    @pytest.mark.parametrize(
        ("method", "action", "command", "code"),
        [
            ("POST", "interrupt", "interrupt", ErrorCode.NOT_GENERATING),
            ("POST", "chat", "send_chat_now", ErrorCode.AGENT_BUSY),
            ("DELETE", "queue/msg_3", "withdraw", ErrorCode.ALREADY_SENT),
            ("GET", "diff", "read_changes", ErrorCode.NO_REPOSITORY),
        ],
    )
    async def test_the_codes_of_refusals(
        self, owner: Owner, method: str, action: str, command: str, code: ErrorCode
    ) -> None:
        machine = await owner.machine()
        body = {"message": "hi", "delivery": "reject"} if action == "chat" else None
        request = owner.sends(method, f"/api/v1/shortcuts/{machine.id}:cli:x/{action}", body)
        failure = Failure(status=409, message="It is too late for that", code=code)
        await machine.fails(await machine.takes(command), failure)
        assert_error(await request, 409, code)

    @pytest.mark.parametrize("message", ["a%00", "x" * 257, "%1B%5B"])
    async def test_what_is_no_id_of_a_message_is_a_404(self, owner: Owner, message: str) -> None:
        machine = await owner.machine()
        path = f"/api/v1/shortcuts/{machine.id}:cli:x/queue/{message}"
        assert_error(await owner.api.delete(path), 404)
        await machine.settled()
        assert machine.received_nothing()

    @pytest.mark.parametrize(
        ("method", "action", "body", "command"),
        [
            ("POST", "chat", {"message": "hi", "delivery": "reject"}, "send_chat_now"),
            ("POST", "interrupt", None, "interrupt"),
            ("GET", "screen", None, "read_screen"),
        ],
    )
    async def test_an_older_machine_agent_that_does_not_know_the_command(
        self, owner: Owner, method: str, action: str, body: Any, command: str
    ) -> None:
        """The answer of contributing/protocol.md, "Commands", as every release has given it."""
        machine = await owner.machine()
        request = owner.sends(method, f"/api/v1/shortcuts/{machine.id}:cli:x/{action}", body)
        failure = Failure(
            status=400,
            message=f"This machine's agent does not know the command {command!r}: update it "
            "(`outrider upgrade` there says how), then start it again",
            details=[ErrorDetail(path="type", message="…")],
        )
        await machine.fails(await machine.takes(command), failure)
        response = await request
        assert_error(response, 501)
        assert "is older than this service" in response.json()["error"]


class TestWorkspace:
    @pytest.mark.parametrize("base", ["main", "HEAD~1", "topic/one"])
    async def test_the_base_of_a_diff(self, owner: Owner, base: str) -> None:
        machine = await owner.machine()
        path = f"/api/v1/shortcuts/{machine.id}:cli:x/diff?base={quote(base)}"
        request = owner.sends("GET", path)
        await machine.answers(await machine.takes("read_changes", base=base))
        assert (await request).json() == RESULTS["read_changes"]

    @pytest.mark.parametrize("inner", ["", "src/a b.py", "../x", "-o", "a\nb"])
    async def test_the_path_of_files(self, owner: Owner, inner: str) -> None:
        machine = await owner.machine()
        path = f"/api/v1/shortcuts/{machine.id}:cli:x/files?path={quote(inner)}"
        request = owner.sends("GET", path)
        taken = await machine.takes("read_files")
        assert (payload_of(taken)["path"] or "") == inner
        await machine.answers(taken)
        assert (await request).json() == RESULTS["read_files"]

    async def test_a_file(self, owner: Owner) -> None:
        machine = await owner.machine()
        request = owner.sends("GET", f"/api/v1/shortcuts/{machine.id}:cli:x/files?path=a")
        file = {
            "success": True,
            "path": "a",
            "size": 3,
            "text": None,
            "truncated": False,
            "binary": True,
        }
        await machine.answers(await machine.takes("read_files"), file)
        assert (await request).json() == file


@pytest.mark.parametrize(
    ("path", "body", "blamed"),
    [
        (":cli:x/chat", b"", ""),
        (":cli:x/chat", b"[]", ""),
        (":cli:x/chat", b"{}", "message"),
        (":cli:x/chat", b'{"message":null}', "message"),
        (":cli:x/chat", b'{"message":""}', "message"),
        (":cli:x/chat", b'{"message":"\\u0000\\u001b\\u200b\\n"}', "message"),
        (":cli:x/chat", b'{"input":{}}', "input"),
        (":cli:x/chat", b'{"input":{"parts":[],"textFallback":" "}}', "input"),
        (":cli:x/chat", b'{"input":{"parts":[{"type":"text","text":"\\u0007"}]}}', "input"),
        (":cli:x/chat", b'{"input":{"parts":["hi"]}}', "input.parts[0]"),
        (":cli:x/chat", b'{"input":{"parts":[{"type":"video"}]}}', "input.parts[0].type"),
        (":cli:x/chat", b'{"input":{"parts":[{"type":"image"}]}}', "input.parts[0].mimeType"),
        (":cli:x/chat", b'{"message":"hi","agentType":"a\\u0000"}', "agentType"),
        (":cli:x/chat", b'{"message":"hi","sessionId":"a\\n"}', "sessionId"),
        (":cli:x/chat", b'{"message":"hi","controls":{"a\\u0000":true}}', "controls"),
        (":cli:x/chat", b'{"message":"hi","delivery":"later"}', "delivery"),
        (":cli:x/chat", b'{"message":"hi","delivery":null}', "delivery"),
        (":cli:x/approve", b"{}", "action"),
        (":cli:x/approve", b'{"action":"Approve"}', "action"),
        (":cli:x/approve", b'{"action":"approve","actionId":""}', "actionId"),
        (":cli:x/approve", b'{"action":"approve","optionId":1}', "optionId"),
        ("/launch", b"{}", "type"),
        ("/launch", b'{"type":"emacs"}', "type"),
        ("/launch", b'{"type":"emacs","resume":"session_1"}', "type"),
        ("/launch", b'{"type":"codex","resume":""}', "resume"),
        ("/launch", b'{"type":"codex","resume":"s","dir":"/srv"}', "dir"),
        ("/launch", b'{"type":"codex","resume":"s","model":"big"}', "model"),
        ("/launch", b'{"type":"codex","resume":"s","worktree":{"branch":"x"}}', "worktree"),
        ("/launch", b'{"type":"kiro","worktree":{"branch":"x"}}', "worktree"),
        ("/launch", b'{"type":"codex","worktree":{"branch":""}}', "worktree.branch"),
        ("/launch", b'{"type":"codex","worktree":{"branch":"x","base":""}}', "worktree.base"),
        ("/launch", b'{"type":"codex","dir":""}', "dir"),
        ("/launch", b'{"type":"codex","model":"a\\u001b[2J"}', "model"),
        ("/stop", b"{}", "type"),
        ("/stop", b'{"type":"codex","sessionId":1}', "sessionId"),
        ("/stop", b'{"type":"codex","dir":""}', "dir"),
        ("/stop", b'{"type":"codex","removeWorktree":1}', "removeWorktree"),
        (":cli:x/chat?limit=0", None, "limit"),
        (":cli:x/chat?limit=1001", None, "limit"),
        (":cli:x/chat?limit=1.0", None, "limit"),
        (":cli:x/chat?limit=" + "9" * 5000, None, "limit"),
        (":cli:x/chat?limit=1&limit=x", None, "limit"),
        (":cli:x/chat?after=", None, "after"),
        (":cli:x/chat?after=%FF", None, ""),
        (":cli:x/chat?agenttype=claude", None, "agenttype"),
        (":cli:x/diff?base=%1B", None, "base"),
        (":cli:x/diff?base=" + "x" * 257, None, "base"),
        (":cli:x/files?path=" + "x" * 4097, None, "path"),
    ],
)
async def test_a_wrong_request_is_a_400_that_names_the_field(
    owner: Owner, path: str, body: bytes | None, blamed: str
) -> None:
    machine = await owner.machine()
    method = "GET" if body is None else "POST"
    response = await owner.api.request(
        method, f"/api/v1/shortcuts/{machine.id}{path}", content=body
    )
    assert paths(response) == [blamed]
    await machine.settled()
    assert machine.received_nothing()
