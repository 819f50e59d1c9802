"""What the tests of the service's parts share."""

import pytest

from tests.rig.clock import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock()
