"""The clients of the soak: many kinds of requests at a steady rate, some wrong, some cancelled."""

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any, Final

import aiohttp

from benchmarks.clients import Clients
from benchmarks.fleet.machine import Enrolled
from benchmarks.fleet.site import EMAIL
from benchmarks.service import PASSWORD, Server

REQUESTS_PER_SECOND: Final = 40

_AT_ONCE: Final = 100
_CANCEL_SECONDS: Final = 0.002
_LONGEST: Final = 70.0


class Load(Clients):
    """Clients of every kind under way, for the length of a context."""

    def __init__(self, server: Server, machines: list[Enrolled]) -> None:
        super().__init__(server.headers, _LONGEST)
        self._url = f"{server.url}/api/v1"
        self._machines = machines

    async def work(self) -> None:
        """Make random requests at random times."""
        kinds: list[tuple[float, Callable[[], Coroutine[Any, Any, None]]]] = [
            (60, self._status),
            (10, self._list),
            (10, self._command),
            (10, self._repeated_command),
            (1, self._session),
            (1, self._webhook),
            (1, self._wrong_key),
            (1, self._not_found),
            (1, self._cancelled),
        ]
        weights, calls = zip(*kinds, strict=True)
        limit = asyncio.Semaphore(_AT_ONCE)
        async with asyncio.TaskGroup() as group:
            while not self.is_ending:
                await asyncio.sleep(random.expovariate(REQUESTS_PER_SECOND))
                await limit.acquire()
                (call,) = random.choices(calls, weights)
                task = group.create_task(call())
                task.add_done_callback(lambda _: limit.release())

    async def _status(self) -> None:
        path = f"/shortcuts/{self._machine()}:cli:claude-code/status"
        await self._send("status", "GET", path)

    async def _list(self) -> None:
        await self._send("list", "GET", "/daemons")

    async def _command(self) -> None:
        body = {"type": "read_chat", "payload": {}}
        await self._send("command", "POST", f"/daemons/{self._machine()}/command", json=body)

    async def _repeated_command(self) -> None:
        headers = {"Idempotency-Key": f"{random.getrandbits(64):x}"}
        path, body = f"/daemons/{self._machine()}/command", {"type": "read_chat", "payload": {}}
        for _ in range(2):
            await self._send("repeated command", "POST", path, json=body, headers=headers)

    async def _session(self) -> None:
        headers = await self._logged_in()
        if headers:
            await self._send("account", "GET", "/account", headers=headers)
            await self._send("logout", "POST", "/auth/logout", headers=headers)

    async def _webhook(self) -> None:
        headers = await self._logged_in()
        if headers:
            body = {"url": "http://127.0.0.1:9/nobody", "events": ["agent:error"]}
            made = await self._send("webhook made", "POST", "/webhooks", json=body, headers=headers)
            path = f"/webhooks/{made.get('id')}"
            await self._send("webhook deleted", "DELETE", path, headers=headers)
            await self._send("logout", "POST", "/auth/logout", headers=headers)

    async def _logged_in(self) -> dict[str, str]:
        body = {"email": EMAIL, "password": PASSWORD}
        token = (await self._send("login", "POST", "/auth/login", json=body)).get("token")
        return {"Authorization": f"Bearer {token}"} if token else {}

    async def _wrong_key(self) -> None:
        headers = {"Authorization": f"Bearer ork_{random.getrandbits(128):032x}"}
        await self._send("wrong key", "GET", "/daemons", headers=headers)

    async def _not_found(self) -> None:
        await self._send("not found", "GET", f"/{random.getrandbits(64):x}")

    async def _cancelled(self) -> None:
        path = f"/shortcuts/{self._machine()}:cli:claude-code/status"
        timeout = aiohttp.ClientTimeout(total=_CANCEL_SECONDS)
        await self._send("cancelled", "GET", path, timeout=timeout)

    def _machine(self) -> str:
        return random.choice(self._machines).daemon_id

    async def _send(self, kind: str, method: str, path: str, **options: Any) -> dict[str, Any]:
        return await self.request(kind, method, self._url + path, **options)
