"""Passwords: argon2id, with the library's parameters (RFC 9106, low-memory profile).

What may become one is judged by zxcvbn, which knows the common passwords and the ways in which
people vary them ("Password123!"). A plain list has only the exact words, and of the 30,000 most
common ones just a thousand are long enough to matter here.
"""

from typing import Final

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from outrider.contract.errors import OutriderError

SHORTEST: Final = 10
LONGEST: Final = 1000

_JUDGED: Final = 32
"""Characters that are judged: the first ones. What they are worth, all of them are worth, and the
time grows steeply with the length: 4 s for 66 that were chosen for it, half a second for 32."""

_COMMON: Final = 1
"""The scores of zxcvbn (0 to 4) up to which a password is common: found in under 10^6 guesses."""

_hasher = PasswordHasher()

_NOBODY: Final = (
    "$argon2id$v=19$m=65536,t=3,p=4$kZLEY7jnx0rhhzW4vZSVGA"
    "$1EDxXjWEP7xqvtVtZOk6FVXrZgv8ZgVY6c8ZPLlBJr4"
)
"""A hash that no password has, so that an unknown user costs as much as a known one."""


class WeakPassword(OutriderError):
    """A password that is too short, too long, or too easy to guess."""


def hashed(password: str) -> str:
    """Return what is kept of a password."""
    return _hasher.hash(password)


def matches(password_hash: str | None, password: str) -> bool:
    """Return whether it is the password; takes as long where there is none to match."""
    try:
        return _hasher.verify(password_hash or _NOBODY, password)
    except (VerificationError, InvalidHashError):
        return False


def check_new(password: str, email: str = "") -> None:
    """Check a password that is about to be set; takes some milliseconds of computing.

    Args:
        email: whose password it is: variations of it are too easy to guess as well.

    Raises:
        WeakPassword: it must not be one; the text says why.
    """
    if len(password) < SHORTEST:
        raise WeakPassword(f"The password is too short: take at least {SHORTEST} characters")
    if len(password) > LONGEST:
        raise WeakPassword(f"The password is too long: take at most {LONGEST} characters")
    from zxcvbn import zxcvbn  # its lists take 60 ms to load, and most processes never need them

    names = ["outrider", email, *email.split("@")]
    judged = zxcvbn(password[:_JUDGED], user_inputs=[name for name in names if name])
    if judged["score"] <= _COMMON:
        raise WeakPassword(
            "The password is too easy to guess: it is a common one, or close to one. "
            "Take several words, or random characters"
        )
