"""The commands for people against a real service with a demo agent.

One process runs most of them: starting one for each takes half a second of processor time. Those
of docs/cli.md and of the shells' completion are processes, as their users start them.
"""

import asyncio
import json
import re
import shlex
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from outrider.contract.ids import new_id
from outrider.sdk import AsyncAgent, AsyncMachine
from tests.rig.command_line import CommandLine
from tests.rig.people import dashboard, person
from tests.rig.processes import Outcome, Program, TerminalProgram, outrider
from tests.rig.samples import session
from tests.rig.waiting import TIMEOUT, eventually
from tests.sdk.conftest import Workplace
from tests.sdk.scripted_api import ScriptedApi, Step, answer, stream

pytestmark = pytest.mark.asyncio(loop_scope="session")

ERASED_LINE = b"\r\x1b[2K"
CLI_PAGE = Path(__file__).parents[3] / "docs" / "cli.md"


def error_of(outcome: Outcome, code: int) -> dict[str, Any]:
    """Check that a command with `--json` failed with this exit code; return the error."""
    assert outcome.code == code, (outcome.out, outcome.err)
    body: dict[str, Any] = json.loads(outcome.out)
    assert body["error"]
    return body


async def test_a_session_from_launch_to_stop(
    command: CommandLine, env: dict[str, str], workplace: Workplace, tmp_path: Path
) -> None:
    launched = await command("launch", "demo", "--dir", str(tmp_path), env=env)
    assert launched.code == 0, launched.err
    session = launched.out.strip()
    listed = await command("ls", "--json", env=env)
    asked = await command("ask", session, "Hello", env=env)
    assert session in [row["id"] for row in listed.json()["sessions"]]
    assert workplace.machine_id in [row["id"] for row in listed.json()["daemons"]]
    assert asked.code == 0
    assert asked.out.endswith("You said: Hello\n")
    question = await command("ask", session, "tool", env=env)
    assert question.code == 1
    assert f"outrider approve {session}" in question.err
    refused = await command("send", session, "Now", "--json", env=env)
    assert error_of(refused, 1)["code"] == "APPROVAL_PENDING"
    approved = await command("approve", session, "--json", env=env)
    assert approved.json()["action"] == "approve"
    beginning = f"{workplace.machine_id}:session:{session}"[:-1]
    late = await command("ask", beginning, "silent 600", "--timeout", "0.5", env=env)
    assert late.code == 4
    interrupted = await command("interrupt", session, env=env)
    assert (interrupted.code, interrupted.out) == (0, "idle\n")
    stopped = await command("stop", session, env=env)
    missing = await command("stop", "session_nothing", "--json", env=env)
    assert stopped.out == f"{session}\n"
    error_of(missing, 1)
    chat = await command("chat", session, "--json", env=env)
    body = chat.json()
    assert (body["state"], body["messages"][0]["content"]) == ("ended", "Hello")


async def test_ls_shows_that_the_machine_of_a_session_is_offline(
    command: CommandLine, env: dict[str, str], workplace: Workplace
) -> None:
    """What its agent was last seen doing says nothing then."""
    owner = await person(workplace.site)
    machine = await owner.machine(session(status="idle"))
    mine = env | {"OUTRIDER_API_KEY": owner.key}

    async def is_listed(status: str) -> bool:
        return status in (await command("ls", env=mine)).out.split("\t")

    await eventually(lambda: is_listed("idle"))
    revoked = await (await dashboard(owner)).post(f"/api/v1/daemons/{machine.id}/revoke")
    assert revoked.status_code == 200
    await eventually(lambda: is_listed("offline"))
    assert not await is_listed("idle")


async def in_terminal(*arguments: str, env: dict[str, str]) -> int:
    """Run `outrider` to its end in a terminal of its own; return its exit code."""
    async with TerminalProgram("-m", "outrider", *arguments, env=env) as program:
        return await program.ends()


async def test_a_turn_that_fails_ends_with_1(
    command: CommandLine, env: dict[str, str], machine: AsyncMachine, workplace: Workplace
) -> None:
    """Where the reply is shown as it comes, as well as in a pipe."""
    agent = await machine.launch("demo", dir=str(workplace.project))
    piped = await command("ask", agent.id, "fail", env=env)
    assert piped.code == 1
    assert "The turn failed" in piped.err
    assert await in_terminal("ask", agent.id, "fail", env=env) == 1
    assert await in_terminal("ask", agent.id, "Hello", env=env) == 0
    await agent.stop()


async def test_a_tool_call_is_shown_in_words_on_a_line_of_its_own(
    command: CommandLine, env: dict[str, str], machine: AsyncMachine, workplace: Workplace
) -> None:
    """On a terminal, where a spinner is shown until then."""
    agent = await machine.launch("demo", dir=str(workplace.project))
    async with TerminalProgram("-m", "outrider", "ask", agent.id, "tool", env=env) as asked:
        assert await asked.ends() == 1
    before, _, after = asked.shown.partition(b"\x1b[2m[tool_call] ")
    assert before.endswith(ERASED_LINE)
    assert after.startswith(b"Append a line to demo.txt\x1b[0m\r\n")
    await agent.stop()


async def test_a_target_that_names_several_does_nothing(
    command: CommandLine,
    env: dict[str, str],
    agent: AsyncAgent,
    machine: AsyncMachine,
    workplace: Workplace,
) -> None:
    other = await machine.launch("demo", dir=str(workplace.project))
    before = (await agent.chat()).total_messages
    by_type = await command("send", "demo", "Hello", env=env)
    by_nickname = await command("chat", "laptop:acp:demo", "--json", env=env)
    assert by_type.code == 2
    assert agent.session_id is not None
    assert other.session_id is not None
    assert by_type.err.startswith("outrider: 'demo' is ambiguous: it names\n  session_")
    assert agent.session_id in by_type.err
    assert other.session_id in by_type.err
    assert (await agent.chat()).total_messages == before
    assert by_nickname.json()["sessionId"] in {agent.session_id, other.session_id}
    await other.stop()


async def test_commands_of_a_machine_and_their_exit_codes(
    command: CommandLine, env: dict[str, str], workplace: Workplace
) -> None:
    line = await command("run", "laptop", "--", "echo $((6 * 7)); exit 3", env=env)
    machine = workplace.machine_id
    words = await command("run", machine, "--", "printf", "%s|", "a b", "$HOME", env=env)
    nobody = await command("run", "desktop", "--", "true", env=env)
    nothing = await command("ls", "--json", env=env | {"OUTRIDER_URL": "http://127.0.0.1:9"})
    assert (line.code, line.out) == (3, "42\n")
    assert (words.code, words.out) == (0, "a b|$HOME|")
    assert nobody.code == 1
    error_of(nothing, 3)


async def test_a_key_is_kept_for_its_owner_alone(
    command: CommandLine, env: dict[str, str], workplace: Workplace, tmp_path: Path
) -> None:
    bare = {name: value for name, value in env.items() if name not in LOGIN}
    without = await command("ls", env=bare)
    wrong = await login(bare, workplace.site.url, "ork_wrong")
    assert without.code == 2
    assert "outrider login" in without.err
    stored = tmp_path / "config" / "client.json"
    assert wrong.code == 1
    assert not stored.exists()
    done = await login(bare, workplace.site.url, workplace.key)
    assert done.code == 0, done.err
    assert stat.S_IMODE(stored.stat().st_mode) == 0o600
    assert workplace.key not in done.out + done.err
    listed = await command("ls", "--json", env=bare)
    elsewhere = await command("ls", env=bare | {"OUTRIDER_URL": "http://127.0.0.1:9"})
    assert listed.json()["daemons"]
    assert elsewhere.code == 2  # the key is not sent to another server


LOGIN = {"OUTRIDER_URL", "OUTRIDER_API_KEY"}


async def login(env: dict[str, str], server: str, key: str) -> Outcome:
    """Log in with a key on standard input."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "outrider", "login", "--server", server,
        env=env,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    async with asyncio.timeout(2 * TIMEOUT):
        out, err = await process.communicate(f"{key}\n".encode())
    assert process.returncode is not None
    return Outcome(process.returncode, out.decode(), err.decode())


async def test_the_commands_of_the_page_succeed(
    env: dict[str, str], workplace: Workplace, tmp_path: Path
) -> None:
    """Run the blocks of docs/cli.md, with the names that there are here."""
    bare = {name: value for name, value in env.items() if name not in LOGIN}
    blocks = re.findall(r"^```sh\n(.*?)^```$", CLI_PAGE.read_text(), re.MULTILINE | re.DOTALL)
    lines = [shlex.split(line, comments=True) for block in blocks for line in block.splitlines()]
    names = {"/srv/app": str(tmp_path)}
    done = set()
    for name, command, *arguments in lines:
        assert name == "outrider"
        words = [names.get(word, word) for word in arguments]
        if command == "webhook":
            continue  # test_webhook_commands.py
        if command == "login":
            outcome = await login(bare, workplace.site.url, workplace.key)
        elif command == "launch":
            outcome = await outrider(command, "demo", *words[1:], env=bare)
            names["claude-code"] = outcome.out.strip()
        elif command == "events":
            async with Program("-m", "outrider", command, *words, env=bare) as program:
                assert (await program.next_line()).startswith("whsec_")
            continue
        else:
            outcome = await outrider(command, *words, env=bare)
        assert outcome.code == 0 or command == "doctor", (command, outcome.out, outcome.err)
        done.add(command)
    assert done == {"login", "launch", "ask", "ls", "stop", "doctor"}


async def test_names_are_completed(env: dict[str, str], agent: AsyncAgent) -> None:
    assert agent.session_id is not None
    complete = env | {"_OUTRIDER_COMPLETE": "complete_bash", "COMP_CWORD": "2"}
    sessions, machines, offline = await asyncio.gather(
        outrider(env=complete | {"COMP_WORDS": f"outrider send {agent.session_id[:9]}"}),
        outrider(env=complete | {"COMP_WORDS": "outrider run lap"}),
        outrider(
            env=complete | {"COMP_WORDS": "outrider send s", "OUTRIDER_URL": "http://127.0.0.1:9"}
        ),
    )
    assert agent.session_id in sessions.out.split()
    assert machines.out.split() == ["laptop"]
    assert (offline.out.strip(), offline.err) == ("", "")


def chat_of(status: str, *contents: str, begins_at: int = 0) -> Step:
    """Return a response to a request for the chat, with messages of the agent."""
    messages = [
        {"id": f"msg_{at}", "index": at, "role": "assistant", "kind": "text", "content": content}
        | {"timestamp": 1}
        for at, content in enumerate(contents, begins_at)
    ]
    body = {
        "id": FOLLOWED,
        "sessionId": FOLLOWED.rpartition(":")[2],
        "agentType": "demo",
        "title": None,
        "status": status,
        "messages": messages,
        "pendingAction": None,
        "totalMessages": 3,
    }
    return answer(200, json.dumps(body).encode())


FOLLOWED = f"{new_id('machine')}:session:{new_id('session')}"
ENDED = (
    'event: stream:ready\ndata: {"resume":"fresh","cursor":"1"}\n\n'
    "id: 2\nevent: session:ended\n"
    'data: {"id":"evt_2","event":"session:ended","timestamp":1,"payload":{}}\n\n'
)


async def test_a_followed_chat_begins_with_the_last_messages(
    command: CommandLine, env: dict[str, str]
) -> None:
    """Also where the agent still writes the only one of them."""
    first = chat_of("generating", "Three", begins_at=2)
    steps = [first, stream(ENDED, stays_open=True), chat_of("idle", "One", "Two", "Three")]
    async with ScriptedApi(steps) as api:
        person = env | {"OUTRIDER_URL": api.url}
        followed = await command("chat", FOLLOWED, "--follow", "--limit", "1", env=person)
    assert (followed.code, followed.out) == (0, "assistant: Three\n")


async def test_a_terminal_is_needed_to_attach(command: CommandLine, env: dict[str, str]) -> None:
    plain = await command("attach", "demo", env=env)
    as_json = await command("attach", "demo", "--json", env=env)
    assert plain.code == 2
    assert "needs a terminal" in error_of(as_json, 2)["error"]
