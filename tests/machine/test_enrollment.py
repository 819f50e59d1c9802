"""Enrollment against a scripted HTTP server."""

import json
import socket
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from outrider import __version__
from outrider.machine.enrollment import EnrollmentError, enroll
from outrider.machine.settings import Connection, DaemonSettings, SettingsError

ENROLLED = {"daemonId": "machine_7", "token": "omt_new", "nickname": "given"}


class Service(HTTPServer):
    """Answers every POST with what a test has put into it, and keeps what it was sent."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status = 200
        self.headers: dict[str, str] = {}
        self.body = json.dumps(ENROLLED).encode()
        self.asked: list[tuple[str, Any]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Service

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.asked.append((self.path, json.loads(data)))
        self.send_response(self.server.status)
        for name, value in self.server.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(self.server.body)))
        self.end_headers()
        self.wfile.write(self.server.body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def service() -> Iterator[Service]:
    with Service() as service:
        thread = threading.Thread(target=service.serve_forever, args=(0.01,))
        thread.start()
        yield service
        service.shutdown()
        thread.join()


@pytest.fixture
def settings(tmp_path: Path) -> DaemonSettings:
    return DaemonSettings(tmp_path / "config")


def test_a_code_becomes_a_connection(service: Service, settings: DaemonSettings) -> None:
    connection = enroll(settings, service.url + "/", " CODE-1 ", nickname="mine")
    assert connection == Connection(
        server=service.url, daemon_id="machine_7", token="omt_new", nickname="given"
    )
    assert settings.load_connection() == connection
    assert service.asked == [
        (
            "/api/v1/auth/enroll",
            {
                "code": "CODE-1",
                "hostname": socket.gethostname(),
                "platform": sys.platform,
                "version": __version__,
                "nickname": "mine",
                "daemonId": None,
            },
        )
    ]


def test_enrolling_again_asks_for_the_same_id(service: Service, settings: DaemonSettings) -> None:
    enroll(settings, service.url, "1")
    enroll(settings, service.url, "2")
    assert service.asked[0][1]["daemonId"] is None
    assert service.asked[1][1]["daemonId"] == "machine_7"


def test_another_service_is_not_told_the_id(service: Service, settings: DaemonSettings) -> None:
    settings.save_connection(
        Connection(server="https://other", daemon_id="machine_1", token="omt_x", nickname="x")
    )
    enroll(settings, service.url, "1")
    assert service.asked[0][1]["daemonId"] is None


@pytest.mark.parametrize(
    ("status", "headers", "body", "sentence"),
    [
        (401, {}, {"error": "This code has expired"}, "This code has expired"),
        (
            429,
            {"Retry-After": "17"},
            {"error": "Too many tries", "code": "RATE_LIMITED"},
            r"Too many tries \(try again in 17 s\)",
        ),
        (404, {}, "<html>", r"is not an Outrider service \(HTTP 404\): check the address"),
        (502, {}, "<html>", r"is in trouble \(HTTP 502\): try again later"),
        (200, {}, "<html>", "is not an Outrider service: check the address"),
        (200, {}, {"daemonId": 5}, "is not an Outrider service: check the address"),
        (
            307,
            {"Location": "https://new.example/api/v1/auth/enroll"},
            "",
            "has moved: give https://new.example as the server instead",
        ),
    ],
)
def test_a_refusal_is_a_sentence_and_changes_nothing(
    service: Service,
    settings: DaemonSettings,
    status: int,
    headers: dict[str, str],
    body: object,
    sentence: str,
) -> None:
    service.status, service.headers = status, headers
    service.body = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    with pytest.raises(EnrollmentError, match=sentence):
        enroll(settings, service.url, "1")
    assert not settings.connection_file.exists()
    assert len(service.asked) == 1


def test_a_service_that_is_not_there_is_a_sentence(
    service: Service, settings: DaemonSettings
) -> None:
    with socket.socket() as taken:  # bound, and does not listen
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(EnrollmentError, match=r"cannot be reached \(.*refused.*\): check"):
            enroll(settings, url, "1")


def test_a_code_is_not_spent_where_it_cannot_be_kept(service: Service, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError, match="cannot be written"):
        enroll(DaemonSettings(tmp_path / "file"), service.url, "1")
    assert service.asked == []
