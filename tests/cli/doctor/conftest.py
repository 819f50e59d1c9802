"""Fixtures: a service with a machine."""

from tests.cli.client.conftest import command, env  # noqa: F401
from tests.sdk.conftest import workplace  # noqa: F401
