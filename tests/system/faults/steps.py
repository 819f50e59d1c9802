"""What tests of faults ask of nodes again and again."""

import asyncio

import httpx

from tests.rig.machine import ScriptedMachine
from tests.system.faults.cluster import V1, Machine


async def answered(client: httpx.AsyncClient, machine: Machine, socket: ScriptedMachine) -> None:
    """Check that a command reaches the machine from a node, once, and its answer the client."""
    asked = asyncio.create_task(client.get(machine.status))
    await socket.answers(await socket.takes("agent_status"))
    response = await asked
    assert response.status_code == 200, response.text
    assert socket.received_nothing()


async def works(client: httpx.AsyncClient, machine: Machine) -> bool:
    """Return whether an obliging machine answers."""
    return (await client.get(machine.status)).status_code == 200


async def listed(client: httpx.AsyncClient) -> set[str]:
    """Return the ids of the machines that a node lists."""
    response = await client.get(f"{V1}/daemons")
    assert response.status_code == 200, response.text
    return {daemon["id"] for daemon in response.json()["daemons"]}
