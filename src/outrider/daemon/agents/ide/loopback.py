"""Asks programs on this machine, directly: whatever proxy is set."""

import json
import socket
import urllib.request
from typing import Any, Final

_ANSWERS_WITHIN: Final = 1.0

_direct: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def free_port() -> int:
    """Return a port on which nothing listens now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def answers(url: str) -> bool:
    """Tell whether something answers there, within a second."""
    try:
        with _direct.open(url, timeout=_ANSWERS_WITHIN) as answer:
            return bool(answer.status < 400)
    except OSError:
        return False


def fetch(url: str) -> Any:
    """Return the JSON that is there, None where there is none."""
    try:
        with _direct.open(url, timeout=_ANSWERS_WITHIN) as answer:
            return json.load(answer)
    except (OSError, ValueError):
        return None
