"""The machine agent of this release with a service of the previous one."""

import json

import pytest

from outrider.contract.commands import CommandType, Result
from outrider.contract.frames import CommandResult, Event, Hello
from tests.contract.link.memory_log import agent_event
from tests.machine.linked_machine import Machine
from tests.machine.scripted_service import ScriptedService
from tests.rig import previous_release as previous

COMMANDS = [frame for frame in previous.frames("service") if json.loads(frame)["type"] == "command"]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda frame: json.loads(frame)["command"])
async def test_its_welcome_commands_and_acknowledgements(
    machine: Machine, service: ScriptedService, command: str
) -> None:
    welcome = previous.frames("service")[0]
    carried_out = []

    async def carry_out(payload: object, deadline: float) -> Result:
        carried_out.append(payload)
        return Result()

    expected = json.loads(command)
    machine.handlers[CommandType(expected["command"])] = carry_out
    machine.outbox.event(agent_event("evt_1"))
    machine.start()
    peer = await service.connection()
    await peer.hear(Hello)
    await peer.socket.send(welcome)
    assert (await peer.hear(Event)).event.id == "evt_1"
    await peer.socket.send('{"type": "ack", "seq": 1}')
    await peer.socket.send(command)
    result = await peer.hear(CommandResult)
    assert (result.id, result.error) == (expected["id"], None)
    assert len(carried_out) == 1
