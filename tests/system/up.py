"""`outrider up` as a process, and a client that has only what it prints."""

import re
from collections.abc import Awaitable, Callable
from typing import Any, Self

import httpx

from tests.rig.processes import PROCESS_TIMEOUT, Program
from tests.rig.waiting import eventually


class Up(Program):
    """A running `outrider up`."""

    url: str
    key: str
    client: httpx.AsyncClient

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        self.client = httpx.AsyncClient(timeout=70)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.client.aclose()
        await super().__aexit__(*error)

    async def greeting(self) -> str:
        """Read what is printed until the curl line, which holds the address and the key."""
        lines: list[str] = []
        while "curl" not in (lines[-1] if lines else ""):
            lines.append(await self.next_line())
            assert self.process.stdout is not None
            assert not self.process.stdout.at_eof(), lines
        found = re.search(r"Bearer (ork_\w+)' (http://[^/]+)(/\S+)", lines[-1])
        assert found, lines
        self.key, self.url = found[1], found[2]
        return "\n".join(lines)

    async def until(
        self, condition: Callable[[], Awaitable[Any]], within: float = PROCESS_TIMEOUT
    ) -> Any:
        """Wait until `condition` returns something, and return that."""
        found: list[Any] = []

        async def holds() -> bool:
            found.append(await condition())
            return bool(found[-1])

        await eventually(holds, within)
        return found[-1]

    async def call(self, method: str, path: str, body: Any = None, status: int = 200) -> Any:
        """Make a request under /api/v1, check its status, and return its JSON."""
        answer = await self.client.request(
            method,
            f"{self.url}/api/v1{path}",
            json=body,
            headers={"Authorization": f"Bearer {self.key}"},
        )
        assert answer.status_code == status, answer.text
        return answer.json()
