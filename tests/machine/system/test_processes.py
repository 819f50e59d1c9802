"""Process groups are ended whole, many at once, off the event loop."""

import asyncio
import contextlib
import subprocess
import threading
from collections.abc import Iterator

import psutil
import pytest

from outrider.machine.system.processes import Killer, ProcessGroup
from tests.machine.conftest import eventually
from tests.rig.waiting import TIMEOUT

GROUPS = 60


def start(*argv: str) -> subprocess.Popen[bytes]:
    """Start a program as a leader of a session, its output in a pipe."""
    return subprocess.Popen(argv, stdout=subprocess.PIPE, start_new_session=True)


def children_of(started: list[subprocess.Popen[bytes]]) -> list[psutil.Process]:
    """Return what these have started, by one look at the process table."""
    leaders = {process.pid for process in started}
    return [one for one in psutil.process_iter(["ppid"]) if one.info["ppid"] in leaders]


def is_alive(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


@pytest.fixture
def sleepers() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Many commands, each with a child in its session and one that has left it."""
    script = "sleep 1000 & setsid sleep 1000 & echo; wait"
    started = [start("sh", "-c", script) for _ in range(GROUPS)]
    for process in started:
        assert process.stdout is not None
        process.stdout.readline()
    left = children_of(started)
    yield started
    for child in left:  # the tests end some groups only
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()
    for process in started:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


async def test_many_groups_are_killed_with_few_looks_at_the_process_table(
    sleepers: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look for each of many commands that time out at once would keep everything waiting."""
    everything = children_of(sleepers)
    assert len(everything) == 2 * GROUPS
    looks: list[int] = []
    real = psutil.process_iter

    def counted() -> Iterator[psutil.Process]:
        looks.append(threading.get_ident())
        return real()

    monkeypatch.setattr(psutil, "process_iter", counted)
    groups = [ProcessGroup.of(process.pid) for process in sleepers]
    killer = Killer()
    await asyncio.gather(*(killer.kill(group) for group in groups))
    await eventually(lambda: not any(map(is_alive, everything)))
    assert all(process.wait(TIMEOUT) == -9 for process in sleepers)
    assert threading.get_ident() not in looks, "the event loop looked at the process table"
    assert len(looks) < GROUPS / 4


async def test_a_kill_that_is_cancelled_still_kills(
    sleepers: list[subprocess.Popen[bytes]],
) -> None:
    killer = Killer()
    kills = [asyncio.ensure_future(killer.kill(ProcessGroup.of(s.pid))) for s in sleepers[:20]]
    await asyncio.sleep(0)
    for kill in kills:
        kill.cancel()
    await asyncio.wait(kills)
    await eventually(lambda: all(s.poll() == -9 for s in sleepers[:20]))
    assert all(s.poll() is None for s in sleepers[20:])


async def test_a_number_that_is_another_processs_now_is_left_alone() -> None:
    """The leader has ended and its number was given away: nothing is left of its group."""
    other = start("sleep", "1000")
    try:
        await ProcessGroup(other.pid, None).kill()
        assert other.poll() is None
        await ProcessGroup.of(other.pid).kill()
        assert other.wait(TIMEOUT) == -9
    finally:
        other.kill()
        other.communicate()


async def test_what_a_leader_left_behind_is_killed_after_its_end() -> None:
    leader = start("sh", "-c", "sleep 1000 & echo $!")
    group = ProcessGroup.of(leader.pid)
    assert leader.stdout is not None
    left = psutil.Process(int(leader.stdout.readline()))
    leader.stdout.close()
    leader.wait()
    assert is_alive(left)
    await group.kill()
    await eventually(lambda: not is_alive(left))


async def test_an_end_asks_first_and_kills_what_does_not_listen() -> None:
    """Also what was started meanwhile, and what has left the session."""
    script = (
        "trap 'echo asked; sleep 1000 & echo $!; wait' TERM;"
        "setsid sh -c 'trap \"\" TERM; echo $$; sleep 1000' & wait"
    )
    leader = start("sh", "-c", script)
    assert leader.stdout is not None
    stubborn = psutil.Process(int(leader.stdout.readline()))
    group = ProcessGroup.of(leader.pid)
    assert ProcessGroup.of(leader.pid).runs
    assert stubborn in await group.members()
    ending = asyncio.create_task(group.end(3))
    assert await asyncio.to_thread(leader.stdout.readline) == b"asked\n"
    later = int(await asyncio.to_thread(leader.stdout.readline))
    await ending
    assert not is_alive(stubborn)
    await eventually(lambda: not psutil.pid_exists(later))
    leader.communicate()
    assert not group.runs
    assert await group.members() == []


async def test_an_end_that_is_cancelled_kills_at_once() -> None:
    leader = start("sh", "-c", "trap '' TERM; echo; exec sleep 1000")
    try:
        assert leader.stdout is not None
        leader.stdout.readline()
        ending = asyncio.create_task(ProcessGroup.of(leader.pid).end(TIMEOUT))
        await asyncio.sleep(0)  # it looks for the members
        ending.cancel()
        await asyncio.wait({ending})
        assert ending.cancelled()
        await eventually(lambda: leader.poll() == -9)
    finally:
        leader.kill()
        leader.communicate()


async def test_what_ends_when_it_is_asked_is_not_killed() -> None:
    leader = start("sh", "-c", "trap 'exit 7' TERM; echo; while :; do sleep 0.01; done")
    assert leader.stdout is not None
    leader.stdout.readline()
    await ProcessGroup.of(leader.pid).end(30)
    leader.communicate()
    assert leader.returncode == 7
