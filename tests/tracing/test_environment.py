"""Which environments ask for traces, and what is wrong with some. docs/monitoring.md, Traces."""

import subprocess
import sys

import pytest

from outrider.tracing import OFF, TracingError, check, trace_to_environment

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
URL = "http://127.0.0.1:4318"

_OFF = """
import asyncio, sys
import outrider.cli.logs, outrider.cloud.server, outrider.daemon.app
from outrider.tracing import OFF, trace_to_environment

async def main():
    async with trace_to_environment("x") as tracing:
        assert tracing is OFF

asyncio.run(main())
print(*[name for name in sys.modules if name.startswith("opentelemetry")])
"""


def test_without_an_endpoint_nothing_of_opentelemetry_is_imported() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _OFF], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.split() == []


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
    async with trace_to_environment("outrider") as tracing:
        assert tracing is OFF


@pytest.mark.parametrize("name", [ENDPOINT, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"])
def test_traces_are_asked_for(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, URL)
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "otlp")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/protobuf")
    assert check()


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
        check()


async def test_a_value_that_the_exporter_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENDPOINT, URL)
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "10")  # less than a batch
    with pytest.raises(TracingError, match="queue"):
        async with trace_to_environment("outrider"):
            pass


def test_missing_packages_are_named_with_what_installs_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(ENDPOINT, URL)
    monkeypatch.delitem(sys.modules, "outrider.tracing.otel", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(TracingError, match=r"pip install 'outrider\[otel\]'"):
        check()
