"""Fixtures: what delivers webhooks, and what receives them."""

from tests.cloud.webhooks.conftest import database_url, office, receiver  # noqa: F401  # fixtures
