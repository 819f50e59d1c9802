"""An account as two nodes of one service see it."""

from dataclasses import dataclass
from typing import Any, Self

import httpx

from outrider.contract.enrollment import Enrolled
from tests.rig.machine import ScriptedMachine, hello
from tests.rig.people import dashboard, person
from tests.rig.site import Owner, Site
from tests.rig.waiting import eventually

V1 = "/api/v1"


@dataclass(frozen=True)
class Pair:
    """An account with a machine's token; `here` and `there` are its clients at the two nodes."""

    owner: Owner
    other: Site
    enrolled: Enrolled
    here: httpx.AsyncClient
    there: httpx.AsyncClient

    @classmethod
    async def of(cls, here: Site, there: Site) -> Self:
        """Make an account."""
        owner = await person(here)
        return cls(owner, there, await owner.enrolls(), owner.api, there.client(owner.key))

    @property
    def id(self) -> str:
        """The machine's id."""
        return self.enrolled.daemon_id

    @property
    def status(self) -> str:
        """The path of a status that the machine is asked for."""
        return f"{V1}/shortcuts/{self.id}:cli:claude-code/status"

    async def machine_here(self, *sessions: Any) -> ScriptedMachine:
        """Connect the machine to this node."""
        return await self.owner.machine(*sessions, enrolled=self.enrolled)

    async def machine_there(self, *sessions: Any) -> ScriptedMachine:
        """Connect the machine to the other node."""
        machine = ScriptedMachine(self.other.gateway, self.enrolled.token, hello(*sessions))
        return await self.other.hold(machine)

    async def dashboard(self) -> httpx.AsyncClient:
        """Return a client at this node with a fresh session."""
        return await dashboard(self.owner)

    async def list_here(self) -> list[dict[str, Any]]:
        """Return the machines, as this node lists them."""
        found: list[dict[str, Any]] = (await self.here.get(f"{V1}/daemons")).json()["daemons"]
        return found

    async def shows_here(self, count: int) -> None:
        """Wait until this node lists so many machines."""

        async def listed() -> bool:
            return len(await self.list_here()) == count

        await eventually(listed)
