"""An account with something on every page: scripted machines that say what a test wants shown.

The real demo agent cannot be made to send a hostile title, or to wait in each state at once.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from outrider.contract.events import AgentEvent, EventName
from outrider.contract.frames import Change, Command, Event
from outrider.contract.ids import new_id
from outrider.contract.resources import (
    ActionOption,
    PendingAction,
    Provider,
    Session,
    Workspace,
)
from tests.rig.machine import ScriptedMachine, payload_of
from tests.rig.people import dashboard
from tests.rig.samples import CHANGES, CHAT, DEBUG, FILES, MACHINE, STATE, TERMINALS, session
from tests.rig.site import Owner
from tests.rig.waiting import TIMEOUT
from tests.service.machines.test_session_history import STOPPED, ends
from tests.service.webhooks.receiver import Answer, receiving, response

V1: Final = "/api/v1"


@dataclass
class FurnishedAccount:
    """The machines, and what they show.

    Attributes:
        targets: the target ids of the running sessions, by status.
        webhook: the id of a webhook with a delivery.
        device: the code of a machine that waits for approval.
    """

    owner: Owner
    machines: list[ScriptedMachine] = field(default_factory=list)
    targets: dict[str, str] = field(default_factory=dict)
    webhook: str = ""
    device: str = ""

    @property
    def machine(self) -> ScriptedMachine:
        """The first machine."""
        return self.machines[0]


def question(message: str = "Run `make`?", *labels: str) -> PendingAction:
    """Return a question with the usual options, or with these as further ones."""
    options = [
        ActionOption(id="once", label="Allow once", kind="allow_once"),
        ActionOption(id="always", label="Allow always", kind="allow_always"),
        ActionOption(id="no", label="Reject", kind="reject_once"),
        *(
            ActionOption(id=f"other-{number}", label=label, kind="reject_always")
            for number, label in enumerate(labels)
        ),
    ]
    return PendingAction(id="act_1", message=message, options=options)


def messages(*texts: tuple[str, str, str]) -> list[dict[str, Any]]:
    """Return messages of a chat from (role, kind, content)."""
    return [
        {
            "id": f"msg_{number}",
            "index": number,
            "role": role,
            "kind": kind,
            "content": content,
            "timestamp": 1_750_000_000_000 + number,
        }
        for number, (role, kind, content) in enumerate(texts)
    ]


_MARKDOWN: Final = """\
## Two failures

1. `parser.py`
2. [the log](https://example.org/log)

```python
print('fixed')
```

| file | lines |
|---|---|
| a.py | 3 |
"""
TALK: Final = messages(
    ("user", "text", "Make the tests pass"),
    ("assistant", "thinking", "I look at the failures first."),
    ("assistant", "tool_call", '{"name": "Bash", "input": {"command": "make test"}}'),
    ("tool", "tool_result", "2 failed, 40 passed"),
    (
        "assistant",
        "text",
        _MARKDOWN,
    ),
)


def state_of(agent: Session) -> dict[str, Any]:
    """Return what a machine answers to a question about the state of a session."""
    return STATE | {
        "id": agent.target_id,
        "sessionId": agent.id,
        "agentType": agent.type,
        "status": agent.status,
        "title": agent.title,
        "pendingAction": msgspec.to_builtins(agent.pending_action),
        "error": agent.error,
    }


async def furnished_account(owner: Owner) -> FurnishedAccount:
    """Connect a machine with a session in each state, and an offline one."""
    account = FurnishedAccount(owner)
    enrolled = await owner.enrolls(nickname="workbench")
    sessions = [
        session(status="waiting_approval", title="Fix the build", pending_action=question()),
        session(status="generating", title="Write the changelog"),
        session(status="error", title="Update the lock file", error="The model is overloaded"),
        session(kind="acp", type="house-agent", status="idle", title=None),
    ]
    account.machines.append(await owner.machine(*sessions, enrolled=enrolled))
    states = {agent.id: state_of(agent) for agent in sessions}
    answer_all(
        account.machine,
        sessions[0],
        agent_status=lambda command: states[payload_of(command)["target"].rpartition(":")[2]],
    )
    for agent in sessions:
        account.targets[agent.status] = f"{account.machine.id}:session:{agent.id}"
    gone = await owner.machine(enrolled=await owner.enrolls(nickname="old laptop"))
    await disconnect(owner, gone)
    ended = session(title="Rename the module")
    await ends(account.machine, ended, 1, **STOPPED)
    account.webhook = await _webhook(owner)
    account.device = await _device(owner, hostname="new-laptop", platform="linux")
    return account


async def _webhook(owner: Owner, answer: Answer | None = None) -> str:
    """Create a webhook, and send it a test."""
    async with receiving() as receiver:
        receiver.respond_with(answer or response(200, "thank you"))
        body = {"url": receiver.url, "events": ["*"]}
        client = await dashboard(owner)
        made = await client.post(f"{V1}/webhooks", json=body)
        assert made.status_code == 201, made.text
        webhook: str = made.json()["id"]
        sent = await client.post(f"{V1}/webhooks/{webhook}/test")
        assert sent.status_code == 200, sent.text
    return webhook


async def _device(owner: Owner, **machine: str) -> str:
    """Ask for a device code, as a machine does."""
    asked = await owner.site.client().post(f"{V1}/auth/device", json=machine)
    assert asked.status_code == 200, asked.text
    code: str = asked.json()["userCode"]
    return code


async def disconnect(owner: Owner, machine: ScriptedMachine) -> None:
    """Disconnect a machine, as its user does."""
    client = await dashboard(owner)
    answer = await client.post(f"{V1}/daemons/{machine.id}/disconnect")
    assert answer.status_code == 200, answer.text
    await machine.closed()


def results_of(agent: Session) -> dict[str, Any]:
    """Return the results of commands on a machine whose only session is `agent`."""
    return {
        "read_chat": CHAT | {"messages": TALK, "totalMessages": len(TALK), "status": agent.status},
        "agent_status": state_of(agent),
        "read_changes": CHANGES,
        "read_files": FILES,
        "list_terminals": TERMINALS,
    }


def answer_all(machine: ScriptedMachine, agent: Session, **results: Any) -> None:
    """Answer every command as if `agent` were the machine's only session."""
    machine.obliges(**results_of(agent) | results)


class SessionMachine:
    """Answers the commands to a machine with one session, except those that the test answers.

    Attributes:
        session: the session as the machine reports it at present.
        unanswered: the commands that the test answers.
    """

    def __init__(self, machine: ScriptedMachine, agent: Session, *kinds: str) -> None:
        self.machine = machine
        self.session = agent
        self.unanswered: asyncio.Queue[Command] = asyncio.Queue()
        self._kinds = kinds
        self._seq = 0

    @property
    def path(self) -> str:
        """The path of the session's page."""
        return f"/sessions/{self.machine.id}:session:{self.session.id}"

    async def takes(self, kind: str, **payload: Any) -> Command:
        """Return the next command that the test answers."""
        async with asyncio.timeout(TIMEOUT):
            command = await self.unanswered.get()
        given = payload_of(command)
        assert command.command == kind
        assert {name: given.get(name) for name in payload} == payload
        return command

    async def reports(self, **changes: Any) -> None:
        """Change the session, and report it as a machine agent does, with an event."""
        agent = self.session = replace(self.session, **changes)
        await self._say(
            self._event(EventName.SESSION_UPDATED, session=agent), Change(sessions=[agent])
        )

    def _event(self, name: EventName, **fields: Any) -> AgentEvent:
        return AgentEvent(
            id=new_id("evt"),
            event=name,
            session_id=self.session.id,
            ide_id="the service sets this",
            ide_type=self.session.type,
            chat_title=self.session.title,
            duration=None,
            timestamp=self.session.last_activity_at,
            **fields,
        )

    async def _say(self, event: AgentEvent, *frames: Change) -> None:
        self._seq += 1
        await self.machine.say(*frames, Event(seq=self._seq, event=event))
        await self.machine.settled()

    async def serve(self) -> None:
        """Answer until cancelled."""
        while True:
            command = await self.machine.waits_for_a_command()
            if command.command in self._kinds:
                self.unanswered.put_nowait(command)
            else:
                result = results_of(self.session).get(command.command)
                await self.machine.answers(command, result)


@asynccontextmanager
async def session_machine(
    owner: Owner, agent: Session, *kinds: str
) -> AsyncIterator[SessionMachine]:
    """Connect a machine with this session; the test itself answers commands of these kinds."""
    machine = await owner.machine(agent, enrolled=await owner.enrolls(nickname="workbench"))
    mine = SessionMachine(machine, agent, *kinds)
    serving = asyncio.create_task(mine.serve(), name="session machine")
    try:
        yield mine
    finally:
        serving.cancel()
        with suppress(asyncio.CancelledError):
            await serving


async def hostile_account(
    owner: Owner, lines: Sequence[str], texts: Sequence[str]
) -> FurnishedAccount:
    """Connect a machine for each hostile line, which shows it wherever a machine's text goes.

    The first machine's session has a chat with all texts; of the others, each has a few messages.

    Args:
        lines: texts without control characters, which names and titles may be.
        texts: texts that may be anything, for chats, paths and questions.
    """
    account = FurnishedAccount(owner)
    for number, line in enumerate(lines):
        said = texts if number == 0 else [line]
        talk = messages(*(each for text in said for each in _everywhere(text)))
        text = texts[number % len(texts)]
        enrolled = await owner.enrolls(nickname=line[:256])
        agent = _hostile_session(line, text)
        provider = Provider(
            type=line[:256],
            category="cli",
            display_name=line[:256],
            installed=True,
            path=f"/{text}"[:4096],
            verified=False,
            error=text[:4096],
        )
        machine = await owner.machine(
            agent,
            enrolled=enrolled,
            machine=replace(MACHINE, hostname=line[:256], platform=line[:40], release=line[:256]),
            providers=[provider],
            version=line[:40],
        )
        account.machines.append(machine)
        account.targets[line] = f"{machine.id}:session:{agent.id}"
        control = {
            "id": "mode",
            "label": line[:1024],
            "type": "select",
            "options": [line[:1024], "plain"],
            "value": line[:1024],
        }
        answer_all(
            machine,
            agent,
            read_chat=CHAT
            | {"messages": talk, "totalMessages": len(talk), "title": line, "pendingAction": None},
            agent_status=state_of(agent)
            | {
                "controls": [control],
                "summaryMetadata": {"items": [{"id": "x", "label": line, "value": text}]},
                "workspace": {"path": f"/{text}", "name": line[:256]},
                "error": text,
            },
            read_queue={
                "success": True,
                "messages": [{"messageId": "q", "text": text, "createdAt": 1_750_000_000_000}],
            },
            read_changes=_hostile_changes(texts),
            read_files=FILES
            | {
                "entries": [
                    {"name": name.replace("/", "\u2215"), "type": "file", "size": 3}
                    for name in texts
                ]
            },
            chat_debug=_hostile_bundle(text),
        )
        ended = session(title=line[:1024], type=line[:256])
        await ends(machine, ended, 1, **STOPPED | {"not_resumable": text, "resumable": False})
    account.device = await _device(
        owner, hostname=lines[0], platform=lines[0][:40], nickname=lines[-1], version=lines[0][:40]
    )
    account.webhook = await _webhook(owner, response(500, "\n".join(texts)[:30_000]))
    return account


def _everywhere(text: str) -> list[tuple[str, str, str]]:
    return [
        ("user", "text", text),
        ("assistant", "text", text),
        ("assistant", "thinking", text),
        ("assistant", "tool_call", text),
        ("tool", "tool_result", text),
        ("system", "text", text),
    ]


def _hostile_session(line: str, text: str) -> Session:
    return session(
        type=line[:256],
        name=line[:256],
        status="waiting_approval",
        title=line[:1024],
        workspace=Workspace(path=f"/{text}"[:4096], name=line[:256]),
        model=line[:256],
        pending_action=question(text[:16_384], line[:1024]),
        error=text[:16_384],
    )


def _hostile_changes(texts: Sequence[str]) -> dict[str, Any]:
    files = [
        {
            "path": text,
            "oldPath": text,
            "status": "modified",
            "additions": 1,
            "deletions": 1,
            "binary": False,
        }
        for text in texts
    ]
    patch = "".join(
        f"diff --git a/{name} b/{name}\n--- a/{name}\n+++ b/{name}\n"
        f"@@ -1 +1 @@ {name}\n-{name}\n+{name}\n"
        for name in (text.replace("\n", " ") for text in texts)
    )
    return CHANGES | {"files": files, "patch": patch, "branch": texts[0], "base": texts[0]}


def _hostile_bundle(text: str) -> dict[str, Any]:
    return DEBUG | {"text": text}
