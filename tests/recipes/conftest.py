"""Fixtures: a service with a machine."""

from tests.sdk.conftest import client, machine, workplace  # noqa: F401
