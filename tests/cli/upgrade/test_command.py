"""`outrider upgrade` as its user sees it."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from outrider import __version__
from outrider.cli.main import app
from outrider.cli.upgrade.installation import Installer
from tests.cli.upgrade.conftest import Index
from tests.rig.processes import PROCESS_TIMEOUT, outrider
from tests.rig.waiting import eventually
from tests.sdk.conftest import Workplace

DOCUMENT = (Path(__file__).parents[3] / "docs" / "upgrade.md").read_text()
UNUSED = "http://127.0.0.1:9"  # "discard": nothing listens there


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No service of this machine's."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("OUTRIDER_URL", UNUSED)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["upgrade", *arguments])


def test_a_newer_release_ends_with_1(index: Index) -> None:
    index.releases(__version__, "99.1")
    outcome = run("--check", "--index", index.url)
    assert outcome.exit_code == 1, outcome.output
    assert f"Outrider 99.1 is available; this is {__version__}" in outcome.stdout
    assert f"Versions not compared: no answer from {UNUSED}" in outcome.stdout
    assert outcome.stderr == ""


def test_no_index_is_asked_that_was_not_named(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anybody may have registered the name in the index that pip and uv use."""
    for name in ("PIP_INDEX_URL", "UV_INDEX_URL", "UV_DEFAULT_INDEX"):
        monkeypatch.setenv(name, index.url)
    outcome = run("--check")
    assert outcome.exit_code == 2, outcome.output
    assert "No package index was asked" in outcome.stderr
    assert json.loads(run("--check", "--json").stdout)["index"] is None
    assert index.requested == []


def test_the_newest_release_ends_with_0(index: Index) -> None:
    """Or is newer than all releases, as in a checkout."""
    for version in (__version__, "0.0.1"):
        index.releases(version)
        outcome = run("--check", "--index", index.url)
        assert outcome.exit_code == 0, outcome.output
        assert f"{version} is the newest release in {index.url}" in outcome.stdout


def test_an_index_that_cannot_be_read_ends_with_2() -> None:
    outcome = run("--check", "--index", UNUSED)
    assert outcome.exit_code == 2, outcome.output
    assert outcome.stderr.startswith(f"outrider: The package index {UNUSED} cannot be read:")
    assert "--index" in outcome.stderr
    as_json = run("--check", "--index", UNUSED, "--json")
    assert as_json.exit_code == 2
    body = json.loads(as_json.stdout)
    assert (body["newest"], body["upgrade"]) == (None, None)
    assert body["problem"] + ". " in outcome.stderr


def test_without_a_check_nobody_is_asked(index: Index) -> None:
    outcome = run("--index", index.url)
    assert outcome.exit_code == 0, outcome.output
    assert f"This is Outrider {__version__}" in outcome.stdout
    assert "outrider upgrade --check" in outcome.stdout
    body = json.loads(run("--index", index.url, "--json").stdout)
    assert body["version"] == __version__
    assert body["installer"] in set(Installer)
    assert index.requested == []


@pytest.mark.asyncio(loop_scope="session")
async def test_the_versions_of_the_service_and_its_machines_are_compared(
    index: Index, env: dict[str, str], workplace: Workplace
) -> None:
    index.releases("99.1")
    documented = re.search(r"^(outrider upgrade .*)$", DOCUMENT, re.MULTILINE)
    assert documented is not None
    command = [*documented[1].split()[1:], "--index", index.url]
    answers: list[list[dict[str, str]]] = []

    async def has_answered() -> bool:  # a busy service may not, within the limits of the command
        outcome = await outrider(*command, "--json", env=env)
        assert (outcome.code, outcome.err) == (1, "")
        body = json.loads(outcome.out)
        answers.append(body["sides"])
        return body["sidesProblem"] is None

    await eventually(has_answered, PROCESS_TIMEOUT)
    assert answers[-1] == [
        {"name": f"the service {workplace.site.url}", "version": __version__},
        {"name": "the machine agent of laptop", "version": __version__},
    ]
