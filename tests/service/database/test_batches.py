"""Questions that come together are asked together, and one that fails is alone with that."""

import asyncio

import pytest
from sqlalchemy.exc import IntegrityError

from outrider.service.database.batches import Batches
from tests.rig.patience import eventually

pytestmark = pytest.mark.asyncio(loop_scope="session")


class Oracle:
    """Answers numbers with their doubles; 13 fits no database, 7 breaks it."""

    def __init__(self) -> None:
        self.asked: list[list[int]] = []
        self.go = asyncio.Event()
        self.go.set()

    async def __call__(self, numbers: list[int]) -> list[int]:
        self.asked.append(numbers)
        await self.go.wait()
        if 13 in numbers:
            raise IntegrityError("", {}, ValueError())
        if 7 in numbers:
            raise ConnectionError
        return [2 * number for number in numbers]


async def test_one_alone_is_asked_at_once() -> None:
    oracle = Oracle()
    assert await Batches(oracle).execute(1) == 2
    assert oracle.asked == [[1]]


async def test_those_that_come_meanwhile_are_asked_together() -> None:
    oracle = Oracle()
    batches = Batches(oracle)
    oracle.go.clear()
    first = asyncio.create_task(batches.execute(1))
    await eventually(lambda: bool(oracle.asked))
    others = [asyncio.create_task(batches.execute(number)) for number in range(100, 348)]
    await asyncio.sleep(0)
    oracle.go.set()
    assert await first == 2
    assert await asyncio.gather(*others) == [2 * number for number in range(100, 348)]
    assert [len(numbers) for numbers in oracle.asked] == [1, 200, 48]


async def test_one_that_does_not_fit_fails_alone() -> None:
    batches = Batches(Oracle())
    answers = await asyncio.gather(*map(batches.execute, [1, 13, 2]), return_exceptions=True)
    assert answers[::2] == [2, 4]
    assert isinstance(answers[1], IntegrityError)


async def test_a_database_that_is_away_fails_all_and_is_asked_once() -> None:
    oracle = Oracle()
    answers = await asyncio.gather(*map(Batches(oracle).execute, [1, 7, 2]), return_exceptions=True)
    assert all(isinstance(answer, ConnectionError) for answer in answers)
    assert oracle.asked == [[1, 7, 2]]


async def test_who_has_gone_is_not_asked_for() -> None:
    oracle = Oracle()
    batches = Batches(oracle)
    gone = asyncio.create_task(batches.execute(1))
    stays = asyncio.create_task(batches.execute(2))
    await asyncio.sleep(0)
    gone.cancel()
    assert await stays == 4
    assert oracle.asked == [[2]]


async def test_its_end_is_the_end_of_who_waits() -> None:
    oracle = Oracle()
    batches = Batches(oracle)
    oracle.go.clear()
    waiting = [asyncio.create_task(batches.execute(number)) for number in range(100, 400)]
    await eventually(lambda: bool(oracle.asked))
    await batches.close()
    ended = await asyncio.gather(*waiting, return_exceptions=True)
    assert all(isinstance(end, asyncio.CancelledError) for end in ended)
