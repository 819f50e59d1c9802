"""The form of the secrets that the service hands out."""

import math
from collections.abc import Callable

import pytest

from outrider.service.accounts import credentials


def test_a_typed_key_is_checked_without_a_look_up() -> None:
    """ork_, 32 base62 characters, 6 of CRC32: any one wrong character is seen."""
    key = credentials.new_key()
    assert len(key) == len("ork_") + 32 + 6
    assert credentials.is_key(key)
    for place in range(len("ork_"), len(key)):
        for letter in "0aZ":
            if key[place] != letter:
                assert not credentials.is_key(key[:place] + letter + key[place + 1 :])
    assert not credentials.is_key(key + "0")
    assert not credentials.is_key(key[:-1])


@pytest.mark.parametrize(
    ("make", "bits"),
    [
        (credentials.new_key, 190),
        (credentials.new_machine_token, 256),
        (credentials.new_token, 256),
        (credentials.new_code, 57),
        (credentials.new_user_code, 38),
    ],
)
def test_the_random_bits_of_each(make: Callable[[], str], bits: int) -> None:
    """SECURITY.md: as many as its letters have, each of which varies over its whole alphabet."""
    made = [make() for _ in range(2000)]
    alphabets = [set(letters) for letters in zip(*made, strict=True)]
    if make is credentials.new_key:
        alphabets = alphabets[:-6]  # the checksum
    assert int(sum(math.log2(len(alphabet)) for alphabet in alphabets)) == bits
