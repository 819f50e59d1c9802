"""The whole machine agent against a scripted service."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import psutil
import pytest
from structlog.testing import capture_logs

from outrider.contract.commands import TerminalOutput
from outrider.contract.frames import (
    MAX_COMMANDS_IN_FLIGHT,
    CloseCode,
    Command,
    CommandResult,
    Event,
    Goodbye,
    Snapshot,
)
from outrider.contract.resources import Provider
from outrider.machine.app import run_daemon
from outrider.machine.link.connection import LinkRefusedError
from outrider.machine.link.journal import Journal
from outrider.machine.sessions.launching import Launcher
from outrider.machine.settings import (
    Connection,
    DaemonSettings,
    NotEnrolledError,
    SettingsError,
)
from tests.contract.link.memory_log import agent_event
from tests.machine.conftest import eventually
from tests.machine.scripted_service import Peer, ScriptedService
from tests.rig.waiting import TIMEOUT


@pytest.fixture
async def service(nothing_left: object) -> AsyncIterator[ScriptedService]:
    service = ScriptedService()
    await service.start()
    yield service
    await service.stop()


@pytest.fixture
def settings(tmp_path: Path, service: ScriptedService) -> DaemonSettings:
    settings = DaemonSettings(tmp_path / "config")
    settings.save_connection(
        Connection(server=service.url, daemon_id="machine_1", token="omt_x", nickname="box")
    )
    return settings


def terminal(command_id: str, shell_command: str, name: str | None = None) -> Command:
    payload = msgspec.json.encode({"command": shell_command, "name": name})
    return Command(
        id=command_id, command="terminal", payload=msgspec.Raw(payload), timeout_ms=120_000
    )


async def output_of(peer: Peer, command: Command) -> TerminalOutput:
    await peer.say(command)
    result = await peer.hear(CommandResult)
    assert result.id == command.id
    assert result.error is None
    return msgspec.json.decode(result.result, type=TerminalOutput)


async def test_it_works_until_it_is_stopped_and_leaves_nothing(
    service: ScriptedService, settings: DaemonSettings, tmp_path: Path
) -> None:
    stop = asyncio.Event()
    running = asyncio.create_task(run_daemon(settings, stop))
    peer = await service.connection()
    hello = await peer.welcome()
    assert hello.sessions == []
    assert "claude-code" in {provider.type for provider in hello.providers}

    shown = await output_of(peer, terminal("cmd_1", "sleep 1000 & echo $!", "t"))
    background = psutil.Process(int(shown.output))
    await peer.say(terminal("cmd_2", f"touch {tmp_path}/begun; sleep 1000", "u"))
    await peer.say(terminal("cmd_3", f"touch {tmp_path}/begun-too; sleep 1000"))
    await eventually((tmp_path / "begun").exists)
    await eventually((tmp_path / "begun-too").exists)

    stop.set()
    await peer.hear(Goodbye)
    async with asyncio.timeout(TIMEOUT):  # the commands would take much longer
        await running
    await eventually(lambda: not background.is_running())
    assert asyncio.all_tasks() - {asyncio.current_task()} == peers_tasks()


def peers_tasks() -> set[asyncio.Task[object]]:
    """Return the tasks of the scripted service, which runs in this loop too."""
    return {
        task
        for task in asyncio.all_tasks()
        if task is not asyncio.current_task() and "websockets/asyncio/server" in repr(task)
    }


async def test_thousands_of_commands_do_not_hold_its_end(
    service: ScriptedService, settings: DaemonSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are ended together: with a look at the process table for each it took a minute."""
    looks = 0
    real = psutil.process_iter

    def counted() -> Iterator[psutil.Process]:
        nonlocal looks
        looks += 1
        return real()

    monkeypatch.setattr(psutil, "process_iter", counted)
    stop = asyncio.Event()
    running = asyncio.create_task(run_daemon(settings, stop))
    peer = await service.connection()
    await peer.welcome()
    for index in range(10_000):
        name = f"t{index % 32}" if index % 4 == 0 else None
        await peer.say(terminal(f"cmd_{index}", "sleep 1000 & sleep 1000", name))
    while (await peer.hear(CommandResult)).error is None:
        pass  # the first one that is too many: all that may run do
    looks = 0
    stop.set()
    await peer.hear(Goodbye)
    await running
    assert looks < MAX_COMMANDS_IN_FLIGHT / 4


async def test_its_end_does_not_wait_for_sessions_that_are_being_restored(
    settings: DaemonSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    restoring = asyncio.Event()

    async def restore(_: Launcher) -> None:
        restoring.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(Launcher, "restore", restore)
    stop = asyncio.Event()
    running = asyncio.create_task(run_daemon(settings, stop))
    await restoring.wait()
    stop.set()
    async with asyncio.timeout(TIMEOUT):
        await running


async def test_it_can_be_started_again(service: ScriptedService, settings: DaemonSettings) -> None:
    for _ in range(2):
        stop, connected = asyncio.Event(), asyncio.Event()

        def up(_: list[Provider], is_up: asyncio.Event = connected) -> None:
            is_up.set()

        running = asyncio.create_task(run_daemon(settings, stop, up))
        peer = await service.connection()
        assert not connected.is_set()
        await peer.welcome()
        await connected.wait()
        stop.set()
        await running


async def test_a_second_one_with_the_same_directory_is_refused(
    service: ScriptedService, settings: DaemonSettings
) -> None:
    stop = asyncio.Event()
    running = asyncio.create_task(run_daemon(settings, stop))
    await (await service.connection()).welcome()
    with pytest.raises(SettingsError, match=r"runs with .* already"):
        await run_daemon(settings, asyncio.Event())
    stop.set()
    await running


async def test_a_revoked_token_ends_it(service: ScriptedService, settings: DaemonSettings) -> None:
    running = asyncio.create_task(run_daemon(settings, asyncio.Event()))
    peer = await service.connection()
    await peer.socket.close(CloseCode.UNAUTHORIZED, "revoked")
    with pytest.raises(LinkRefusedError, match="run `outrider setup` again"):
        await running


async def test_without_a_setup_it_says_so(tmp_path: Path, nothing_left: object) -> None:
    with pytest.raises(NotEnrolledError):
        await run_daemon(DaemonSettings(tmp_path), asyncio.Event())


async def test_an_unreadable_record_does_not_keep_it_from_starting(
    service: ScriptedService, settings: DaemonSettings
) -> None:
    journal = Journal(settings.journal_file)
    journal.add_event(agent_event("evt_1"))
    journal.close()
    with sqlite3.connect(settings.journal_file) as db:
        db.execute("INSERT INTO sessions VALUES ('session_1', '{\"kind\": 5}')")
        db.execute("INSERT INTO events VALUES (2, '{')")
        db.execute("UPDATE numbering SET last = 3")
        db.execute("INSERT INTO events SELECT 3, event FROM events WHERE seq = 1")
    db.close()
    stop = asyncio.Event()
    with capture_logs() as logs:
        running = asyncio.create_task(run_daemon(settings, stop))
        peer = await service.connection()
        hello = await peer.welcome()
        assert hello.sessions == []
        assert [(await peer.hear(Event)).seq for _ in range(2)] == [1, 3]
        stop.set()
        await running
    said = [(log["table"], log["record"]) for log in logs if "set aside" in log["event"]]
    assert said == [("sessions", "session_1"), ("events", 2)]


async def test_a_damaged_journal_is_a_sentence(settings: DaemonSettings) -> None:
    settings.journal_file.write_bytes(b"not a database" * 1000)
    with pytest.raises(SettingsError, match=r"journal.db cannot be used .* move it away"):
        await run_daemon(settings, asyncio.Event())


async def test_a_wrong_provider_file_stops_nothing_and_is_read_again_when_corrected(
    service: ScriptedService, settings: DaemonSettings
) -> None:
    file = settings.config_dir / "providers" / "mine.toml"
    file.parent.mkdir()
    file.write_text(PROVIDER + "colour = 3\n")
    stop = asyncio.Event()
    with capture_logs() as logs:
        running = asyncio.create_task(run_daemon(settings, stop))
        peer = await service.connection()
        hello = await peer.welcome()
    shown = {provider.type: provider for provider in hello.providers}
    assert shown["claude-code"].error is None
    assert shown["mine"].error is not None
    assert str(file) in shown["mine"].error
    assert "colour" in shown["mine"].error
    (log,) = [log for log in logs if log["event"] == "provider file rejected"]
    assert (log["type"], log["error"]) == ("mine", shown["mine"].error)

    file.write_text(PROVIDER)
    again = await peer.hear(Snapshot)
    (mine,) = [provider for provider in again.providers if provider.type == "mine"]
    assert (mine.error, mine.installed) == (None, True)

    # a launch does not wait for the next look
    file.write_text(PROVIDER.replace('"mine"', '"yours"'))
    payload = msgspec.Raw(b'{"cliType": "yours", "dir": "/nowhere"}')
    await peer.say(Command(id="cmd_1", command="launch_cli", payload=payload, timeout_ms=9000))
    failure = (await peer.hear(CommandResult)).error
    assert failure is not None
    assert "/nowhere" in failure.message
    stop.set()
    await running


PROVIDER = """
type = "mine"
category = "acp"
display_name = "Mine"
command = ["sh"]
install = "-"
"""
