"""A machine for tests: real agents in a private tmux, a stub model, nothing inherited."""

import asyncio
import contextlib
import gc
import json
import os
import subprocess
import sys
import time
import urllib.request
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from outrider.contract.commands import (
    AgentStatusQuery,
    Interrupt,
    LaunchCli,
    ReadChat,
    ResolveAction,
    Resume,
    SendChat,
    StopCli,
    Verdict,
)
from outrider.contract.errors import ApiError
from outrider.contract.events import TURN_EVENTS, AgentEvent
from outrider.contract.resources import Message, Session
from outrider.machine.agents.acp.spec import DEFAULT_TIMEOUTS, Timeouts
from outrider.machine.agents.providers import load_providers
from outrider.machine.link.journal import Journal
from outrider.machine.sessions.deltas import DeltaSink
from outrider.machine.sessions.ended_chats import EndedChats
from outrider.machine.sessions.session import AgentSession
from outrider.machine.sessions.sessions import Sessions
from outrider.machine.tmux.server import Tmux, socket_path
from tests.machine.agents.kind import AgentKind

ROOT = Path(__file__).parents[3]
STUB = ROOT / "tests" / "stub_llm" / "stub_llm.py"
DAEMON = "machine_00000000000000000000000000"
TIMEOUT = 90.0
"""Seconds within which anything happens, however busy the machine is."""


@dataclass
class StubModel:
    """A stub model that runs on loopback, and the log of what it was asked."""

    url: str
    log: Path

    def lines(self, **wanted: object) -> list[dict[str, Any]]:
        """Return the log's entries that have these values; the last may still be on its way."""
        lines = self.log.read_text().splitlines(keepends=True)
        entries = [json.loads(line) for line in lines if line.endswith("\n")]
        return [e for e in entries if all(e.get(name) == value for name, value in wanted.items())]

    def times(self, text: str, since: float = 0) -> dict[str, float]:
        """Return when (epoch seconds) the `first` and `last` byte of an answer were sent, so far.

        An agent may ask more about the same message, such as for a title: what has the most
        tools is what it is answered with.

        Args:
            text: of the message.
            since: when it was sent at the earliest.
        """
        asked = [one for one in self.lines(ev="req") if text in one["text"] and one["t"] >= since]
        if not asked:
            return {}
        answer = max(asked, key=lambda line: len(str(line["tools"])))
        return {line["ev"]: line["t"] for line in self.lines(id=answer["id"])}

    def has(self, event: str, text: str) -> bool:
        """Return whether the `first` or the `last` byte was sent of the answer to a message."""
        return event in self.times(text)

    def answer(self, text: str) -> str:
        """Return what the model answers to this message."""
        body = {"messages": [{"role": "user", "content": text}]}
        request = urllib.request.Request(f"{self.url}/chat/completions", json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=10) as reply:
            content = json.load(reply)["choices"][0]["message"]["content"]
        assert isinstance(content, str)
        return content


@contextmanager
def stub_model(folder: Path) -> Iterator[StubModel]:
    """Run the stub model while the block runs."""
    log = folder / "stub.log"
    with subprocess.Popen(
        [sys.executable, str(STUB), "--port", "0", "--log", str(log)],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            port = process.stdout.readline().split()[-1]
            yield StubModel(f"http://127.0.0.1:{port}", log)
        finally:
            process.kill()


def install_agent(kind: AgentKind) -> Path:
    """Install an agent if need be (minutes, the first time); return the folder with its command."""
    cached = Path(os.environ.get("OUTRIDER_TEST_AGENTS") or ROOT / ".cache" / "agents")
    script = ["sh", str(Path(__file__).with_name("install.sh")), str(cached), kind.type]
    done = subprocess.run(script, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return cached / kind.type / kind.bin


def agent_environment(home: Path, bin_folder: Path, own: Mapping[str, str]) -> dict[str, str]:
    """Return the whole environment of the daemon; `own` is what the kind of agent needs.

    What an agent leaves in its temporary directory goes with its HOME.
    """
    (home / "tmp").mkdir(parents=True, exist_ok=True)
    return {
        "HOME": str(home),
        "PATH": f"{bin_folder}:{os.environ['PATH']}",
        "TMPDIR": str(home / "tmp"),
        "LANG": "C.UTF-8",
        "OUTRIDER_SECRET_KEY": "must not reach the agent",
        **own,
    }


@dataclass
class Machine:
    """One machine agent's sessions, without its link to a service."""

    kind: AgentKind
    folder: Path
    environment: dict[str, str]
    socket: str
    project: Path
    acp_timeouts: Timeouts = DEFAULT_TIMEOUTS
    deltas: DeltaSink | None = None
    reported: list[AgentEvent] = field(default_factory=list)
    statuses: list[tuple[float, str]] = field(default_factory=list)
    refusals: list[tuple[str, str, str]] = field(default_factory=list)
    tmux: Tmux = field(init=False)
    journal: Journal = field(init=False)
    sessions: Sessions = field(init=False)

    @property
    def events(self) -> list[AgentEvent]:
        """The events of turns."""
        return [event for event in self.reported if event.event in TURN_EVENTS]

    @property
    def messages_reported(self) -> list[str]:
        """The ids of the messages of which there was an event."""
        return [event.chat_message.id for event in self.reported if event.chat_message is not None]

    async def start(self) -> None:
        """Start the daemon's part: a new one, over the same journal and tmux server."""
        self.tmux = Tmux(self.socket)
        self.journal = Journal(self.folder / "journal.db")
        self.sessions = Sessions(
            daemon_id=DAEMON,
            providers=load_providers(
                self.folder / "config",
                tmux=self.tmux,
                journal=self.journal,
                note_refusal=lambda *refused: self.refusals.append(refused),
                environment=self.environment,
                acp_timeouts=self.acp_timeouts,
            ),
            journal=self.journal,
            chats=EndedChats(self.folder / "config" / "chats"),
            on_change=self._changed,
            on_remove=lambda session: None,
            emit=self.reported.append,
            deltas=self.deltas,
        )
        await self.sessions.launcher.restore()

    async def stop(self) -> None:
        """Stop the daemon's part and leave the agents running."""
        await self.sessions.ending.detach()
        await self.tmux.close()
        self.journal.close()

    def _changed(self, session: Session) -> None:
        self.statuses.append((time.monotonic(), session.status))

    async def launch(self, directory: Path | None = None, kind: str | None = None) -> "Agent":
        """Launch an agent in `directory`, the trusted project without one."""
        launched = await self.sessions.launcher.launch_cli(
            LaunchCli(cli_type=kind or self.kind.type, dir=str(directory or self.project))
        )
        return Agent(self, launched.session_id)

    def kill(self) -> None:
        """Kill the tmux server and every agent, as a restart of the machine does."""
        kill_server(self.socket)
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get("HOME") == self.environment["HOME"]:
                    process.kill()

    def named(self, *names: str) -> list[AgentEvent]:
        """Return the events of these names, in order."""
        return [event for event in self.events if event.event in names]

    def event_names(self) -> list[str]:
        """Return the names of all events so far, without `agent:`."""
        return [event.event.removeprefix("agent:") for event in self.events]


@dataclass
class Agent:
    """One session of a machine, with what a scenario does to it."""

    machine: Machine
    id: str

    @property
    def session(self) -> AgentSession:
        """The session now; another object after the daemon was restarted."""
        return self.machine.sessions.find(AgentStatusQuery(session_id=self.id))

    @property
    def ended(self) -> Session | None:
        """The session in its last state, None while it runs."""
        record = self.machine.sessions.ended.get(self.id)
        return None if record is None else record.last_state

    @property
    def status(self) -> str:
        """The status now, or the last one."""
        return self.session.status if self.ended is None else self.ended.status

    @property
    def error(self) -> str:
        """The error now, or that with which it ended."""
        return (self.session.describe() if self.ended is None else self.ended).error or ""

    async def say(self, text: str) -> str:
        """Send a message and return its id."""
        message_id = (await self.session.send(SendChat(message=text))).message_id
        assert message_id is not None
        return message_id

    async def until(self, *statuses: str, seconds: float | None = None) -> None:
        """Wait until the status is one of these."""
        limit = seconds or self.machine.kind.seconds
        await until(lambda: self.status in statuses, limit, lambda: str(self.evidence()))

    async def turn(self, text: str) -> list[Message]:
        """Send a message, wait for the end of its turn, return what it added to the chat."""
        before = len(await self.messages())
        await self.say(text)
        await self.until("idle")
        return (await self.messages())[before:]

    async def messages(self) -> list[Message]:
        """Return the chat, of an ended session too."""
        return (await self.machine.sessions.read_chat(ReadChat(session_id=self.id))).messages

    async def stop(self) -> None:
        """End the session."""
        kind = self.machine.kind.type
        await self.machine.sessions.ending.stop(StopCli(cli_type=kind, session_id=self.id))

    async def resume(self) -> None:
        """Continue the session, which has ended."""
        kind = self.machine.kind.type
        await self.machine.sessions.launcher.resume(Resume(type=kind, session_id=self.id))

    async def interrupt(self) -> str:
        """Interrupt the turn and return the status after it."""
        status = (await self.session.interrupt(Interrupt())).status
        assert status == self.status
        return status

    async def resolve(self, action: Verdict) -> None:
        """Approve or reject."""
        await self.session.resolve(ResolveAction(action=action))

    def evidence(self) -> dict[str, object]:
        """Return what the status was judged from."""
        return self.session.adapter.evidence()

    @property
    def pid(self) -> int:
        """The agent's process."""
        pid = self.evidence().get("pid")
        if isinstance(pid, int):
            return pid
        return pane_pid(self.machine.socket, self.id)


def kill_server(socket: str) -> None:
    """Kill a tmux server, if there is one, and take away the socket that it leaves behind."""
    subprocess.run(["tmux", "-L", socket, "kill-server"], check=False, capture_output=True)
    socket_path(socket).unlink(missing_ok=True)


def pane_pid(socket: str, window: str) -> int:
    """Return the process of a window, as tmux tells it."""
    listed = subprocess.run(
        ["tmux", "-L", socket, "list-panes", "-a", "-F", "#{window_name} #{pane_pid}"],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    return int(dict(line.split() for line in listed.stdout.splitlines())[window])


async def until(
    condition: Callable[[], bool], seconds: float = TIMEOUT, why: Callable[[], str] = lambda: ""
) -> None:
    """Wait until `condition` holds; fail after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        before = time.monotonic()
        if condition():
            return
        now = time.monotonic()
        assert now < deadline, f"not within {seconds} s: {why()}"
        # A look that takes long (the process table) must not keep a core busy.
        await asyncio.sleep(min(max(0.01, now - before), 0.1))


def objects_of_agents() -> Counter[str]:
    """Return how many objects of each class of the machine agent's part for agents there are.

    Not what is kept of each session that has ended: its record.
    """
    gc.collect()
    classes = (type(each) for each in gc.get_objects())
    return Counter(
        f"{each.__module__}.{each.__qualname__}"
        for each in classes
        if each.__module__.startswith("outrider.machine.agents.")
    )


async def end_many(box: Machine, kind: str, count: int) -> None:
    """Launch sessions one after the other, each with a turn, and end them."""
    for _ in range(count):
        agent = await box.launch(kind=kind)
        await agent.turn("hello")
        await box.sessions.ending.stop(StopCli(cli_type=kind, session_id=agent.id))


def running_in(home: Path) -> list[str]:
    """Return the processes that have this HOME, the tests' own aside."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("HOME") == str(home):
                found.append(" ".join(process.cmdline()))
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


@asynccontextmanager
async def machine(
    folder: Path, kind: AgentKind, bin_folder: Path, model: str
) -> AsyncIterator[Machine]:
    """Run a machine for agents of this kind, and check in the end that nothing of it is left."""
    home, project = folder / "home", folder / "project"
    project.mkdir()
    kind.seed(home, project, model)
    socket = f"outrider-test-{uuid.uuid4().hex[:8]}"
    environment = agent_environment(home, bin_folder, kind.environment(model))
    made = Machine(kind, folder, environment, socket, project)
    await made.start()
    try:
        yield made
    finally:
        for session in made.sessions.describe():
            with contextlib.suppress(ApiError):
                await made.sessions.ending.stop(
                    StopCli(cli_type=session.type, session_id=session.id)
                )
        await made.stop()
        kill_server(socket)
        await until(lambda: not running_in(home), why=lambda: str(running_in(home)))
