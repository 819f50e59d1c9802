"""A service as a real process, with what an operator would have set up."""

from contextlib import AsyncExitStack
from pathlib import Path

import httpx

from outrider.service.settings import Settings
from tests.rig.processes import Program, Serving, environment
from tests.rig.site import GATEWAY, Site
from tests.rig.stores import Addresses
from tests.rig.waiting import TIMEOUT


class Installation:
    """A service process with an account, a client and a machine's token."""

    def __init__(self, data_dir: Path, addresses: Addresses) -> None:
        self.data_dir = data_dir
        self.addresses = addresses
        self.held = AsyncExitStack()
        self.key = ""
        self.daemon_id = ""
        self.token = ""

    async def serve(self, port: int = 0, **settings: str) -> Serving:
        """Start the service."""
        serving = Serving(self.data_dir, port, **self.addresses, **settings)
        self.service = await self.held.enter_async_context(serving)
        return self.service

    async def populate(self) -> None:
        """Make an account with a key, and enroll a machine."""
        site = Site(Settings(data_dir=self.data_dir, **self.addresses))
        owner = await site.account()
        enrolled = await owner.enrolls()
        await site.close()
        self.key, self.daemon_id, self.token = owner.key, enrolled.daemon_id, enrolled.token

    def client(self) -> httpx.AsyncClient:
        """Return a client with the account's key."""
        headers = {"Authorization": f"Bearer {self.key}"}
        return httpx.AsyncClient(
            base_url=self.service.url,
            headers=headers,
            trust_env=False,
            verify=False,
            timeout=2 * TIMEOUT,
        )

    @property
    def gateway(self) -> str:
        """The address that machines connect to."""
        return self.service.url.replace("http", "ws") + GATEWAY

    async def machine_program(self, *words: str) -> Program:
        """Start a machine as a process of its own, and wait until it is connected."""
        arguments = ["-m", "tests.rig.machine_program", self.gateway, self.token, *words]
        root = str(Path(__file__).parents[2])
        env = environment(self.data_dir)
        env["PYTHONPATH"] = ":".join([*filter(None, [env.get("PYTHONPATH")]), root])
        program = await self.held.enter_async_context(Program(*arguments, env=env))
        assert await program.next_line() == "ready"
        return program

    @property
    def status(self) -> str:
        """A path whose request becomes a command."""
        return f"/api/v1/shortcuts/{self.daemon_id}:cli:claude-code/status"
