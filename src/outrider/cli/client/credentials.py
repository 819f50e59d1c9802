"""The address and key that `outrider login` stores (mode 0600), unless the environment has them."""

import os
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from outrider.contract.errors import OutriderError
from outrider.sdk import Outrider
from outrider.sdk.configuration import KEY_VARIABLE, URL_VARIABLE, url_of_port

FILE_NAME: Final = "client.json"
NO_KEY: Final = f"There is no API key: run `outrider login --server URL`, or set {KEY_VARIABLE}"


class NotLoggedIn(OutriderError):
    """There is no key, neither in the environment nor stored by `outrider login`."""


class CredentialsError(OutriderError):
    """The file cannot be read or written."""


class SavedCredentials(msgspec.Struct):
    """The content of the file that `outrider login` writes."""

    server: str
    key: str


class Credentials(NamedTuple):
    """Where to connect, and with which key; the URL is None for the default."""

    url: str | None
    key: str


def file() -> Path:
    """Return the path of the file that `outrider login` writes."""
    folder = os.environ.get("OUTRIDER_CONFIG_DIR") or Path.home() / ".config" / "outrider"
    return Path(folder).expanduser() / FILE_NAME


def load() -> Credentials:
    """Return the credentials to use.

    The stored key is sent to no other server than the one that it was stored for.

    Raises:
        NotLoggedIn: there is no key.
        CredentialsError: the file is needed and damaged.
    """
    url, key = os.environ.get(URL_VARIABLE), os.environ.get(KEY_VARIABLE)
    if key and url:
        return Credentials(url, key)
    if key and (here := url_of_port()):
        return Credentials(here, key)
    saved = load_saved()
    if key:
        return Credentials(saved.server if saved else None, key)
    if saved is None:
        raise NotLoggedIn(NO_KEY)
    if url and url.rstrip("/") != saved.server.rstrip("/"):
        raise NotLoggedIn(
            f"The stored key is for {saved.server}, not for {url}: "
            f"run `outrider login --server {url}`"
        )
    return Credentials(saved.server, saved.key)


def save(server: str, key: str) -> Path:
    """Write the credentials, readable by their owner only; return the file.

    Raises:
        CredentialsError: the file cannot be written.
    """
    path = file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # Renamed into place: a full disk leaves the earlier key, never half a file.
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".client-")  # mode 0600
        try:
            with os.fdopen(handle, "wb") as new:
                new.write(msgspec.json.encode(SavedCredentials(server, key)) + b"\n")
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise CredentialsError(f"{path} cannot be written: {error}") from error
    return path


def connect(login: tuple[str, str] | None = None) -> Outrider:
    """Return a client with the credentials to use.

    Args:
        login: email and password, in place of the key.
    """
    if login is not None:
        named = os.environ.get(URL_VARIABLE) or url_of_port()
        if named is None:
            saved = load_saved()
            named = saved.server if saved else None
        return Outrider(named, login=login)
    url, key = load()
    return Outrider(url, key)


def load_saved() -> SavedCredentials | None:
    """Return what `outrider login` has stored; None if there is no file.

    Raises:
        CredentialsError: the file is damaged.
    """
    path = file()
    try:
        return msgspec.json.decode(path.read_bytes(), type=SavedCredentials)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError, UnicodeError) as error:
        raise CredentialsError(
            f"{path} cannot be read ({error}): run `outrider login` again"
        ) from error
