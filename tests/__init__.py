"""The tests. They run against the working tree, so the synchronous client must be its own."""

from scripts.generate_sync_client import generate

generate()
