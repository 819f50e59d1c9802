"""The clients of the soak: many kinds of requests at a steady rate, some wrong, some given up."""

import asyncio
import random
import threading
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any, Final, Self

import aiohttp

from benchmarks.fleet.machine import Enrolled
from benchmarks.fleet.site import EMAIL
from benchmarks.service import PASSWORD, Server

REQUESTS_PER_SECOND: Final = 40

_AT_ONCE: Final = 100
_GIVE_UP_SECONDS: Final = 0.002
_LONGEST: Final = 70.0


class Load:
    """Clients under way, in a thread of their own for the length of a context.

    Attributes:
        outcomes: how many requests of each kind were answered how.
    """

    def __init__(self, server: Server, machines: list[Enrolled]) -> None:
        self._server = server
        self._machines = machines
        self._loop = asyncio.new_event_loop()
        self._work: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._run, name="load")
        self._failure: BaseException | None = None
        self.outcomes: Counter[str] = Counter()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop)
        self._thread.join(_LONGEST + 10)

    def check(self) -> None:
        """Raise what ended the clients, where something did."""
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            try:
                runner.run(self._main())
            except asyncio.CancelledError:
                pass
            except BaseException as error:  # noqa: BLE001  # `check` raises it
                self._failure = error

    def _stop(self) -> None:
        if self._work is not None:
            self._work.cancel()

    async def _main(self) -> None:
        self._work = asyncio.current_task()
        kinds: list[tuple[float, Callable[[], Coroutine[Any, Any, None]]]] = [
            (60, self._status),
            (10, self._list),
            (10, self._command),
            (10, self._repeated_command),
            (1, self._session),
            (1, self._webhook),
            (1, self._wrong_key),
            (1, self._nowhere),
            (1, self._given_up),
        ]
        weights, calls = zip(*kinds, strict=True)
        limit = asyncio.Semaphore(_AT_ONCE)
        timeout = aiohttp.ClientTimeout(total=_LONGEST)
        async with (
            aiohttp.ClientSession(headers=self._server.headers, timeout=timeout) as self._client,
            asyncio.TaskGroup() as group,
        ):
            while True:
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

    async def _nowhere(self) -> None:
        await self._send("nowhere", "GET", f"/{random.getrandbits(64):x}")

    async def _given_up(self) -> None:
        path = f"/shortcuts/{self._machine()}:cli:claude-code/status"
        timeout = aiohttp.ClientTimeout(total=_GIVE_UP_SECONDS)
        await self._send("given up", "GET", path, timeout=timeout)

    def _machine(self) -> str:
        return random.choice(self._machines).daemon_id

    async def _send(self, kind: str, method: str, path: str, **options: Any) -> dict[str, Any]:
        """Send a request; return the answer's body where it was good."""
        url = f"{self._server.url}/api/v1{path}"
        try:
            async with self._client.request(method, url, **options) as answer:
                body = await answer.read()
                self.outcomes[f"{kind}: {answer.status}"] += 1
                return await answer.json() if answer.ok and body else {}
        except TimeoutError:
            self.outcomes[f"{kind}: no answer in time"] += 1
        except aiohttp.ClientError as error:
            self.outcomes[f"{kind}: {type(error).__name__}"] += 1
        return {}
