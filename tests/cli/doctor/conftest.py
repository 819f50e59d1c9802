"""Fixtures: a service with a machine."""

from tests.cli.client.conftest import agent, client, env, machine, workplace  # noqa: F401
