"""Generates and checks API keys, tokens and codes; computes the digests that are stored.

Long-lived secrets have at least 128 random bits, so an unsalted SHA-256 cannot be reversed.
"""

import hashlib
import secrets
import string
import zlib
from typing import Final

KEY_PREFIX: Final = "ork_"
MACHINE_PREFIX: Final = "omt_"

_BASE62: Final = string.digits + string.ascii_uppercase + string.ascii_lowercase
_RANDOM: Final = 32
_CHECKSUM: Final = 6
_CODE_ALPHABET: Final = "BCDFGHJKLMNPQRSTVWXZ23456789"  # no vowels, no lookalikes


def digest(secret: str) -> bytes:
    """Return the SHA-256 of a secret; the secret itself is never stored."""
    return hashlib.sha256(secret.encode()).digest()


def new_key() -> str:
    """Return a new API key."""
    body = _random(_RANDOM)
    return KEY_PREFIX + body + _checksum(body)


def is_key(text: str) -> bool:
    """Return whether `text` has the form and checksum of an API key."""
    body, checksum = text[len(KEY_PREFIX) : -_CHECKSUM], text[-_CHECKSUM:]
    return (
        text.startswith(KEY_PREFIX)
        and len(text) == len(KEY_PREFIX) + _RANDOM + _CHECKSUM
        and text.isascii()
        and text[len(KEY_PREFIX) :].isalnum()
        and _checksum(body) == checksum
    )


def new_machine_token() -> str:
    """Return a new connection token for a machine."""
    return MACHINE_PREFIX + _random(43)


def new_code() -> str:
    """Return a new one-time code such as `BCDF-GHJK-LMNP`: 57 random bits."""
    letters = "".join(secrets.choice(_CODE_ALPHABET) for _ in range(12))
    return "-".join(letters[i : i + 4] for i in range(0, 12, 4))


def new_user_code() -> str:
    """Return a new user code such as `BCDF-GHJK`; short, so use it on rate-limited routes only."""
    letters = "".join(secrets.choice(_CODE_ALPHABET) for _ in range(8))
    return f"{letters[:4]}-{letters[4:]}"


def new_token() -> str:
    """Return a new device code, or a token for a one-time link."""
    return _random(43)


def canonical_code(text: str) -> str:
    """Return a one-time code in canonical form: upper case, grouped by four, nothing else."""
    letters = "".join(letter for letter in text.upper() if letter.isalnum())
    return "-".join(letters[i : i + 4] for i in range(0, len(letters), 4))


def _random(length: int) -> str:
    return "".join(secrets.choice(_BASE62) for _ in range(length))


def _checksum(body: str) -> str:
    number, letters = zlib.crc32(body.encode()), []
    for _ in range(_CHECKSUM):
        number, digit = divmod(number, 62)
        letters.append(_BASE62[digit])
    return "".join(reversed(letters))
