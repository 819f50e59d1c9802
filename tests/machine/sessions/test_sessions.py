"""What is the same for every kind of agent: queue, approvals, events, targets, stop."""

import asyncio
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from outrider.contract.commands import (
    AgentStatusQuery,
    Interrupt,
    LaunchCli,
    ReadChat,
    ReadTurn,
    ResolveAction,
    Resume,
    SendChat,
    StopCli,
    Withdraw,
)
from outrider.contract.errors import ApiError
from outrider.contract.events import TURN_EVENTS, AgentEvent, Respondent
from outrider.contract.limits import MAX_SESSIONS
from outrider.contract.resources import Message
from outrider.machine.agents.adapter import Observation
from outrider.machine.link.journal import Journal
from outrider.machine.sessions.clock import epoch_millis
from outrider.machine.sessions.core.queue import MAX_QUEUED
from outrider.machine.sessions.ended_chats import EndedChats
from outrider.machine.sessions.session import AgentSession
from outrider.machine.sessions.sessions import Sessions
from tests.machine.agents.machine import until
from tests.machine.agents.scripted import ScriptedAdapter, ScriptedProvider

DAEMON = "machine_x"


class Desk:
    """Sessions over scripted agents, with everything that they reported."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.provider = ScriptedProvider()
        self.other = ScriptedProvider("android")
        self.reported: list[AgentEvent] = []
        self.time = itertools.count(1000, 1000)
        self.kinds = ["robot", "android"]
        self.max_sessions = MAX_SESSIONS
        self.open()

    def open(self) -> None:
        self.journal = Journal(self.folder / "journal.db")
        providers = {"robot": self.provider, "android": self.other}
        self.sessions = Sessions(
            daemon_id=DAEMON,
            providers={kind: providers[kind] for kind in self.kinds},
            journal=self.journal,
            chats=EndedChats(self.folder / "chats"),
            on_change=lambda session: None,
            on_remove=lambda session_id: None,
            emit=self.reported.append,
            clock=lambda: next(self.time),
            max_sessions=self.max_sessions,
        )

    async def launch(self, kind: str = "robot", folder: Path | None = None) -> AgentSession:
        launched = await self.sessions.launcher.launch_cli(
            LaunchCli(cli_type=kind, dir=str(folder or self.folder))
        )
        return self.sessions.find(AgentStatusQuery(session_id=launched.session_id))

    @property
    def agent(self) -> ScriptedAdapter:
        return self.provider.made[-1]

    @property
    def events(self) -> list[AgentEvent]:
        """The events of turns."""
        return [event for event in self.reported if event.event in TURN_EVENTS]

    def of(self, *names: str) -> list[AgentEvent]:
        """Return the events with these names."""
        return [event for event in self.reported if event.event in names]

    def names(self) -> list[str]:
        return [event.event.removeprefix("agent:") for event in self.events]


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path)
    yield made
    made.journal.close()


def _message(message_id: str | None, index: int, role: Any) -> Message:
    assert message_id is not None
    return Message(
        id=message_id, index=index, role=role, kind="text", content="text", timestamp=index
    )


async def refused(awaitable: Any) -> ApiError:
    with pytest.raises(ApiError) as error:
        await awaitable
    return error.value


async def test_messages_wait_while_the_agent_is_generating_and_go_in_order(desk: Desk) -> None:
    session = await desk.launch()
    assert not (await session.send(SendChat(message="0"))).queued
    for number in range(1, MAX_QUEUED + 1):
        assert (await session.send(SendChat(message=str(number)))).queued
    full = await refused(session.send(SendChat(message="one too many")))
    assert full.status == 409
    for number in range(1, MAX_QUEUED + 1):
        desk.agent.see("idle")
        await until(lambda n=number: desk.agent.submitted[-1] == str(n))  # type: ignore[misc]
    assert desk.agent.submitted == [str(number) for number in range(MAX_QUEUED + 1)]
    desk.agent.see("idle")
    assert not (await session.send(SendChat(message="after"))).queued


async def test_the_queue_is_listed_and_outlives_the_daemon(desk: Desk) -> None:
    session = await desk.launch()
    assert session.queue().messages == []
    first = await session.send(SendChat(message="first"))
    began = epoch_millis()
    two = await session.send(SendChat(message="second"))
    three = await session.send(SendChat(message="third"))
    listed = session.queue().messages
    assert [(m.message_id, m.text) for m in listed] == [
        (two.message_id, "second"),
        (three.message_id, "third"),
    ]
    assert began <= listed[0].created_at <= listed[1].created_at <= epoch_millis()

    await desk.sessions.ending.detach()
    desk.journal.close()
    desk.open()
    desk.provider.next_first = Observation(status="generating")
    await desk.sessions.launcher.restore()
    session = desk.sessions.find(AgentStatusQuery(session_id=session.record.id))
    assert session.queue().messages == listed

    assert two.message_id is not None
    assert (await session.withdraw(Withdraw(message_id=two.message_id))).message_id
    unknown = await refused(session.withdraw(Withdraw(message_id=two.message_id)))
    assert (unknown.status, unknown.code) == (404, None)
    desk.agent.see("idle")
    await until(lambda: session.queue().messages == [])
    assert desk.agent.submitted == ["third"]
    assert first.message_id is not None
    desk.agent.chat = [
        Message(id=first.message_id, index=0, role="user", kind="text", content="", timestamp=0)
    ]
    for sent in (first, three):  # one before the restart, and one after it
        assert sent.message_id is not None
        late = await refused(session.withdraw(Withdraw(message_id=sent.message_id)))
        assert (late.status, late.code) == (409, "ALREADY_SENT")


async def test_delivery(desk: Desk) -> None:
    session = await desk.launch()
    await session.send(SendChat(message="first", delivery="reject"))
    busy = await refused(session.send(SendChat(message="second", delivery="reject")))
    assert (busy.status, busy.code) == (409, "AGENT_BUSY")
    await session.send(SendChat(message="third"))
    sent = await session.send(SendChat(message="fourth", delivery="interrupt"))
    assert (sent.queued, sent.status, desk.agent.interrupted) == (False, "generating", 1)
    assert desk.agent.submitted == ["first", "fourth"]
    desk.agent.see("idle")
    await until(lambda: desk.agent.submitted == ["first", "fourth", "third"])


async def test_interrupt(desk: Desk) -> None:
    session = await desk.launch()
    idle = await refused(session.interrupt(Interrupt()))
    assert (idle.status, idle.code) == (409, "NOT_GENERATING")
    await session.send(SendChat(message="first"))
    assert (await session.interrupt(Interrupt())).status == "idle"
    assert desk.names() == ["generating_started", "generating_completed"]
    desk.agent.ask("act_1")
    desk.agent.after_interrupt = "error"
    assert (await session.interrupt(Interrupt(agent_type="robot"))).status == "error"
    assert session.state().pending_action is None
    (resolved,) = desk.of("approval:resolved")
    assert resolved.answer is None  # nobody answered it


async def test_each_turn_has_its_events(desk: Desk) -> None:
    await desk.launch()
    desk.agent.see("generating")
    desk.agent.see("generating", title="now with a title")
    desk.agent.ask("act_1")
    desk.agent.ask("act_1", "the same, drawn again")
    desk.agent.see("generating")
    desk.agent.see("idle")
    desk.agent.see("generating")
    desk.agent.see("error", error="no credit")
    desk.agent.see("error", error="no credit", title="new")
    desk.agent.see("idle")
    assert desk.names() == [
        "generating_started", "waiting_approval", "generating_completed",
        "generating_started", "error",
    ]  # fmt: skip
    completed = desk.events[2]
    assert completed.duration is not None
    assert completed.duration > 0
    assert completed.ide_id == f"{DAEMON}:cli:robot"


async def test_nothing_is_told_twice_over_a_restart(desk: Desk) -> None:
    await desk.launch()
    desk.agent.see("generating")
    desk.agent.ask("act_1")
    (session,) = desk.sessions.describe()
    await desk.sessions.ending.detach()
    desk.journal.close()
    desk.provider.next_first = Observation(
        status="waiting_approval", pending=session.pending_action
    )
    desk.open()
    await desk.sessions.launcher.restore()
    desk.agent.see("generating")
    desk.agent.see("idle")
    assert desk.names() == ["generating_started", "waiting_approval", "generating_completed"]


async def test_targets(desk: Desk) -> None:
    first, second = await desk.launch(), await desk.launch("android")
    assert desk.sessions.find(AgentStatusQuery()) is second
    assert desk.sessions.find(AgentStatusQuery(target=f"{DAEMON}:cli:robot")) is first
    assert desk.sessions.find(AgentStatusQuery(target=second.target_id)) is second
    await first.send(SendChat(message="hello"))
    assert desk.sessions.find(AgentStatusQuery()) is first
    for target in ("nonsense", "machine_y:cli:robot", f"{DAEMON}:acp:robot", f"{DAEMON}:session:x"):
        with pytest.raises(ApiError) as error:
            desk.sessions.find(AgentStatusQuery(target=target))
        assert error.value.status == 404


async def test_a_target_and_a_session_id_must_be_the_same_session(desk: Desk) -> None:
    first, second = await desk.launch(), await desk.launch()
    other = await desk.launch("android")
    robot = f"{DAEMON}:cli:robot"

    def found(target: str | None, session_id: str) -> AgentSession:
        return desk.sessions.find(AgentStatusQuery(target=target, session_id=session_id))

    await second.send(SendChat(message="hello"))
    assert found(robot, second.record.id) is second
    assert found(second.target_id, second.record.id) is second
    assert found(None, first.record.id) is first
    for target, session_id, status in (
        (robot, first.record.id, 400),
        (robot, other.record.id, 400),
        (first.target_id, second.record.id, 400),
        (robot, "session_none", 404),
        (f"{DAEMON}:session:none", second.record.id, 404),
        (f"{DAEMON}:cli:none", second.record.id, 404),
    ):
        with pytest.raises(ApiError) as error:
            found(target, session_id)
        assert error.value.status == status


async def test_stop_by_each_name(desk: Desk) -> None:
    first, second = await desk.launch(), await desk.launch()
    other = await desk.launch("android")
    for names, status in (
        ({"target": first.target_id, "session_id": second.record.id}, 400),
        ({"target": other.target_id}, 404),
        ({"target": f"{DAEMON}:session:none"}, 404),
        ({"session_id": "session_none"}, 404),
    ):
        stop = desk.sessions.ending.stop(StopCli(cli_type="robot", **names))
        assert (await refused(stop)).status == status
    stopped = await desk.sessions.ending.stop(
        StopCli(cli_type="robot", target=f"{DAEMON}:cli:robot")
    )
    assert stopped.stopped == [second.record.id], "the one that was used last"
    stopped = await desk.sessions.ending.stop(StopCli(cli_type="robot", target=first.target_id))
    assert stopped.stopped == [first.record.id]


async def test_stop_wants_to_know_which(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    first, two = await desk.launch(), await desk.launch(folder=tmp_path / "elsewhere")
    error = await refused(desk.sessions.ending.stop(StopCli(cli_type="robot")))
    assert (error.status, error.code) == (409, "AMBIGUOUS_TARGET")
    assert (await refused(desk.sessions.ending.stop(StopCli(cli_type="android")))).status == 404
    assert (await refused(desk.sessions.ending.stop(StopCli(cli_type="toaster")))).status == 400
    stopped = await desk.sessions.ending.stop(
        StopCli(cli_type="robot", dir=str(tmp_path / "elsewhere"))
    )
    assert stopped.stopped == [two.record.id]
    assert desk.agent.closed
    assert (await desk.sessions.ending.stop(StopCli(cli_type="robot"))).stopped == [first.record.id]
    assert desk.sessions.describe() == []


@pytest.mark.parametrize(
    "wrong",
    ["relative/path", "/no/such/directory", "~no-such-user", "/" + "x" * 4000, "/etc/passwd"],
)
async def test_a_launch_that_cannot_be(desk: Desk, wrong: str) -> None:
    launch = LaunchCli(cli_type="robot", dir=wrong)
    error = await refused(desk.sessions.launcher.launch_cli(launch))
    assert (error.status, [detail.path for detail in error.details]) == (400, ["dir"])
    assert (
        await refused(desk.sessions.launcher.launch_cli(LaunchCli(cli_type="toaster")))
    ).status == 400
    desk.provider.installed = False
    fine = LaunchCli(cli_type="robot", dir=str(desk.folder))
    missing = await refused(desk.sessions.launcher.launch_cli(fine))
    assert missing.status == 400
    assert "(buy a robot)" in missing.message
    assert desk.journal.sessions() == []


async def test_the_limit_of_sessions_holds_for_those_that_start_at_once(desk: Desk) -> None:
    desk.max_sessions = 2
    desk.open()
    ended = (await desk.launch()).record.id
    await desk.sessions.ending.stop(StopCli(cli_type="robot"))
    starts = [
        desk.sessions.launcher.launch_cli(
            LaunchCli(cli_type="robot", dir=str(desk.folder / "gone"))
        ),
        desk.launch(),
        desk.sessions.launcher.resume(Resume(type="robot", session_id=ended)),
        desk.launch(),
    ]
    no_directory, first, resumed, last = await asyncio.gather(*starts, return_exceptions=True)
    assert isinstance(no_directory, ApiError)
    assert no_directory.status == 400
    assert isinstance(first, AgentSession)
    for error in (resumed, last):
        assert isinstance(error, ApiError)
        assert (error.status, error.message) == (
            409,
            "2 sessions run on this machine, which is the limit: stop one first",
        )
    await desk.launch()  # what failed does not count any more
    assert len(desk.sessions.describe()) == 2


async def test_stop_with_a_directory_that_cannot_be(desk: Desk) -> None:
    await desk.launch()
    stop = desk.sessions.ending.stop(StopCli(cli_type="robot", dir="~no-such-user"))
    assert (await refused(stop)).status == 400


async def test_reading_a_part_of_the_chat(desk: Desk) -> None:
    session = await desk.launch()
    desk.agent.chat = [
        Message(id=f"msg_{n}", index=n, role="user", kind="text", content="x", timestamp=n)
        for n in range(5)
    ]

    async def ids(**query: Any) -> list[int]:
        return [message.index for message in (await session.read(ReadChat(**query))).messages]

    assert await ids() == [0, 1, 2, 3, 4]
    assert await ids(limit=2) == [3, 4]
    assert await ids(after="msg_1") == [2, 3, 4]
    assert await ids(after="msg_1", limit=1) == [2]
    assert (await refused(session.read(ReadChat(after="msg_9")))).status == 400


async def test_reading_a_turn(desk: Desk) -> None:
    session = await desk.launch()
    sent = await session.send(SendChat(message="first"))
    turn = await session.turn(ReadTurn(after=sent.cursor))
    assert (turn.reason, turn.status, turn.messages) == (None, "generating", [])
    assert turn.cursor == sent.cursor
    desk.agent.chat = [
        _message(sent.message_id, 0, "user"),
        _message("a1", 1, "assistant"),
        _message("a2", 2, "assistant"),
    ]
    turn = await session.turn(ReadTurn(after=sent.cursor))
    assert turn.messages == []
    turn = await session.turn(ReadTurn(after=sent.cursor, unfinished=True))
    assert (turn.reason, [m.id for m in turn.messages]) == (None, ["a1", "a2"])
    desk.agent.ask("act_1")
    turn = await session.turn(ReadTurn(after=sent.cursor, until=["idle"]))
    assert (turn.reason, turn.pending_action and turn.pending_action.id) == (None, "act_1")
    turn = await session.turn(ReadTurn(after=sent.cursor))
    assert turn.reason == "waiting_approval"
    await session.resolve(ResolveAction(action="approve"))
    assert (await session.turn(ReadTurn(after=turn.cursor))).reason is None
    desk.agent.chat.append(_message("a3", 3, "assistant"))
    desk.agent.see("idle")
    turn = await session.turn(ReadTurn(after=turn.cursor))
    assert (turn.reason, [m.id for m in turn.messages], turn.cursor) == ("idle", ["a3"], "a3")
    assert [m.id for m in (await session.turn(ReadTurn())).messages] == ["a1", "a2", "a3"]
    wrong = await refused(session.turn(ReadTurn(after="msg_none")))
    assert (wrong.status, wrong.details[0].path) == (400, "after")


async def test_a_session_that_cannot_be_restored_does_not_stop_the_others(desk: Desk) -> None:
    broken, whole = await desk.launch("android"), await desk.launch()
    await desk.sessions.ending.detach()
    desk.journal.close()
    desk.open()
    desk.other.breaks = ValueError("what it kept makes no sense")
    with capture_logs() as logs:
        await desk.sessions.launcher.restore()
    assert [session.id for session in desk.sessions.describe()] == [whole.record.id]
    (log,) = [log for log in logs if log["event"] == "session not restored"]
    assert log["session"] == broken.record.id
    desk.other.breaks = None
    await desk.sessions.ending.detach()
    desk.journal.close()
    desk.open()
    await desk.sessions.launcher.restore()  # the next start tries again
    assert len(desk.sessions.describe()) == 2


async def test_a_type_whose_file_is_wrong_is_not_launched(desk: Desk) -> None:
    desk.provider.error = "/x/robot.toml: nonsense"
    with pytest.raises(
        ApiError, match=r"'robot' cannot be launched .* /x/robot\.toml: nonsense"
    ) as e:
        await desk.launch()
    assert e.value.status == 400
    desk.provider.error = None
    assert (await desk.launch()).state().status == "idle"


async def test_a_session_is_found_again_once_its_provider_file_is_corrected(desk: Desk) -> None:
    session = await desk.launch()
    other = await desk.launch("android")
    await desk.sessions.ending.detach()
    desk.journal.close()
    desk.provider.error = "/x/robot.toml: nonsense"
    desk.open()
    with capture_logs() as logs:
        await desk.sessions.launcher.restore()
    assert [s.id for s in desk.sessions.describe()] == [other.record.id]
    assert [log["session"] for log in logs] == [session.record.id]
    await desk.sessions.launcher.retry_restore()
    assert len(desk.sessions.describe()) == 1
    desk.provider.error = None
    await asyncio.gather(*(desk.sessions.launcher.retry_restore() for _ in range(3)))
    assert [s.id for s in desk.sessions.describe()] == [other.record.id, session.record.id]
    assert len(desk.provider.made) == 2


async def test_the_life_of_a_session_in_events(desk: Desk) -> None:
    session = await desk.launch()
    desk.agent.see("generating", title="Fix it")
    desk.agent.see("idle", title="Fix it")
    await desk.sessions.ending.stop(StopCli(cli_type="robot"))
    started, *updated, ended = desk.of("session:started", "session:updated", "session:ended")
    assert started.session is not None
    assert (started.event, started.session.status) == ("session:started", "idle")
    assert started.session.target_id == session.target_id
    titles = [event.session and (event.session.title, event.session.status) for event in updated]
    assert titles == [("Fix it", "generating"), ("Fix it", "idle")]
    assert ended.event == "session:ended"


async def test_an_approval_and_who_answered_it(desk: Desk) -> None:
    session = await desk.launch()
    desk.agent.ask("act_1")
    key = Respondent(kind="key", id="key_1", name="Laptop")
    await session.resolve(ResolveAction(action="reject"), key)
    desk.agent.ask("act_2")
    desk.agent.see("generating")  # a person has answered in the terminal
    desk.agent.ask("act_3")
    desk.agent.refuse = ApiError(500, "broken")
    await refused(session.resolve(ResolveAction(action="approve"), key))
    desk.agent.see("generating")
    events = desk.of("approval:opened", "approval:resolved")
    assert [event.action and event.action.id for event in events] == [
        *("act_1", "act_1"),
        *("act_2", "act_2"),
        *("act_3", "act_3"),
    ]
    answers = [event.answer for event in events if event.event == "approval:resolved"]
    assert [answer and (answer.action, answer.option_id, answer.by) for answer in answers] == [
        ("reject", "3", key),
        (None, None, Respondent(kind="terminal")),
        (None, None, Respondent(kind="terminal")),
    ]


async def test_the_queue_in_events(desk: Desk) -> None:
    session = await desk.launch()
    await session.send(SendChat(message="first"))
    queued = await session.send(SendChat(message="second"))
    desk.agent.see("idle")
    await until(lambda: desk.agent.submitted == ["first", "second"])
    changes = [event.queue for event in desk.of("queue:changed")]
    texts = [[(message.message_id, message.text) for message in change or []] for change in changes]
    assert texts == [[(queued.message_id, "second")], []]


async def test_messages_come_before_the_end_of_their_turn(desk: Desk) -> None:
    await desk.launch()
    desk.agent.see("generating")
    desk.agent.say("growing", is_open=True)
    desk.agent.open_ids.clear()
    desk.agent.see("idle")
    names = [str(event.event) for event in desk.reported]
    assert names.index("chat:message") < names.index("agent:generating_completed")


async def test_each_message_once_over_a_restart(desk: Desk) -> None:
    await desk.launch()
    desk.agent.see("generating")
    desk.agent.say("one", "two")
    await until(lambda: len(desk.of("chat:message")) == 2)
    await desk.sessions.ending.detach()
    desk.journal.close()
    chat = desk.agent.chat
    desk.open()
    await desk.sessions.launcher.restore()
    desk.agent.chat = [*chat]
    desk.agent.say("three")
    await until(lambda: len(desk.of("chat:message")) == 3)
    messages = [event.chat_message for event in desk.of("chat:message")]
    assert [message and message.content for message in messages] == ["one", "two", "three"]
    assert len({event.id for event in desk.reported}) == len(desk.reported)


async def test_a_message_has_the_same_event_if_it_is_emitted_again(desk: Desk) -> None:
    """The daemon was killed before it could record it: the service stores the event once."""
    session = await desk.launch()
    desk.agent.say("one")
    await until(lambda: len(desk.of("chat:message")) == 1)
    session.record.emitted_messages = {}
    desk.agent.say()
    await until(lambda: len(desk.of("chat:message")) == 2)
    first, again = desk.of("chat:message")
    assert first.id == again.id
