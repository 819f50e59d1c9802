"""Children: what they inherit, how they end, and what is left of one that does not start."""

import asyncio
import os
import signal
import subprocess
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from subprocess import DEVNULL, PIPE, STDOUT
from typing import Any

import psutil
import pytest
import uvloop

from outrider.machine.system.child import run as run_program
from outrider.machine.system.child import start
from outrider.machine.system.processes import ProcessGroup
from tests.rig.processes import is_alive
from tests.rig.waiting import TIMEOUT, eventually

Run = Callable[[Callable[[], Awaitable[None]]], None]

OPEN = "for end in /proc/self/fd/*; do readlink $end; done"


def descriptors() -> set[tuple[str, str]]:
    """Return the descriptors that this process has open, with what each stands for."""
    found = set()
    for path in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # that of the listing
            found.add((path.name, str(path.readlink())))
    return found


def target_of(descriptor: int) -> str:
    """Return what a descriptor of this process stands for."""
    return str(Path(f"/proc/self/fd/{descriptor}").readlink())


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """Run a coroutine on each kind of loop; it leaves no descriptor open."""

    def run(main: Callable[[], Awaitable[None]]) -> None:
        async def bounded() -> None:
            async with asyncio.timeout(2 * TIMEOUT):
                first = await start(["true"], stdout=PIPE)  # libuv keeps a file open from here on
                await first.output()
                first.close()
                await asyncio.sleep(0)
                before = descriptors()
                await main()
                await asyncio.sleep(0)
                # Not equal: garbage of earlier tests may have been collected meanwhile.
                assert descriptors() <= before

        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(bounded())

    return run


@pytest.mark.parametrize(("stdin", "stderr"), [(DEVNULL, DEVNULL), (PIPE, PIPE), (PIPE, STDOUT)])
def test_it_inherits_its_standard_descriptors_alone(run: Run, stdin: int, stderr: int) -> None:
    async def main() -> None:
        read_end, write_end = os.pipe()
        os.set_inheritable(write_end, True)
        started = await start(["sh", "-c", OPEN], stdin=stdin, stdout=PIPE, stderr=stderr)
        seen = (await started.output()).decode().split()
        assert target_of(write_end) not in seen
        assert len([target for target in seen if not target.startswith("/proc/")]) == 3, seen
        started.close()
        os.close(read_end)
        os.close(write_end)

    run(main)


def test_its_pipes(run: Run) -> None:
    async def main() -> None:
        started = await start(
            ["sh", "-c", "read word; echo $word; echo $word >&2"],
            stdin=PIPE, stdout=PIPE, stderr=PIPE,
        )  # fmt: skip
        assert started.stdin is not None
        assert started.stderr is not None
        started.stdin.write(b"hello\n")
        assert await started.output() == b"hello\n"
        assert await started.stderr.read() == b"hello\n"
        started.close()

    run(main)


def test_where_and_with_what_it_runs(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        argv = ["sh", "-c", "pwd; echo $WORD; ps -o sid= -p $$; echo $$"]
        started = await start(
            argv, cwd=str(tmp_path), env={"WORD": "x", "PATH": os.environ["PATH"]}, stdout=PIPE
        )
        directory, word, session, pid = (await started.output()).decode().split()
        assert (directory, word, session) == (str(tmp_path), "x", pid)
        assert started.pid == int(pid)
        started.close()

    run(main)


@pytest.mark.parametrize("has_pidfd", [True, False])
def test_how_it_ends(run: Run, has_pidfd: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not has_pidfd:  # as anywhere but on Linux
        monkeypatch.delattr(os, "pidfd_open")

    async def main() -> None:
        assert await (await start(["sh", "-c", "exit 3"])).wait() == 3
        killed = await start(["sleep", "1000"])
        killed.terminate()
        assert await killed.wait() == -signal.SIGTERM
        killed.kill()

    run(main)


def test_it_has_ended_whatever_it_left_running(run: Run) -> None:
    async def main() -> None:
        started = await start(["sh", "-c", "sleep 1000 & echo $!"], stdout=PIPE)
        assert started.stdout is not None
        left = int(await started.stdout.readline())
        assert await started.wait() == 0
        os.kill(left, signal.SIGKILL)
        assert await started.stdout.read() == b""
        started.close()

    run(main)


def test_a_program_that_is_run_to_its_end(run: Run) -> None:
    async def main() -> None:
        script = ["sh", "-c", "cat; echo $0 >&2; exit 3", "error"]
        assert await run_program(script, seconds=TIMEOUT, stdin=b"in ") == (3, b"in ")
        with_errors = await run_program(script, seconds=TIMEOUT, stderr=STDOUT)
        assert with_errors == (3, b"error\n")

    run(main)


def test_a_program_that_does_not_read_its_input(run: Run) -> None:
    async def main() -> None:
        unread = b"x" * 1_000_000
        assert await run_program(["true"], seconds=TIMEOUT, stdin=unread) == (0, b"")

    run(main)


@pytest.mark.parametrize("is_cancelled", [False, True], ids=["timeout", "cancelled"])
def test_a_program_that_does_not_end_is_ended_with_what_it_started(
    run: Run, tmp_path: Path, is_cancelled: bool
) -> None:
    async def main() -> None:
        script = f"sleep 1000 & echo $! > {tmp_path}/started; mv {tmp_path}/started {tmp_path}/pid"
        limit = TIMEOUT if is_cancelled else 0.5
        task = asyncio.create_task(run_program(["sh", "-c", f"{script}; wait"], seconds=limit))
        if is_cancelled:
            await eventually((tmp_path / "pid").exists)
            task.cancel()
        with pytest.raises(asyncio.CancelledError if is_cancelled else TimeoutError):
            await task
        await asyncio.sleep(0)

    run(main)
    started = (tmp_path / "pid").read_text() if (tmp_path / "pid").exists() else None
    assert started is None or not is_alive(int(started))


def test_a_program_is_ended_though_its_end_is_cancelled_too(run: Run, tmp_path: Path) -> None:
    """The service takes back a command whose deadline passes."""
    started = tmp_path / "started"

    async def main() -> None:
        script = f"echo $$ > {started}.new; mv {started}.new {started}; exec sleep 1000"
        task = asyncio.create_task(run_program(["sh", "-c", script], seconds=TIMEOUT))
        await eventually(started.exists)
        task.cancel()
        await asyncio.sleep(0)  # it is being ended
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()
        pid = int(started.read_text())
        try:
            await eventually(lambda: not psutil.pid_exists(pid))
        finally:
            await ProcessGroup.of(pid).kill()

    run(main)


@pytest.mark.parametrize("wrong", [["/nowhere/program"], ["tr\0ue"]])
def test_one_that_does_not_start_leaves_nothing(run: Run, wrong: list[str]) -> None:
    async def main() -> None:
        with pytest.raises((OSError, ValueError)):
            await start(wrong, stdin=PIPE, stdout=PIPE, stderr=PIPE)
        await asyncio.sleep(0)  # what is closed goes with the next turn of the loop

    run(main)


def test_one_that_is_cancelled_leaves_nothing(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        program = ["touch", str(tmp_path / "ran")]
        task = asyncio.create_task(start(program, stdin=PIPE, stdout=PIPE, stderr=PIPE))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(0)

    run(main)
    assert not (tmp_path / "ran").exists()


def test_the_loop_goes_on_between_many_starts(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """256 commands at once held it up for two seconds."""
    popen, begun = subprocess.Popen, list[int]()

    async def main() -> None:
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        def recorded(*arguments: Any, **options: Any) -> "subprocess.Popen[bytes]":
            begun.append(turns)
            return popen(*arguments, **options)

        monkeypatch.setattr(subprocess, "Popen", recorded)
        counting = asyncio.create_task(count())
        children = await asyncio.gather(*(start(["true"]) for _ in range(20)))
        await asyncio.gather(*(child.wait() for child in children))
        counting.cancel()

    run(main)
    assert len(set(begun)) == 20


def test_a_start_that_is_cancelled_while_it_waits_leaves_nothing(run: Run) -> None:
    async def main() -> None:
        starts = [asyncio.create_task(start(["true"], stdout=PIPE)) for _ in range(10)]
        await asyncio.sleep(0)
        for task in starts[1:]:
            task.cancel()
        await asyncio.wait(starts)
        assert all(task.cancelled() for task in starts[1:])
        child = await starts[0]
        await child.output()
        child.close()

    run(main)
