"""Both ends of the link against each other, with faults at every step.

The steps are those of `Simulation`: the network delivers one frame, or breaks a connection and
loses what is on its way; a node stores some events, crashes, or has its machines move; the machine
agent writes one frame, is killed, or loses its journal. Frames of one connection keep their order,
as TCP does; those of several connections arrive in any order, and events are repeated on the next
one.
"""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.contract.link.simulation import Simulation

a_node = st.sampled_from([0, 1])
names = st.sampled_from("abc")
indexes = st.integers(0, 5)


class LinkMachine(RuleBasedStateMachine):
    """Takes steps in any order; what must hold is checked after each, and once all is at rest."""

    def __init__(self) -> None:
        super().__init__()
        self.simulation = Simulation()

    # What happens on the machine

    @rule(count=st.integers(1, 3))
    def emit(self, count: int) -> None:
        for _ in range(count):
            self.simulation.emit()

    @rule()
    def refuse(self) -> None:
        self.simulation.refuse()

    @rule(name=names, title=st.text("xyz", max_size=2))
    def change(self, name: str, title: str) -> None:
        self.simulation.change(name, title)

    @rule(name=names)
    def remove(self, name: str) -> None:
        self.simulation.remove(name)

    @rule()
    def take(self) -> None:
        self.simulation.process.take()

    @precondition(lambda self: self.simulation.process.batch is not None)
    @rule()
    def write(self) -> None:
        self.simulation.process.write()

    @precondition(lambda self: self.simulation.process.waiting)
    @rule()
    def answer(self) -> None:
        self.simulation.process.answer(next(iter(self.simulation.process.waiting)))

    @precondition(lambda self: self.simulation.process.connecting)
    @rule(node=a_node | st.none())
    def connect(self, node: int | None) -> None:
        self.simulation.process.connect(None if node is None else self.simulation.nodes[node])

    @rule(kept=st.integers(0, 4))
    def crash_machine(self, kept: int) -> None:
        self.simulation.crash_machine(kept)

    @rule()
    def lose_log(self) -> None:
        self.simulation.lose_log()

    # What happens at the service

    @rule(node=a_node)
    def ask(self, node: int) -> None:
        self.simulation.ask(self.simulation.nodes[node])

    @rule(node=a_node)
    def admit(self, node: int) -> None:
        if self.simulation.nodes[node].admitting:
            self.simulation.nodes[node].admit()

    @rule(node=a_node, count=st.integers(1, 3))
    def store(self, node: int, count: int) -> None:
        self.simulation.nodes[node].store(count)

    @rule(node=a_node)
    def hear_claim(self, node: int) -> None:
        if self.simulation.nodes[node].claims:
            self.simulation.nodes[node].hear_claim()

    @rule(node=a_node)
    def leave(self, node: int) -> None:
        self.simulation.nodes[node].leave()

    @rule(node=a_node)
    def crash_node(self, node: int) -> None:
        self.simulation.nodes[node].crash()

    # What happens in between

    @rule(index=indexes)
    def deliver_to_service(self, index: int) -> None:
        ready = [
            wire for wire in self.simulation.wires if self.simulation.can_deliver_to_service(wire)
        ]
        if ready:
            self.simulation.deliver_to_service(ready[index % len(ready)])

    @rule(index=indexes)
    def deliver_to_machine(self, index: int) -> None:
        ready = [wire for wire in self.simulation.wires if wire.to_machine]
        if ready:
            self.simulation.deliver_to_machine(ready[index % len(ready)])

    @precondition(lambda self: self.simulation.wires)
    @rule(index=indexes, kept_up=st.integers(0, 3), kept_down=st.integers(0, 3))
    def break_wire(self, index: int, kept_up: int, kept_down: int) -> None:
        wire = self.simulation.wires[-1 - index % len(self.simulation.wires)]
        self.simulation.break_wire(wire, kept_up, kept_down)

    @rule(seconds=st.sampled_from([1, 5, 16]))
    def pass_time(self, seconds: int) -> None:
        self.simulation.pass_time(seconds)

    @rule()
    def rest(self) -> None:
        """Come to rest in between, so that later faults meet a link that serves."""
        self.simulation.settle()

    @invariant()
    def nothing_is_wrong(self) -> None:
        self.simulation.check()

    def teardown(self) -> None:
        self.simulation.settle()
        self.simulation.check_at_rest()


def connected(node: int = 0) -> Simulation:
    """Return a simulation whose machine is connected to this node."""
    simulation = Simulation()
    simulation.process.connect(simulation.nodes[node])
    simulation.settle()
    return simulation


def test_events_of_a_lost_journal_do_not_pass_for_those_of_the_new_one() -> None:
    """Three of the lost one wait to be stored while the new one gives their numbers again."""
    simulation = connected()
    for _ in range(3):
        simulation.emit()
    simulation.process.take()
    while simulation.process.batch is not None:
        simulation.process.write()
    for wire in simulation.wires:
        while simulation.can_deliver_to_service(wire):
            simulation.deliver_to_service(wire)
    assert len(simulation.nodes[0].intake) == 3
    simulation.lose_log()
    simulation.process.connect(simulation.nodes[1])
    newest = simulation.wires[-1]
    simulation.deliver_to_service(newest)
    simulation.nodes[1].admit()
    simulation.deliver_to_machine(newest)
    for _ in range(4):
        simulation.emit()
    simulation.nodes[0].store(3)
    simulation.break_wire(newest, 0, 0)
    simulation.settle()
    simulation.check_at_rest()
    assert len(simulation.database.events) == 7


def test_a_hello_that_is_registered_late_does_not_replace_a_newer_connection() -> None:
    """The machine has given it up after `welcome_timeout`, which its node does not know yet."""
    simulation = Simulation()
    simulation.process.connect(simulation.nodes[0])
    (late,) = simulation.wires
    simulation.deliver_to_service(late)
    simulation.pass_time(16)
    simulation.process.connect(simulation.nodes[1])
    newest = simulation.wires[-1]
    simulation.deliver_to_service(newest)
    simulation.nodes[1].admit()
    simulation.deliver_to_machine(newest)
    simulation.nodes[0].admit()
    assert not simulation.nodes[1].claims
    simulation.settle()
    simulation.check_at_rest()
    assert simulation.process.link.current == newest.number


TestBothEnds = pytest.mark.fuzz(LinkMachine.TestCase)
TestBothEnds.settings = settings(max_examples=30, stateful_step_count=60)
