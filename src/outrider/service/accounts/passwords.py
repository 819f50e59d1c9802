"""Passwords: argon2id, with the library's parameters (RFC 9106, low-memory profile).

zxcvbn rates new passwords: it knows common passwords and how people vary them ("Password123!"). A
plain list matches exact words only, and of the 30,000 most common passwords just a thousand reach
our minimum length.
"""

from typing import Final

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from outrider.contract.errors import OutriderError

SHORTEST: Final = 10
LONGEST: Final = 1000

_RATED_LENGTH: Final = 32
"""How many leading characters zxcvbn rates. A longer password is at least as strong, and zxcvbn's
worst-case time grows steeply with the length: 0.5 s for 32 characters, 4 s for 66."""

_WEAK_SCORE: Final = 1
"""The highest zxcvbn score (0 to 4) that is refused: guessed in under 10^6 tries."""

HASHER: Final = PasswordHasher()
"""The hasher of every service; tests that are not about the hash itself inject a cheaper one."""

_DUMMY_DIGEST: Final = "kZLEY7jnx0rhhzW4vZSVGA$1EDxXjWEP7xqvtVtZOk6FVXrZgv8ZgVY6c8ZPLlBJr4"
"""Salt and hash of no password; see `_dummy_hash`."""


class WeakPassword(OutriderError):
    """A password that is too short, too long, or too easy to guess."""


def hashed(password: str, hasher: PasswordHasher = HASHER) -> str:
    """Return the argon2id hash of a password; takes 64 MB and a core for a moment."""
    return hasher.hash(password)


def matches(password_hash: str | None, password: str, hasher: PasswordHasher = HASHER) -> bool:
    """Return whether the password matches; takes as long if `password_hash` is None."""
    try:
        return hasher.verify(password_hash or _dummy_hash(hasher), password)
    except (VerificationError, InvalidHashError):
        return False


def check_new(password: str, email: str = "") -> None:
    """Check a new password; takes milliseconds of processor time, at worst half a second.

    Args:
        email: the user's email; passwords similar to it are refused.

    Raises:
        WeakPassword: the password is not acceptable; the text says why.
    """
    if len(password) < SHORTEST:
        raise WeakPassword(f"The password is too short: take at least {SHORTEST} characters")
    if len(password) > LONGEST:
        raise WeakPassword(f"The password is too long: take at most {LONGEST} characters")
    from zxcvbn import zxcvbn  # its lists take 60 ms to load and are rarely needed

    names = ["outrider", email, *email.split("@")]
    rating = zxcvbn(password[:_RATED_LENGTH], user_inputs=[name for name in names if name])
    if rating["score"] <= _WEAK_SCORE:
        raise WeakPassword(
            "The password is too easy to guess: it is a common one, or close to one. "
            "Take several words, or random characters"
        )


def _dummy_hash(hasher: PasswordHasher) -> str:
    """Return a hash that matches no password and takes as long to verify as the hasher's own.

    Verifying it makes unknown users take as long as known ones.
    """
    cost = f"m={hasher.memory_cost},t={hasher.time_cost},p={hasher.parallelism}"
    return f"$argon2id$v=19${cost}${_DUMMY_DIGEST}"
