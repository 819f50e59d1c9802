"""Gathers what is asked of the database at about the same time, and asks it once.

One question alone does not wait. While one batch is under way the next one gathers, so that a
crowd of machines costs little more than a few.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

from sqlalchemy.exc import DataError, IntegrityError

_AT_ONCE: Final = 200

Question = TypeVar("Question")
Answer = TypeVar("Answer")


class Batches(Generic[Question, Answer]):
    """Asks questions together.

    Args:
        ask_all: answers questions, in their order. Where it fails, all of them do; but where one
            does not fit the database, each is asked apart.
    """

    def __init__(self, ask_all: Callable[[list[Question]], Awaitable[list[Answer]]]) -> None:
        self._ask_all = ask_all
        self._waiting: deque[tuple[Question, asyncio.Future[Answer]]] = deque()
        self._task: asyncio.Task[None] | None = None

    async def ask(self, question: Question) -> Answer:
        """Return the answer to a question; raises what `ask_all` raises."""
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((question, future))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name="ask together")
        return await future

    async def close(self) -> None:
        """Ask no more; waiting callers are cancelled."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
        for _, future in self._waiting:
            future.cancel()
        self._waiting.clear()

    async def _run(self) -> None:
        while self._waiting:
            some = [self._waiting.popleft() for _ in range(min(_AT_ONCE, len(self._waiting)))]
            wanted = [(question, future) for question, future in some if not future.done()]
            try:
                await self._answer(wanted)
            finally:
                for _, future in wanted:
                    future.cancel()  # where it was not answered: this task is cancelled

    async def _answer(self, wanted: list[tuple[Question, asyncio.Future[Answer]]]) -> None:
        try:
            answers = await self._ask_all([question for question, _ in wanted])
        except (IntegrityError, DataError) as error:
            if len(wanted) > 1:
                for one in wanted:
                    await self._answer([one])
            else:
                _fail(wanted, error)
        except Exception as error:  # noqa: BLE001  # it is those who asked that it is raised to
            _fail(wanted, error)
        else:
            for (_, future), answer in zip(wanted, answers, strict=True):
                if not future.done():
                    future.set_result(answer)


def _fail(
    wanted: list[tuple[Question, asyncio.Future[Answer]]],
    error: Exception,
) -> None:
    for _, future in wanted:
        if not future.done():
            future.set_exception(error)
