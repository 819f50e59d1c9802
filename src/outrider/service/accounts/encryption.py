"""The installation's secret key, the keys derived from it, and encryption at rest.

Data is encrypted with AES-256-GCM, preceded by a random nonce (NIST SP 800-38D). Keys are derived
with HKDF-SHA256 (RFC 5869), one for each purpose.

The library is imported when it is used: it takes 8 MB, and an idle service encrypts nothing.
"""

import os
import secrets
import shlex
import stat
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from outrider.contract.errors import OutriderError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_NONCE_BYTES = 12
_MIN_LENGTH = 16
_GROUP_AND_OTHERS = 0o077


class SecretKeyError(OutriderError):
    """The secret key cannot be read, or does not decrypt the stored data."""


class Cipher:
    """Encrypts data so that only this installation can read it."""

    def __init__(self, secret_key: str) -> None:
        self._secret_key = secret_key

    def encrypt(self, data: bytes, context: str) -> bytes:
        """Return the data encrypted; `context` names its use and must be the same to decrypt it."""
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + self._aead.encrypt(nonce, data, context.encode())

    def decrypt(self, encrypted: bytes, context: str) -> bytes:
        """Return the decrypted data.

        Raises:
            SecretKeyError: it was encrypted with another key or context, or was modified.
        """
        from cryptography.exceptions import InvalidTag

        try:
            return self._aead.decrypt(
                encrypted[:_NONCE_BYTES], encrypted[_NONCE_BYTES:], context.encode()
            )
        except InvalidTag as error:
            raise SecretKeyError(
                f"A stored {context} cannot be decrypted: OUTRIDER_SECRET_KEY has changed"
            ) from error

    @cached_property
    def _aead(self) -> "AESGCM":
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        return AESGCM(derived(self._secret_key, "sealing"))


def derived(secret_key: str, purpose: str) -> bytes:
    """Return the 32-byte key for a purpose."""
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return HKDF(
        algorithm=SHA256(), length=32, salt=None, info=f"outrider {purpose}".encode()
    ).derive(secret_key.encode())


def key_file(data_dir: Path) -> Path:
    """Return the path of the secret key that the first start generates."""
    return data_dir / "secret.key"


def secret_key(chosen: str | None, data_dir: Path) -> str:
    """Return the operator's key, or the one that the first start generated.

    Raises:
        SecretKeyError: the key is too short, its file cannot be read or written, or other users
            of this machine can read the file.
    """
    if chosen is not None:
        if len(chosen) < _MIN_LENGTH:
            raise SecretKeyError(
                f"OUTRIDER_SECRET_KEY is too short: give it {_MIN_LENGTH} characters or more"
            )
        return chosen
    path = key_file(data_dir)
    try:
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            # O_EXCL: of services that start together, one creates the key and the others read it.
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            stored = path.read_text().strip()
            if len(stored) < _MIN_LENGTH:  # for example after an interrupted write: guessable
                raise SecretKeyError(
                    f"The secret key {path} is damaged: restore it, or remove it to get a new one"
                ) from None
            _refuse_other_readers(path)
            return stored
        generated = secrets.token_urlsafe(48)
        with os.fdopen(handle, "w") as file:
            file.write(generated + "\n")
    except OSError as error:
        raise SecretKeyError(f"The secret key {path} cannot be used: {error.strerror}") from error
    return generated


def _refuse_other_readers(path: Path) -> None:
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & _GROUP_AND_OTHERS:
        raise SecretKeyError(
            f"Other users of this machine may read the secret key {path} (its mode is {mode:04o}): "
            f"run `chmod 600 {shlex.quote(str(path))}`, or remove the file to get a new key"
        )
