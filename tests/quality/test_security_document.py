"""Every promise of SECURITY.md names the tests that hold it, and they exist."""

import ast
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "SECURITY.md"

_TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


class Promise(NamedTuple):
    """A row of a table of promises: its text, and the cell with its tests."""

    text: str
    tests: str


def _promises() -> list[Promise]:
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in DOCUMENT.read_text().splitlines()
        if line.startswith("|")
    ]
    return [Promise(*row) for row in rows if row[0] != "promise" and set(row[0]) != {"-"}]


@cache
def _tests_of(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text())
    return {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
    }


@pytest.mark.parametrize("promise", _promises(), ids=lambda promise: promise.text[:60])
def test_a_promise_names_tests_that_exist(promise: Promise) -> None:
    named = _TEST.findall(promise.tests)
    assert named, "no test is named"
    assert _TEST.sub("", promise.tests).strip(" ,") == "", "something is no test"
    for path, name in named:
        assert (ROOT / path).exists(), path
        assert name in _tests_of(path), f"{path} has no test {name}"


def test_there_are_promises() -> None:
    assert len(_promises()) > 40
