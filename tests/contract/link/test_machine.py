"""Playbooks for the machine's end: input and time in; actions, events and frames out."""

from typing import Any

import msgspec
import pytest

from outrider.contract.events import EventName
from outrider.contract.frames import (
    PROTOCOL_VERSION,
    Acknowledge,
    AcknowledgeRefusals,
    Cancel,
    Change,
    CloseCode,
    Command,
    CommandResult,
    Delta,
    Event,
    FromDaemon,
    FromService,
    Goodbye,
    Refusal,
    Snapshot,
    WatchDeltas,
    Welcome,
    decode_from_daemon,
    encode,
)
from outrider.contract.limits import TokenBucket
from outrider.contract.link.machine import (
    Action,
    Close,
    CommandsLost,
    Connect,
    ConnectionEnded,
    LinkEvent,
    LinkRefused,
    LinkTiming,
    MachineLink,
    SendHello,
    StreamEvents,
    StreamsLost,
)
from outrider.contract.link.outbox import Outbox
from outrider.contract.link.terminals import Data, Open, StreamEvent, decode
from outrider.contract.link.terminals import encode as encode_terminal
from outrider.contract.resources import Provider, Session
from tests.contract.link.memory_log import (
    MemoryLog,
    agent_event,
    provider,
    refusal,
    report,
    session,
)

TIMING = LinkTiming(welcome_timeout=15, report_interval=20, stable_after=30, linger=10)
MOVE = Goodbye(reason="This node stops", reconnect_ms=8000)
WELCOME = Welcome(protocol=PROTOCOL_VERSION, version="1", daemon_id="machine_1", nickname="box")
COMMAND = Command(id="cmd_1", command="x", payload=msgspec.Raw(b"{}"), timeout_ms=1000)


class Playbook:
    """A machine's link whose clock and input a test controls; half of each delay is waited."""

    def __init__(
        self,
        log: MemoryLog | None = None,
        allowance: TokenBucket | None = None,
        *,
        has_terminals: bool = False,
    ) -> None:
        self.now = 100.0
        self.log = log or MemoryLog()
        self.outbox = Outbox(self.log, allowance=allowance)
        self.sessions: list[Session] = []
        self.providers: list[Provider] = []
        self.link = MachineLink(
            self.outbox,
            version="1",
            describe=lambda: report(*self.sessions, providers=tuple(self.providers)),
            timing=TIMING,
            random_fraction=lambda: 0.5,
            has_terminals=has_terminals,
        )

    def output(self) -> list[Action | LinkEvent]:
        return [*self.link.actions(), *self.link.events()]

    def start(self) -> list[Action | LinkEvent]:
        self.link.start()
        return self.output()

    def open(self, number: int) -> list[Action | LinkEvent]:
        self.link.connection_opened(number, self.now)
        return self.output()

    def receive(self, number: int, frame: FromService | str | bytes) -> list[Action | LinkEvent]:
        message = frame if isinstance(frame, str | bytes) else encode(frame).decode()
        self.link.receive(number, message, self.now)
        return self.output()

    def lose(self, number: int, code: int | None = None) -> list[Action | LinkEvent]:
        self.link.connection_lost(number, self.now, code, "why")
        return self.output()

    def pass_time(self, seconds: float) -> list[Action | LinkEvent]:
        self.now += seconds
        self.link.tick(self.now)
        return self.output()

    def batch(self) -> list[FromDaemon]:
        """Return the next batch, written."""
        taken = self.link.next_batch(self.now)
        self.link.batch_written(self.now)
        return [] if taken is None else taken[1]

    def welcome(self, number: int = 1, acknowledged: int = 0) -> None:
        """Open a connection and have it welcomed."""
        (hello,) = self.open(number)
        assert isinstance(hello, SendHello)
        frame = msgspec.structs.replace(WELCOME, acknowledged=acknowledged)
        assert self.receive(number, frame) == [frame]


@pytest.fixture
def book() -> Playbook:
    """A link that is welcomed on its connection 1."""
    book = Playbook()
    assert book.start() == [Connect(1, 0.0)]
    book.welcome()
    return book


def moving(book: Playbook) -> Playbook:
    """Have the service ask for a move; connection 2 has sent its hello."""
    assert book.receive(1, MOVE) == [Connect(2, 4.0), MOVE]
    (hello,) = book.open(2)
    assert isinstance(hello, SendHello)
    return book


# Hello and welcome


def test_a_hello_reports_everything_and_the_newest_event() -> None:
    book = Playbook()
    book.sessions.append(session("a"))
    book.outbox.event(agent_event("evt_1"))
    book.start()
    (action,) = book.open(1)
    assert isinstance(action, SendHello)
    assert action.connection == 1
    assert action.hello.sessions == [session("a")]
    assert action.hello.last_event == 1


def test_nothing_is_sent_before_the_welcome() -> None:
    book = Playbook()
    book.start()
    book.open(1)
    book.outbox.session_changed(session("a"))
    book.outbox.event(agent_event("evt_1"))
    assert book.batch() == []
    book.receive(1, WELCOME)
    assert book.batch() == [
        Change(sessions=[session("a")]),
        Event(seq=1, event=agent_event("evt_1")),
    ]
    assert book.batch() == []


def test_a_welcome_that_does_not_come_ends_the_connection() -> None:
    book = Playbook()
    book.start()
    book.open(1)
    assert book.link.deadline(book.now) == book.now + 15
    assert book.pass_time(14.9) == []
    reason = "No welcome in time"
    assert book.pass_time(0.1) == [
        Close(1, CloseCode.HELLO_TIMEOUT, reason),
        Connect(2, 1.0),
        ConnectionEnded(CloseCode.HELLO_TIMEOUT, reason, is_fault=True),
    ]


def test_another_first_frame_is_a_fault_and_an_unknown_one_is_not() -> None:
    book = Playbook()
    book.start()
    book.open(1)
    assert book.receive(1, '{"type": "news"}') == []
    close, connect, ended = book.receive(1, COMMAND)
    assert isinstance(close, Close)
    assert close.code == CloseCode.BAD_FRAME
    assert connect == Connect(2, 1.0)
    assert isinstance(ended, ConnectionEnded)
    assert book.receive(1, WELCOME) == []  # it was on its way already


@pytest.mark.parametrize("rubbish", ["", "{", '{"type": "command"}', b"\x00"])
def test_rubbish_ends_the_connection(book: Playbook, rubbish: str | bytes) -> None:
    close, connect, ended, lost = book.receive(1, rubbish)
    assert isinstance(close, Close)
    assert close.code == CloseCode.BAD_FRAME
    assert (connect, lost) == (Connect(2, 1.0), CommandsLost())
    assert isinstance(ended, ConnectionEnded)
    assert ended.is_fault


def test_a_welcome_of_another_version_stops_the_link() -> None:
    book = Playbook()
    book.start()
    book.open(1)
    output = book.receive(1, msgspec.structs.replace(WELCOME, protocol=PROTOCOL_VERSION + 1))
    assert LinkRefused(CloseCode.UNSUPPORTED_VERSION) in output
    assert not any(isinstance(item, Connect) for item in output)


# Frames


def test_commands_and_cancels_are_passed_on(book: Playbook) -> None:
    assert book.receive(1, COMMAND) == [COMMAND]
    assert book.receive(1, Cancel(id="cmd_1")) == [Cancel(id="cmd_1")]


def test_only_the_newest_state_of_a_session_is_sent_and_before_results(book: Playbook) -> None:
    for title in ("1", "2", "3"):
        book.outbox.session_changed(session("a", title))
    book.outbox.session_changed(session("b"))
    book.outbox.result(CommandResult(id="cmd_1"))
    book.outbox.session_removed("b")
    assert book.batch() == [
        Change(sessions=[session("a", "3")], removed=["b"]),
        CommandResult(id="cmd_1"),
    ]


def test_events_are_deleted_once_acknowledged_but_none_that_was_not_sent(book: Playbook) -> None:
    for name in ("evt_1", "evt_2"):
        book.outbox.event(agent_event(name))
    book.receive(1, Acknowledge(seq=2))
    assert len(book.log.waiting) == 2
    book.batch()
    book.receive(1, Acknowledge(seq=1))
    assert book.log.waiting == [(2, "evt_2")]


def test_refusals_are_sent_again_until_acknowledged(book: Playbook) -> None:
    book.outbox.refused(refusal("/a"))
    assert book.batch() == [Refusal(seq=1, refused=refusal("/a"))]
    book.lose(1)
    book.welcome(2)
    assert book.batch() == [Refusal(seq=1, refused=refusal("/a"))]
    book.receive(2, AcknowledgeRefusals(seq=1))
    book.lose(2)
    book.welcome(3)
    assert book.batch() == []


def test_events_beyond_the_rate_wait_for_it_and_nothing_else_does() -> None:
    book = Playbook(allowance=TokenBucket(rate=1, burst=2))
    book.start()
    book.welcome()
    for name in ("evt_1", "evt_2", "evt_3"):
        book.outbox.event(agent_event(name))
    assert len(book.batch()) == 2
    assert book.batch() == []
    assert book.link.deadline(book.now) == book.now + 1
    book.outbox.result(CommandResult(id="cmd_1"))
    assert book.batch() == [CommandResult(id="cmd_1")]
    book.pass_time(1)
    assert book.batch() == [Event(seq=3, event=agent_event("evt_3"))]


class OneAtATime(MemoryLog):
    """A log whose pages are short, as those of a journal with unreadable records are."""

    def events(self, after: int, limit: int) -> list[tuple[int, Any]]:
        return super().events(after, limit)[:1]


def test_a_short_page_of_events_is_not_the_last() -> None:
    book = Playbook(OneAtATime())
    book.start()
    book.welcome()
    for name in ("evt_1", "evt_2"):
        book.outbox.event(agent_event(name))
    assert [*book.batch(), *book.batch()] == [
        Event(seq=1, event=agent_event("evt_1")),
        Event(seq=2, event=agent_event("evt_2")),
    ]


def test_figures_are_sent_from_time_to_time_and_everything_if_providers_change(
    book: Playbook,
) -> None:
    assert book.link.deadline(book.now) == book.now + 10  # a random part of the interval
    assert book.pass_time(10) == []
    assert book.batch() == [Change(machine=report().machine)]
    assert book.link.deadline(book.now) == book.now + 20
    assert book.pass_time(20) == []
    assert book.batch() == [Change(machine=report().machine)]
    book.providers.append(provider("codex"))
    book.pass_time(20)
    (frame,) = book.batch()
    assert isinstance(frame, Snapshot)
    assert frame.providers == [provider("codex")]


# Numbers of events


def test_a_new_log_numbers_its_events_after_those_of_the_service() -> None:
    book = Playbook()
    book.outbox.event(agent_event("evt_1"))
    book.start()
    book.welcome(acknowledged=7)
    assert book.batch() == [Event(seq=8, event=agent_event("evt_1"))]


def test_a_log_that_is_older_than_the_service_does_too(book: Playbook) -> None:
    book.outbox.event(agent_event("evt_1"))
    book.lose(1)
    book.welcome(2, acknowledged=5)
    assert book.batch() == [Event(seq=6, event=agent_event("evt_1"))]


def test_events_after_the_acknowledged_one_are_sent_again(book: Playbook) -> None:
    for name in ("evt_1", "evt_2", "evt_3"):
        book.outbox.event(agent_event(name))
    book.batch()
    book.lose(1)
    book.welcome(2, acknowledged=1)
    assert [frame.seq for frame in book.batch() if isinstance(frame, Event)] == [2, 3]


# The end of a connection


def test_delays_grow_and_start_anew_after_a_stable_connection(book: Playbook) -> None:
    delays = []
    for number in range(1, 7):
        (connect,) = [item for item in book.lose(number) if isinstance(item, Connect)]
        delays.append(connect.delay)
    assert delays == [1, 2, 4, 8, 16, 30]
    book.welcome(7)
    book.pass_time(30)
    assert Connect(8, 1.0) in book.lose(7)


def test_a_lost_connection_gives_up_commands_and_results(book: Playbook) -> None:
    book.outbox.result(CommandResult(id="cmd_1"))
    assert book.lose(1, CloseCode.GOING_AWAY) == [
        Connect(2, 1.0),
        ConnectionEnded(CloseCode.GOING_AWAY, "why"),
        CommandsLost(),
    ]
    book.welcome(2)
    assert book.batch() == []


@pytest.mark.parametrize(
    "code", [CloseCode.UNAUTHORIZED, CloseCode.REPLACED, CloseCode.UNSUPPORTED_VERSION]
)
def test_a_refusal_stops_the_link(book: Playbook, code: CloseCode) -> None:
    output = book.lose(1, code)
    assert LinkRefused(code) in output
    assert not any(isinstance(item, Connect) for item in output)
    assert book.link.deadline(book.now) is None


def test_stopping_says_goodbye_on_the_current_connection(book: Playbook) -> None:
    moving(book)
    book.link.stop()
    reason = "The machine agent stops"
    assert book.output() == [
        Close(1, CloseCode.GOING_AWAY, reason, Goodbye(reason=reason)),
        Close(2, CloseCode.GOING_AWAY, reason),
        CommandsLost(),
    ]
    assert [*book.receive(1, COMMAND), *book.lose(2), *book.pass_time(99)] == []


# Moving


def test_a_move_keeps_the_old_connection_until_the_new_one_is_welcomed(book: Playbook) -> None:
    moving(book)
    book.outbox.result(CommandResult(id="cmd_1"))
    assert book.batch() == []  # nothing between a hello and its welcome
    assert book.receive(2, WELCOME) == [WELCOME]
    taken = book.link.next_batch(book.now)
    assert taken == (2, [CommandResult(id="cmd_1")])
    assert book.receive(1, COMMAND) == [COMMAND]
    assert book.pass_time(10) == [
        Close(1, CloseCode.GOING_AWAY, "This machine has a newer connection")
    ]


def test_the_hello_waits_for_the_batch_that_is_being_written(book: Playbook) -> None:
    book.outbox.result(CommandResult(id="cmd_1"))
    assert book.link.next_batch(book.now) is not None
    book.receive(1, MOVE)
    assert book.open(2) == []
    book.link.batch_written(book.now)
    (hello,) = book.output()
    assert isinstance(hello, SendHello)


def test_a_batch_that_was_lost_with_its_connection_gives_up_its_commands(book: Playbook) -> None:
    book.outbox.result(CommandResult(id="cmd_1"))
    assert book.link.next_batch(book.now) is not None
    book.receive(1, MOVE)
    book.open(2)
    hello, ended, lost = book.lose(1)
    assert isinstance(hello, SendHello)
    assert isinstance(ended, ConnectionEnded)
    assert lost == CommandsLost()


def test_the_old_connection_may_be_closed_before_the_welcome(book: Playbook) -> None:
    moving(book)
    book.outbox.result(CommandResult(id="cmd_1"))
    assert book.lose(1, CloseCode.REPLACED) == [ConnectionEnded(CloseCode.REPLACED, "why")]
    assert book.batch() == []
    assert book.receive(2, WELCOME) == [WELCOME]
    assert book.batch() == [CommandResult(id="cmd_1")]


def test_commands_are_given_up_if_no_welcome_follows(book: Playbook) -> None:
    moving(book)
    book.lose(1, CloseCode.REPLACED)
    assert book.lose(2) == [Connect(3, 1.0), ConnectionEnded(None, "why"), CommandsLost()]


def test_a_new_connection_that_fails_leaves_the_old_one_in_use(book: Playbook) -> None:
    moving(book)
    book.outbox.session_changed(session("a"))
    assert book.lose(2) == [Connect(3, 1.0), ConnectionEnded(None, "why")]
    assert book.link.next_batch(book.now) == (1, [Change(sessions=[session("a")])])


def test_an_old_connection_that_was_closed_for_good_is_no_refusal(book: Playbook) -> None:
    moving(book)
    book.receive(2, WELCOME)
    assert book.lose(1, CloseCode.REPLACED) == [
        ConnectionEnded(CloseCode.REPLACED, "why", is_older=True)
    ]


def test_a_second_goodbye_does_not_start_a_second_move(book: Playbook) -> None:
    moving(book)
    assert book.receive(1, MOVE) == [MOVE]


def test_a_goodbye_delays_the_next_connection_at_most_by_ten_minutes(book: Playbook) -> None:
    goodbye = Goodbye(reason="Maintenance", reconnect_ms=86_400_000)
    assert Connect(2, 300.0) in book.receive(1, goodbye)


# Terminals

OPEN = Open(name="build")


def with_terminal() -> tuple[Playbook, StreamEvents]:
    """Return a link on whose connection 1 the service has opened a stream."""
    book = Playbook(has_terminals=True)
    book.start()
    book.welcome()
    (opened,) = book.receive(1, encode_terminal(1, OPEN))
    assert isinstance(opened, StreamEvents)
    assert opened.events == [StreamEvent(1, OPEN)]
    return book, opened


def test_a_hello_says_that_the_machine_has_terminals() -> None:
    book = Playbook(has_terminals=True)
    book.start()
    (action,) = book.open(1)
    assert isinstance(action, SendHello)
    assert action.hello.terminals


def test_a_terminals_messages_are_sent_one_at_a_time() -> None:
    book, opened = with_terminal()
    opened.streams.send(1, b"output")
    sent = book.link.next_terminal_message()
    assert sent is not None
    assert (sent[0], decode(sent[1])) == (1, (1, Data(b"output")))
    book.outbox.session_changed(session("a"))
    assert book.link.next_batch(book.now) is None  # the message is being written
    opened.streams.send(1, b"more")
    assert book.link.next_terminal_message() is None
    book.link.batch_written(book.now)
    assert book.batch() == [Change(sessions=[session("a")])]
    assert book.link.next_terminal_message() is not None


def test_nothing_of_a_terminal_is_sent_during_a_move() -> None:
    book, opened = with_terminal()
    book.receive(1, MOVE)
    opened.streams.send(1, b"before")
    book.open(2)
    assert book.link.next_terminal_message() is None
    assert book.receive(2, WELCOME) == [StreamsLost(), WELCOME]
    assert book.link.next_terminal_message() is None
    assert book.receive(1, encode_terminal(2, OPEN)) == []  # the old connection has no streams
    (reopened,) = book.receive(2, encode_terminal(1, OPEN))
    assert isinstance(reopened, StreamEvents)


def test_streams_end_with_their_connection() -> None:
    book, _ = with_terminal()
    assert book.lose(1) == [
        Connect(2, 1.0),
        ConnectionEnded(None, "why"),
        CommandsLost(),
        StreamsLost(),
    ]
    book.welcome(2)


def test_a_terminals_message_before_the_welcome_is_a_fault() -> None:
    book = Playbook(has_terminals=True)
    book.start()
    book.open(1)
    close = book.receive(1, encode_terminal(1, OPEN))[0]
    assert isinstance(close, Close)
    assert close.code == CloseCode.BAD_FRAME


# Events and deltas that a service of an older release does not know


def test_a_service_gets_the_events_that_its_welcome_lists() -> None:
    """The welcome of an older one has no list, and such an event would close its connection."""
    message = msgspec.structs.replace(agent_event("b"), event=EventName.CHAT_MESSAGE)
    older = Playbook()
    older.start()
    older.outbox.event(message)  # it happened before the first welcome
    older.outbox.event(agent_event("c"))
    older.welcome()
    assert [frame.event.id for frame in older.batch() if isinstance(frame, Event)] == ["c"]
    welcome = msgspec.structs.replace(WELCOME, events=[EventName.CHAT_MESSAGE])
    newer = Playbook(older.log)
    newer.start()
    newer.open(1)
    newer.receive(1, welcome)
    assert [frame.event.id for frame in newer.batch() if isinstance(frame, Event)] == ["b", "c"]


def test_deltas_are_off_until_the_service_asks_for_them(book: Playbook) -> None:
    assert book.outbox.delta_watch("s") is None
    book.receive(1, WatchDeltas(sessions=["s"]))
    assert book.outbox.delta_watch("s") is not None
    delta = Delta(session_id="s", message_id="msg_1", revision=0, op="append", text="a")
    assert book.outbox.delta(delta)
    assert book.batch() == [delta]
    book.lose(1)
    assert book.outbox.delta_watch("s") is None


def test_an_event_of_a_machine_agent_of_an_older_release() -> None:
    """It has none of the fields that came with the further events."""
    old = (
        '{"type": "event", "seq": 1, "event": {"id": "evt_1", "event": "agent:error", "sessionId":'
        ' "s", "ideId": "machine_1:cli:codex", "ideType": "codex", "chatTitle": null,'
        ' "duration": null, "timestamp": 1, "message": null}}'
    )
    assert decode_from_daemon(old) == Event(
        seq=1, event=msgspec.structs.replace(agent_event("evt_1"), timestamp=1)
    )
