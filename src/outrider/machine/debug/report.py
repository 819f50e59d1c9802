"""Renders a debug bundle as Markdown that fits into an issue (65,536 characters)."""

import re
from typing import Any, Final

import msgspec

from outrider.contract.debug import DebugBundle
from outrider.machine.debug.bounds import size, tail

_ROOM: Final = {
    "facts": 6 * 1024,
    "omitted": 4 * 1024,
    "parser": 6 * 1024,
    "terminal": 12 * 1024,
    "messages": 10 * 1024,
    "events": 4 * 1024,
    "frontend": 6 * 1024,
}
"""Bytes of JSON of each section: 48 KiB together, and 2 KiB for headings and fences."""

_FACT: Final = 480
"""Bytes of JSON of one fact."""

_MAX_FENCE: Final = 32
_LONG_FENCE: Final = re.compile(rf"`{{{_MAX_FENCE},}}")


def report(bundle: DebugBundle) -> str:
    """Return the text of a redacted bundle, at most 50 KiB of JSON."""
    session, parser = bundle.session, bundle.parser
    sections = [
        ("", "facts", _facts(bundle)),
        ("Omitted and redacted", "omitted", _omitted(bundle)),
        ("How the status was determined", "parser", _json(parser)),
        (
            f"Terminal ({(bundle.terminal or {}).get('source', 'none')})",
            "terminal",
            str((bundle.terminal or {}).get("text", "")),
        ),
        ("Events", "events", "\n".join(_event(event) for event in bundle.events)),
        ("Last messages", "messages", "\n\n".join(_message(m) for m in bundle.messages)),
        (
            "Frontend",
            "frontend",
            "" if bundle.frontend_snapshot is None else _json(bundle.frontend_snapshot),
        ),
    ]
    title = f"# Outrider debug bundle: {session.get('type')}, {session.get('status')}"
    parts = [tail(title, 512)[0]]
    for heading, name, content in sections:
        excerpt, cut = tail(content.strip("\n"), _ROOM[name] - 160)
        if not excerpt:
            continue
        note = f" (the first {cut} characters left out)" if cut else ""
        parts.append(f"## {heading}{note}\n\n{_fenced(excerpt)}" if heading else excerpt)
    return "\n\n".join(parts) + "\n"


def _facts(bundle: DebugBundle) -> str:
    session, provider = bundle.session, bundle.provider or {}
    workspace, pending = session.get("workspace") or {}, session.get("pendingAction") or {}
    facts = {
        **{f"Version of {name}": version for name, version in bundle.versions.items()},
        "Agent": f"{provider.get('displayName')} ({session.get('type')}, {session.get('kind')})",
        "Program": provider.get("path"),
        "Session": session.get("id"),
        "Status": session.get("status"),
        "Error": session.get("error"),
        "Asks": pending.get("message"),
        "Title": session.get("title"),
        "Model": session.get("model"),
        "Directory": workspace.get("path"),
        "Screenshot": None if bundle.screenshot is None else "in the bundle",
        "Unavailable": "; ".join(bundle.problems) or None,
    }
    lines = (f"- {name}: {_line(value)}" for name, value in facts.items() if value is not None)
    return "\n".join(lines)


def _omitted(bundle: DebugBundle) -> str:
    redacted = [f"redacted: {count} {kind}" for kind, count in bundle.redactions.items()]
    return "\n".join([*redacted, *(f"cut: {what}" for what in bundle.omitted)])


def _event(event: dict[str, Any]) -> str:
    more = [f"{event['duration']} s"] if event.get("duration") is not None else []
    more += [_line(event["message"])] if event.get("message") else []
    return " ".join([str(event.get("timestamp")), str(event.get("event")), *more])


def _message(message: dict[str, Any]) -> str:
    head = f"[{message.get('index')}] {message.get('role')} {message.get('kind')}"
    return f"{head} {message.get('timestamp')}\n{message.get('content', '')}"


def _line(value: Any) -> str:
    line = " ".join(str(value).split())[:400]
    return line if size(line) <= _FACT else line[: _FACT // 6]  # 6 bytes a character at most


def _json(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def _fenced(text: str) -> str:
    """Return the text in a code fence that is longer than any run of backticks in it."""
    text = _LONG_FENCE.sub("`" * _MAX_FENCE, text)
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{text}\n{fence}"
