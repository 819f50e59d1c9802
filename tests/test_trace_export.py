"""Spans on their way to a collector, and collectors that do not take them."""

import asyncio
import logging
from collections.abc import AsyncIterator
from functools import partial

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from structlog.testing import capture_logs

from outrider.contract.errors import ApiError
from outrider.tracing import Tracing, add_trace_id, current
from tests.rig.spans import TRACE_ID, Collector, collecting, export_to, exporting
from tests.rig.waiting import TIMEOUT, eventually

CALLER = f"00-{TRACE_ID}-b7ad6b7169203331-01"


@pytest.fixture
async def collector(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Collector]:
    async with collecting() as running:
        export_to(running.url, monkeypatch)
        yield running


@pytest.fixture
async def tracing(collector: Collector) -> AsyncIterator[Tracing]:
    async with exporting("outrider") as made:
        yield made


async def test_a_trace_continues_by_traceparent_and_within_a_task(
    tracing: Tracing, collector: Collector
) -> None:
    with tracing.start("one", "server", CALLER, {"a": 1}):
        with tracing.child("two", "client", {}) as two:
            pass
        await asyncio.create_task(asyncio.sleep(0))
        with tracing.start("three", "consumer", two.traceparent, {}):
            assert current().traceparent != two.traceparent
    spans = await collector.trace(TRACE_ID, "one", "two", "three")
    first, second, third = spans["one"], spans["two"], spans["three"]
    assert (first.kind, first.parent, first.attributes) == ("server", "b7ad6b7169203331", {"a": 1})
    assert (second.kind, second.parent) == ("client", first.id)
    assert (third.kind, third.parent) == ("consumer", second.id)
    assert first.service == "outrider"


@pytest.mark.parametrize("malformed", [None, "", "00-zz", f"00-{'0' * 32}-b7ad6b7169203331-01"])
async def test_a_malformed_traceparent_begins_a_new_trace(
    tracing: Tracing, collector: Collector, malformed: str | None
) -> None:
    with tracing.start("around", "internal", None, {}):
        tracing.start("one", "server", malformed, {}).end()
    await eventually(lambda: len(collector.spans) == 2)
    new, around = sorted(collector.spans, key=lambda span: span.name, reverse=True)
    assert (new.name, new.parent) == ("one", "")
    assert new.trace_id != around.trace_id


@pytest.mark.parametrize(
    ("error", "is_failed", "expected"),
    [
        (ApiError(409, "secret"), False, {"outrider.error.status": 409}),
        (ApiError(504, "secret"), True, {"outrider.error.status": 504, "error.type": "504"}),
        (ValueError("secret"), True, {"error.type": "ValueError"}),
        (asyncio.CancelledError("secret"), True, {"error.type": "cancelled"}),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_an_error_marks_its_span_without_its_text(
    tracing: Tracing,
    collector: Collector,
    error: BaseException,
    is_failed: bool,
    expected: dict[str, str | int],
) -> None:
    with pytest.raises(type(error)), tracing.start("one", "server", None, {}):
        raise error
    await eventually(lambda: len(collector.spans) == 1)
    (span,) = collector.spans
    assert (span.is_failed, span.attributes) == (is_failed, expected)
    assert b"secret" not in collector.bodies[0]


async def test_log_lines_have_the_ids_of_the_current_span(tracing: Tracing) -> None:
    assert add_trace_id(None, "info", {}) == {}
    span = tracing.start("one", "server", CALLER, {})
    with span:
        line = add_trace_id(None, "info", {"event": "machine connected"})
        assert line["trace_id"] == TRACE_ID
        assert span.traceparent == f"00-{TRACE_ID}-{line['span_id']}-01"
        span.end()
        assert add_trace_id(None, "info", {}) == {}  # of tasks that outlive it
    assert add_trace_id(None, "info", {}) == {}


async def test_the_variables_of_the_sdk_are_followed(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-key=abc")
    async with exporting("outrider") as tracing:
        tracing.start("one", "server", None, {}).end()
    assert [span.service for span in collector.spans] == ["mine"]
    assert collector.headers[0]["x-key"] == "abc"


async def test_a_sampler_may_record_nothing(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    async with exporting("outrider") as tracing:
        with tracing.start("one", "server", CALLER, {}) as span:
            assert span.traceparent is not None
            assert span.traceparent.endswith("-00")
            assert add_trace_id(None, "info", {}) == {}
    assert collector.spans == []


def _has_more(collector: Collector, than: int) -> bool:
    return len(collector.bodies) > than


async def test_a_collector_that_refuses_is_logged_once(
    tracing: Tracing, collector: Collector
) -> None:
    async def refuse() -> int:
        return 400

    async def accept() -> int:
        return 200

    collector.answers(refuse)
    with capture_logs() as logs:
        for _ in range(3):
            before = len(collector.bodies)
            tracing.start("one", "server", None, {}).end()
            await eventually(partial(_has_more, collector, before))
        collector.answers(accept)
        tracing.start("last", "server", None, {}).end()
        await eventually(lambda: bool(logs) and logs[-1]["event"] == "span export resumed")
    assert [line["event"] for line in logs] == [
        "span export failed, spans are lost meanwhile",
        "span export resumed",
    ]
    assert "400" in logs[0]["reason"]


class Records(logging.Handler):
    """Keeps the messages that it gets."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


def test_messages_that_the_library_repeats_are_not_logged() -> None:
    handler = Records()
    logging.getLogger().addHandler(handler)
    try:
        logging.getLogger(OTLPSpanExporter.__module__).error("Failed to export")
        assert handler.messages == []
        logging.getLogger("opentelemetry.sdk.trace.sampling").warning("A wrong setting")
        assert handler.messages == ["A wrong setting"]
    finally:
        logging.getLogger().removeHandler(handler)


async def test_a_collector_that_never_answers_does_not_hold_the_end(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    released = asyncio.Event()

    async def hang() -> int:
        await released.wait()
        return 200

    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1000")
    collector.answers(hang)
    with capture_logs() as logs:
        async with asyncio.timeout(TIMEOUT), exporting("outrider", flush_seconds=0.1) as tracing:
            tracing.start("one", "server", None, {}).end()
            await eventually(lambda: len(collector.bodies) == 1)
    assert [line["event"] for line in logs] == ["last spans not exported in time"]
    released.set()
