"""The private servers, or the reason why there are none."""

import os
from collections.abc import Callable
from typing import TypeVar

import pytest

from tests.servers.server import NotInstalledError

ServerT = TypeVar("ServerT")


def private(kind: Callable[[], ServerT]) -> ServerT:
    """Return a server that is not started yet; where it is not installed, skip the test.

    Under CI=true, where nobody would notice a skip, it fails instead.
    """
    try:
        return kind()
    except NotInstalledError as error:
        if os.environ.get("CI") == "true":
            pytest.fail(str(error))
        pytest.skip(str(error))
