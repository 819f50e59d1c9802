"""`Idempotency-Key`: a request repeated with the same key is executed once.

Implements the IETF draft draft-ietf-httpapi-idempotency-key-header. The response is stored,
encrypted, for 24 hours. The life of a key:

    begin ──> in progress ──> finished (response stored, replayed)
                  ├──> released (refused before any effect: the key is free again)
                  └──> stays in progress (the service crashed)

After a crash it is unknown whether the request was executed, so the key is not freed: repeats get
409 until it expires.
"""

import asyncio
import hashlib
import re
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
import structlog

from outrider.contract.errors import ApiError, ErrorBody, ErrorCode, bad_request
from outrider.service.accounts.encryption import Cipher
from outrider.service.accounts.store import idempotency
from outrider.service.database.engine import DATABASE_ERRORS, Database, is_unavailable
from outrider.service.periodic import run_periodically

KEPT_SECONDS: Final = 86400.0

MAX_KEPT_BYTES: Final = 1024 * 1024
"""Bytes of a response that is stored; a longer one is replaced by an error."""

_KEY: Final = re.compile(r"[\x21-\x7e]{1,255}")
_CIPHER_CONTEXT: Final = "response"
_PRUNE_SECONDS: Final = 600.0
_COMPLETION_TRIES: Final = 60
_COMPLETION_SECONDS: Final = 1.0

T = TypeVar("T")

_log = structlog.get_logger(__name__)


class Answer(NamedTuple):
    """A response: its status and body, and whether it came from the store."""

    status: int
    body: bytes
    replayed: bool = False


_TOO_LONG: Final = Answer(
    500,
    msgspec.json.encode(
        ErrorBody(
            error="The request was executed, but its response was too long to be kept: "
            "read what it has changed"
        )
    ),
)


class Idempotency:
    """Executes requests at most once for each key, and replays their responses.

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
        """Run `work`, or return the stored response of the same request.

        `work` continues if the caller is cancelled, so that its response is stored for a retry.

        Args:
            request: method, path and body; they must be the same under the same key.
            work: returns the response, and whether the request may have had an effect.

        Raises:
            ApiError: 400, the key was used for another request, or is not 1 to 255 visible
                ASCII characters; 409 `IDEMPOTENCY_IN_FLIGHT`, the first is in progress.
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
        execution = self._execute(principal, key, work)
        return await asyncio.shield(self._run(execution, "idempotent request"))

    async def keep_pruning(self) -> None:
        """Delete expired responses periodically, until cancelled."""
        await run_periodically(self.prune, _PRUNE_SECONDS, "prune idempotency keys")

    async def prune(self) -> None:
        """Delete expired keys and responses."""
        await idempotency.prune(self._database, int((self._clock() - KEPT_SECONDS) * 1000))

    async def drain(self, seconds: float) -> None:
        """Wait for requests in progress, at most so many seconds."""
        if self._running:
            await asyncio.wait(self._running, timeout=seconds)

    def _run(self, work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        task = asyncio.create_task(work, name=name)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def _execute(
        self, principal: str, key: str, work: Callable[[], Awaitable[tuple[Answer, bool]]]
    ) -> Answer:
        answer, has_effect = await work()

        async def complete() -> None:
            if has_effect:
                stored = answer if len(answer.body) <= MAX_KEPT_BYTES else _TOO_LONG
                encrypted = self._cipher.encrypt(stored.body, _CIPHER_CONTEXT)
                await idempotency.finish(self._database, principal, key, stored.status, encrypted)
            else:
                await idempotency.release(self._database, principal, key)

        try:
            await complete()
        except DATABASE_ERRORS as error:
            if not is_unavailable(error):
                raise
            # The response is known. Without a retry the key would answer 409 for a day.
            self._run(self._retry_completion(complete), "store an idempotent response")
        return answer

    async def _retry_completion(self, complete: Callable[[], Awaitable[None]]) -> None:
        for _ in range(_COMPLETION_TRIES):
            await asyncio.sleep(_COMPLETION_SECONDS)
            try:
                await complete()
            except DATABASE_ERRORS as error:
                _log.warning("storing an idempotent response failed", error=str(error))
            else:
                return

    def _replay(self, stored: idempotency.KeyedRequest, fingerprint: bytes) -> Answer:
        if stored.fingerprint != fingerprint:
            raise bad_request(
                "This Idempotency-Key was used for another request: use a new key for each"
            )
        if stored.status is None or stored.response is None:
            raise ApiError(
                409,
                "The first request with this Idempotency-Key is in progress, or was interrupted: "
                "repeat the request in a second to get its response",
                code=ErrorCode.IDEMPOTENCY_IN_FLIGHT,
                retry_after=1,
            )
        return Answer(
            stored.status, self._cipher.decrypt(stored.response, _CIPHER_CONTEXT), replayed=True
        )
