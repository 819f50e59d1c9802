"""`Idempotency-Key`: a request made twice under one key is carried out once.

After the IETF draft (draft-ietf-httpapi-idempotency-key-header). The answer is kept, encrypted,
for 24 hours. A request that was refused before anything was done frees its key. One that was
under way when the service died keeps it: nobody can tell whether it was carried out.
"""

import asyncio
import hashlib
import re
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, NamedTuple, TypeVar

import structlog
from sqlalchemy.exc import SQLAlchemyError

from outrider.cloud.access.encryption import Cipher
from outrider.cloud.store import idempotency
from outrider.cloud.store.database import Database, is_unavailable
from outrider.contract.errors import bad_request, conflict

KEPT_SECONDS: Final = 86400.0

_KEY: Final = re.compile(r"[\x21-\x7e]{1,255}")
_SEALED: Final = "response"
_PRUNE_SECONDS: Final = 600.0
_SETTLES: Final = 60
_SETTLE_SECONDS: Final = 1.0

T = TypeVar("T")

_log = structlog.get_logger(__name__)


class Answer(NamedTuple):
    """A response: its status and body, and whether it came from the store."""

    status: int
    body: bytes
    replayed: bool = False


class Idempotency:
    """Remembers the answers of requests made under a key.

    Args:
        clock: seconds since the epoch.
    """

    def __init__(
        self, database: Database, cipher: Cipher, clock: Callable[[], float] = time.time
    ) -> None:
        self._database = database
        self._cipher = cipher
        self._clock = clock
        self._running: set[asyncio.Task[Any]] = set()

    async def once(
        self,
        *,
        principal: str,
        key: str,
        request: tuple[str, str, bytes],
        work: Callable[[], Awaitable[tuple[Answer, bool]]],
    ) -> Answer:
        """Do the work, or return the answer of the same request made before.

        The work goes on if the caller is cancelled: its answer is kept for the next try.

        Args:
            request: method, path and body; they must be the same under the same key.
            work: returns the answer, and whether something may have been done.

        Raises:
            ApiError: 400, the key was used for another request, or is not 1 to 255 visible
                ASCII characters; 409, the first request is under way.
        """
        if not _KEY.fullmatch(key):
            raise bad_request("Idempotency-Key must be 1 to 255 visible ASCII characters")
        method, path, body = request
        fingerprint = hashlib.sha256(b"\0".join((method.encode(), path.encode(), body))).digest()
        now = self._clock()
        stored = await idempotency.begin(
            self._database,
            principal,
            key,
            fingerprint,
            now=int(now * 1000),
            expired=int((now - KEPT_SECONDS) * 1000),
        )
        if stored is not None:
            return self._replay(stored, fingerprint)
        work_of_it = self._carry_out(principal, key, work)
        return await asyncio.shield(self._run(work_of_it, "idempotent request"))

    async def keep_pruning(self) -> None:
        """Delete old answers, until cancelled."""
        while True:
            await asyncio.sleep(_PRUNE_SECONDS)
            try:
                await self.prune()
            except (SQLAlchemyError, OSError) as error:
                _log.warning("old answers wait for the database", error=str(error))

    async def prune(self) -> None:
        """Delete old answers."""
        await idempotency.prune(self._database, int((self._clock() - KEPT_SECONDS) * 1000))

    async def drain(self, seconds: float) -> None:
        """Wait for the requests under way, as long as that."""
        if self._running:
            await asyncio.wait(self._running, timeout=seconds)

    def _run(self, work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        task = asyncio.create_task(work, name=name)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def _carry_out(
        self, principal: str, key: str, work: Callable[[], Awaitable[tuple[Answer, bool]]]
    ) -> Answer:
        answer, done = await work()

        async def settle() -> None:
            if done:
                sealed = self._cipher.encrypt(answer.body, _SEALED)
                await idempotency.finish(self._database, principal, key, answer.status, sealed)
            else:
                await idempotency.release(self._database, principal, key)

        try:
            await settle()
        except (SQLAlchemyError, OSError) as error:
            if not is_unavailable(error):
                raise
            # The answer is known: it must not be lost, nor the key stay taken for a day.
            self._run(self._settle_later(settle), "settle an idempotency key")
        return answer

    async def _settle_later(self, settle: Callable[[], Awaitable[None]]) -> None:
        for _ in range(_SETTLES):
            await asyncio.sleep(_SETTLE_SECONDS)
            try:
                await settle()
            except (SQLAlchemyError, OSError) as error:
                _log.warning("an answer waits for the database", error=str(error))
            else:
                return

    def _replay(self, stored: idempotency.Stored, fingerprint: bytes) -> Answer:
        if stored.fingerprint != fingerprint:
            raise bad_request(
                "This Idempotency-Key was used for another request: use a new key for each"
            )
        if stored.status is None or stored.response is None:
            raise conflict(
                "The first request with this Idempotency-Key is under way, or was interrupted: "
                "ask again in a moment for its answer"
            )
        return Answer(stored.status, self._cipher.decrypt(stored.response, _SEALED), replayed=True)
