"""A secret that was rotated: for how long the old one signs beside the new one."""

import pytest

from outrider.contract import signatures
from tests.service.webhooks.delivery_node import DeliveryNode
from tests.service.webhooks.receiver import SIGNATURE, ReceivedRequest, Receiver

pytestmark = pytest.mark.asyncio(loop_scope="session")

DAY = 86400.0


def signed_by(taken: ReceivedRequest, secrets: dict[str, str]) -> list[str]:
    """Return the names of the secrets that a delivery was signed with, in order."""
    signature = signatures.parse(taken.headers[SIGNATURE])
    assert signature is not None
    names = {
        signatures.digest(secret, signature.timestamp, taken.body): name
        for name, secret in secrets.items()
    }
    return [names[digest] for digest in signature.digests]


async def test_the_old_secret_signs_for_a_day_and_no_longer(
    node: DeliveryNode, receiver: Receiver
) -> None:
    webhook = await node.webhook(receiver.url)
    secrets = {"old": webhook.secret}
    rotated = await node.subscriptions.rotate_secret(node.account_id, webhook.id)
    secrets["new"] = rotated.secret
    for passing, expected in [
        (0.0, ["new", "old"]),
        (DAY - 60, ["new", "old"]),
        (61.0, ["new"]),
        (DAY, ["new"]),
    ]:
        node.clock.passes(passing)
        await node.store_event()
        await node.wait_for_attempt(webhook.id)
        assert signed_by(receiver.requests[-1], secrets) == expected


async def test_a_second_rotation_ends_the_first_secret_at_once(
    node: DeliveryNode, receiver: Receiver
) -> None:
    webhook = await node.webhook(receiver.url)
    secrets = {"first": webhook.secret}
    for name in ("second", "third"):
        rotated = await node.subscriptions.rotate_secret(node.account_id, webhook.id)
        secrets[name] = rotated.secret
    await node.store_event()
    await node.wait_for_attempt(webhook.id)
    assert signed_by(receiver.requests[-1], secrets) == ["third", "second"]
