"""Terminal commands in real shells."""

import asyncio
import os
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from outrider.contract.commands import Terminal, TerminalOutput
from outrider.contract.errors import ApiError
from outrider.machine.terminals.output import MAX_OUTPUT, OutputCapture
from outrider.machine.terminals.terminal import MAX_TERMINALS, MAX_WAITING, Terminals
from outrider.machine.tmux.server import Tmux
from tests.machine.agents.machine import kill_server
from tests.machine.conftest import eventually
from tests.rig.processes import is_alive
from tests.rig.waiting import TIMEOUT


class Prompt:
    """Types commands into terminals.

    Attributes:
        limits: the deadlines of the commands so far, in their order: `pass_deadline` moves them.
    """

    def __init__(self, tmux: Tmux) -> None:
        self.terminals = Terminals(tmux)
        self.limits: list[asyncio.Timeout] = []

    def pass_deadline(self) -> None:
        """Let the deadline of the newest command pass."""
        self.limits[-1].reschedule(0)

    async def late(self, command: str, name: str = "t") -> ApiError:
        """Run a command that creates the file `begun`; let its deadline pass then."""
        running = asyncio.create_task(self(command, name))
        await eventually((Path.home() / "begun").exists)
        self.pass_deadline()
        with pytest.raises(ApiError) as caught:
            await running
        return caught.value

    async def __call__(
        self,
        command: str,
        name: str | None = None,
        cwd: str | None = None,
        within: float = TIMEOUT,
    ) -> TerminalOutput:
        deadline = asyncio.get_running_loop().time() + within
        request = Terminal(command=command, name=name, cwd=cwd)
        return await self.terminals.run(request, deadline)


@pytest.fixture
async def prompt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nothing_left: object
) -> AsyncIterator[Prompt]:
    monkeypatch.setenv("HOME", str(tmp_path))
    tmux = Tmux(f"outrider-test-{uuid.uuid4().hex[:12]}")
    prompt = Prompt(tmux)
    timeout_at = asyncio.timeout_at

    def kept(when: float | None) -> asyncio.Timeout:
        prompt.limits.append(timeout_at(when))
        return prompt.limits[-1]

    monkeypatch.setattr(asyncio, "timeout_at", kept)
    yield prompt
    await prompt.terminals.close()
    await tmux.close()
    kill_server(tmux.socket)


async def pid_in(path: Path) -> int:
    text = ""

    def written() -> bool:
        nonlocal text
        text = path.read_text() if path.exists() else ""
        return text.endswith("\n")

    await eventually(written)
    return int(text)


# One-shot


async def test_output_and_exit_code_come_back(prompt: Prompt, tmp_path: Path) -> None:
    result = await prompt("echo out; echo err >&2; echo again; exit 3")
    assert result == TerminalOutput(
        terminal=None,
        exit_code=3,
        output="out\nerr\nagain\n",
        truncated=False,
        duration_ms=result.duration_ms,
        cwd=str(tmp_path),
    )
    assert result.duration_ms >= 0


async def test_it_runs_in_cwd(prompt: Prompt, tmp_path: Path) -> None:
    (tmp_path / "a b'c").mkdir()
    result = await prompt("pwd", cwd="~/a b'c")
    assert result.output == f"{tmp_path}/a b'c\n"
    assert result.cwd == f"{tmp_path}/a b'c"


@pytest.mark.parametrize(
    ("cwd", "sentence"),
    [
        ("/does/not/exist", "The directory '/does/not/exist' does not exist on this machine"),
        ("/etc/passwd", "The directory '/etc/passwd' does not exist on this machine"),
        ("relative", "`cwd` must be an absolute path or begin with ~, not 'relative'"),
        ("~nobody-of-this-name/x", "`cwd` cannot be used: Could not determine home directory."),
        ("/a\0b", "The directory '/a\\x00b' does not exist on this machine"),
        ("/" + "x" * 4000, None),
    ],
)
@pytest.mark.parametrize("name", [None, "named"])
async def test_a_bad_cwd_is_a_400(
    prompt: Prompt, cwd: str, sentence: str | None, name: str | None
) -> None:
    with pytest.raises(ApiError) as caught:
        await prompt("pwd", cwd=cwd, name=name)
    assert caught.value.status == 400
    assert [detail.path for detail in caught.value.details] == ["cwd"]
    assert caught.value.message.startswith(sentence or "")


@pytest.mark.parametrize("command", ["echo \0", "echo \ud800", "x" * (128 * 1024)])
async def test_a_command_no_shell_can_take_is_a_400(prompt: Prompt, command: str) -> None:
    with pytest.raises(ApiError) as caught:
        await prompt(command)
    assert caught.value.status == 400
    assert [detail.path for detail in caught.value.details] == ["command"]


async def test_stdin_is_empty(prompt: Prompt) -> None:
    result = await prompt("cat; read line; echo $?")
    assert result.output == "1\n"


async def test_the_daemons_settings_are_not_inherited(
    prompt: Prompt, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTRIDER_SECRET_KEY", "secret")
    monkeypatch.setenv("OTHER", "kept")
    assert (await prompt("echo $OUTRIDER_SECRET_KEY-$OTHER")).output == "-kept\n"
    assert (await prompt("echo $OUTRIDER_SECRET_KEY-$OTHER", "t")).output == "-kept\n"


async def test_a_long_output_keeps_its_ends_in_bounded_memory(prompt: Prompt) -> None:
    before = psutil.Process().memory_info().rss
    result = await prompt("echo first; head -c 64M /dev/zero | tr '\\0' x; echo; echo last")
    assert psutil.Process().memory_info().rss - before < 32 * 1024 * 1024
    assert result.truncated
    assert result.output.startswith("first\nxxx")
    assert result.output.endswith("xxx\nlast\n")
    left_out = 64 * 1024**2 + 12 - MAX_OUTPUT
    assert f"\n[outrider: {left_out} bytes left out here]\n" in result.output
    assert len(result.output) < MAX_OUTPUT + 100


async def test_output_of_exactly_the_limit_is_whole(prompt: Prompt) -> None:
    result = await prompt(f"head -c {MAX_OUTPUT} /dev/zero | tr '\\0' x")
    assert not result.truncated
    assert result.output == "x" * MAX_OUTPUT


def test_a_cut_does_not_break_characters() -> None:
    capture = OutputCapture()
    capture.add(b"x" + "€".encode() * MAX_OUTPUT)
    text, truncated = capture.take()
    assert truncated
    assert "\ufffd" not in text
    assert capture.take() == ("", False)


async def test_bytes_that_are_not_text_are_replaced(prompt: Prompt) -> None:
    assert (await prompt(r"printf 'a\377b\000c'")).output == "a\ufffdb\0c"


async def test_the_deadline_kills_every_child(prompt: Prompt, tmp_path: Path) -> None:
    command = (
        "(sleep 1000 & echo $! > plain);"
        "setsid sh -c 'echo $$ > other; sleep 1000; :' & "
        "trap '' TERM INT HUP; sleep 1000"
    )
    running = asyncio.create_task(prompt(command, cwd=str(tmp_path)))
    pids = [await pid_in(tmp_path / "plain"), await pid_in(tmp_path / "other")]
    assert all(map(is_alive, pids))
    prompt.pass_deadline()
    with pytest.raises(ApiError) as caught:
        await running
    assert caught.value.status == 504
    assert "was killed with all its children" in caught.value.message
    await eventually(lambda: not any(map(is_alive, pids)))


async def test_cancelling_kills_every_child(prompt: Prompt, tmp_path: Path) -> None:
    running = asyncio.create_task(prompt("sleep 1000 & echo $! > pid; wait", cwd=str(tmp_path)))
    pid = await pid_in(tmp_path / "pid")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await eventually(lambda: not is_alive(pid))


async def test_a_background_child_does_not_hold_the_answer(prompt: Prompt) -> None:
    result = await prompt("sleep 1000 & echo $!")  # else its own time limit would end the test
    pid = int(result.output)
    assert is_alive(pid)  # it was left in the background on purpose
    psutil.Process(pid).kill()
    await eventually(lambda: not is_alive(pid))


async def test_a_killed_command_has_the_exit_code_of_its_signal(prompt: Prompt) -> None:
    assert (await prompt("kill -9 $$")).exit_code == 137


# Named


async def test_a_named_terminal_remembers(prompt: Prompt, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    first = await prompt("cd sub; x=5; f() { echo $x; }; false", "t")
    assert (first.exit_code, first.cwd, first.terminal) == (1, f"{tmp_path}/sub", "t")
    second = await prompt("echo $?; f; pwd", "t")
    assert second.output == f"1\n5\n{tmp_path}/sub\n"
    assert (await prompt("echo [$x]", "other")).output == "[]\n"
    assert (await prompt("pwd", "t", cwd=str(tmp_path))).output == f"{tmp_path}\n"
    assert (await prompt("pwd", "t")).output == f"{tmp_path}\n"


async def test_history_is_kept_and_not_saved(
    prompt: Prompt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await prompt("echo first", "t")
    await prompt("echo 'two'", "t")
    listed = await prompt("history", "t")
    assert [line.split(None, 1)[1] for line in listed.output.splitlines()] == [
        "echo first",
        "echo 'two'",
        "history",
    ]
    await prompt.terminals.close()
    assert not (tmp_path / ".bash_history").exists()


@pytest.mark.parametrize(
    ("command", "output", "exit_code"),
    [
        ("echo a\necho b", "a\nb\n", 0),
        ('cat <<EOF\nit\'s $((1 + 1)) "x"\nEOF', 'it\'s 2 "x"\n', 0),
        ("cat <<'EOF'\n$HOME\nEOF\necho after", "$HOME\nafter\n", 0),
        ("for i in 1 2; do\n echo $i\ndone", "1\n2\n", 0),
        ("printf '%s %s %s\\0' 2 0 /; echo '; exit 9 #'", "2 0 /\0; exit 9 #\n", 0),
        ("echo '' # a comment", "\n", 0),
        ("cat", "", 0),
        ("read x", "", 1),
        ("echo é; echo err >&2", "é\nerr\n", 0),
        ("(exit 42)", "", 42),
        ("exec >/dev/null; true", "", 0),
        ("printf 'no newline'", "no newline", 0),
    ],
)
async def test_commands_of_every_form(
    prompt: Prompt, command: str, output: str, exit_code: int
) -> None:
    result = await prompt(command, "t")
    assert (result.output, result.exit_code) == (output, exit_code)
    assert (await prompt("echo still here", "t")).output == "still here\n"


@pytest.mark.parametrize(
    "command", ["echo 'open", 'echo "open', "echo $(", "if true; then", "cat <<EOF\nx", ")", "}"]
)
async def test_an_unfinished_command_is_its_own_error(prompt: Prompt, command: str) -> None:
    await prompt("x=kept", "t")
    result = await prompt(command, "t")
    assert result.exit_code != 0 or "EOF" in command
    assert (await prompt("echo $x", "t")).output == "kept\n"


async def test_a_big_command_and_a_big_output(prompt: Prompt) -> None:
    word = "x" * 200_000
    assert (await prompt(f"x={word}; echo ${{#x}}", "t")).output == "200000\n"
    assert (await prompt("echo $x", "t")).output == word + "\n"
    assert (await prompt("echo $x $x", "t")).truncated


async def test_commands_run_one_at_a_time_in_order(prompt: Prompt) -> None:
    commands = [f"echo start{i}; sleep 0.05; echo end{i}; n=$((n+1)); echo $n" for i in range(5)]
    results = await asyncio.gather(*(prompt(command, "t") for command in commands))
    assert [result.output for result in results] == [
        f"start{i}\nend{i}\n{i + 1}\n" for i in range(5)
    ]


async def test_terminals_do_not_wait_for_each_other(prompt: Prompt, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "gate")
    waiting = asyncio.create_task(prompt("read x < gate; echo $x", "a"))
    assert (await prompt("echo free", "b")).output == "free\n"
    assert (await prompt("echo opened > gate; echo done")).output == "done\n"
    assert (await waiting).output == "opened\n"


async def test_a_late_command_goes_on_and_its_output_is_in_the_next_reply(
    prompt: Prompt, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "gate")
    late = await prompt.late("echo before; echo x > begun; read x < gate; echo $x")
    assert late.status == 504
    assert "continues in the terminal 't'" in late.message
    with pytest.raises(ApiError) as caught:
        await prompt("echo never > never", "t", within=0)
    assert caught.value.status == 504
    assert "this one was not started" in caught.value.message
    await prompt("echo after > gate")
    result = await prompt("echo next", "t")
    assert result.output == "before\nafter\nnext\n"
    assert not (tmp_path / "never").exists()


async def test_what_a_late_command_prints_before_it_exits_is_in_the_next_reply(
    prompt: Prompt, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "gate")
    await prompt.late("echo before; echo x > begun; read x < gate; echo $x; exit 1")
    await prompt("echo after > gate")
    assert (await prompt("echo new shell", "t")).output == "before\nafter\nnew shell\n"


@pytest.mark.parametrize(
    ("command", "exit_code"),
    [("echo bye; exit 7", 7), ("exec sh -c 'echo bye; exit 7'", 7), ("echo bye; kill -9 $$", 137)],
)
async def test_exit_ends_the_shell_and_the_next_use_starts_another(
    prompt: Prompt, command: str, exit_code: int
) -> None:
    await prompt("x=5", "t")
    result = await prompt(command, "t")
    assert (result.exit_code, result.output) == (exit_code, "bye\n")
    assert (await prompt("echo [$x]", "t")).output == "[]\n"


async def test_errexit_ends_the_shell_with_the_failing_command(prompt: Prompt) -> None:
    await prompt("set -e", "t")
    assert (await prompt("echo fine", "t")).output == "fine\n"
    assert (await prompt("echo on; false; echo off", "t")).output == "on\n"
    assert (await prompt("echo new", "t")).output == "new\n"


async def test_tracing_shows_only_the_command(prompt: Prompt) -> None:
    await prompt("set -xv", "t")
    result = await prompt("echo a", "t")
    assert sorted(set(result.output.replace("+", "").split())) == ["a", "echo"]


@pytest.mark.parametrize(
    "name", ["printf", "command", "eval", "exit", "cd", "history", "unset", "builtin", ":", "test"]
)
@pytest.mark.parametrize("form", ["{}() {{ echo mine; }}", "alias {}='echo mine'"])
async def test_a_builtin_that_is_defined_anew_does_not_end_the_terminal(
    prompt: Prompt, tmp_path: Path, name: str, form: str
) -> None:
    """Not even where the shell refuses the definition (dash does so for special builtins)."""
    await prompt("x=5; shopt -s expand_aliases 2>&1", "t")
    await prompt(form.format(name), "t")
    result = await prompt("echo $x", "t", cwd=str(tmp_path))
    assert (result.output, result.exit_code, result.cwd) == ("5\n", 0, str(tmp_path))
    assert (await prompt("false", "t")).exit_code == 1
    assert (await prompt("echo $?", "t")).output == "1\n"


async def test_a_function_for_a_builtin_is_the_users_to_keep(prompt: Prompt) -> None:
    await prompt("printf() { echo mine; }; cd() { echo also mine; }", "t")
    assert (await prompt("printf x; cd /", "t")).output == "mine\nalso mine\n"


@pytest.mark.parametrize(
    "command", ["readonly -f printf; printf() { :; }", "unset PWD; set -u", "set -o posix"]
)
async def test_what_else_a_report_needs_may_be_changed(prompt: Prompt, command: str) -> None:
    await prompt("printf() { :; }", "t")
    await prompt(command, "t")
    assert (await prompt("echo here", "t")).output == "here\n"


# Ended


async def test_an_ended_terminal_is_gone_with_all_that_ran_in_it(prompt: Prompt) -> None:
    result = await prompt("x=5; sleep 1000 & echo $!", "t")
    pid = int(result.output)
    await prompt.terminals.end("t")
    await eventually(lambda: not is_alive(pid))
    with pytest.raises(ApiError) as caught:
        await prompt.terminals.end("t")
    assert caught.value.status == 404
    assert (await prompt("echo [$x]", "t")).output == "[]\n"


async def test_the_list_of_terminals(prompt: Prompt, tmp_path: Path) -> None:
    def listed() -> dict[str, bool]:
        return {terminal.name: terminal.busy for terminal in prompt.terminals.list().terminals}

    assert listed() == {}
    os.mkfifo(tmp_path / "gate")
    await prompt("true", "b")
    await prompt("true", "a")
    await prompt.late("echo x > begun; read x < gate", "a")
    assert list(listed().items()) == [("a", True), ("b", False)]  # it goes on
    await prompt("echo after > gate")
    await eventually(lambda: listed() == {"a": False, "b": False})
    await prompt("exit", "b")
    await prompt.terminals.end("a")
    assert listed() == {}


async def test_ending_a_terminal_ends_what_runs_and_what_waits(
    prompt: Prompt, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "gate")
    running = asyncio.create_task(prompt("echo begun; echo x > began; read x < gate", "t"))
    await eventually((tmp_path / "began").exists)
    waiting = [asyncio.create_task(prompt("echo x > waited", "t")) for _ in range(3)]
    await asyncio.sleep(0)  # lets every task take its place
    await prompt.terminals.end("t")
    outcome = await running
    assert (outcome.output, outcome.exit_code) == ("begun\n", 137)
    for task in waiting:
        with pytest.raises(ApiError) as caught:
            await task
        assert caught.value.status == 409
    assert not (tmp_path / "waited").exists()
    assert (await prompt("echo new", "t")).output == "new\n"


async def test_ending_a_terminal_that_starts(prompt: Prompt, tmp_path: Path) -> None:
    """Its shell must not outlive it unseen; `nothing_left` would find it."""
    for _ in range(5):
        starting = asyncio.create_task(prompt("echo x > ran; sleep 1000", "t"))
        await asyncio.sleep(0)
        await prompt.terminals.end("t")
        (outcome,) = await asyncio.gather(starting, return_exceptions=True)
        match outcome:
            case TerminalOutput():
                assert outcome.exit_code == 137
            case ApiError():
                assert outcome.status == 409
            case _:
                pytest.fail(str(outcome))


async def test_background_jobs_live_on_and_end_with_the_terminal(prompt: Prompt) -> None:
    result = await prompt("sleep 1000 & setsid sleep 1000 & echo $!; jobs -p", "t")
    pids = [int(line) for line in result.output.splitlines()]
    await prompt("true", "t")
    assert all(map(is_alive, pids))
    await prompt.terminals.close()
    await eventually(lambda: not any(map(is_alive, pids)))


async def test_a_background_loop_that_keeps_printing_does_not_hold_answers(
    prompt: Prompt,
) -> None:
    await prompt("while :; do echo noise; done & pid=$!", "t")
    assert (await prompt("kill $pid; echo ok", "t")).output.endswith("ok\n")


async def test_the_number_of_terminals_is_bounded(prompt: Prompt) -> None:
    for index in range(MAX_TERMINALS):
        await prompt("true", f"t{index}")
    with pytest.raises(ApiError) as caught:
        await prompt("true", "too-many")
    assert caught.value.status == 409
    assert "delete one of them" in caught.value.message
    await prompt("exit", "t3")
    assert (await prompt("echo room", "too-many")).output == "room\n"


async def test_a_terminal_that_is_deleted_while_room_is_made(prompt: Prompt) -> None:
    for index in range(MAX_TERMINALS):
        await prompt("true", f"t{index}")
    for name in ("t3", "t4"):
        await prompt("exit", name)
    result, _ = await asyncio.gather(prompt("echo room", "too-many"), prompt.terminals.end("t4"))
    assert result.output == "room\n"


async def test_the_commands_that_wait_are_bounded(prompt: Prompt, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "gate")
    first = asyncio.create_task(prompt("read x < gate", "t"))
    waiting = [asyncio.create_task(prompt("echo waited", "t")) for _ in range(MAX_WAITING)]
    await asyncio.sleep(0)  # lets every task take its place
    with pytest.raises(ApiError) as caught:
        await prompt("echo too many", "t")
    assert caught.value.status == 409
    await prompt("echo go > gate")
    await first
    assert [(await task).output for task in waiting] == ["waited\n"] * MAX_WAITING
