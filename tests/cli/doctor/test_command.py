"""`outrider doctor` as a process: nothing set up, and beside a real service and machine agent."""

import json
from pathlib import Path
from typing import Any

import pytest

from outrider.cli.doctor.finding import Status
from tests.rig.command_line import CommandLine
from tests.rig.processes import PROCESS_TIMEOUT, environment, outrider
from tests.rig.waiting import eventually
from tests.sdk.conftest import Workplace

pytestmark = pytest.mark.asyncio(loop_scope="session")

DOCUMENT = (Path(__file__).parents[3] / "docs" / "cli.md").read_text()
UNUSED_PORT = "9"  # "discard": nothing listens there


async def test_without_a_service_the_checks_fail_with_advice(
    command: CommandLine, tmp_path: Path
) -> None:
    env = environment(tmp_path / "data", port=UNUSED_PORT, url=f"http://127.0.0.1:{UNUSED_PORT}")
    outcome = await command("doctor", env=env)
    assert (outcome.code, outcome.err) == (1, "")
    findings = {name: (status, rest) for status, name, *rest in _lines(outcome.out)}
    assert findings["service"][0] == findings["key"][0] == Status.FAILED
    assert "outrider up" in findings["service"][1][1]
    assert findings["settings"][0] == findings["tmux"][0] == Status.OK


async def test_beside_a_service_and_a_machine_every_check_is_ok(
    env: dict[str, str], workplace: Workplace
) -> None:
    home = workplace.project.parent
    env |= {
        "OUTRIDER_CONFIG_DIR": str(home / "config"),
        "OUTRIDER_PORT": workplace.site.url.rpartition(":")[2],
    }
    bodies: list[Any] = []

    async def is_well() -> bool:  # a busy machine may not answer within the limits of the checks
        outcome = await outrider("doctor", "--json", env=env)
        assert workplace.key not in outcome.out + outcome.err
        body = json.loads(outcome.out)
        assert outcome.code == (0 if body["ok"] else 1)
        bodies.append(body)
        return bool(body["ok"])

    await eventually(is_well, PROCESS_TIMEOUT)
    body = bodies[-1]
    checks = {check["name"]: check for check in body["checks"]}
    for name in ("tmux", "port", "service", "clock", "key", "versions", "machine"):
        assert checks[name]["status"] == Status.OK, checks[name]
        assert checks[name]["advice"] is None
    assert "laptop" in checks["machine"]["message"]
    for name in checks:
        assert name.startswith("agent") or f"`{name}`" in DOCUMENT, name


async def test_a_wrong_key_and_a_wrong_setting_fail_without_showing_the_key(
    command: CommandLine, env: dict[str, str]
) -> None:
    wrong = {"OUTRIDER_API_KEY": "ork_wrong_and_secret", "OUTRIDER_PORT": "none"}
    outcome = await command("doctor", env=env | wrong)
    assert outcome.code == 1
    assert "ork_wrong_and_secret" not in outcome.out + outcome.err
    status = {name: status for status, name, *_ in _lines(outcome.out)}
    assert status["key"] == status["settings"] == Status.FAILED
    assert status["port"] == Status.SKIPPED


def _lines(text: str) -> list[list[str]]:
    return [line.split("\t") for line in text.splitlines()]
