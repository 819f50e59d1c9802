"""`outrider webhook` and what else needs a user's login."""

import json
import re
import shlex
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.rig.command_line import CommandLine
from tests.rig.people import PASSWORD, person
from tests.rig.site import Owner, Site

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.one_store]


PAGE = Path(__file__).parents[3] / "docs" / "cli.md"


@pytest_asyncio.fixture(loop_scope="session")
async def owner(sqlite_site: Site) -> AsyncIterator[Owner]:
    """An account whose user has a password."""
    async with sqlite_site.visit():
        yield await person(sqlite_site)


@pytest.fixture
def person_env(env: dict[str, str], owner: Owner) -> dict[str, str]:
    """The environment of that user."""
    return env | {
        "OUTRIDER_API_KEY": owner.key,
        "OUTRIDER_EMAIL": owner.email,
        "OUTRIDER_PASSWORD": PASSWORD,
    }


async def test_a_webhook_from_create_to_delete(
    command: CommandLine, person_env: dict[str, str]
) -> None:
    """Begin as docs/cli.md does."""
    (line,) = re.findall(r"^outrider (webhook create .*)$", PAGE.read_text(), re.MULTILINE)
    *words, _ = shlex.split(line)
    made = await command(*words, person_env["OUTRIDER_EMAIL"], env=person_env)
    assert made.code == 0, made.err
    webhook, secret = made.out.split()
    assert secret.startswith("whsec_")
    listed = await command("webhook", "ls", env=person_env)
    assert listed.out.startswith(f"{webhook}\tactive\t\tagent:")
    await command("webhook", "pause", webhook, env=person_env)
    paused = await command("webhook", "ls", "--json", env=person_env)
    assert paused.json()["webhooks"][0]["active"] is False
    assert (await command("webhook", "resume", webhook, env=person_env)).code == 0
    tested = await command("webhook", "test", webhook, "--json", env=person_env)
    assert tested.code == (0 if json.loads(tested.out)["success"] else 1)
    deliveries = await command("webhook", "deliveries", webhook, "--limit", "1", env=person_env)
    delivery = deliveries.out.split("\t")[0]
    details = await command("webhook", "delivery", webhook, delivery, env=person_env)
    assert "webhook:test" in details.out
    resent = await command("webhook", "resend", webhook, delivery, env=person_env)
    assert resent.code in {0, 1}
    replayed = await command("webhook", "replay", webhook, "--hours", "1", env=person_env)
    assert replayed.out.endswith("to be delivered again\n")
    rotated = await command("webhook", "rotate-secret", webhook, env=person_env)
    assert rotated.out.startswith("whsec_")
    assert rotated.out.strip() != secret
    unsure = await command("webhook", "delete", webhook, env=person_env)
    assert unsure.code == 2
    assert "--yes" in unsure.err
    deleted = await command("webhook", "delete", webhook, "--yes", env=person_env)
    assert deleted.code == 0
    assert (await command("webhook", "ls", env=person_env)).out == ""


async def test_a_login_that_is_missing_or_wrong(
    command: CommandLine, person_env: dict[str, str]
) -> None:
    create = ("webhook", "create", "https://example.org", "--json")
    without = {name: value for name, value in person_env.items() if name != "OUTRIDER_PASSWORD"}
    missing = await command(*create, env=without)
    wrong = await command(*create, env=person_env | {"OUTRIDER_PASSWORD": "wrong password"})
    assert missing.code == 2
    assert "OUTRIDER_PASSWORD" in json.loads(missing.out)["error"]
    assert wrong.code == 1


async def test_a_machine_is_disconnected_and_revoked_by_a_user(
    command: CommandLine, person_env: dict[str, str], owner: Owner
) -> None:
    machine = await owner.machine(enrolled=await owner.enrolls(nickname="builder"))
    disconnected = await command("machine", "disconnect", "builder", env=person_env)
    assert disconnected.code == 0, disconnected.err
    unsure = await command("machine", "revoke", machine.id, env=person_env)
    revoked = await command("machine", "revoke", machine.id, "--yes", env=person_env)
    assert unsure.code == 2
    assert revoked.code == 0, revoked.err
