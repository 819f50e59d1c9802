"""What nodes say to each other of the machines that they have."""

from typing import Final

import msgspec


class Carry(msgspec.Struct, tag="carry", array_like=True, frozen=True):
    """To the machine's node: send it this frame."""

    frame: bytes


class End(msgspec.Struct, tag="end", array_like=True, frozen=True):
    """To the machine's node: close its socket. With `connection`, an older one only."""

    code: int
    reason: str
    connection: int | None


class Inherit(msgspec.Struct, tag="inherit", array_like=True, frozen=True):
    """To the machine's new node: it moved to you, and still owes answers to these commands."""

    commands: list[str]


class Answer(msgspec.Struct, tag="answer", array_like=True, frozen=True):
    """To the asking node: the machine's answer."""

    machine: str
    frame: bytes


class Lost(msgspec.Struct, tag="lost", array_like=True, frozen=True):
    """To the asking node: the machine's socket is lost before its answer."""

    machine: str


class Owing(msgspec.Struct, tag="owing", array_like=True, frozen=True):
    """To the asking node, again and again: machines here still owe answers to these commands."""

    commands: list[str]


Message = Carry | End | Inherit | Answer | Lost | Owing

_decoder: Final[msgspec.msgpack.Decoder[Message]] = msgspec.msgpack.Decoder(Message)
_encoder: Final = msgspec.msgpack.Encoder()


def encode(message: Message) -> bytes:
    """Return a message as bytes."""
    return _encoder.encode(message)


def decode(data: bytes) -> Message:
    """Return the message of these bytes; they come from a node of the same service."""
    return _decoder.decode(data)
