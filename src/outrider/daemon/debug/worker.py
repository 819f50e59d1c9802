"""The process that redacts and bounds the parts of one debug bundle, and then ends.

Run with `python -m`: reads the parts from standard input and writes the bundle to standard
output, both as JSON. It says nothing else: an error's text could hold a secret.
"""

import json
import os
import sys
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from outrider.contract.commands import ChatDebugged
from outrider.contract.debug import DebugBundle
from outrider.daemon.debug.bounds import Bounds
from outrider.daemon.debug.report import report
from outrider.daemon.redaction.redactor import Redactor

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
"""The bytes of JSON that each part may have. With the redactions (2 KiB), what was omitted
(11 KiB) and the text (50 KiB) it is less than `MAX_RESPONSE_BYTES`."""

_NICENESS: Final = 10
"""Below the agents and the daemon: nobody's work waits for a bundle."""


def redacted_bundle(parts: dict[str, Any]) -> ChatDebugged:
    """Redact and bound the parts of a bundle, in a fixed order."""
    redactor = Redactor()
    bounds = Bounds(redactor)
    kept = {name: bounds.fit(parts[name], room, name) for name, room in _ROOM.items()}
    redactions = dict(sorted(redactor.counts.items()))
    bundle = DebugBundle(
        session=kept["session"],
        provider=kept["provider"],
        parser=kept["parser"],
        terminal=kept["terminal"],
        messages=kept["messages"],
        events=kept["events"],
        versions=kept["versions"],
        frontend_snapshot=kept["frontendSnapshot"],
        redactions=redactions,
        truncated=bool(bounds.omitted),
        omitted=bounds.omitted,
        problems=kept["problems"],
        screenshot=parts["screenshot"],
    )
    return ChatDebugged(bundle=bundle, text=report(bundle))


def _main() -> None:
    os.nice(_NICENESS)
    parts = json.load(sys.stdin.buffer)
    sys.stdout.buffer.write(msgspec.json.encode(redacted_bundle(parts)))


if __name__ == "__main__":
    _main()
