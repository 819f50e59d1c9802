"""Tests use what callers may use: no private names of ours, no patched constants.

A limit, a timeout or a clock that a test has to change is a parameter, with the constant as its
default.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parents[1]

_LIBRARIES = {"_exit", "_replace", "_serve"}
"""Documented names of `os` and `NamedTuple`; uvicorn's server without its signal handlers."""

_PATCHES = {"setattr", "delattr"}


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in _LIBRARIES


def _patched_name(call: ast.Call) -> str | None:
    """Return the name that `monkeypatch.setattr` or `setattr` replaces, None for other calls."""
    function = call.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    if name not in _PATCHES:
        return None
    words = [argument.value for argument in call.args[:2] if isinstance(argument, ast.Constant)]
    return next((word.rpartition(".")[2] for word in words if isinstance(word, str)), None)


def faults(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Give the line and the name of each private access and each patched constant."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            if isinstance(node.value, ast.Name) and node.value.id in {"self", "cls"}:
                continue
            is_changed = isinstance(node.ctx, ast.Store | ast.Del)
            if _is_private(node.attr) or (is_changed and node.attr.isupper()):
                yield node.lineno, node.attr
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("outrider"):
            for imported in node.names:
                if _is_private(imported.name):
                    yield node.lineno, imported.name
        elif isinstance(node, ast.Call):
            name = _patched_name(node)
            if name is not None and (name.isupper() or _is_private(name)):
                yield node.lineno, name


def test_tests_use_no_private_names_and_patch_no_constants() -> None:
    found = [
        f"{path.relative_to(TESTS.parent)}:{line}: {name}"
        for path in sorted(TESTS.rglob("*.py"))
        for line, name in faults(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert found == []
