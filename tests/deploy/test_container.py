"""The Dockerfile gets all that the build reads, and its image runs as nobody special.

There is no Docker here: these are the mistakes that would otherwise show only in its build.
"""

import re
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
BUILD, IMAGE = re.split(r"^(?=FROM )", (DEPLOY / "Dockerfile").read_text(), flags=re.MULTILINE)[1:]


def _is_in_context(path: str) -> bool:
    """Apply the rules of the .dockerignore in order: the last one that matches decides."""
    is_in = True
    for rule in (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines():
        pattern = rule.removeprefix("!").removeprefix("**/")
        if not rule or rule.startswith("#"):
            continue
        parts = Path(path).parts
        tails = range(len(parts)) if rule.startswith("**/") else range(1)
        if any(
            fnmatch("/".join(parts[start:end]), pattern)
            for start in tails
            for end in range(start + 1, len(parts) + 1)
        ):
            is_in = rule.startswith("!")
    return is_in


@pytest.mark.parametrize(
    "path",
    [
        "pyproject.toml",
        "constraints.txt",
        "hatch_build.py",
        "README.md",
        "LICENSE",
        "scripts/build-dashboard",
        "scripts/in-web",
        "src/outrider/cloud/app.py",
        "web/package-lock.json",
        "web/src/main.tsx",
        "clients/typescript/src/api.ts",
    ],
)
def test_what_the_build_reads_is_in_its_context(path: str) -> None:
    assert (ROOT / path).exists()
    assert _is_in_context(path)


@pytest.mark.parametrize(
    "path",
    [
        ".git/config",
        ".venv/bin/python",
        "deploy/.env",
        "tests/conftest.py",
        "web/node_modules/vite/index.js",
        "src/outrider/__pycache__/x.pyc",
        "src/outrider/cloud/static/index.html",
    ],
)
def test_what_it_must_not_see_is_not(path: str) -> None:
    assert not _is_in_context(path)


def test_the_image() -> None:
    assert "COPY . ." in BUILD
    assert "COPY --from=build /opt/outrider /opt/outrider\n" in IMAGE
    (user,) = re.findall(r"^USER (.+)$", IMAGE, re.MULTILINE)
    assert int(user) > 0
    assert f"--uid {user} " in IMAGE
    assert re.search(r'^ENTRYPOINT \["outrider"\]$', IMAGE, re.MULTILINE)
    assert "pip install" not in IMAGE


@pytest.mark.parametrize("name", ["compose.yaml", "compose.single.yaml"])
def test_a_container_cannot_write_to_its_image(name: str) -> None:
    text = (DEPLOY / name).read_text()
    assert "dockerfile: deploy/Dockerfile" in text
    for line in ("read_only: true", "no-new-privileges:true", "cap_drop: [ALL]"):
        assert line in text, line
