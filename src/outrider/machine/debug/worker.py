"""The child process that redacts and limits the parts of one debug bundle.

Run with `python -m`: it reads the parts from standard input, writes the bundle to standard output,
both as JSON, and ends. It writes nothing else, because the text of an error could contain a secret.
"""

import json
import os
import sys
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from outrider.contract.commands import ChatDebugged
from outrider.contract.debug import DebugBundle
from outrider.machine.debug.bounds import Bounds
from outrider.machine.debug.report import report
from outrider.machine.redaction.redactor import Redactor

_ROOM: Final[Mapping[str, int]] = {
    "session": 12 * 1024,
    "provider": 2 * 1024,
    "versions": 1024,
    "parser": 24 * 1024,
    "terminal": 32 * 1024,
    "events": 12 * 1024,
    "messages": 60 * 1024,
    "frontendSnapshot": 40 * 1024,
    "problems": 2 * 1024,
}
"""The limit of each part in bytes of JSON. With `redactions` (2 KiB), `omitted` (11 KiB) and the
text (50 KiB) it is less than `MAX_RESPONSE_BYTES`."""

_NICENESS: Final = 10
"""A lower priority than the agents and the daemon, which must not wait for a bundle."""


def redacted_bundle(parts: dict[str, Any]) -> ChatDebugged:
    """Redact and limit the parts of a bundle, in a fixed order."""
    redactor = Redactor()
    bounds = Bounds(redactor)
    limited = {name: bounds.fit(parts[name], room, name) for name, room in _ROOM.items()}
    redactions = dict(sorted(redactor.counts.items()))
    bundle = DebugBundle(
        session=limited["session"],
        provider=limited["provider"],
        parser=limited["parser"],
        terminal=limited["terminal"],
        messages=limited["messages"],
        events=limited["events"],
        versions=limited["versions"],
        frontend_snapshot=limited["frontendSnapshot"],
        redactions=redactions,
        truncated=bool(bounds.omitted),
        omitted=bounds.omitted,
        problems=limited["problems"],
        screenshot=parts["screenshot"],
    )
    return ChatDebugged(bundle=bundle, text=report(bundle))


def _main() -> None:
    os.nice(_NICENESS)
    parts = json.load(sys.stdin.buffer)
    sys.stdout.buffer.write(msgspec.json.encode(redacted_bundle(parts)))


if __name__ == "__main__":
    _main()
