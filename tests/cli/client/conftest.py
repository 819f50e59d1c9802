"""Fixtures: a service with a machine, and the environment of a person who uses it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.rig.command_line import CommandLine
from tests.rig.processes import environment
from tests.sdk.conftest import (  # noqa: F401  # fixtures
    Workplace,
    agent,
    client,
    machine,
    repository,
    workplace,
)


@pytest.fixture
def env(tmp_path: Path, workplace: Workplace) -> dict[str, str]:  # noqa: F811
    """An environment with the address and the key of the service."""
    (tmp_path / "data").mkdir()
    person = environment(tmp_path / "data")
    return person | {"OUTRIDER_URL": workplace.site.url, "OUTRIDER_API_KEY": workplace.key}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def command() -> AsyncIterator[CommandLine]:
    """`outrider`, whose commands run in commands process."""
    async with CommandLine() as commands:
        yield commands
