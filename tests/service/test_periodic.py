"""The write-behind buffer: nothing is lost by a failure, and its memory is bounded."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from outrider.service.periodic import WriteBehind
from tests.rig.waiting import TIMEOUT

pytestmark = pytest.mark.asyncio


class Store:
    """What a buffer stores in; it fails or hangs as the test says."""

    def __init__(self) -> None:
        self.batches: list[dict[str, int]] = []
        self.failure: Exception | None = None
        self.is_open = asyncio.Event()
        self.is_open.set()
        self.entered = asyncio.Event()

    async def __call__(self, values: dict[str, int]) -> None:
        self.entered.set()
        await self.is_open.wait()
        if self.failure is not None:
            raise self.failure
        self.batches.append(dict(values))


async def test_the_newest_value_of_a_key_is_stored_once() -> None:
    store = Store()
    buffer = WriteBehind(store, "test")
    for key, value in [("a", 1), ("b", 2), ("a", 3)]:
        buffer.put(key, value)
    assert buffer.get("a") == 3
    assert await buffer.flush() == {"a": 3, "b": 2}
    assert buffer.get("a") is None
    assert await buffer.flush() == {}
    assert store.batches == [{"a": 3, "b": 2}]


async def test_what_could_not_be_stored_is_stored_later_in_its_order() -> None:
    store = Store()
    store.failure = OSError("disk full")
    buffer = WriteBehind(store, "test")
    buffer.put("a", 1)
    buffer.put("b", 2)
    with pytest.raises(OSError, match="disk full"):
        await buffer.flush()
    store.failure = None
    buffer.put("c", 3)
    await buffer.flush()
    assert list(store.batches[0]) == ["a", "b", "c"]


async def test_a_value_that_comes_during_a_flush_that_is_cancelled_wins() -> None:
    store = Store()
    store.is_open.clear()
    buffer = WriteBehind(store, "test")
    buffer.put("a", 1)
    buffer.put("b", 2)
    flushing = asyncio.create_task(buffer.flush())
    async with asyncio.timeout(TIMEOUT):
        await store.entered.wait()
    buffer.put("a", 9)
    flushing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await flushing
    store.is_open.set()
    assert await buffer.flush() == {"a": 9, "b": 2}


async def test_a_flush_waits_for_one_that_has_begun() -> None:
    """Who reads what is stored after a flush finds what an earlier flush is still storing."""
    store = Store()
    store.is_open.clear()
    buffer = WriteBehind(store, "test")
    buffer.put("a", 1)
    first = asyncio.create_task(buffer.flush())
    async with asyncio.timeout(TIMEOUT):
        await store.entered.wait()
    second = asyncio.create_task(buffer.flush())
    _, pending = await asyncio.wait({second}, timeout=0)
    assert pending == {second}
    store.is_open.set()
    async with asyncio.timeout(TIMEOUT):
        assert await second == {}
        assert store.batches == [{"a": 1}]
        assert await first == {"a": 1}


async def test_what_is_too_much_is_dropped_and_logged_once() -> None:
    store = Store()
    store.failure = OSError("disk full")
    buffer = WriteBehind(store, "test", maximum=2)
    for key in ("a", "b", "c", "d"):
        buffer.put(key, 1)
    buffer.put("a", 2)
    assert len(buffer) == 2
    with capture_logs() as logs, pytest.raises(OSError, match="disk full"):
        await buffer.flush()
    assert logs == [
        {
            "event": "values dropped, buffer full",
            "log_level": "error",
            "buffer": "test",
            "count": 2,
        }
    ]
    store.failure = None
    assert await buffer.flush() == {"a": 2, "b": 1}


@given(
    st.lists(
        st.one_of(
            st.tuples(st.sampled_from("abcde"), st.integers()),
            st.sampled_from(["flush", "fail"]),
        )
    )
)
async def test_the_last_value_of_every_key_is_stored(
    steps: list[tuple[str, int] | str],
) -> None:
    stored: dict[str, int] = {}
    fails = False

    async def store(values: dict[str, int]) -> None:
        if fails:
            raise OSError("unavailable")
        stored.update(values)

    buffer = WriteBehind(store, "test")
    expected: dict[str, int] = {}
    for step in steps:
        if isinstance(step, tuple):
            buffer.put(*step)
            expected[step[0]] = step[1]
        elif step == "fail" and len(buffer):
            fails = True
            with pytest.raises(OSError, match="unavailable"):
                await buffer.flush()
            fails = False
        else:
            await buffer.flush()
    await buffer.flush()
    assert stored == expected
