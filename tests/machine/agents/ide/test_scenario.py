"""The scenario of the CLI and ACP agents, on the chats of real IDEs in a real Chromium.

The tests are those of tests/machine/agents/test_scenario.py, all of them; `kinds.py` says which
an IDE cannot pass, and why.
"""

import pytest

from tests.machine.agents import test_scenario as scenario
from tests.machine.agents.ide.kinds import KINDS
from tests.machine.agents.kind import AgentKind

pytestmark = [pytest.mark.ide, pytest.mark.timeout(120)]

globals().update({name: test for name, test in vars(scenario).items() if name.startswith("test_")})


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test with every IDE; one that cannot do what it is about is left out."""
    name = metafunc.function.__name__
    metafunc.parametrize("kind", [_param(kind, name) for kind in KINDS])


def _param(kind: AgentKind, name: str) -> object:
    if name not in kind.cannot:
        return pytest.param(kind, id=kind.type)
    reason = f"{kind.type}: {kind.cannot[name]}"
    return pytest.param(kind, id=kind.type, marks=pytest.mark.skip(reason=reason))
