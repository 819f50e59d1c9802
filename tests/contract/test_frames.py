"""Every frame goes over the wire unchanged; what is not a frame is one error."""

import contextlib
import json
from collections.abc import Callable
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.contract.frames import (
    Command,
    CommandResult,
    DecodeError,
    Failure,
    FromDaemon,
    FromService,
    Hello,
    decode_from_daemon,
    decode_from_service,
    encode,
    hello_protocol,
)
from tests.contract import strategies

Decode = Callable[[bytes | str], Any]
DECODERS = [decode_from_daemon, decode_from_service]

from_daemon = st.one_of([strategies.of(kind) for kind in get_args(FromDaemon)])
from_service = st.one_of([strategies.of(kind) for kind in get_args(FromService)])


@given(from_daemon)
def test_the_daemons_frames_go_round(frame: Any) -> None:
    data = encode(frame)
    assert decode_from_daemon(data) == frame
    assert decode_from_daemon(data.decode()) == frame


@given(from_service)
def test_the_services_frames_go_round(frame: Any) -> None:
    data = encode(frame)
    assert decode_from_service(data) == frame
    assert decode_from_service(data.decode()) == frame


def test_a_command_without_a_trace_is_as_in_every_release() -> None:
    command = Command(id="cmd_1", command="x", payload=msgspec.Raw(b"{}"), timeout_ms=1)
    expected = {"type": "command", "id": "cmd_1", "command": "x", "payload": {}, "timeoutMs": 1}
    assert json.loads(encode(command)) == expected


@given(strategies.json_values)
def test_a_payload_and_a_result_keep_their_bytes(value: Any) -> None:
    raw = msgspec.Raw(json.dumps(value, indent=1).encode())
    command = decode_from_service(
        encode(Command(id="cmd_1", command="x", payload=raw, timeout_ms=1))
    )
    assert isinstance(command, Command)
    assert bytes(command.payload) == bytes(raw)
    result = decode_from_daemon(encode(CommandResult(id="cmd_1", result=raw)))
    assert isinstance(result, CommandResult)
    assert bytes(result.result) == bytes(raw)


def test_a_result_without_one_is_null() -> None:
    failure = Failure(status=500, message="broke")
    sent = json.loads(encode(CommandResult(id="cmd_1", error=failure)))
    assert sent == {
        "type": "result",
        "id": "cmd_1",
        "result": None,
        "error": {"status": 500, "message": "broke", "code": None, "details": []},
    }


def _decodes_or_refuses(decode: Decode, data: bytes | str) -> None:
    with contextlib.suppress(DecodeError):
        decode(data)


@pytest.mark.fuzz
@pytest.mark.parametrize("decode", DECODERS)
@given(data=st.binary(max_size=200) | st.text(max_size=200))
def test_rubbish_is_one_error(decode: Decode, data: bytes | str) -> None:
    _decodes_or_refuses(decode, data)


@pytest.mark.fuzz
@pytest.mark.parametrize("decode", DECODERS)
@given(
    kind=st.sampled_from(["hello", "welcome", "command", "result", "event", "ack", "goodbye"]),
    fields=st.dictionaries(
        st.sampled_from(["id", "seq", "protocol", "payload", "sessions", "machine", "event"]),
        strategies.json_values | st.integers(-(10**40), 10**40) | st.floats(),
    ),
)
def test_json_with_wrong_fields_is_one_error(
    decode: Decode, kind: str, fields: dict[str, Any]
) -> None:
    _decodes_or_refuses(decode, json.dumps({"type": kind} | fields))


@pytest.mark.fuzz
@pytest.mark.parametrize("decode", DECODERS)
@given(frame=from_daemon | from_service, data=st.data())
def test_a_damaged_frame_is_one_error(decode: Decode, frame: Any, data: st.DataObject) -> None:
    whole = bytearray(encode(frame))
    for _ in range(data.draw(st.integers(1, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    _decodes_or_refuses(decode, bytes(whole[: data.draw(st.integers(0, len(whole)))]))


@pytest.mark.parametrize("decode", DECODERS)
@pytest.mark.parametrize(
    "data",
    [
        "",
        b"",
        "null",
        "[]",
        "5",
        '"hello"',
        "{}",
        '{"type": null}',
        '{"type": "hello"}',
        '{"type": "goodbye"}',
        '{"type": "goodbye", "reason": 5}',
        '{"type": "goodbye", "reason": "x", "reconnectMs": -1}',
        '{"type": "goodbye", "reason": "x"} trailing',
        '{"type": "goodbye", "reason": "' + "\ud800" + '"}',
        b'{"type": "goodbye", "reason": "\xff"}',
        "[" * 100_000,
        '{"type": "goodbye", "reason": ' + "[" * 100_000,
        '{"type": ' + "9" * 10_000 + "}",
    ],
)
def test_what_is_not_a_frame_is_one_error(decode: Decode, data: bytes | str) -> None:
    if data == '{"type": "hello"}' and decode is decode_from_service:
        assert decode(data) is None  # the service's kinds have no hello
        return
    with pytest.raises(DecodeError):
        decode(data)


@pytest.mark.parametrize("decode", DECODERS)
@given(kind=strategies.text.filter(lambda kind: len(kind) < 4), rest=strategies.json_values)
def test_a_frame_of_an_unknown_kind_is_ignored(decode: Decode, kind: str, rest: Any) -> None:
    if kind != "ack":
        assert decode(json.dumps({"type": kind, "protocol": rest, "rest": rest})) is None


def test_fields_of_a_later_version_are_ignored() -> None:
    frame = '{"type": "ack", "seq": 5, "later": {"x": [1]}}'
    assert decode_from_service(frame) == decode_from_service('{"type": "ack", "seq": 5}')


@given(strategies.of(Hello))
def test_the_version_of_a_hello_can_be_read(hello: Hello) -> None:
    assert hello_protocol(encode(hello)) == hello.protocol


@pytest.mark.parametrize(
    "data",
    [
        "",
        "{",
        '{"type": "ack", "protocol": 1}',
        '{"type": "hello"}',
        '{"type": "hello", "protocol": "1"}',
        '{"type": "hello", "protocol": true}',
    ],
)
def test_what_is_not_a_hello_has_no_version(data: str) -> None:
    assert hello_protocol(data) is None


def test_the_version_of_a_hello_of_another_shape_can_be_read() -> None:
    assert hello_protocol('{"type": "hello", "protocol": 2, "machine": "elsewhere"}') == 2
