"""Observes an agent: its status over REST, and a dialog on its screen, each with its time."""

import json
import re
import subprocess
import threading
import time
from collections.abc import Mapping
from http.client import HTTPConnection
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from benchmarks.agents.rig import Rig

INTERVAL: Final = 0.02
"""Seconds between two samples; the issue asks for 0.1, these are as many again and more."""


class Sample(NamedTuple):
    """A status, and the seconds since the epoch between which it was given."""

    asked: float
    answered: float
    status: str


class Sampler:
    """Polls an agent's status, in a thread of its own."""

    def __init__(self, rig: Rig) -> None:
        self._url = urlsplit(rig.server.url)
        self._path = f"/api/v1/shortcuts/{rig.agent.target}/status"
        self._headers = rig.server.headers
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)
        self.samples: list[Sample] = []
        self.failure: Exception | None = None

    def __enter__(self) -> "Sampler":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join(10)

    def first(self, status: str, after: float, seconds: float = 60) -> Sample | None:
        """Wait for the first sample of this status asked for behind a time; None without one."""
        deadline = time.time() + seconds
        position = 0
        while time.time() < deadline and self.failure is None:
            while position < len(self.samples):
                sample = self.samples[position]
                if sample.status == status and sample.asked >= after:
                    return sample
                position += 1
            time.sleep(INTERVAL / 2)
        return None

    def between(self, begin: float, end: float) -> list[Sample]:
        """Return the samples that were asked for and answered within these times."""
        return [s for s in self.samples if s.asked >= begin and s.answered <= end]

    def _run(self) -> None:
        connection = HTTPConnection(self._url.hostname or "", self._url.port, timeout=30)
        try:
            while not self._ending.wait(INTERVAL):
                asked = time.time()
                connection.request("GET", self._path, headers=self._headers)
                body = connection.getresponse().read()
                status = json.loads(body).get("status") or body.decode()
                self.samples.append(Sample(asked, time.time(), status))
        except Exception as error:  # noqa: BLE001  # who waits for a sample reports it
            self.failure = error
        finally:
            connection.close()


class Screen:
    """Watches an agent's screen for a pattern, in a thread of its own.

    `seen` is when it first was there, None before.
    """

    def __init__(self, rig: Rig, pattern: str, environment: Mapping[str, str]) -> None:
        target = f"=outrider:={rig.agent.session}"
        self._command = ["tmux", "-L", rig.machine.tmux_socket, "capture-pane", "-p", "-t", target]
        self._pattern = re.compile(pattern)
        self._environment = environment
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="screen", daemon=True)
        self.seen: float | None = None

    def __enter__(self) -> "Screen":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join(10)

    def _run(self) -> None:
        while not self._ending.wait(INTERVAL):
            shown = subprocess.run(
                self._command, check=False, capture_output=True, text=True, env=self._environment
            ).stdout
            if self._pattern.search(shown.rstrip()):
                self.seen = time.time()
                return
