"""The routes of "Shortcuts": what each takes, refuses and answers.

Holds docs/api.md, docs/control.md, docs/sessions.md and docs/changes.md.
"""

from typing import Any
from urllib.parse import quote

import pytest

from outrider.contract.errors import ErrorCode, ErrorDetail
from outrider.contract.frames import UNKNOWN_COMMAND, Failure
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

    @pytest.mark.parametrize(
        ("body", "blamed"),
        [
            (b"", ""),
            (b"[]", ""),
            (b"{}", "message"),
            (b'{"message":null}', "message"),
            (b'{"message":""}', "message"),
            (b'{"message":" "}', "message"),
            (b'{"message":"\\u0000\\u001b\\u200b\\n"}', "message"),
            (b'{"message":["hi"]}', "message"),
            (b'{"input":"hi"}', "input"),
            (b'{"input":{}}', "input"),
            (b'{"input":{"parts":[],"textFallback":" "}}', "input"),
            (b'{"input":{"parts":[{"type":"text","text":""}]}}', "input"),
            (b'{"input":{"parts":[{"type":"text","text":"\\u0007"}]}}', "input"),
            (b'{"input":{"textFallback":"\\u0000"}}', "input"),
            (b'{"input":{"parts":[{"type":"image","mimeType":"image/png","data":"?"}]}}',
             "input.parts[0].data"),
            (b'{"input":{"parts":["hi"]}}', "input.parts[0]"),
            (b'{"input":{"parts":[{"text":"hi"}]}}', "input.parts[0].type"),
            (b'{"input":{"parts":[{"type":"video","text":"hi"}]}}', "input.parts[0].type"),
            (b'{"input":{"parts":[{"type":"text","text":"a"},{"type":"text"}]}}',
             "input.parts[1].text"),
            (b'{"input":{"parts":[{"type":"image","data":"aGk="}]}}', "input.parts[0].mimeType"),
            (b'{"input":{"textFallback":5}}', "input.textFallback"),
            (b'{"message":"hi","agentType":""}', "agentType"),
            (b'{"message":"hi","agentType":"a\\u0000"}', "agentType"),
            (b'{"message":"hi","sessionId":"a\\n"}', "sessionId"),
            (b'{"message":"hi","controls":{"a\\u0000":true}}', "controls"),
        ],
    )  # fmt: skip
    async def test_bad_bodies(self, owner: Owner, body: bytes, blamed: str) -> None:
        """An empty message, a field missing or of the wrong type: 400."""
        machine = await owner.machine()
        response = await owner.api.post(f"/api/v1/shortcuts/{machine.id}:cli:x/chat", content=body)
        assert paths(response) == [blamed]


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

    @pytest.mark.parametrize(
        ("query", "blamed"),
        [
            ("limit=0", "limit"),
            ("limit=-1", "limit"),
            ("limit=1001", "limit"),
            ("limit=abc", "limit"),
            ("limit=", "limit"),
            ("limit=1.5", "limit"),
            ("limit=1.0", "limit"),
            ("limit=null", "limit"),
            ("limit=" + "9" * 5000, "limit"),
            ("limit=1&limit=x", "limit"),
            ("after=", "after"),
            ("agentType=", "agentType"),
            ("after=%FF", ""),
            ("agenttype=claude", "agenttype"),
            ("limt=5", "limt"),
        ],
    )
    async def test_bad_query(self, owner: Owner, query: str, blamed: str) -> None:
        """A bad query value: 400."""
        machine = await owner.machine()
        response = await owner.api.get(f"/api/v1/shortcuts/{machine.id}:cli:x/chat?{query}")
        assert paths(response) == [blamed]


class TestApprove:
    @pytest.mark.parametrize(
        ("body", "blamed"),
        [
            (b"{}", "action"),
            (b"", ""),
            (b'{"action":null}', "action"),
            (b'{"action":"yes"}', "action"),
            (b'{"action":"Approve"}', "action"),
            (b'{"action":1}', "action"),
            (b'{"action":"approve","actionId":""}', "actionId"),
            (b'{"action":"approve","optionId":1}', "optionId"),
            (b'{"action":"approve","agentType":1}', "agentType"),
        ],
    )
    async def test_bad_bodies(self, owner: Owner, body: bytes, blamed: str) -> None:
        """An action other than approve or reject: 400."""
        machine = await owner.machine()
        response = await owner.api.post(
            f"/api/v1/shortcuts/{machine.id}:cli:x/approve", content=body
        )
        assert paths(response) == [blamed]


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

    async def test_a_machine_that_knows_no_worktrees(self, owner: Owner) -> None:
        machine = await owner.machine()
        for action, body in (
            ("launch", {"type": "codex", "worktree": {"branch": "topic"}}),
            ("stop", {"type": "codex", "removeWorktree": True}),
        ):
            request = owner.sends("POST", f"/api/v1/shortcuts/{machine.id}/{action}", body)
            details = [ErrorDetail(path="type", message="-")]
            failure = Failure(status=400, message=f"It {UNKNOWN_COMMAND} x", details=details)
            await machine.fails(await machine.takes(), failure)
            assert_error(await request, 501)

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

    async def test_not_resumable(self, owner: Owner) -> None:
        """docs/sessions.md: 409 `NOT_RESUMABLE` saying why."""
        machine = await owner.machine()
        body = {"type": "codex", "resume": "session_1"}
        request = owner.sends("POST", f"/api/v1/shortcuts/{machine.id}/launch", body)
        failure = Failure(status=409, message="It is running now", code=ErrorCode.NOT_RESUMABLE)
        await machine.fails(await machine.takes("resume"), failure)
        error = assert_error(await request, 409, "NOT_RESUMABLE")
        assert error["error"] == "It is running now"

    @pytest.mark.parametrize(
        ("body", "blamed"),
        [
            (b"", ""),
            (b"{}", "type"),
            (b'{"type":""}', "type"),
            (b'{"type":3}', "type"),
            (b'{"type":"emacs"}', "type"),
            (b'{"type":"emacs","resume":"session_1"}', "type"),
            (b'{"type":"codex","resume":1}', "resume"),
            (b'{"type":"codex","resume":""}', "resume"),
            (b'{"type":"codex","resume":"session_1","dir":"/srv"}', "dir"),
            (b'{"type":"codex","resume":"session_1","model":"big"}', "model"),
            (b'{"type":"codex","resume":"session_1","worktree":{"branch":"x"}}', "worktree"),
            (b'{"type":"kiro","worktree":{"branch":"x"}}', "worktree"),
            (b'{"type":"codex","worktree":{}}', "worktree.branch"),
            (b'{"type":"codex","worktree":{"branch":""}}', "worktree.branch"),
            (b'{"type":"codex","worktree":{"branch":"x","base":""}}', "worktree.base"),
            (b'{"type":"codex","worktree":"x"}', "worktree"),
            (b'{"type":"codex","dir":""}', "dir"),
            (b'{"type":"codex","dir":1}', "dir"),
            (b'{"type":"codex","model":1}', "model"),
            (b'{"type":"codex","model":"a\\u0000b"}', "model"),
            (b'{"type":"codex","model":"a\\u001b[2J"}', "model"),
            (b'{"type":"codex","dir":"/srv\\u0000"}', "dir"),
            (b'{"type":"codex\\u0000"}', "type"),
        ],
    )
    async def test_bad_bodies(self, owner: Owner, body: bytes, blamed: str) -> None:
        machine = await owner.machine()
        response = await owner.api.post(f"/api/v1/shortcuts/{machine.id}/launch", content=body)
        assert paths(response) == [blamed]

    async def test_a_pattern_is_explained_in_words(self, owner: Owner) -> None:
        machine = await owner.machine()
        response = await owner.api.post(
            f"/api/v1/shortcuts/{machine.id}/launch", json={"type": "codex", "model": "a\0"}
        )
        error = assert_error(response, 400)["error"]
        assert error == "Expected text without control characters (at `model`)"

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

    @pytest.mark.parametrize(
        ("body", "blamed"),
        [
            (b"", ""),
            (b"{}", "type"),
            (b'{"type":3}', "type"),
            (b'{"type":"codex","sessionId":1}', "sessionId"),
            (b'{"type":"codex","dir":""}', "dir"),
            (b'{"type":"codex","removeWorktree":1}', "removeWorktree"),
        ],
    )
    async def test_bad_bodies(self, owner: Owner, body: bytes, blamed: str) -> None:
        machine = await owner.machine()
        response = await owner.api.post(f"/api/v1/shortcuts/{machine.id}/stop", content=body)
        assert paths(response) == [blamed]


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

    @pytest.mark.parametrize("delivery", [None, "", "later", True])
    async def test_an_unknown_delivery(self, owner: Owner, delivery: object) -> None:
        machine = await owner.machine()
        response = await owner.api.post(
            f"/api/v1/shortcuts/{machine.id}:cli:x/chat",
            json={"message": "hi", "delivery": delivery},
        )
        assert_error(response, 400)
        assert paths(response) == ["delivery"]

    @pytest.mark.parametrize(
        ("method", "action", "command", "code"),
        [
            ("POST", "interrupt", "interrupt", ErrorCode.NOT_GENERATING),
            ("DELETE", "queue/msg_3", "withdraw", ErrorCode.ALREADY_SENT),
            ("GET", "diff", "read_changes", ErrorCode.NO_REPOSITORY),
        ],
    )
    async def test_the_codes_of_refusals(
        self, owner: Owner, method: str, action: str, command: str, code: ErrorCode
    ) -> None:
        machine = await owner.machine()
        request = owner.sends(method, f"/api/v1/shortcuts/{machine.id}:cli:x/{action}")
        failure = Failure(status=409, message="It is too late for that", code=code)
        await machine.fails(await machine.takes(command), failure)
        assert_error(await request, 409, code)

    async def test_a_busy_agent(self, owner: Owner) -> None:
        machine = await owner.machine()
        body = {"message": "hi", "delivery": "reject"}
        request = owner.sends("POST", f"/api/v1/shortcuts/{machine.id}:cli:x/chat", body)
        failure = Failure(status=409, message="It is generating", code=ErrorCode.AGENT_BUSY)
        await machine.fails(await machine.takes("send_chat_now"), failure)
        assert_error(await request, 409, "AGENT_BUSY")

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
            ("GET", "queue", None, "read_queue"),
            ("DELETE", "queue/msg_3", None, "withdraw"),
            ("GET", "screen", None, "read_screen"),
            ("GET", "diff", None, "read_changes"),
            ("GET", "files", None, "read_files"),
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
        "query", ["diff?base=%1B", "diff?base=" + "x" * 257, "files?path=" + "x" * 4097]
    )
    async def test_a_wrong_query(self, owner: Owner, query: str) -> None:
        machine = await owner.machine()
        response = await owner.api.get(f"/api/v1/shortcuts/{machine.id}:cli:x/{query}")
        assert_error(response, 400)
        assert paths(response) == [query.partition("?")[2].partition("=")[0]]
