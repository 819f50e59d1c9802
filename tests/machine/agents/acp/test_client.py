"""What an agent asks of its client: files of its directory only, terminals within bounds."""

import asyncio
import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
from acp import RequestError

from outrider.contract.commands import StopCli
from outrider.machine.agents.acp.client import MAX_FILE, AgentFiles, OutsideError
from outrider.machine.agents.acp.output_tail import OutputTail
from outrider.machine.agents.acp.terminals import MAX_TERMINALS, AgentTerminals
from tests.machine.agents.machine import Agent, Machine, running_in, until


async def answer_to(agent: Agent, text: str) -> Any:
    """Return what the agent was answered, which it says as JSON."""
    added = await agent.turn(text)
    (said,) = [m.content for m in added if (m.role, m.kind) == ("assistant", "text")]
    return json.loads(said)


async def test_files_of_the_directory_are_read_and_written(box: Machine) -> None:
    agent = await box.launch(kind="scripted")
    (box.project / "notes").write_text("one\ntwo\nthree\n")
    assert await answer_to(agent, f"fs read {box.project}/notes") == {
        "content": "one\ntwo\nthree\n"
    }
    assert await answer_to(agent, f"fs line {box.project}/notes") == {"content": "two\n"}
    await agent.turn(f"fs write {box.project}/new/file")
    assert (box.project / "new" / "file").read_text() == "written"


async def test_a_file_outside_is_refused_and_reported(box: Machine, tmp_path: Path) -> None:
    agent = await box.launch(kind="scripted")
    secret = tmp_path / "secret"
    secret.write_text("secret")
    (box.project / "link").symlink_to(secret)
    (box.project / "folder").symlink_to(tmp_path)
    paths = [secret, box.project / ".." / "secret", box.project / "link",
             box.project / "folder" / "secret"]  # fmt: skip
    for path in paths:
        assert "is not inside the session's directory" in await answer_to(agent, f"fs read {path}")
        assert "is not inside" in await answer_to(agent, f"fs write {path}")
    assert secret.read_text() == "secret"
    refused = agent.evidence()["refusedPaths"]
    assert isinstance(refused, list)
    assert len(refused) == 8
    assert f"read {secret}" in refused
    assert box.refusals == [
        (agent.id, f"agent.fs_{verb}_refused", str(path))
        for path in paths
        for verb in ("read", "write")
    ]


@pytest.fixture
def files(tmp_path: Path) -> AgentFiles:
    return AgentFiles(str(tmp_path))


def test_files_of_a_directory_that_is_a_link_can_be_used(tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.mkdir()
    (real / "file").write_text("text")
    (tmp_path / "link").symlink_to(real)
    linked = AgentFiles(str(tmp_path / "link"))
    assert linked.read(str(tmp_path / "link" / "file")) == "text"
    assert linked.read(str(real / "file")) == "text"


@pytest.mark.parametrize("path", ["relative", "/nul\0", "", "/" + "x" * 5000])
def test_a_path_that_is_not_absolute_or_has_a_nul_is_refused(files: AgentFiles, path: str) -> None:
    with pytest.raises(RequestError):
        files.read(path)


def test_a_folder_or_pipe_is_refused_as_a_file(files: AgentFiles, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", "", "missing"):
        with pytest.raises(RequestError) as refused:
            files.read(str(tmp_path / name))
        assert not isinstance(refused.value, OutsideError)
    with pytest.raises(RequestError):
        files.write(str(tmp_path / "pipe"), "text")


def test_files_over_the_size_limit_are_refused(files: AgentFiles, tmp_path: Path) -> None:
    big = tmp_path / "big"
    with big.open("wb") as file:
        file.truncate(MAX_FILE + 1)
    with pytest.raises(RequestError, match="more than"):
        files.read(str(big))
    with pytest.raises(RequestError, match="more than"):
        files.write(str(tmp_path / "new"), "x" * (MAX_FILE + 1))
    assert not (tmp_path / "new").exists()
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(RequestError, match="UTF-8"):
        files.read(str(tmp_path / "binary"))


def test_a_shorter_text_replaces_a_longer_one(files: AgentFiles, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("a long text")
    files.write(str(tmp_path / "file"), "short")
    assert (tmp_path / "file").read_text() == "short"


@pytest.mark.parametrize(("line", "limit", "text"), [(None, 2, "1\n2\n"), (3, None, "3\n4"),
    (2, 1, "2\n"), (0, 1, "1\n"), (9, 1, ""), (1, 0, "")])  # fmt: skip
def test_a_range_of_lines_is_read(
    files: AgentFiles, tmp_path: Path, line: int, limit: int, text: str
) -> None:
    (tmp_path / "file").write_text("1\n2\n3\n4")
    assert files.read(str(tmp_path / "file"), line, limit) == text


def test_a_line_ends_with_a_line_feed_only(files: AgentFiles, tmp_path: Path) -> None:
    text = "a\fb\x0b\u2028\r\nc\rd\ne\n"
    (tmp_path / "file").write_text(text, newline="")
    path = str(tmp_path / "file")
    assert files.read(path, 1, 1) == "a\fb\x0b\u2028\r\n"
    assert files.read(path, 2, 1) == "c\rd\n"
    assert files.read(path, 1) == text


async def test_a_terminal_has_output_and_exit_status(box: Machine) -> None:
    agent = await box.launch(kind="scripted")
    ended, output, gone = await answer_to(agent, "terminal printf 0123456789abcdef; exit 3")
    assert ended == {"exitCode": 3}
    assert output == {"output": "6789abcdef", "truncated": True, "exitStatus": {"exitCode": 3}}
    assert gone is True
    results = [m.content for m in await agent.messages() if m.kind == "tool_result"]
    assert results == ["6789abcdef"]


async def test_a_killed_terminal_has_a_signal(box: Machine) -> None:
    agent = await box.launch(kind="scripted")
    running, ended = await answer_to(agent, "terminal-kill")
    assert running is None
    assert ended == {"signal": "SIGKILL"}


async def test_a_terminal_over_the_limit_is_refused(box: Machine) -> None:
    agent = await box.launch(kind="scripted")
    assert await answer_to(agent, f"terminal-many {MAX_TERMINALS + 2}") == [2]
    assert len(running_in(box.folder / "home")) > MAX_TERMINALS


async def test_terminals_over_the_limit_at_once_are_refused(box: Machine) -> None:
    agent = await box.launch(kind="scripted")
    assert await answer_to(agent, f"terminal-rush {MAX_TERMINALS + 20}") == [20]


@pytest.mark.parametrize("how", ["released", "kept"])
async def test_processes_of_a_command_end_with_its_terminal(box: Machine, how: str) -> None:
    agent = await box.launch(kind="scripted")
    assert await answer_to(agent, f"terminal-leaves {how}") == [{"exitCode": 0}]
    if how == "released":
        assert len(running_in(box.folder / "home")) == 1  # the agent
    await box.sessions.ending.stop(StopCli(cli_type="scripted"))
    assert not running_in(box.folder / "home")


async def test_a_terminal_that_starts_while_all_are_closed_is_ended(tmp_path: Path) -> None:
    terminals = AgentTerminals(str(tmp_path), {"PATH": os.environ["PATH"], "HOME": str(tmp_path)})
    opening = asyncio.create_task(terminals.create("sleep 300", [], {}, None, None))
    await asyncio.sleep(0)
    opening.cancel()
    await terminals.close()
    assert not running_in(tmp_path)
    with pytest.raises(RequestError):
        await terminals.create("sleep 300", [], {}, None, None)


async def test_a_release_while_all_terminals_are_closed_succeeds(tmp_path: Path) -> None:
    terminals = AgentTerminals(str(tmp_path), {"PATH": os.environ["PATH"], "HOME": str(tmp_path)})
    names = [await terminals.create("echo out; sleep 300", [], {}, None, None) for _ in range(2)]
    await until(lambda: all(terminals.text(name) == "out\n" for name in names))
    closing = asyncio.create_task(terminals.close())
    await asyncio.sleep(0)
    releasing = asyncio.create_task(terminals.release(names[0]))  # runs while they are killed
    await asyncio.wait({closing, releasing})
    await closing
    assert isinstance(releasing.exception(), RequestError)
    # The shell is waited for; its killed child may need a moment longer to be gone.
    await until(lambda: not running_in(tmp_path))
    assert [terminals.text(name) for name in names] == ["out\n", "out\n"]


async def test_terminals_are_ended_although_their_first_close_is_cancelled(tmp_path: Path) -> None:
    terminals = AgentTerminals(str(tmp_path), {"PATH": os.environ["PATH"], "HOME": str(tmp_path)})
    await terminals.create("exec sleep 300", [], {}, None, None)
    await terminals.create("exec sleep 300", [], {}, None, None)
    closing = asyncio.create_task(terminals.close())
    await asyncio.sleep(0)
    closing.cancel()
    await terminals.close()
    assert not running_in(tmp_path)


async def test_terminals_end_with_their_agent(box: Machine) -> None:
    agent = await box.launch(kind="scripted")
    await answer_to(agent, "terminal-many 2")
    await agent.say("crash")
    await agent.until("error")
    home = box.folder / "home"
    await until(lambda: not running_in(home), why=lambda: str(running_in(home)))


def test_a_tail_begins_with_a_whole_character() -> None:
    tail = OutputTail(4)
    tail.add("ääää".encode())
    assert (tail.text(), tail.truncated) == ("ää", True)
    tail.add(b"x")
    assert tail.text() == "äx"  # half a character has gone with the first
    whole = OutputTail(8)
    whole.add("ä".encode())
    assert (whole.text(), whole.truncated) == ("ä", False)
    none = OutputTail(0)
    none.add(b"something")
    assert (none.text(), none.truncated) == ("", True)


@pytest.mark.parametrize("limit", [0, 1, 1000])
def test_a_tail_keeps_no_more_than_twice_its_limit(limit: int) -> None:
    tail = OutputTail(limit)
    empty = len(pickle.dumps(tail))
    for _ in range(1000):
        tail.add(b"x" * 1000)
    assert len(pickle.dumps(tail)) <= empty + 2 * limit + 100
    assert tail.text() == "x" * limit
