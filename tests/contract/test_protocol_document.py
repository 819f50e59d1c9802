"""contributing/protocol.md says what the types say."""

import json
import re
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from msgspec import inspect

from outrider.contract import frames
from outrider.contract import limits as limits_module
from outrider.contract.commands import COMMANDS, READING_COMMANDS, CommandType, NamesSession
from outrider.contract.errors import MACHINE_CODES, ErrorDetail
from outrider.contract.events import REPORTED_EVENTS, AgentEvent, Refused
from outrider.contract.frames import (
    CloseCode,
    Failure,
    FromDaemon,
    FromService,
    decode_from_daemon,
    decode_from_service,
    encode,
)
from outrider.contract.resources import Machine, PendingAction, Provider, Session
from outrider.contract.sizes import MAX_EVENT_BYTES, MAX_REPORTED_BYTES
from outrider.contract.text import NO_NUL, PRINTABLE

DOCUMENT = (Path(__file__).parents[2] / "contributing" / "protocol.md").read_text()
SECTIONS = dict(re.findall(r"^###? (\S+).*?\n(.*?)(?=^##|\Z)", DOCUMENT, re.MULTILINE | re.DOTALL))
EXAMPLES = re.findall(r"```json\n(.*?)```", DOCUMENT, re.DOTALL)
KINDS = sorted({*get_args(FromDaemon), *get_args(FromService)}, key=lambda kind: kind.__name__)


def tag(kind: Any) -> str:
    return str(kind.__struct_config__.tag)


def test_every_kind_has_an_example() -> None:
    assert {json.loads(example)["type"] for example in EXAMPLES} == {tag(kind) for kind in KINDS}


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_is_a_frame_with_every_field(example: str) -> None:
    kind = json.loads(example)["type"]
    from_daemon = kind in {tag(frame) for frame in get_args(FromDaemon)}
    frame = decode_from_daemon(example) if from_daemon else decode_from_service(example)
    assert frame is not None
    assert json.loads(encode(frame)) == json.loads(example)


@pytest.mark.parametrize("kind", KINDS, ids=tag)
def test_a_frames_table_lists_its_fields(kind: Any) -> None:
    listed = re.findall(
        r"^\| `(\w+)` \| (?:[^|]*) \| ?(optional)?", SECTIONS[tag(kind)], re.MULTILINE
    )
    assert listed == [
        (field.encode_name, "" if field.required else "optional")
        for field in msgspec.structs.fields(kind)
    ]


@pytest.mark.parametrize(
    "kind", [Machine, Provider, Session, PendingAction, Failure, ErrorDetail, AgentEvent, Refused]
)
def test_a_resources_fields_are_named(kind: type[msgspec.Struct]) -> None:
    words = set(re.findall(r"`(\w+)`", DOCUMENT))
    assert {field.encode_name for field in msgspec.structs.fields(kind)} <= words


@pytest.mark.parametrize("command", list(CommandType))
def test_a_commands_payload_and_result_are_listed(command: CommandType) -> None:
    spec = COMMANDS[command]
    row = re.search(rf"^\| `{command}` \| (.*) \| (.*) \|$", SECTIONS["Commands"], re.MULTILINE)
    assert row is not None
    payload, result = (re.findall(r"`(\w+)`", cell) for cell in row.groups())
    common = {"target", "session_id", "target_session_id"}
    common = common if issubclass(spec.payload, NamesSession) else set()
    fields = msgspec.structs.fields(spec.payload)
    assert set(payload) == {field.encode_name for field in fields if field.name not in common}
    if result == ["launch_ide"]:
        assert spec.result is COMMANDS[CommandType.LAUNCH_IDE].result
    else:
        assert result == [field.encode_name for field in msgspec.structs.fields(spec.result)]


def test_the_commands_that_a_cancel_ends_are_listed() -> None:
    only_read = re.search(r"only read \(([^)]*)\)", SECTIONS["cancel"])
    assert only_read is not None
    assert set(re.findall(r"`(\w+)`", only_read[1])) == READING_COMMANDS


def test_close_codes_and_error_codes_and_events_are_listed() -> None:
    close_codes = {
        int(code) for code in re.findall(r"^\| (\d{4}) \|", SECTIONS["Close"], re.MULTILINE)
    }
    assert close_codes == {*CloseCode, 1008, 1009}
    for word in MACHINE_CODES | REPORTED_EVENTS:
        assert f"`{word}`" in DOCUMENT


def _limits(kind: inspect.Type, place: str) -> dict[tuple[str, str], int | None]:
    """Return how long each text and list of a type may be, by place and what it may hold."""
    match kind:
        case inspect.StructType():
            found: dict[tuple[str, str], int | None] = {}
            for field in kind.fields:
                found |= _limits(field.type, f"{kind.cls.__name__}.{field.encode_name}")
            return found
        case inspect.UnionType():
            return {
                key: most for choice in kind.types for key, most in _limits(choice, place).items()
            }
        case inspect.ListType():
            return {(place, "entries"): kind.max_length} | _limits(kind.item_type, place)
        case inspect.StrType():
            held = {PRINTABLE: "a name", NO_NUL: "text without NUL", None: "any text"}
            return {(place, held[kind.pattern]): kind.max_length}
    return {}


def test_the_limits_of_every_field_are_listed() -> None:
    listed = {
        (place, held): int(most)
        for most, held, places in re.findall(
            r"^\| (\d+) \| ([\w ]+) \| (.*) \|$", SECTIONS["Limits"], re.MULTILINE
        )
        for place in re.findall(r"`([\w.]+)`", places)
    }
    declared: dict[tuple[str, str], int | None] = {}
    for kind in get_args(FromDaemon):
        declared |= _limits(inspect.type_info(kind), "")
    assert listed == declared


def test_the_numbers_are_the_codes() -> None:
    assert f"version **{frames.PROTOCOL_VERSION}**" in DOCUMENT
    limits = SECTIONS["Limits"]
    assert f"{frames.MAX_FRAME_BYTES // 2**20} MiB" in limits
    assert f"in flight | {frames.MAX_COMMANDS_IN_FLIGHT};" in limits
    assert f"{limits_module.EVENT_BURST:,} at once" in limits
    assert f"{limits_module.EVENTS_PER_SECOND:g} a second" in limits
    assert f"{limits_module.OWN_EVENT_BURST:,} events at once" in limits
    mebibytes = limits_module.EVENT_BYTES_BURST >> 20
    assert f"{mebibytes} MiB at once" in limits
    assert f"{limits_module.EVENT_BYTES_PER_SECOND * 60 >> 20} MiB a minute" in limits
    assert f"| {MAX_EVENT_BYTES >> 10} KiB;" in limits
    assert f"longer than {MAX_REPORTED_BYTES >> 10} KiB" in limits
    assert f"{limits_module.MAX_STATE_BYTES:,} bytes" in limits
    assert f"hello after the upgrade | {frames.HELLO_TIMEOUT:g} s" in limits
    assert f"ping every {frames.PING_INTERVAL:g} s" in SECTIONS["Pings"]
