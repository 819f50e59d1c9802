"""Which environments ask for traces, and what is wrong with some. docs/monitoring.md, Traces."""

import sys

import pytest
from structlog.testing import capture_logs

from outrider.tracing import OFF, TracingError, is_requested, tracing_from_environment

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
URL = "http://127.0.0.1:4318"


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {ENDPOINT: ""},
        {ENDPOINT: URL, "OTEL_SDK_DISABLED": "True"},
        {ENDPOINT: URL, "OTEL_TRACES_EXPORTER": "none"},
    ],
    ids=str,
)
async def test_no_traces_are_asked_for(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    async with tracing_from_environment("outrider") as tracing:
        assert tracing is OFF


@pytest.mark.parametrize("name", [ENDPOINT, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"])
def test_traces_are_asked_for(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, URL)
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "otlp")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/protobuf")
    assert is_requested()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (ENDPOINT, "127.0.0.1:4318"),
        (ENDPOINT, "http://"),
        (ENDPOINT, "http://[::1"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ("OTEL_TRACES_EXPORTER", "zipkin"),
    ],
)
def test_a_wrong_value_is_named(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENDPOINT, URL)
    monkeypatch.setenv(name, value)
    with pytest.raises(TracingError, match=name):
        is_requested()


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "http/protobuf"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "10", "queue"),  # less than a batch: the exporter refuses it
    ],
)
async def test_what_is_wrong_is_logged_and_nothing_is_traced(
    name: str, value: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ENDPOINT, URL)
    monkeypatch.setenv(name, value)
    with capture_logs() as logs:
        async with tracing_from_environment("outrider") as tracing:
            assert tracing is OFF
    (line,) = logs
    assert line["log_level"] == "warning"
    assert reason in line["reason"]


def test_missing_packages_are_named_with_what_installs_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(ENDPOINT, URL)
    monkeypatch.delitem(sys.modules, "outrider.trace_export", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(TracingError, match="pip install opentelemetry-sdk"):
        is_requested()
