"""The form of the secrets that the service hands out. Holds contract.md, "Authentication"."""

from outrider.cloud.access import secrets


def test_a_typed_key_is_checked_without_a_look_up() -> None:
    """contract.md: ork_, 32 base62 characters, 6 of CRC32: any one wrong character is seen."""
    key = secrets.new_key()
    assert len(key) == len("ork_") + 32 + 6
    assert secrets.is_key(key)
    for place in range(len("ork_"), len(key)):
        for letter in "0aZ":
            if key[place] != letter:
                assert not secrets.is_key(key[:place] + letter + key[place + 1 :])
    assert not secrets.is_key(key + "0")
    assert not secrets.is_key(key[:-1])
