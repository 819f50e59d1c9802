"""Fixtures: a service with a machine."""

from tests.sdk.conftest import client, machine, repository, workplace  # noqa: F401
