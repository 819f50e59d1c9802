"""Importing the client is cheap: it loads nothing of the service or of the machine agent."""

import subprocess
import sys

HEAVY = (
    "outrider.service",
    "outrider.machine",
    "outrider.cli",
    "outrider.demo",
    "aiohttp",
    "cryptography",
    "mcp",
    "pydantic",
    "rich",
    "sqlalchemy",
    "starlette",
    "structlog",
    "typer",
    "typeid",
    "uuid_utils",
    "uvicorn",
)

PROGRAM = f"""
import sys
import outrider.sdk
loaded = sorted(name for name in {HEAVY!r} if name in sys.modules)
print(*loaded)
"""


def test_importing_the_client_loads_nothing_of_the_service() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []
