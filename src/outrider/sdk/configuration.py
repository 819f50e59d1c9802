"""Where the service is, and with which key: arguments, then the environment."""

import os
import platform
from typing import Final, NamedTuple

from outrider import __version__
from outrider.sdk.errors import MissingApiKey

URL_VARIABLE: Final = "OUTRIDER_URL"
KEY_VARIABLE: Final = "OUTRIDER_API_KEY"
PORT_VARIABLE: Final = "OUTRIDER_PORT"
DEFAULT_URL: Final = "http://127.0.0.1:8400"
API_PATH: Final = "/api/v1"

NOT_A_KEY: Final = "The API key has characters that no key has: copy the whole key again"
"""What is said of a key that is not ASCII."""


class Login(NamedTuple):
    """A user who logs in with a password."""

    email: str
    password: str


class Configuration(NamedTuple):
    """The address below which the endpoints are, and the headers of every request.

    Attributes:
        login: who logs in before the first request; None with an API key.
    """

    api_url: str
    headers: dict[str, str]
    login: Login | None = None


def url_of_port() -> str | None:
    """Return the address of the service on the port of this environment; None if it names none."""
    port = os.environ.get(PORT_VARIABLE, "")
    return f"http://127.0.0.1:{port}" if port.isdecimal() and int(port) else None


def default_url() -> str:
    """Return the address where `outrider up` listens."""
    return url_of_port() or DEFAULT_URL


def configuration(
    base_url: str | None, api_key: str | None, login: Login | None = None
) -> Configuration:
    """Return the configuration of a client.

    Args:
        login: who logs in; the key is not used then.

    Raises:
        MissingApiKey: there is neither a key nor a login.
    """
    url = base_url or os.environ.get(URL_VARIABLE) or default_url()
    headers = {
        "Accept": "application/json",
        "User-Agent": f"outrider-python/{__version__} (Python {platform.python_version()})",
    }
    if login is None:
        key = api_key or os.environ.get(KEY_VARIABLE)
        if not key:
            raise MissingApiKey(
                f"There is no API key: set {KEY_VARIABLE}, or give `api_key=` "
                "(`outrider admin key create` makes one)"
            )
        headers["Authorization"] = f"Bearer {key.strip()}"
    # Both the address of the service and that of its API are often copied from its pages.
    return Configuration(url.rstrip("/").removesuffix(API_PATH) + API_PATH, headers, login)
