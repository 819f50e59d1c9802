"""A package index on loopback, and a service with a machine."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.cli.client.conftest import env  # noqa: F401
from tests.rig.waiting import TIMEOUT
from tests.sdk.conftest import workplace  # noqa: F401

JSON = "application/vnd.pypi.simple.v1+json"


class Index:
    """A package index: a server of one page.

    Attributes:
        requested: the paths that were requested, with the headers of each.
        is_endless: whether the page goes on until `ended` is set.
    """

    def __init__(self) -> None:
        self.status, self.kind, self.page = 200, JSON, b'{"files": []}'
        self.is_endless, self.ended = False, threading.Event()
        self.requested: list[tuple[str, dict[str, str]]] = []
        index = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                index.requested.append((self.path, dict(self.headers)))
                self.send_response(index.status)
                self.send_header("Content-Type", index.kind)
                self.end_headers()
                self.wfile.write(index.page)
                while index.is_endless and not index.ended.wait(0.02):
                    self.wfile.write(b" ")

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/simple"

    def has(self, *files: str) -> None:
        """List these files, as PEP 691 does."""
        entries = ", ".join(f'{{"filename": "{name}", "url": "x"}}' for name in files)
        self.page = f'{{"meta": {{"api-version": "1.1"}}, "files": [{entries}]}}'.encode()

    def releases(self, *versions: str) -> None:
        """List a wheel of each version."""
        self.has(*(f"outrider-{version}-py3-none-any.whl" for version in versions))


@pytest.fixture
def index() -> Iterator[Index]:
    """An index without files."""
    index = Index()
    serving = threading.Thread(target=index.server.serve_forever, args=(0.05,))
    serving.start()
    yield index
    index.ended.set()
    index.server.shutdown()
    index.server.server_close()
    serving.join(TIMEOUT)
