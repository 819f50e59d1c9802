"""A simulated machine and two simulated nodes, with a network and a database that a test steps.

Both ends of the link are the real ones; sockets, clocks and tasks are simulated. Each method of
`Simulation` is one step (the network delivers a frame, a node stores an event, a process crashes).
A test takes them in any order; `settle` then takes all possible steps, without further faults,
until nothing is left to do.
"""

from collections import deque
from dataclasses import dataclass, field

import msgspec

from outrider.contract.events import AgentEvent
from outrider.contract.frames import (
    Acknowledge,
    Change,
    CloseCode,
    Command,
    CommandResult,
    Event,
    FromService,
    Hello,
    Refusal,
    Snapshot,
    encode,
)
from outrider.contract.limits import EventAllowance, TokenBucket
from outrider.contract.link import machine as machine_side
from outrider.contract.link.machine import LinkTiming, MachineLink
from outrider.contract.link.outbox import Outbox
from outrider.contract.link.service import LinkTable, ServiceLink
from outrider.contract.resources import Session
from tests.contract.link.memory_log import MemoryLog, agent_event, refusal, report, session

MACHINE_ID = "machine_1"

PING, PONG = object(), object()
PONG_SECONDS = 5

TIMING = LinkTiming(welcome_timeout=15, report_interval=20, stable_after=30, linger=10)


@dataclass(eq=False)
class Wire:
    """One connection on its way through the network, in both directions.

    An end that closes or crashes leaves an `End` behind what it has sent. A wire that breaks
    loses the newest messages of both directions, and both ends learn of it.
    """

    number: int
    process: "MachineProcess"
    to_machine: deque[object] = field(default_factory=deque)
    to_service: deque[object] = field(default_factory=deque)
    end: "ServiceEnd | None" = None


@dataclass(frozen=True)
class End:
    """The last that comes over a wire: a close, or none where the wire broke."""

    code: int | None = None


class ServiceEnd:
    """A node's end of a wire."""

    def __init__(self, node: "Node", wire: Wire) -> None:
        self.node = node
        self.wire = wire
        self.newest_connection = node.simulation.database.connection
        """The number of the machine's newest connection at the handshake."""
        self.newest_stored = 0
        self.link = ServiceLink()
        self.link.accepted(node.simulation.now)
        self.sessions: dict[str, Session] = {}
        self.in_flight: set[str] = set()
        self.is_done = False

    def send(self, frame: FromService) -> None:
        self.wire.to_machine.append(encode(frame).decode())

    def flush(self) -> None:
        """Send what the link has to send, and close the wire where the link says so."""
        if self.is_done:
            return
        for frame in self.link.frames():
            if isinstance(frame, Acknowledge):
                assert frame.seq <= self.newest_stored, "acknowledged before it is stored"
            self.send(frame)
        closing = self.link.closing
        if closing is not None:
            self.wire.to_machine.append(End(closing.code))
            self.done()

    def done(self) -> None:
        """Forget the wire: it is closed, or lost."""
        if not self.is_done:
            self.is_done = True
            self.link.lost()
            self.wire.to_service.clear()
            self.node.lost(self)


class Node:
    """A node: its connections, the events that it is about to store, and what others tell it."""

    def __init__(self, simulation: "Simulation", name: str) -> None:
        self.simulation = simulation
        self.name = name
        self.table: LinkTable[ServiceEnd] = LinkTable()
        self.ends: list[ServiceEnd] = []
        self.admitting: list[ServiceEnd] = []
        self.pinging: list[tuple[ServiceEnd, float]] = []
        """Those whose registration waits for a pong, and until when."""
        self.intake: deque[tuple[int, AgentEvent, ServiceEnd]] = deque()
        self.claims: deque[int] = deque()
        self.is_leaving = False
        self.run = 0

    def accept(self, wire: Wire) -> bool:
        if self.is_leaving:
            return False
        wire.end = ServiceEnd(self, wire)
        self.ends.append(wire.end)
        older = self.table.accept(MACHINE_ID, wire.end)
        if older is not None:
            older.flush()
        return True

    def received(self, end: ServiceEnd, message: str) -> None:
        end.link.receive(message, self.simulation.now)
        for event in end.link.events():
            match event:
                case Hello(sessions=sessions):
                    end.sessions = {session.id: session for session in sessions}
                    self.admitting.append(end)
                    self.table.admit(MACHINE_ID, end)
                case Snapshot(sessions=sessions):
                    end.sessions = {session.id: session for session in sessions}
                case Change(sessions=sessions, removed=removed):
                    for session_id in removed:
                        end.sessions.pop(session_id, None)
                    end.sessions |= {session.id: session for session in sessions}
                case Event(seq=seq, event=agents_event):
                    self.intake.append((seq, agents_event, end))
                case CommandResult(id=command_id):
                    end.in_flight.discard(command_id)
                    self.simulation.answered(command_id)
                case Refusal(refused=refused):
                    self.simulation.recorded.add(refused.target)
        for end in list(self.ends):
            end.flush()

    def admit(self) -> None:
        """Register the oldest machine that has said hello, and welcome it.

        The machine may be gone by then: the registration is committed all the same.
        """
        end = self.admitting.pop(0)
        database = self.simulation.database
        number = database.attach((self.name, self.run), end.newest_connection)
        if number is None:
            end.newest_connection = database.connection
            end.wire.to_machine.append(PING)
            self.pinging.append((end, self.simulation.now + PONG_SECONDS))
            return
        end.newest_stored = database.event_seq
        end.link.welcome(
            daemon_id=MACHINE_ID,
            nickname="box",
            version="1",
            acknowledged=database.event_seq,
            number=number,
            allowance=EventAllowance(TokenBucket(1e9, 1e9), TokenBucket(1e12, 1e12)),
        )
        end.flush()
        if not end.link.is_closed:
            for node in self.simulation.nodes:
                if node is not self:
                    node.claims.append(number)

    def pong(self, end: ServiceEnd) -> None:
        """Register a machine again that has answered."""
        self.pinging = [(other, late_at) for other, late_at in self.pinging if other is not end]
        if not end.link.is_closed:
            self.admitting.append(end)

    def tick(self) -> None:
        for end, late_at in self.pinging:
            if self.simulation.now >= late_at:
                end.link.close(CloseCode.TRY_AGAIN_LATER, "Superseded")
        self.pinging = [entry for entry in self.pinging if not entry[0].link.is_closed]
        for end in list(self.ends):
            end.link.tick(self.simulation.now)
            end.flush()

    def store(self, count: int) -> None:
        """Store the oldest events that wait, in one transaction."""
        batch = [self.intake.popleft() for _ in range(min(count, len(self.intake)))]
        for seq, event, end in batch:
            self.simulation.database.store(end.link.number, seq, event)
        for seq, _, end in batch:
            end.newest_stored = max(end.newest_stored, seq)
            end.link.event_stored(seq)
            end.flush()

    def hear_claim(self) -> None:
        """Hear that another node has a newer connection."""
        end = self.table.evict(
            MACHINE_ID, CloseCode.REPLACED, "Replaced", claimed_by=self.claims.popleft()
        )
        if end is not None:
            end.flush()

    def leave(self) -> None:
        """Have the machines connect to another node."""
        self.is_leaving = True
        for end in self.table:
            end.link.move("This node is stopping", 5000)
            end.flush()

    def lost(self, end: ServiceEnd) -> None:
        self.ends.remove(end)
        self.table.remove(MACHINE_ID, end)
        self.simulation.in_flight_lost(end.in_flight)

    def crash(self) -> None:
        """Lose everything that is in memory; it starts again at once."""
        for end in list(self.ends):
            end.wire.to_machine.append(End())
            end.done()
        self.intake.clear()
        self.admitting.clear()
        self.pinging.clear()
        self.claims.clear()
        self.is_leaving = False
        self.run += 1


@dataclass
class Database:
    """What the service has stored: events in the order of their first storing."""

    event_seq: int = 0
    connection: int = 0
    node: tuple[str, int] | None = None
    events: list[str] = field(default_factory=list)
    stored: set[str] = field(default_factory=set)

    def attach(self, node: tuple[str, int], expected: int) -> int | None:
        """Return the number of a new connection; see `machines.attach`."""
        if self.connection > expected and self.node != node:
            return None
        self.connection += 1
        self.node = node
        return self.connection

    def store(self, connection: int, seq: int, event: AgentEvent) -> None:
        """Store an event; see `deliveries.store`."""
        if connection == self.connection:
            self.event_seq = max(self.event_seq, seq)
        if event.id not in self.stored:
            self.events.append(event.id)
            self.stored.add(event.id)


class MachineProcess:
    """One run of the machine agent."""

    def __init__(self, simulation: "Simulation") -> None:
        self.simulation = simulation
        self.outbox = Outbox(simulation.log, allowance=TokenBucket(1e9, 1e9))
        self.link = MachineLink(
            self.outbox,
            version="1",
            describe=simulation.describe,
            timing=TIMING,
            random_fraction=lambda: 0.5,
        )
        self.wires: dict[int, Wire] = {}
        self.connecting: list[int] = []
        self.batch: tuple[int, deque[str]] | None = None
        self.seen: set[str] = set()
        self.waiting: dict[str, None] = {}
        self.refused: CloseCode | None = None

    def act(self) -> None:
        """Do what the link says."""
        for action in self.link.actions():
            match action:
                case machine_side.Connect(number):
                    self.connecting.append(number)
                case machine_side.SendHello(number, frame):
                    if number in self.wires:
                        self.wires[number].to_service.append(encode(frame).decode())
                case machine_side.Close(number, code, _, goodbye):
                    if number in self.connecting:
                        self.connecting.remove(number)
                    wire = self.wires.pop(number, None)
                    if wire is not None:
                        if goodbye is not None:
                            wire.to_service.append(encode(goodbye).decode())
                        wire.to_service.append(End(code))
        for event in self.link.events():
            match event:
                case Command(id=command_id):
                    if command_id not in self.seen:
                        self.seen.add(command_id)
                        self.waiting[command_id] = None
                        self.simulation.executed(command_id)
                case machine_side.CommandsLost():
                    self.waiting.clear()
                case machine_side.LinkRefused(code):
                    self.refused = code

    def connect(self, node: Node | None) -> None:
        """Open the connection that is asked for, to this node; None where nobody answers."""
        number = self.connecting.pop(0)
        wire = Wire(number, self)
        if node is None or not node.accept(wire):
            self.link.connection_lost(number, self.simulation.now)
        else:
            self.wires[number] = wire
            self.simulation.wires.append(wire)
            self.link.connection_opened(number, self.simulation.now)
        self.act()

    def take(self) -> bool:
        """Take a batch of frames, if there is one now."""
        if self.batch is not None:
            return False
        taken = self.link.next_batch(self.simulation.now)
        if taken is None:
            return False
        number, frames = taken
        self.batch = number, deque(encode(frame).decode() for frame in frames)
        return True

    def write(self) -> None:
        """Write one frame of the batch."""
        assert self.batch is not None
        number, frames = self.batch
        if frames and number in self.wires:
            self.wires[number].to_service.append(frames.popleft())
        if not frames or number not in self.wires:
            self.batch = None
            self.link.batch_written(self.simulation.now)
            self.act()

    def answer(self, command_id: str) -> None:
        """Answer a command that was carried out."""
        del self.waiting[command_id]
        self.outbox.result(CommandResult(id=command_id))

    def received(self, wire: Wire, message: object) -> None:
        if self.wires.get(wire.number) is not wire:
            return
        if message is PING:
            wire.to_service.append(PONG)
        elif isinstance(message, str):
            self.link.receive(wire.number, message, self.simulation.now)
        else:
            assert isinstance(message, End)
            del self.wires[wire.number]
            self.link.connection_lost(wire.number, self.simulation.now, message.code)
        self.act()


class Simulation:
    """Everything, with the record of what must hold."""

    def __init__(self) -> None:
        self.now = 0.0
        self.database = Database()
        self.nodes = [Node(self, "a"), Node(self, "b")]
        self.wires: list[Wire] = []
        self.sessions: dict[str, Session] = {}
        self.emitted: list[str] = []
        self.lost_with_the_log: set[str] = set()
        self.recorded: set[str] = set()
        self.refusals = 0
        self.commands = 0
        self.executions: dict[str, int] = {}
        self.asked: dict[str, str] = {}
        """Of each command: `in flight`, `answered` or `lost`."""
        self.log = MemoryLog(self._deleted)
        self.process = MachineProcess(self)
        self.process.link.start()
        self.process.act()

    # What the machine does

    def describe(self) -> Snapshot:
        return report(*self.sessions.values())

    def emit(self) -> None:
        event = agent_event(f"evt_{len(self.emitted)}")
        self.emitted.append(event.id)
        self.process.outbox.event(event)

    def refuse(self) -> None:
        self.refusals += 1
        self.process.outbox.refused(refusal(f"/{self.refusals}"))

    def change(self, name: str, title: str) -> None:
        self.sessions[name] = session(name, title)
        self.process.outbox.session_changed(self.sessions[name])

    def remove(self, name: str) -> None:
        if self.sessions.pop(name, None) is not None:
            self.process.outbox.session_removed(name)

    def crash_machine(self, kept: int = 0) -> None:
        """The agent's process is killed, and started again.

        That takes a while: some of what it has sent has arrived by then, the rest never will. (A
        hello of the old process that came behind one of the new would be another agent's.)
        """
        wires = list(self.process.wires.values())
        self.process.wires.clear()
        for wire in wires:
            for _ in range(kept):
                if self.can_deliver_to_service(wire):
                    self.deliver_to_service(wire)
            wire.to_service = deque([End()])
        self.process = MachineProcess(self)
        self.process.link.start()
        self.process.act()

    def lose_log(self) -> None:
        """The journal is lost with its events, and its numbers start anew.

        Events of the lost journal may still wait on the nodes to be stored.
        """
        self.lost_with_the_log |= {name for _, name in self.log.waiting}
        self.log = MemoryLog(self._deleted)
        self.crash_machine()

    # What the service does

    def ask(self, node: Node) -> None:
        """Send a command to the machine, if it has a connection here that serves."""
        for end in node.table:
            if end.link.number and not end.link.is_closed:
                self.commands += 1
                name = f"cmd_{self.commands}"
                self.asked[name] = "in flight"
                end.in_flight.add(name)
                payload = msgspec.Raw(b"{}")
                end.send(Command(id=name, command="x", payload=payload, timeout_ms=1000))

    def executed(self, command_id: str) -> None:
        self.executions[command_id] = self.executions.get(command_id, 0) + 1

    def answered(self, command_id: str) -> None:
        assert self.asked[command_id] != "answered", f"{command_id} was answered twice"
        self.asked[command_id] = "answered"

    def in_flight_lost(self, command_ids: set[str]) -> None:
        """The connection on which these were asked is gone: their waiters get an error.

        After a move the machine may still answer, over its new connection.
        """
        for command_id in command_ids:
            if self.asked[command_id] == "in flight":
                self.asked[command_id] = "lost"

    # What the network does

    def deliver_to_service(self, wire: Wire) -> None:
        message = wire.to_service.popleft()
        end = wire.end
        if end is None or end.is_done:
            return
        if message is PONG:
            end.node.pong(end)
        elif isinstance(message, str):
            end.node.received(end, message)
        else:
            end.done()

    def deliver_to_machine(self, wire: Wire) -> None:
        wire.process.received(wire, wire.to_machine.popleft())

    def can_deliver_to_service(self, wire: Wire) -> bool:
        """A node reads nothing while it admits a machine, but learns of the end."""
        if not wire.to_service:
            return False
        node = None if wire.end is None else wire.end.node
        is_admitting = node is not None and (
            wire.end in node.admitting or any(end is wire.end for end, _ in node.pinging)
        )
        return not is_admitting or not isinstance(wire.to_service[0], str)

    def break_wire(self, wire: Wire, kept_up: int, kept_down: int) -> None:
        """Lose what is under way but for some of the oldest messages; tell both ends."""
        for queue, kept in ((wire.to_service, kept_up), (wire.to_machine, kept_down)):
            while len(queue) > kept:
                queue.pop()
            queue.append(End())

    # In the end

    def settle(self) -> None:
        """Take every step that is possible until there is none, again and again as time goes on.

        Long enough for every deadline: a welcome that does not come, a connection that lingers.
        """
        for node in self.nodes:
            if node.is_leaving:
                node.crash()
        for _ in range(5):
            for _ in range(1000):
                if not self._step():
                    break
            else:
                raise AssertionError("the simulation does not come to rest")
            self.pass_time(16)
        while self._step():
            pass

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.process.link.tick(self.now)
        self.process.act()
        for node in self.nodes:
            node.tick()

    def _step(self) -> bool:
        process = self.process
        stepped = False
        for wire in list(self.wires):
            while self.can_deliver_to_service(wire):
                self.deliver_to_service(wire)
                stepped = True
            while wire.to_machine:
                self.deliver_to_machine(wire)
                stepped = True
        for node in self.nodes:
            while node.admitting:
                node.admit()
                stepped = True
            while node.intake:
                node.store(100)
                stepped = True
            while node.claims:
                node.hear_claim()
                stepped = True
        while process.connecting:
            process.connect(self.nodes[0])
            stepped = True
        for command_id in list(process.waiting):
            process.answer(command_id)
            stepped = True
        while process.take() or process.batch is not None:
            while process.batch is not None:
                process.write()
            stepped = True
        return stepped

    def _deleted(self, event: AgentEvent) -> None:
        assert event.id in self.database.stored, f"{event.id} was deleted before it was stored"

    def check(self) -> None:
        """Assert what holds at every moment."""
        order = {name: index for index, name in enumerate(self.emitted)}
        places = [order[name] for name in self.database.events]
        assert places == sorted(places), "events were stored out of order"
        assert all(count == 1 for count in self.executions.values()), "a command was done twice"
        assert self.process.refused is None, "the only machine was taken for somebody else"

    def check_at_rest(self) -> None:
        """Assert what holds once the simulation is at rest."""
        self.check()
        stored = set(self.database.events)
        missing = [name for name in self.emitted if name not in stored | self.lost_with_the_log]
        assert missing == [], "events were lost"
        assert self.log.waiting == [], "events wait although they are stored"
        serving = [end for node in self.nodes for end in node.table if end.link.number]
        assert [end.wire.number for end in serving] == [self.process.link.current]
        assert serving[0].sessions == self.sessions, "the service knows other sessions"
        assert "in flight" not in self.asked.values(), "a command is neither answered nor lost"
