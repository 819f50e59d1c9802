"""`outrider up`: what it makes, what it reuses, and what it says when it cannot start."""

import asyncio
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import httpx
import pytest
import pytest_asyncio

from outrider.cli.up import UpError, is_stored
from outrider.cli.up import up as start
from outrider.machine.settings import DaemonSettings
from outrider.service.settings import Settings
from tests.conftest import early_in_a_window
from tests.rig.people import PAGE_SECRET
from tests.rig.processes import PROCESS_TIMEOUT, Program, TerminalProgram, environment, outrider
from tests.rig.stores import SQLite
from tests.rig.waiting import TIMEOUT, eventually
from tests.system.up import Up

pytestmark = pytest.mark.asyncio(loop_scope="module")


class Running(NamedTuple):
    """An `outrider up`, its environment and its machine."""

    up: Up
    env: dict[str, str]
    machine: str


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """An environment in which nothing has been set up yet."""
    (tmp_path / "home").mkdir()
    return environment(tmp_path / "data", port="0") | {"HOME": str(tmp_path / "home")}


async def started(env: dict[str, str]) -> tuple[str, str, str]:
    """Start it, list the machines with the key that it prints, stop it with Ctrl-C.

    Returns the key, the login, and the machine's id.
    """
    async with Up("-m", "outrider", "up", env=env) as up:
        greeting = await up.greeting()
        (machine,) = (await up.call("GET", "/daemons"))["daemons"]
        await opens_signed_in(up, greeting)
        up.signal(signal.SIGINT)
        assert await up.ends() == 0
        with pytest.raises(httpx.ConnectError):
            await up.call("GET", "/daemons")
    login = next(line for line in greeting.splitlines() if line.startswith("Login"))
    return up.key, login, machine["id"]


async def opens_signed_in(up: Up, greeting: str) -> None:
    """Check that the printed link logs in, once."""
    link = urlsplit(next(line for line in greeting.splitlines() if "/login#once=" in line))
    assert f"{link.scheme}://{link.netloc}{link.path}" == f"{up.url}/login"
    body = {"token": link.fragment.removeprefix("once=")}
    async with httpx.AsyncClient(base_url=up.url, timeout=TIMEOUT) as browser:
        browser.headers["X-Outrider-Page-Secret"] = PAGE_SECRET
        first = await browser.post("/api/v1/auth/link", json=body)
        assert first.status_code == 200, first.text
        assert (await browser.get("/api/v1/account")).status_code == 200
        assert (await browser.post("/api/v1/auth/link", json=body)).status_code == 401


async def test_a_second_start_reuses_everything_but_a_revoked_key(
    env: dict[str, str], tmp_path: Path
) -> None:
    key, login, machine = await started(env)
    for path in (
        tmp_path / "data",
        tmp_path / "config",
        tmp_path / "data" / "local.json",
        tmp_path / "data" / "secret.key",
        tmp_path / "config" / "connection.json",
    ):
        assert path.stat().st_mode & 0o077 == 0, f"{path} is for its owner only"
    assert await started(env) == (key, login, machine)

    keys = (
        await outrider("admin", "key", "list", "--account", login.split()[1], "--json", env=env)
    ).json()
    (await outrider("admin", "key", "revoke", keys["keys"][0]["id"], "--json", env=env)).json()
    new_key, same_login, same_machine = await started(env)
    assert new_key != key
    assert (same_login, same_machine) == (login, machine)


async def test_without_its_file_the_account_gets_the_password_that_is_printed(
    env: dict[str, str], tmp_path: Path
) -> None:
    _, before, machine = await started(env)
    (tmp_path / "data" / "local.json").unlink()
    async with Up("-m", "outrider", "up", env=env) as up:
        greeting = await up.greeting()
        daemons = (await up.call("GET", "/daemons"))["daemons"]
        assert [daemon["id"] for daemon in daemons] == [machine]
        login = next(line for line in greeting.splitlines() if line.startswith("Login"))
        assert login != before
        _, email, password = login.split()
        body = {"email": email, "password": password}
        async with httpx.AsyncClient(base_url=up.url, timeout=TIMEOUT) as browser:
            answer = await browser.post("/api/v1/auth/login", json=body)
        assert answer.status_code == 200, answer.text
        up.signal(signal.SIGINT)
        assert await up.ends() == 0


async def test_up_on_a_terminal_opens_the_dashboard_signed_in(
    env: dict[str, str], tmp_path: Path
) -> None:
    opener, seen = tmp_path / "bin" / "xdg-open", tmp_path / "seen"
    opener.parent.mkdir()
    opener.write_text(f'#!/bin/sh\ncat "$1" >{seen}.new && mv {seen}.new {seen}\n')
    opener.chmod(0o755)
    env |= {"PATH": f"{opener.parent}:{env['PATH']}", "DISPLAY": ":99"}
    async with TerminalProgram("-m", "outrider", "up", env=env) as up:
        await eventually(seen.exists, PROCESS_TIMEOUT)
        found = re.search(r'url=(http\S+)/login#once=([^"]+)"', seen.read_text())
        assert found, seen.read_text()
        async with httpx.AsyncClient(timeout=TIMEOUT, trust_env=False) as browser:
            answer = await browser.post(f"{found[1]}/api/v1/auth/link", json={"token": found[2]})
            assert answer.status_code == 200, answer.text
        up.signal(signal.SIGINT)
        assert await up.ends() == 0
        assert not (tmp_path / "data" / "open.html").exists()


async def test_the_lines_for_another_shell_put_the_command_on_the_path(env: dict[str, str]) -> None:
    env["PATH"] = os.defpath
    async with Up("-m", "outrider", "up", env=env) as up:
        await up.greeting()
        assert up.process.stdout is not None
        lines = [await up.next_line()]
        while not lines[-1].startswith("export OUTRIDER_URL="):
            assert not up.process.stdout.at_eof(), lines
            lines.append(await up.next_line())
        hint = lines[-2]
        assert hint.startswith("export PATH=")
        assert sum("another shell" in line for line in lines) == 1
        env["PATH"] = _after_running(hint, os.defpath)
    command = shutil.which("outrider", path=env["PATH"])
    assert command is not None
    assert Path(command).parent == Path(sys.executable).parent


def _after_running(command: str, path: str) -> str:
    """Return the PATH that a shell with this one has after a command."""
    return subprocess.run(
        ["/bin/sh", "-c", f'{command}; echo "$PATH"'],
        env={"PATH": path},
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=True,
    ).stdout.strip()


async def test_the_printed_commands_ask_the_demo_agent(env: dict[str, str]) -> None:
    async with Up("-m", "outrider", "up", env=env) as up:
        await up.greeting()
        assert up.process.stdout is not None
        commands: list[str] = []
        while not commands or not commands[-1].startswith("outrider ask"):
            assert not up.process.stdout.at_eof(), commands
            line = await up.next_line()
            if line.startswith(("export OUTRIDER_URL=", "outrider ask")):
                commands.append(line)
        path = f"{Path(sys.executable).parent}:{env['PATH']}"
        said = await asyncio.to_thread(
            subprocess.run,
            ["/bin/sh", "-e", "-c", "\n".join(commands)],
            env=env | {"PATH": path},
            capture_output=True,
            text=True,
            timeout=2 * PROCESS_TIMEOUT,
            check=False,
        )
        assert said.returncode == 0, said.stderr
        assert "stream N" in said.stdout


async def test_output_that_is_stored_has_no_secrets(env: dict[str, str], tmp_path: Path) -> None:
    output, login = tmp_path / "output", tmp_path / "data" / "login.txt"
    to_file = (
        "import os, sys\n"
        f"os.dup2(os.open({str(output)!r}, os.O_WRONLY | os.O_CREAT, 0o644), 1)\n"
        "os.execv(sys.executable, [sys.executable, '-m', 'outrider', 'up'])\n"
    )
    async with Program("-c", to_file, env=env) as up:
        await eventually(lambda: output.exists() and str(login) in output.read_text(), TIMEOUT)
        up.signal(signal.SIGINT)
        assert await up.ends() == 0
    key = re.search(r"API key +(ork_\w+)", login.read_text())
    password = re.search(r"Login +\S+  (\S+)", login.read_text())
    assert key is not None
    assert password is not None
    assert login.stat().st_mode & 0o777 == 0o600
    for secret in (key[1], password[1], "once="):
        assert secret not in output.read_text()


async def test_what_systemd_writes_to_its_journal_is_stored() -> None:
    reader, writer = os.pipe()
    try:
        status = os.fstat(writer)
        assert is_stored(writer, {"JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino}"})
        assert not is_stored(writer, {"JOURNAL_STREAM": f"{status.st_dev}:1"})
        assert not is_stored(writer, {})
    finally:
        os.close(reader)
        os.close(writer)


async def test_a_port_that_is_taken(env: dict[str, str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        env["OUTRIDER_PORT"] = str(taken.getsockname()[1])
        sentence = (await outrider("up", env=env)).assert_sentence()
    assert "OUTRIDER_PORT" in sentence


async def test_a_data_directory_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UpError, match="OUTRIDER_DATA_DIR"):
        await start(Settings(data_dir=tmp_path / "file" / "data"), asyncio.Event())


async def test_no_tmux(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UpError, match="tmux"):
        await start(Settings(data_dir=tmp_path / "data"), asyncio.Event())


async def test_a_machine_of_another_service_is_left_alone(
    env: dict[str, str], tmp_path: Path
) -> None:
    settings = DaemonSettings(tmp_path / "config")
    settings.make_directory()
    kept = '{"server":"https://elsewhere.example","daemonId":"machine_x","token":"omt_x","nickname":"n"}'
    settings.connection_file.write_text(kept)
    outcome = await outrider("up", env=env)
    assert outcome.code == 1
    assert "OUTRIDER_CONFIG_DIR" in outcome.err
    assert "Traceback" not in outcome.err
    assert settings.connection_file.read_text() == kept


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(
    tmp_path_factory: pytest.TempPathFactory, sqlite: SQLite
) -> AsyncIterator[Running]:
    """An `outrider up` for the tests that only ask it."""
    folder = tmp_path_factory.mktemp("up")
    (folder / "home").mkdir()
    sqlite.migrated(folder / "data")
    env = environment(folder / "data", port="0") | {"HOME": str(folder / "home")}
    async with Up("-m", "outrider", "up", env=env) as up:
        await up.greeting()
        (machine,) = (await up.call("GET", "/daemons"))["daemons"]
        yield Running(up, env, machine["id"])


async def test_two_at_once(running: Running) -> None:
    outcome = await outrider("up", env=running.env)
    assert outcome.code == 1
    assert "already" in outcome.err
    assert "Traceback" not in outcome.err
    await running.up.call("GET", "/daemons")


async def test_a_named_terminal_from_its_first_command_to_its_end(running: Running) -> None:
    """DELETE ends it, for whoever may run commands there."""
    call = running.up.call
    terminal, command = f"/daemons/{running.machine}/terminal", {"name": "build", "command": "x=5"}
    await call("POST", terminal, command)
    output = await call("POST", terminal, command | {"command": "printf() { :; }; echo $x"})
    assert output["output"] == "5\n"
    closed = await call("DELETE", f"{terminal}s/build")
    assert closed == {"success": True, "terminal": "build"}
    await call("DELETE", f"{terminal}s/build", status=404)
    assert (await call("POST", terminal, command | {"command": "echo $x"}))["output"] == "\n"
    await call("DELETE", f"{terminal}s/build")  # its shell would outlive a killed machine agent


async def test_odd_characters_are_a_400_with_a_sentence(running: Running) -> None:
    machine = running.machine
    for path, body, field in (
        (f"/shortcuts/{machine}/launch", {"type": "codex", "model": "a\0"}, "model"),
        (f"/shortcuts/{machine}/stop", {"type": "codex", "dir": "~nouser"}, "dir"),
        (f"/shortcuts/{machine}:cli:codex/chat", {"message": "\0\x1b"}, "message"),
        (f"/daemons/{machine}/terminal", {"command": "id", "cwd": "~nouser"}, "cwd"),
        (f"/daemons/{machine}/terminal", {"command": "echo \0"}, "command"),
    ):
        error = await running.up.call("POST", path, body, status=400)
        assert [detail["path"] for detail in error["details"]] == [field]


async def test_ones_own_laptop_is_not_limited_by_address(env: dict[str, str]) -> None:
    """docs/access.md, Limits: neither are wrong credentials; an API key still is."""
    env |= {"OUTRIDER_RATE_LIMIT_IP": "2", "OUTRIDER_RATE_LIMIT_AUTH": "2"}
    async with Up("-m", "outrider", "up", env=env | {"OUTRIDER_RATE_LIMIT_KEY": "10"}) as up:
        await up.greeting()
        await early_in_a_window()
        for _ in range(4):
            answer = await up.client.get(f"{up.url}/api/v1/daemons")
            assert answer.status_code == 401
            assert "ratelimit" not in answer.headers
            body = {"email": "nobody@example.org", "password": "not the password"}
            answer = await up.client.post(f"{up.url}/api/v1/auth/login", json=body)
            assert answer.status_code == 401
        for _ in range(10):
            await up.call("GET", "/daemons")
        await up.call("GET", "/daemons", status=429)
