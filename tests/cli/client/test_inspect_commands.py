"""The commands that show a session: its question, changes, files, queue and worktree."""

import json
from pathlib import Path

import pytest

from outrider.sdk import AsyncMachine
from tests.rig.command_line import CommandLine
from tests.rig.processes import TerminalProgram
from tests.sdk.conftest import Workplace
from tests.sdk.scripted_api import ScriptedApi, answer

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def shown_on_a_terminal(*arguments: str, env: dict[str, str]) -> str:
    """Run `outrider` on a plain terminal of 80 columns; return what it shows."""
    async with TerminalProgram("-m", "outrider", *arguments, env=env | {"TERM": "dumb"}) as shell:
        assert await shell.ends() == 0
        return shell.shown.decode().replace("\r\n", "\n").strip()


async def test_ls_shows_every_column_whole_on_a_narrow_terminal(
    command: CommandLine, env: dict[str, str]
) -> None:
    session = (await command("launch", "demo", env=env)).out.strip()
    await command("ask", session, "Hello", env=env)
    running = await shown_on_a_terminal("ls", "--limit", "1", env=env)
    await command("stop", session, env=env)
    ended = await shown_on_a_terminal("ls", "--ended", "--limit", "1", env=env)
    heads = {
        running: ["SESSION", "MACHINE", "TYPE", "STATUS", "DIRECTORY", "TITLE"],
        ended: ["SESSION", "MACHINE", "TYPE", "ENDED", "REASON", "DIRECTORY", "TITLE"],
    }
    for shown, head in heads.items():
        assert shown.split()[: len(head)] == head
        assert all(len(line) <= 80 for line in shown.splitlines())
        assert {session, "demo", "Hello"} <= set(shown.split())
    assert "idle" in running.split()
    assert "stopped" in ended.split()


async def test_approvals_says_on_a_terminal_that_there_are_none(env: dict[str, str]) -> None:
    async with ScriptedApi([answer(200, b'{"approvals": []}')]) as api:
        shown = await shown_on_a_terminal("approvals", env=env | {"OUTRIDER_URL": api.url})
    assert shown == "No agent asks anything"


async def test_a_question_is_shown_and_answered_by_its_number(
    command: CommandLine, env: dict[str, str], tmp_path: Path
) -> None:
    session = (await command("launch", "demo", "--dir", str(tmp_path), env=env)).out.strip()
    asked = await command("ask", session, "tool", env=env)
    assert asked.code == 1
    assert "  2  Allow always\n" in asked.err
    listed = await command("ls", env=env)
    (row,) = [line for line in listed.out.splitlines() if line.startswith(session)]
    assert "1 Allow once; 2 Allow always; 3 Reject" in row.split("\t")[6]
    pending = await command("approvals", env=env)
    status = await command("status", session, env=env)
    waited = await command("wait", session, env=env)
    for shown in (pending, status, waited):
        assert shown.code == 0
        assert "3  Reject" in shown.out
        assert "demo.txt" in shown.out
    labels = [line.partition("  ")[0].lower() for line in status.out.splitlines()]
    assert labels.count("mode") == labels.count("model") == 1
    unknown = await command("approve", session, "--option", "9", env=env)
    assert unknown.code == 2
    assert "1  Allow once" in unknown.err
    rejected = await command("reject", session, "--option", "3", env=env)
    assert rejected.code == 0
    assert rejected.out.endswith("Rejected: Reject\n")
    nothing = await command("approve", session, "--json", env=env)
    assert (nothing.code, json.loads(nothing.out)["code"]) == (1, "NO_PENDING_ACTION")
    async with TerminalProgram("-m", "outrider", "ls", env=env) as terminal:
        assert await terminal.ends() == 0
    await command("stop", session, env=env)
    ended = await command("ls", "--ended", "--limit", "1000", env=env)
    (row,) = [line for line in ended.out.splitlines() if line.startswith(session)]
    assert row.split("\t")[4] == "stopped"
    assert session in [
        row["id"] for row in (await command("ls", "--ended", "--json", env=env)).json()["sessions"]
    ]


async def test_changes_and_files_are_shown_and_a_clean_worktree_is_removed(
    command: CommandLine, env: dict[str, str], repository: Path
) -> None:
    usage = await command("launch", "demo", "--base", "main", env=env)
    assert usage.code == 2
    missing = await command("launch", "demo", "--dir", "/does/not/exist", env=env)
    assert missing.code == 1
    assert "create it, or choose another one in `dir`" in missing.err
    options = ("--dir", str(repository), "--worktree", "try", "--base", "main")
    session = (await command("launch", "demo", *options, env=env)).out.strip()
    asked = await command("ask", session, "edit", env=env)
    assert asked.code == 1
    assert (await command("approve", session, env=env)).code == 0
    assert (await command("wait", session, "--timeout", "60", env=env)).out == "idle\n"
    patch = await command("diff", session, "--base", "start", env=env)
    assert "+++ b/demo.txt\n" in patch.out
    assert (await command("diff", session, "--json", env=env)).json()["branch"] == "try"
    listed = await command("files", session, env=env)
    assert "demo.txt" in listed.out
    text = (await command("files", session, "demo.txt", env=env)).out
    assert text
    assert text in (await command("files", session, "demo.txt", "--json", env=env)).json()["text"]
    running = await command("worktree", "rm", session, env=env)
    assert running.code == 1
    assert "`outrider stop --remove-worktree`" in running.err
    dirty = await command("stop", session, "--remove-worktree", env=env)
    assert dirty.code == 1
    assert (await command("stop", session, env=env)).code == 0
    dirty = await command("worktree", "rm", session, "--json", env=env)
    assert (dirty.code, json.loads(dirty.out)["code"]) == (1, "WORKTREE_DIRTY")

    clean = ("--dir", str(repository), "--worktree", "clean")
    session = (await command("launch", "demo", *clean, env=env)).out.strip()
    place = (await command("status", session, "--json", env=env)).json()["workspace"]["path"]
    assert (await command("stop", session, env=env)).code == 0
    assert (await command("worktree", "rm", session, env=env)).out == f"{place}\n"


async def test_messages_that_wait_are_listed_and_taken_back(
    command: CommandLine, env: dict[str, str], tmp_path: Path
) -> None:
    session = (await command("launch", "demo", "--dir", str(tmp_path), env=env)).out.strip()
    await command("send", session, "silent 600", env=env)
    queued = (await command("send", session, "Later", "--json", env=env)).json()["messageId"]
    at_work = await command("wait", session, "--timeout", "0", env=env)
    assert (at_work.code, at_work.out) == (4, "timeout\n")
    listed = await command("queue", session, env=env)
    assert listed.out.startswith(f"{queued}\t")
    taken = await command("queue", session, "--withdraw", queued, "--json", env=env)
    assert taken.json()["messageId"] == queued
    assert (await command("queue", session, env=env)).out == ""
    debug = await command("debug", session, env=env)
    assert session in debug.out
    await command("stop", session, env=env)


async def test_the_screen_of_a_terminal_agent(
    command: CommandLine, env: dict[str, str], tmp_path: Path
) -> None:
    session = (await command("launch", "shell", "--dir", str(tmp_path), env=env)).out.strip()
    shown = await command("screen", session, env=env)
    assert shown.out.startswith("sh>")
    await command("stop", session, env=env)


async def test_a_machine_its_terminals_and_the_account_are_shown(
    command: CommandLine, env: dict[str, str], machine: AsyncMachine, workplace: Workplace
) -> None:
    shown = await command("machine", "show", "laptop", env=env)
    assert shown.out.startswith(f"{workplace.machine_id}  laptop  online")
    assert "\ndemo\tacp\tDemo agent\t" in shown.out
    await machine.run("true", name="kept")
    assert (await command("machine", "terminals", "laptop", env=env)).out == "kept\tidle\n"
    closed = await command("machine", "terminals", "laptop", "--close", "kept", env=env)
    assert closed.out == "kept is closed\n"
    account = await command("account", env=env)
    assert " of unlimited\n" in account.out
    assert (await command("account", "--json", env=env)).json()["plan"] == "enterprise"
