"""An account with something on every page: scripted machines that say what a test wants shown.

The real demo agent cannot be made to send a hostile title, or to wait in each state at once.
"""

from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from outrider.contract.resources import (
    ActionOption,
    PendingAction,
    Session,
)
from tests.cloud.api.test_session_history import STOPPED, ends
from tests.cloud.webhooks.receiver import Answer, receiving, says
from tests.rig.machine import ScriptedMachine, payload_of
from tests.rig.people import dashboard
from tests.rig.samples import CHANGES, CHAT, FILES, STATE, TERMINALS, session
from tests.rig.site import Owner

V1: Final = "/api/v1"


@dataclass
class House:
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


def state_of(one: Session) -> dict[str, Any]:
    """Return what a machine answers to a question about the state of a session."""
    return STATE | {
        "id": one.target_id,
        "sessionId": one.id,
        "agentType": one.type,
        "status": one.status,
        "title": one.title,
        "pendingAction": msgspec.to_builtins(one.pending_action),
        "error": one.error,
    }


async def furnished(owner: Owner) -> House:
    """Connect a machine with a session in each state, and an offline one."""
    house = House(owner)
    enrolled = await owner.enrolls(nickname="workbench")
    sessions = [
        session(status="waiting_approval", title="Fix the build", pending_action=question()),
        session(status="generating", title="Write the changelog"),
        session(status="error", title="Update the lock file", error="The model is overloaded"),
        session(kind="acp", type="house-agent", status="idle", title=None),
    ]
    house.machines.append(await owner.machine(*sessions, enrolled=enrolled))
    states = {one.id: state_of(one) for one in sessions}
    answer_all(
        house.machine,
        sessions[0],
        agent_status=lambda command: states[payload_of(command)["target"].rpartition(":")[2]],
    )
    for one in sessions:
        house.targets[one.status] = f"{house.machine.id}:session:{one.id}"
    gone = await owner.machine(enrolled=await owner.enrolls(nickname="old laptop"))
    await disconnect(owner, gone)
    ended = session(title="Rename the module")
    await ends(house.machine, ended, 1, **STOPPED)
    house.webhook = await _webhook(owner)
    house.device = await _device(owner, hostname="new-laptop", platform="linux")
    return house


async def _webhook(owner: Owner, answer: Answer | None = None) -> str:
    """Create a webhook, and send it a test."""
    async with receiving() as receiver:
        receiver.answers(answer or says(200, "thank you"))
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


def answer_all(machine: ScriptedMachine, one: Session, **results: Any) -> None:
    """Answer every command as if `one` were the machine's only session."""
    chat = CHAT | {"messages": TALK, "totalMessages": len(TALK), "status": one.status}
    machine.obliges(
        **{
            "read_chat": chat,
            "agent_status": state_of(one),
            "read_changes": CHANGES,
            "read_files": FILES,
            "list_terminals": TERMINALS,
        }
        | results
    )
