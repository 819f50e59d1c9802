"""No process that Outrider starts inherits more than standard input, output and error.

An inherited listening socket kept the port taken for as long as an agent went on in tmux.
"""

import re
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.machine.agents.acp.conftest import provider_file
from tests.machine.agents.machine import running_in
from tests.rig.processes import environment
from tests.rig.stores import SQLite
from tests.system.up import Up

WITH_A_DESCRIPTOR = """
import os, sys
os.dup2(os.pipe()[1], 9)
os.execv(sys.executable, [sys.executable, "-m", "outrider", "up"])
"""
SHOW = "ls -l /proc/self/fd"


def descriptors(pid: int) -> dict[int, str]:
    """Return what a process has open."""
    found = {}
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            found[int(path.name)] = str(path.readlink())
    return found


def shared(pid: int, up: Up) -> set[str]:
    """Return the sockets, pipes and files that a process has from `up`, but its standard three."""
    theirs = descriptors(pid)
    standard = {theirs.get(number) for number in (0, 1, 2)}
    both = (set(theirs.values()) - standard) & set(descriptors(up.process.pid).values())
    return {target for target in both if not target.startswith(("/dev/", "anon_inode:"))}


async def shown(up: Up, machine: str, **terminal: str) -> list[str]:
    """Return the descriptors above 2 that a terminal's command sees, but the listing's own."""
    body = {"command": SHOW, **terminal}
    output = (await up.call("POST", f"/daemons/{machine}/terminal", body))["output"]
    seen = re.findall(r" (\d+) -> (\S+)", output)
    assert len(seen) >= 4, output
    return [target for number, target in seen if int(number) > 2 and "/proc/" not in target]


async def launched(up: Up, kind: str, project: Path) -> Any:
    (machine,) = (await up.call("GET", "/daemons"))["daemons"]
    body = {"type": kind, "dir": str(project)}
    return await up.call("POST", f"/shortcuts/{machine['id']}/launch", body)


@pytest.mark.real_agent
@pytest.mark.timeout(240)
async def test_up_starts_again_on_its_port_while_an_agent_goes_on(
    env: dict[str, str], home: Path
) -> None:
    async with Up("-m", "outrider", "up", env=env) as up:
        await up.greeting()
        port = up.url.rpartition(":")[2]
        session = await launched(up, "claude-code", home / "project")
        terminal = f"/daemons/{session['sessionTargetId'].partition(':')[0]}/terminal"
        job = {"command": "sleep 300 >/dev/null 2>&1 & echo $!"}
        in_shell = await up.call("POST", terminal, {**job, "name": "work"})
        left = psutil.Process(int((await up.call("POST", terminal, job))["output"]))
        (tmux,) = [
            process
            for process in psutil.process_iter(["name", "environ"])
            if process.info["name"].startswith("tmux: server")
            and (process.info["environ"] or {}).get("HOME") == str(home)
        ]
        # tmux hands the pipes of its client, our control client, on to its server.
        ours = {target for target in shared(tmux.pid, up) if not target.startswith("pipe:")}
        assert ours == set()
        for pid in (int(in_shell["output"]), left.pid):
            assert shared(pid, up) == set()
        up.signal(signal.SIGINT)
        assert await up.ends() == 0
    assert any("claude" in command for command in running_in(home))
    assert left.is_running()

    async with Up("-m", "outrider", "up", env={**env, "OUTRIDER_PORT": port}) as up:
        await up.greeting()
        assert up.url.endswith(f":{port}")
        found = await up.call("GET", f"/shortcuts/{session['sessionTargetId']}/status")
        assert found["sessionId"] == session["sessionId"]
        machine = session["sessionTargetId"].partition(":")[0]
        await up.call("POST", f"/shortcuts/{machine}/stop", {"type": "claude-code"})
        left.kill()
        up.signal(signal.SIGINT)
        assert await up.ends() == 0


async def test_children_of_a_process_that_itself_inherited_a_descriptor(
    tmp_path: Path, sqlite: SQLite
) -> None:
    """Each way in which a child is started, by `outrider up` with a pipe of its parent's.

    `make -j` starts it so.
    """
    project = tmp_path / "home" / "project"
    project.mkdir(parents=True)
    provider_file(tmp_path)
    sqlite.migrated(tmp_path / "data")
    env = environment(tmp_path / "data", port="0") | {"HOME": str(tmp_path / "home")}
    async with Up("-c", WITH_A_DESCRIPTOR, env=env) as up:
        await up.greeting()
        (machine,) = (await up.call("GET", "/daemons"))["daemons"]
        assert await shown(up, machine["id"]) == []
        assert await shown(up, machine["id"], name="work") == []
        await launched(up, "scripted", project)
        children = psutil.Process(up.process.pid).children(recursive=True)
        (agent,) = [child for child in children if "scripted_agent" in " ".join(child.cmdline())]
        assert shared(agent.pid, up) == set()
        up.signal(signal.SIGINT)
        assert await up.ends() == 0
