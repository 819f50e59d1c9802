"""The messages that nodes send each other.

The tags and the order of the fields are the wire format, which nodes of two releases share during
a rolling update. Some tags are names of before 0.1, because older nodes read them.
"""

import msgspec


class NodeMessage(msgspec.Struct, array_like=True):
    """The base of all messages."""


class ForwardCommand(NodeMessage, tag="carry"):
    """To the machine's node: send this frame to it."""

    frame: bytes


class CloseConnection(NodeMessage, tag="end"):
    """To the machine's node: close its socket. With `connection`, only an older one."""

    code: int
    reason: str
    connection: int | None


class Handover(NodeMessage, tag="inherit"):
    """To the machine's new node: these commands are in flight on the machine."""

    commands: list[str]


class RelayedResult(NodeMessage, tag="answer"):
    """To the requesting node: the machine's result."""

    machine: str
    frame: bytes


class ConnectionLost(NodeMessage, tag="lost"):
    """To the requesting node: the machine's socket was lost before its result."""

    machine: str


class InFlight(NodeMessage, tag="owing"):
    """To the requesting node, every second: these commands are in flight on machines here."""

    commands: list[str]


class OpenStream(NodeMessage, tag="open"):
    """To the machine's node: open a terminal; `node` is the sender, `request` an `Open` as JSON."""

    node: str
    stream: str
    machine: str
    request: bytes


class Relayed(NodeMessage, tag="message"):
    """Either way: message number `sequence` of a terminal, as `contract.link.terminals` has it."""

    stream: str
    sequence: int
    message: bytes


class Alive(NodeMessage, tag="alive"):
    """Either way, every second: the terminals with the receiver that the sender has."""

    streams: list[str]


class EventsStored(NodeMessage, tag="stored"):
    """To the nodes with listeners of an account: events of it were stored."""

    sender: str


class DeltasWanted(NodeMessage, tag="wanted"):
    """To all nodes: this node wants the deltas of these accounts.

    The number of an account grows with each stream that is opened; 0 means: no longer wanted.
    """

    node: str
    accounts: dict[str, int]


class RelayedDelta(NodeMessage, tag="delta"):
    """To the nodes that want the deltas of an account: a single delta.

    `ide_id` is the target id by type of its session; empty from a node of an older release.
    """

    node: str
    machine: str
    frame: bytes
    ide_id: str = ""


Message = (
    ForwardCommand
    | CloseConnection
    | Handover
    | RelayedResult
    | ConnectionLost
    | InFlight
    | OpenStream
    | Relayed
    | Alive
    | EventsStored
    | DeltasWanted
    | RelayedDelta
)
