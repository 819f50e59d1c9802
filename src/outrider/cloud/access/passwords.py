"""Passwords: argon2id, with the library's parameters (RFC 9106, low-memory profile)."""

from argon2 import PasswordHasher

_hasher = PasswordHasher()


def hashed(password: str) -> str:
    """Return what is kept of a password."""
    return _hasher.hash(password)
