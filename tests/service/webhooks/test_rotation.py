"""A secret that was rotated: for how long the old one signs beside the new one."""

import pytest

from outrider.contract import signatures
from tests.service.webhooks.office import Office
from tests.service.webhooks.receiver import SIGNATURE, Receiver, Taken

pytestmark = pytest.mark.asyncio(loop_scope="session")

DAY = 86400.0


def signed_by(taken: Taken, secrets: dict[str, str]) -> list[str]:
    """Return the names of the secrets that a delivery was signed with, in order."""
    signature = signatures.parse(taken.headers[SIGNATURE])
    assert signature is not None
    names = {
        signatures.digest(secret, signature.timestamp, taken.body): name
        for name, secret in secrets.items()
    }
    return [names[digest] for digest in signature.digests]


async def test_the_old_secret_signs_for_a_day_and_no_longer(
    office: Office, receiver: Receiver
) -> None:
    webhook = await office.webhook(receiver.url)
    secrets = {"old": webhook.secret}
    rotated = await office.subscriptions.rotate_secret(office.account_id, webhook.id)
    secrets["new"] = rotated.secret
    for passing, expected in [
        (0.0, ["new", "old"]),
        (DAY - 60, ["new", "old"]),
        (61.0, ["new"]),
        (DAY, ["new"]),
    ]:
        office.clock.passes(passing)
        await office.happens()
        await office.settles(webhook.id)
        assert signed_by(receiver.taken[-1], secrets) == expected


async def test_a_second_rotation_ends_the_first_secret_at_once(
    office: Office, receiver: Receiver
) -> None:
    webhook = await office.webhook(receiver.url)
    secrets = {"first": webhook.secret}
    for name in ("second", "third"):
        rotated = await office.subscriptions.rotate_secret(office.account_id, webhook.id)
        secrets[name] = rotated.secret
    await office.happens()
    await office.settles(webhook.id)
    assert signed_by(receiver.taken[-1], secrets) == ["third", "second"]
