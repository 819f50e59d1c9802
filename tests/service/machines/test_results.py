"""What a machine answers cannot lead a client to another machine or session."""

from typing import Any

import msgspec
import pytest

from outrider.contract.commands import CommandType
from outrider.contract.sizes import MAX_PAGE_BYTES
from outrider.service.machines.results import MalformedResult, checked_result
from tests.rig.samples import ACCEPTED, CHAT, LAUNCHED, RESULTS, STATE, STOPPED, TURN

MINE = "machine_mine"
OTHER = "machine_other"


def checked(command: CommandType, result: dict[str, Any], **payload: Any) -> dict[str, Any]:
    data = checked_result(MINE, command, msgspec.json.encode(payload), msgspec.json.encode(result))
    shown: dict[str, Any] = msgspec.json.decode(data)
    return shown


def test_a_launch_names_the_machine_and_the_type_that_were_asked_for() -> None:
    answered = LAUNCHED | {
        "id": f"{OTHER}:cli:codex",
        "sessionTargetId": f"{OTHER}:session:session_9",
        "type": "codex",
    }
    assert checked(CommandType.LAUNCH_CLI, answered, cliType="claude-code") == LAUNCHED | {
        "id": f"{MINE}:cli:claude-code",
        "sessionTargetId": f"{MINE}:session:session_1",
    }


def test_a_resumed_session_is_the_one_that_was_asked_for() -> None:
    shown = checked(CommandType.RESUME, LAUNCHED, type="claude-code", sessionId="session_7")
    assert shown["sessionId"] == "session_7"
    assert shown["sessionTargetId"] == f"{MINE}:session:session_7"


@pytest.mark.parametrize(
    ("command", "result"),
    [(CommandType.AGENT_STATUS, STATE), (CommandType.READ_CHAT, CHAT)],
)
def test_the_target_id_of_a_session_is_built_here(
    command: CommandType, result: dict[str, Any]
) -> None:
    answered = result | {"id": f"{OTHER}:session:session_9"}
    by_type = checked(command, answered, target=f"{MINE}:cli:claude-code")
    assert by_type["id"] == f"{MINE}:session:session_1"
    exactly = checked(command, answered, target=f"{MINE}:session:session_2")
    assert (exactly["id"], exactly["sessionId"]) == (f"{MINE}:session:session_2", "session_2")


@pytest.mark.parametrize(
    ("command", "result"),
    [(CommandType.SEND_CHAT, ACCEPTED), (CommandType.READ_TURN, TURN)],
)
def test_the_session_is_the_one_that_was_named(
    command: CommandType, result: dict[str, Any]
) -> None:
    answered = result | {"sessionId": "session_9"}
    target = f"{MINE}:cli:x"
    assert checked(command, answered, target=target)["sessionId"] == "session_9"
    named = checked(command, answered, target=target, sessionId="session_2")
    assert named["sessionId"] == "session_2"


def test_the_sessions_that_were_stopped() -> None:
    answered = STOPPED | {"stopped": ["session_8", "session_9"]}
    assert checked(CommandType.STOP_CLI, answered, cliType="x") == answered
    named = checked(CommandType.STOP_CLI, answered, cliType="x", sessionId="session_2")
    assert named["stopped"] == ["session_2"]


@pytest.mark.parametrize("session_id", ["", "a:b", f"{OTHER}:session:s", "s/../x", "é", "x" * 65])
@pytest.mark.parametrize("command", ["launch_cli", "send_chat", "agent_status", "stop_cli"])
def test_what_cannot_be_a_session_is_no_result(command: str, session_id: str) -> None:
    answered = RESULTS[command] | {"sessionId": session_id, "stopped": [session_id]}
    with pytest.raises(MalformedResult, match="not the id of a session"):
        checked(CommandType(command), answered, cliType="x")


def test_a_good_result_is_passed_on_with_fields_that_are_not_known_here() -> None:
    answered = ACCEPTED | {"newField": 1}
    assert checked(CommandType.SEND_CHAT, answered, target=f"{MINE}:cli:x") == answered


@pytest.mark.parametrize(("payload", "expected"), [({}, "9"), ({"after": "msg_x"}, "0")])
def test_a_chat_has_the_messages_that_fit_into_a_page(
    payload: dict[str, Any], expected: str
) -> None:
    chat: dict[str, Any] = CHAT
    (message,) = chat["messages"]
    messages = [
        message | {"id": f"msg_{number}", "index": number, "content": "x" * 1_000_000}
        for number in range(10)
    ]
    shown = checked(CommandType.READ_CHAT, CHAT | {"messages": messages}, **payload)
    assert len(msgspec.json.encode(shown)) <= MAX_PAGE_BYTES
    assert len(shown["messages"]) == 4
    kept = [message["id"] for message in shown["messages"]]
    assert kept == [message["id"] for message in messages if message["id"] in kept]
    assert f"msg_{expected}" in kept
