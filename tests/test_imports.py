"""Imports without optional parts."""

import sys

import pytest

from outrider.imports import without

UNUSED = "this"  # prints the Zen of Python, so nobody imports it


def test_the_import_fails_inside_the_block_only() -> None:
    with without(UNUSED), pytest.raises(ImportError):
        __import__(UNUSED)
    assert UNUSED not in sys.modules
    __import__(UNUSED)


def test_a_loaded_module_stays() -> None:
    with without("json"):
        import json
    assert sys.modules["json"] is json
