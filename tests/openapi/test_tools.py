"""A linter and two generators of clients take the API's description, without a word against it."""

import shutil
from pathlib import Path
from typing import Final

import pytest

from outrider.service.endpoints import ENDPOINTS
from outrider.service.http.openapi import describe
from tests.openapi.conftest import Tools

pytestmark = pytest.mark.openapi

_HERE: Final = Path(__file__).parent
_CLIENT: Final = _HERE.parents[1] / "clients" / "typescript" / "src" / "api.ts"

# Imports every module of the generated client; `-W error` has a warning fail it.
_IMPORT_ALL: Final = """
import importlib, pkgutil, client
names = [module.name for module in pkgutil.walk_packages(client.__path__, "client.")]
for name in names:
    importlib.import_module(name)
print(len(names))
"""


def test_redocly_finds_nothing(tools: Tools) -> None:
    said = tools.run("redocly", "lint", "openapi.json", "--config", _HERE / "redocly.yaml")
    assert "is valid" in said
    assert "warning" not in said.lower().replace("deprecation warning", "")


def test_every_other_operation_can_succeed() -> None:
    for path, operations in describe(ENDPOINTS)["paths"].items():
        for method, operation in operations.items():
            statuses = operation["responses"]
            assert "101" in statuses or any(status[0] == "2" for status in statuses), (method, path)


def test_openapi_typescript_writes_what_strict_typescript_compiles(tools: Tools) -> None:
    """With its default options, and used as a client uses it."""
    tools.run("openapi-typescript", "openapi.json", "--output", "api.d.ts")
    shutil.copy(_HERE / "usage.ts", tools.directory)
    tools.run("tsc", "--strict", "--noEmit", "--module", "nodenext", "api.d.ts", "usage.ts")


def test_the_typescript_client_is_of_this_description(tools: Tools) -> None:
    tools.run("openapi-typescript", "openapi.json", "--output", "api.ts")
    is_current = (tools.directory / "api.ts").read_text() == _CLIENT.read_text()
    assert is_current, "The API has changed: `make client` generates the client's types again"


def test_openapi_python_client_writes_what_python_imports(tools: Tools) -> None:
    said = tools.run(
        *("openapi-python-client", "generate", "--path", "openapi.json"),
        *("--meta", "none", "--output-path", "client", "--fail-on-warning"),
    )
    assert said.strip() == "Generating client"
    count = int(tools.run(tools.python, "-W", "error", "-c", _IMPORT_ALL))
    assert count > 100
