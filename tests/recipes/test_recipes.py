"""Each recipe of docs/recipes does what its page says."""

import asyncio
import hashlib
import hmac
import json
import re
import socket
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest

from outrider.contract import signatures
from outrider.contract.frames import Failure
from outrider.sdk import AsyncMachine, AsyncOutrider
from tests.recipes.recipe import Recipe
from tests.rig.machine import ScriptedMachine
from tests.rig.processes import PROCESS_TIMEOUT, environment
from tests.rig.samples import LAUNCHED
from tests.rig.waiting import TIMEOUT, eventually
from tests.sdk.conftest import Workplace
from tests.servers.server import free_port

pytestmark = pytest.mark.asyncio(loop_scope="session")


def variables(workplace: Workplace, key: str | None = None) -> dict[str, str]:
    """Return the environment of a recipe."""
    return environment(workplace.project / "none") | {
        "OUTRIDER_URL": workplace.site.url,
        "OUTRIDER_API_KEY": key or workplace.key,
    }


async def test_a_nightly_task_reports_each_of_ten_machines(workplace: Workplace) -> None:
    async with workplace.site.visit():
        owner = await workplace.site.account()
        for number in range(9):
            enrolled = await owner.enrolls(nickname=f"builder-{number}")
            machine = await owner.machine(enrolled=enrolled)
            target = f"{machine.id}:session:session_1"
            machine.obliges(launch_cli=LAUNCHED | {"sessionTargetId": target})
        broken = await owner.machine(enrolled=await owner.enrolls(nickname="broken"))
        refusing = asyncio.create_task(_refuses_a_launch(broken))
        env = variables(workplace, owner.key)
        async with Recipe("nightly.md", "claude-code", "/srv/app", env=env) as recipe:
            code, printed = await recipe.ends()
        await refusing
    assert code == 1
    *lines, summary = printed.splitlines()
    assert len([line for line in lines if line.startswith("done    builder-")]) == 9
    assert [line for line in lines if "FAILED  broken: No such directory" in line]
    assert summary == "9 of 10 machines are done"


async def _refuses_a_launch(machine: ScriptedMachine) -> None:
    await machine.fails(await machine.takes(), Failure(status=400, message="No such directory"))


async def test_a_finished_turn_is_reviewed(
    workplace: Workplace, machine: AsyncMachine, repository: Path
) -> None:
    agent = await machine.launch("demo", dir=str(repository))
    try:
        async with Recipe("review.md", "laptop", "demo", env=variables(workplace)) as recipe:
            assert await recipe.line() == "ready\n"
            reviewed = asyncio.create_task(_until(recipe, "+++ b/demo.txt"))
            while not reviewed.done():  # its stream of events opens after it is ready
                await agent.ask("Hello", timeout=TIMEOUT)
                (repository / "demo.txt").write_text(f"{time.time()}\n")
            await reviewed
    finally:
        await agent.stop()
        for session in await machine.sessions(state="running"):
            if session.type == "demo" and session.title and "Review" in session.title:
                await machine.stop("demo", session_id=session.id)


async def _until(recipe: Recipe, text: str) -> None:
    while text not in await recipe.line():
        pass


async def test_three_agents_work_in_three_worktrees(workplace: Workplace, repository: Path) -> None:
    arguments = ("laptop", str(repository), "tool", "demo", "demo", "demo")
    for _ in range(2):  # the second time does not continue what the first has left
        async with Recipe("compare.md", *arguments, env=variables(workplace)) as recipe:
            code, printed = await recipe.ends()
        assert code == 0
        for number in (1, 2, 3):
            assert f"-{number}-demo: idle\n  demo.txt  +1 -0\n" in printed
        assert printed.count("+++ b/demo.txt") == 3


async def test_what_an_agent_has_committed_is_compared(
    workplace: Workplace, repository: Path
) -> None:
    commit = (
        "echo made >made.txt && git add made.txt && "
        "git -c user.name=T -c user.email=t@example.org commit --quiet --message=Made"
    )
    arguments = ("laptop", str(repository), commit, "shell")
    async with Recipe("compare.md", *arguments, env=variables(workplace)) as recipe:
        code, printed = await recipe.ends()
    assert code == 0
    assert "-1-shell: idle\n  made.txt  +1 -0" in printed


async def test_a_bot_answers_approvals_by_its_rules(
    workplace: Workplace, machine: AsyncMachine
) -> None:
    async with await machine.launch("demo", dir=str(workplace.project)) as agent:
        cursor = (await agent.send("tool")).cursor
        await agent.wait(after=cursor, timeout=60)
        async with Recipe("approval-bot.md", env=variables(workplace)) as recipe:
            assert (await recipe.line()).startswith("approve: ")  # it was asked before the bot
            assert (await agent.reply(cursor, timeout=TIMEOUT)).text == "Approved."
            again = (await agent.send("edit")).cursor
            assert "demo.txt" in await recipe.line()
            assert (await agent.reply(again, timeout=TIMEOUT)).status == "idle"


class Slack:
    """Slack: it takes messages, and signs what it sends."""

    secret = "slack-signing-secret"

    def __init__(self) -> None:
        self.taken: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.url = ""

    async def message(self) -> dict[str, Any]:
        """Return the next message that it was sent."""
        async with asyncio.timeout(TIMEOUT):
            return await self.taken.get()

    def press(self, message: dict[str, Any], name: str, user: str) -> tuple[bytes, dict[str, str]]:
        """Return the request for a button that somebody presses."""
        (button,) = [
            element for element in message["blocks"][1]["elements"] if element["action_id"] == name
        ]
        interaction = {
            "user": {"id": user},
            "actions": [{"action_id": name, "value": button["value"]}],
            "response_url": self.url,
        }
        body = urlencode({"payload": json.dumps(interaction)}).encode()
        stamp = str(int(time.time()))
        signed = b"v0:" + stamp.encode() + b":" + body
        signature = hmac.new(self.secret.encode(), signed, hashlib.sha256).hexdigest()
        headers = {"X-Slack-Request-Timestamp": stamp, "X-Slack-Signature": f"v0={signature}"}
        return body, headers

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take one request."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        (length,) = re.findall(r"content-length: (\d+)", head)
        self.taken.put_nowait(json.loads(await reader.readexactly(int(length))))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
        await writer.drain()
        writer.close()


@asynccontextmanager
async def slack() -> AsyncIterator[Slack]:
    slack_ = Slack()
    async with await asyncio.start_server(slack_.serve, "127.0.0.1", 0) as server:
        slack_.url = "http://{}:{}/".format(*server.sockets[0].getsockname()[:2])
        yield slack_


async def test_approvals_are_answered_from_slack(
    workplace: Workplace, client: AsyncOutrider, machine: AsyncMachine
) -> None:
    agent = await machine.launch("demo", dir=str(workplace.project))
    account = await client.account()
    port, secret = free_port(), "whsec_of_the_recipe"
    env = variables(workplace, await workplace.site.key(account.id, ["agent:control"])) | {
        "OUTRIDER_WEBHOOK_SECRET": secret,
        "SLACK_SIGNING_SECRET": Slack.secret,
        "SLACK_APPROVERS": "U1,U2",
    }
    async with AsyncExitStack() as stack:
        stack.push_async_callback(agent.stop)
        fake = await stack.enter_async_context(slack())
        env["SLACK_WEBHOOK_URL"] = fake.url
        await stack.enter_async_context(Recipe("slack.md", str(port), env=env))
        http = await stack.enter_async_context(
            httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=TIMEOUT)
        )
        await eventually(lambda: _listens(port), PROCESS_TIMEOUT)

        async def asks() -> dict[str, Any]:
            """Return the message in Slack for a new question."""
            cursor = (await agent.send("tool")).cursor
            await agent.wait(after=cursor, timeout=60)
            event = await anext(client.events(["approval:opened"], target=agent.id, after="0"))
            question = (await agent.status()).pending_action
            assert question is not None
            body = json.loads(event.body)
            body["payload"]["action"]["id"] = question.id
            raw = json.dumps(body).encode()
            signed = {"X-Service-Signature": signatures.header([secret], _now(), raw)}
            assert (await http.post("/outrider", content=raw)).status_code == 400
            assert (await http.post("/outrider", content=raw, headers=signed)).status_code == 204
            return await fake.message()

        message = await asks()
        assert "demo.txt" in message["text"]
        body, headers = fake.press(message, "approve", "U1")
        forged = headers | {"X-Slack-Signature": "v0=00"}
        assert (await http.post("/slack", content=body, headers=forged)).status_code == 400
        stranger, its_headers = fake.press(message, "approve", "U9")
        await http.post("/slack", content=stranger, headers=its_headers)
        assert "may not" in (await fake.message())["text"]
        assert (await agent.status()).status == "waiting_approval"
        assert (await http.post("/slack", content=body, headers=headers)).status_code == 200
        assert (await fake.message())["text"] == "<@U1>: approve"
        assert (await agent.reply()).text.endswith("Approved.")
        late, its_headers = fake.press(message, "reject", "U2")
        await http.post("/slack", content=late, headers=its_headers)
        assert "reject" not in (await fake.message())["text"]


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _now() -> int:
    return time.time_ns() // 1_000_000
