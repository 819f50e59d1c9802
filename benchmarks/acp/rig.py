"""Scripted agents on a machine of their own: the real service, the real daemon, all over REST."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import httpx

from benchmarks.processes import REPOSITORY, BenchmarkError, Stage
from benchmarks.service import Installation

AGENT: Final = REPOSITORY / "tests/daemon/agents/acp/scripted_agent.py"

_EMAIL: Final = "acp@outrider.invalid"
_KIND: Final = "scripted"
_TURN_SECONDS: Final = 60.0


class Rig:
    """The service, and a machine that knows the scripted agent. Made by `rig`."""

    def __init__(self, here: Stage) -> None:
        home, config = here.directory / "home", here.directory / "config"
        self._project = here.directory / "project"
        for folder in (home, config / "providers", self._project):
            folder.mkdir(parents=True)
        (config / "providers" / f"{_KIND}.toml").write_text(
            f'type = "{_KIND}"\ncategory = "acp"\ndisplay_name = "Scripted"\n'
            f"command = ['{sys.executable}', '{AGENT}']\ninstall = \"-\"\n"
        )
        settings = {
            "HOME": str(home),
            "OUTRIDER_CONFIG_DIR": str(config),
            "OUTRIDER_LOG_LEVEL": "warning",
        }
        installation = Installation(here, "service")
        self._server = installation.serve(installation.new_key(_EMAIL))
        code = installation.new_code(_EMAIL)
        setup = ["-m", "outrider", "setup", "--server", self._server.url, "--code", code]
        here.start("setup", setup, settings).wait_for_success()
        self.daemon = here.start("daemon", ["-m", "outrider", "daemon"], settings)
        self._client = httpx.Client(
            base_url=f"{self._server.url}/api/v1",
            headers=self._server.headers,
            timeout=120,
            trust_env=False,
        )
        self._machine = ""
        self.daemon.wait_until(self._is_connected, "connected")

    def launch(self) -> "Agent":
        """Launch an agent."""
        body = {"type": _KIND, "dir": str(self._project)}
        launched = self.post(f"/shortcuts/{self._machine}/launch", body)
        return Agent(self, launched["sessionTargetId"], launched["sessionId"])

    def stop(self, session: str) -> None:
        """Stop an agent."""
        body = {"type": _KIND, "sessionId": session}
        self.post(f"/shortcuts/{self._machine}/stop", body)

    def get(self, path: str) -> Any:
        """Return what a GET answers."""
        return self._client.get(path).raise_for_status().json()

    def post(self, path: str, body: dict[str, str]) -> Any:
        """Return what a POST answers.

        Raises:
            BenchmarkError: it was refused.
        """
        answer = self._client.post(path, json=body)
        if answer.is_error:
            raise BenchmarkError(f"POST {path}: {answer.text[:1000]}")
        return answer.json()

    def _is_connected(self) -> bool:
        """Tell whether the machine is there, and a command reaches it."""
        daemons = self.get("/daemons")["daemons"]
        if not daemons:
            return False
        self._machine = daemons[0]["id"]
        path = f"/daemons/{self._machine}/terminal"
        return self._client.post(path, json={"command": "true"}).is_success

    def end(self) -> None:
        """Close what is open here; the programs end with their stage."""
        self._client.close()


class Agent:
    """A launched agent, driven over REST."""

    def __init__(self, rig: Rig, target: str, session: str) -> None:
        self._rig = rig
        self._path = f"/shortcuts/{target}"
        self._session = session

    def say(self, text: str) -> None:
        """Send a message."""
        self._rig.post(f"{self._path}/chat", {"message": text})

    def status(self) -> dict[str, Any]:
        """Return its status now."""
        status: dict[str, Any] = self._rig.get(f"{self._path}/status")
        return status

    def newest(self) -> str:
        """Return the newest message's text."""
        messages = self._rig.get(f"{self._path}/chat?limit=1")["messages"]
        text: str = messages[-1]["content"] if messages else ""
        return text

    def wait(self) -> float:
        """Wait for the end of its turn; return when it was seen (epoch seconds).

        Raises:
            BenchmarkError: it did not end within a minute, or failed.
        """
        deadline = time.time() + _TURN_SECONDS
        while (status := self.status()["status"]) == "generating":
            if time.time() > deadline:
                raise BenchmarkError(f"a turn has not ended within {_TURN_SECONDS:g} s")
        if status != "idle":
            raise BenchmarkError(f"a turn has ended in {status}")
        return time.time()

    def stop(self) -> None:
        """Stop it."""
        self._rig.stop(self._session)


@contextmanager
def rig(here: Stage) -> Iterator[Rig]:
    """Give a rig for the length of a block."""
    made = Rig(here)
    try:
        yield made
    finally:
        made.end()
