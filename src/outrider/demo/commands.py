"""What the demo agent does for a message, decided by its first word."""

import asyncio
import itertools
import os
from collections.abc import Awaitable, Callable
from typing import Any, Final

from acp import RequestError
from acp.helpers import (
    plan_entry,
    start_tool_call,
    text_block,
    tool_content,
    tool_diff_content,
    update_agent_thought_text,
    update_plan,
    update_tool_call,
)
from acp.schema import AllowedOutcome, PermissionOption, ToolCallUpdate

from outrider.demo.session import DemoSession

FILE: Final = "demo.txt"

_HELP: Final = """\
| message | what I do |
|---|---|
| `help` | show this table |
| `stream N` | stream words for N seconds (1 to 600) |
| `silent N` | say nothing for N seconds, then answer |
| `tool` | ask for your approval, then append a line to `demo.txt` |
| `read` | read `demo.txt`, without asking |
| `edit` | ask for your approval of an edit of `demo.txt` |
| `think` | think before I answer |
| `plan` | make a plan of three steps, and carry it out |
| `messages N` | send N short messages (1 to 10,000) |
| `remember` | repeat the first message of this session |
| `fail` | end the turn with an error |
| `crash` | exit with status 1 |

Anything else I answer with an example of Markdown.
"""
_ECHO: Final = """\
## A demo answer

I am no model: I do what the first word of a message says. Some to try:

- `tool` asks for your approval
- `stream 5` streams for five seconds
- `help` lists them all

```python
print('Hello from the demo agent')
```

You said: """
_NOT_FOUND: Final = -32002
_MAX: Final = {"stream": 600, "silent": 600, "messages": 10_000}
"""The largest number that each of these commands takes."""
_WORD_SECONDS: Final = 0.1
_STEP_SECONDS: Final = 0.3
_SENTENCE: Final = "These are words that arrive one after the other as those of a model do"
_OPTIONS: Final = [
    PermissionOption(option_id="allow", name="Allow once", kind="allow_once"),
    PermissionOption(option_id="always", name="Allow always", kind="allow_always"),
    PermissionOption(option_id="reject", name="Reject", kind="reject_once"),
]
_call_numbers = itertools.count(1)


async def run_command(session: DemoSession, message: str) -> None:
    """Answer a message.

    Raises:
        CancelledTurn: the turn was interrupted.
        RequestError: the message was `fail`, the file cannot be read, or the client has failed.
    """
    words = message.split() or [""]
    name = words[0]
    if name in _MAX and len(words) == 2:
        if words[1].isdecimal() and 1 <= int(words[1]) <= _MAX[name]:
            await _COUNTED[name](session, int(words[1]))
        else:
            await session.say(f"`{name}` takes a number from 1 to {_MAX[name]:,}.")
    elif name in _COMMANDS:
        await _COMMANDS[name](session)
    else:
        await session.say(_ECHO + message)


async def _help(session: DemoSession) -> None:
    await session.say(_HELP)


async def _stream(session: DemoSession, seconds: int) -> None:
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    words = itertools.cycle(_SENTENCE.split())
    while loop.time() < end:
        await session.say(next(words) + " ")
        await session.pause(_WORD_SECONDS)
    await session.say("\n\nDone streaming.")


async def _silent(session: DemoSession, seconds: int) -> None:
    await session.pause(seconds)
    await session.say(f"I said nothing for {seconds} s.")


async def _messages(session: DemoSession, count: int) -> None:
    for number in range(1, count + 1):
        await session.say(f"Message {number} of {count}", message_id=f"{len(session.messages)}")
        await session.pause(0)


async def _think(session: DemoSession) -> None:
    await session.update(update_agent_thought_text("The user wants to see me think. I do."))
    await session.pause(_STEP_SECONDS)
    await session.say("I have thought about it.")


async def _plan(session: DemoSession) -> None:
    steps = ["Look at the task", "Do the work", "Check the result"]
    for done in range(len(steps) + 1):
        states: list[Any] = ["completed"] * done + ["in_progress"] + ["pending"] * len(steps)
        entries = zip(steps, states, strict=False)
        await session.update(update_plan([plan_entry(step, status=s) for step, s in entries]))
        await session.pause(_STEP_SECONDS)
    await session.say("The plan is carried out.")


async def _remember(session: DemoSession) -> None:
    await session.say(session.messages[0][1])


async def _fail(_: DemoSession) -> None:
    raise RequestError(-32603, "The demo agent fails, as it was told to")


async def _crash(session: DemoSession) -> None:
    await session.say("I exit with status 1.")  # an agent that says nothing did not take a message
    await session.pause(_STEP_SECONDS)
    os._exit(1)


async def _read(session: DemoSession) -> None:
    call = f"call-{next(_call_numbers)}"
    path = session.path(FILE)
    start = start_tool_call(call, f"Read {FILE}", kind="read", raw_input={"path": path})
    await session.update(start)
    content = await _content(session)
    shown = f"There is no {FILE} yet: `tool` writes one." if content is None else content
    await _finish(session, call, shown, failed=content is None)
    await session.say("There is nothing to read." if content is None else f"I have read {FILE}.")


async def _tool(session: DemoSession) -> None:
    before = await _content(session) or ""
    line = f"Line {before.count(chr(10)) + 1} of the demo agent"
    await _change(
        session,
        title=f"Append a line to {FILE}",
        raw_input={"path": session.path(FILE), "line": line},
        content=[tool_content(text_block(line))],
        after=f"{before}{line}\n",
    )


async def _edit(session: DemoSession) -> None:
    before = await _content(session)
    first, _, rest = (before or "").partition("\n")
    edited = first.removesuffix(" (edited)") if first.endswith(" (edited)") else f"{first} (edited)"
    after = f"{edited.lstrip()}\n{rest}"
    await _change(
        session,
        title=f"Edit {FILE}",
        raw_input={"path": session.path(FILE)},
        content=[tool_diff_content(session.path(FILE), after, before)],
        after=after,
    )


async def _change(
    session: DemoSession, *, title: str, raw_input: Any, content: Any, after: str
) -> None:
    """Ask for approval of a tool call that writes the file, and carry it out."""
    call = f"call-{next(_call_numbers)}"
    start = start_tool_call(
        call, title, kind="edit", status="pending", content=content, raw_input=raw_input
    )
    await session.update(start)
    if not await _is_approved(session, title, call, start.content, raw_input):
        await _finish(session, call, "Rejected", failed=True)
        await session.say("Rejected.")
        return
    await session.client.write_text_file(
        session_id=session.id, path=session.path(FILE), content=after
    )
    await _finish(session, call, f"Wrote {FILE}")
    await session.say("Approved.")


async def _is_approved(
    session: DemoSession, title: str, call: str, content: Any, raw_input: Any
) -> bool:
    if session.mode == "auto" or title in session.always:
        return True
    request = ToolCallUpdate(
        tool_call_id=call, title=title, kind="edit", content=content, raw_input=raw_input
    )
    answer = await session.client.request_permission(
        session_id=session.id, tool_call=request, options=_OPTIONS
    )
    await session.pause(0)  # the answer of an interrupted turn is `cancelled`
    chosen = answer.outcome.option_id if isinstance(answer.outcome, AllowedOutcome) else "reject"
    if chosen == "always":
        session.always.add(title)
    return chosen != "reject"


async def _finish(session: DemoSession, call: str, text: str, *, failed: bool = False) -> None:
    status: Any = "failed" if failed else "completed"
    update = update_tool_call(call, status=status, content=[tool_content(text_block(text))])
    await session.update(update)


async def _content(session: DemoSession) -> str | None:
    """Return the content of the file; None if there is none.

    Raises:
        RequestError: it cannot be read.
    """
    try:
        answer = await session.client.read_text_file(session_id=session.id, path=session.path(FILE))
    except RequestError as error:
        if error.code == _NOT_FOUND:
            return None
        # Not the client's code: as the answer to a prompt it might mean that the turn never began.
        raise RequestError(-32603, str(error)) from error
    return answer.content


_COMMANDS: Final[dict[str, Callable[[DemoSession], Awaitable[None]]]] = {
    "help": _help,
    "tool": _tool,
    "read": _read,
    "edit": _edit,
    "think": _think,
    "plan": _plan,
    "remember": _remember,
    "fail": _fail,
    "crash": _crash,
}
_COUNTED: Final[dict[str, Callable[[DemoSession, int], Awaitable[None]]]] = {
    "stream": _stream,
    "silent": _silent,
    "messages": _messages,
}
