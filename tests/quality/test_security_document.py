"""Every promise of SECURITY.md has its tests in tests/security/promises.toml, and they exist."""

import ast
import re
import tomllib
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTS_OF: dict[str, list[str]] = tomllib.loads(
    (ROOT / "tests" / "security" / "promises.toml").read_text()
)


def _promises() -> list[str]:
    """Return the items of the lists below "Promises", each as one line."""
    document = (ROOT / "SECURITY.md").read_text()
    promises = document.partition("\n## Promises\n")[2].partition("\n## ")[0]
    items = re.findall(r"^- (.+(?:\n  .+)*)", promises, re.MULTILINE)
    return [" ".join(item.split()) for item in items]


PROMISES = _promises()


@cache
def _tests_in(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text())
    return {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
    }


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise[:60])
def test_a_promise_has_tests(promise: str) -> None:
    keys = [beginning for beginning in TESTS_OF if promise.startswith(beginning)]
    assert len(keys) == 1, "tests/security/promises.toml needs one key with which it begins"
    assert TESTS_OF[keys[0]], "no test is named"


@pytest.mark.parametrize("beginning", TESTS_OF)
def test_the_tests_of_a_promise_exist(beginning: str) -> None:
    assert any(promise.startswith(beginning) for promise in PROMISES), "SECURITY.md has it not"
    for test in TESTS_OF[beginning]:
        path, _, name = test.partition("::")
        assert name in _tests_in(path), f"{path} has no test {name}"
