"""Where the service is, and with which key: arguments, then the environment."""

import os
import platform
from typing import Final, NamedTuple

from outrider import __version__
from outrider.sdk.errors import MissingApiKey

URL_VARIABLE: Final = "OUTRIDER_URL"
KEY_VARIABLE: Final = "OUTRIDER_API_KEY"
DEFAULT_URL: Final = "http://127.0.0.1:8400"
API_PATH: Final = "/api/v1"

NOT_A_KEY: Final = "The API key has characters that no key has: copy the whole key again"
"""What is said of a key that is not ASCII."""


class Configuration(NamedTuple):
    """The address below which the endpoints are, and the headers of every request."""

    api_url: str
    headers: dict[str, str]


def configuration(base_url: str | None, api_key: str | None) -> Configuration:
    """Return the configuration of a client.

    Raises:
        MissingApiKey: there is no key.
    """
    url = base_url or os.environ.get(URL_VARIABLE) or DEFAULT_URL
    key = api_key or os.environ.get(KEY_VARIABLE)
    if not key:
        raise MissingApiKey(
            f"There is no API key: set {KEY_VARIABLE}, or give `api_key=` "
            "(`outrider admin key create` makes one)"
        )
    return Configuration(
        api_url=url.rstrip("/").removesuffix(API_PATH) + API_PATH,
        headers={
            "Authorization": f"Bearer {key.strip()}",
            "Accept": "application/json",
            "User-Agent": f"outrider-python/{__version__} (Python {platform.python_version()})",
        },
    )
