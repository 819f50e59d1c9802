"""Attacks on a running service, with its memory watched; `make test-security` runs them."""
