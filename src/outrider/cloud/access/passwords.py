"""Passwords: argon2id, with the library's parameters (RFC 9106, low-memory profile)."""

from typing import Final

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

_hasher = PasswordHasher()

_NOBODY: Final = (
    "$argon2id$v=19$m=65536,t=3,p=4$kZLEY7jnx0rhhzW4vZSVGA"
    "$1EDxXjWEP7xqvtVtZOk6FVXrZgv8ZgVY6c8ZPLlBJr4"
)
"""A hash that no password has, so that an unknown user costs as much as a known one."""


def hashed(password: str) -> str:
    """Return what is kept of a password."""
    return _hasher.hash(password)


def matches(password_hash: str | None, password: str) -> bool:
    """Tell whether it is the password; takes as long where there is none to match."""
    try:
        return _hasher.verify(password_hash or _NOBODY, password)
    except (VerificationError, InvalidHashError):
        return False
