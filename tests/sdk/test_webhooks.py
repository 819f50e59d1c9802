"""Signatures, as two receivers see them: Stripe's official library and Outrider's SDK."""

import time

import pytest
import stripe

from outrider.contract import signatures
from outrider.contract.errors import OutriderError
from outrider.sdk import webhooks
from tests.service.webhooks.delivery_node import DeliveryNode
from tests.service.webhooks.receiver import SIGNATURE, ReceivedRequest, Receiver

pytestmark = pytest.mark.asyncio(loop_scope="session")

SECRET = "whsec_test"
BODY = '{"id":"evt_1","event":"agent:error","payload":{"chatTitle":"Grüße 🎉"}}'.encode()


def stripe_tolerance(seconds: float) -> int:
    """Return the tolerance by which Stripe's library, which reckons in seconds, allows as many.

    It refuses `t < time.time() - tolerance`; our `t` is milliseconds.
    """
    now = time.time()
    return int(now - (now - seconds) * 1000)


def stripe_verify(body: bytes, header: str, secret: str, seconds: float = 300) -> None:
    """Verify with Stripe's library; raises `stripe.SignatureVerificationError`."""
    stripe.WebhookSignature.verify_header(body, header, secret, stripe_tolerance(seconds))


def refused_by_both(body: bytes, header: str, secret: str, error: type[OutriderError]) -> None:
    with pytest.raises(stripe.SignatureVerificationError):
        stripe_verify(body, header, secret)
    with pytest.raises(error):
        webhooks.verify(body, header, secret)


def signed(*secrets: str, age: float = 0.0, body: bytes = BODY) -> str:
    return signatures.header(secrets or [SECRET], int((time.time() - age) * 1000), body)


async def delivered(
    node: DeliveryNode, receiver: Receiver, **event: object
) -> tuple[ReceivedRequest, str]:
    """Return a delivery as it came, and its secret."""
    node.clock.now = time.time()
    webhook = await node.webhook(receiver.url)
    await node.store_event()
    (taken,) = await receiver.wait_for(1)
    return taken, webhook.secret


async def test_a_delivery_is_verified_by_both(node: DeliveryNode, receiver: Receiver) -> None:
    taken, secret = await delivered(node, receiver)
    stripe_verify(taken.body, taken.headers[SIGNATURE], secret)
    event = webhooks.verify(taken.body, taken.headers[SIGNATURE], secret)
    assert event == taken.json
    assert event["event"] == "agent:generating_started"
    assert taken.headers["Content-Type"] == "application/json"
    assert taken.headers["User-Agent"].startswith("outrider/")


async def test_a_changed_byte_is_refused_by_both(node: DeliveryNode, receiver: Receiver) -> None:
    taken, secret = await delivered(node, receiver)
    for index in range(0, len(taken.body), 7):
        changed = bytearray(taken.body)
        changed[index] ^= 1
        header = taken.headers[SIGNATURE]
        refused_by_both(bytes(changed), header, secret, webhooks.SignatureMismatch)


async def test_another_secret_is_refused_by_both(node: DeliveryNode, receiver: Receiver) -> None:
    taken, secret = await delivered(node, receiver)
    header = taken.headers[SIGNATURE]
    refused_by_both(taken.body, header, secret[:-1], webhooks.SignatureMismatch)


async def test_an_old_delivery_is_refused_unless_tolerated() -> None:
    header = signed(age=302)
    refused_by_both(BODY, header, SECRET, webhooks.TimestampOutOfRange)
    stripe_verify(BODY, header, SECRET, 310)
    webhooks.verify(BODY, header, SECRET, 310)


async def test_a_changed_time_is_refused_by_both() -> None:
    """The time is signed too: an old delivery cannot be made young."""
    old = signed(age=3600)
    young = old.replace(old.split(",")[0], f"t={time.time_ns() // 1_000_000}")
    refused_by_both(BODY, young, SECRET, webhooks.SignatureMismatch)


async def test_a_delivery_from_the_future_is_refused() -> None:
    with pytest.raises(webhooks.TimestampOutOfRange):
        webhooks.verify(BODY, signed(age=-301), SECRET)
    webhooks.verify(BODY, signed(age=-290), SECRET)


async def test_either_of_two_signatures_is_enough() -> None:
    """While a secret is rotated, either of the two is enough."""
    header = signed("whsec_new", "whsec_old")
    for secret in ("whsec_new", "whsec_old"):
        stripe_verify(BODY, header, secret)
        assert webhooks.verify(BODY, header, secret)["id"] == "evt_1"
    refused_by_both(BODY, header, "whsec_other", webhooks.SignatureMismatch)


@pytest.mark.parametrize(
    "header",
    [None, "", "rubbish", "t=1", "v1=00", "t=,v1=00", "t=x,v1=00", "t=-1,v1=00", "t=1,t=2,v1=0",
     "t=99999999999999999999,v1=00", "t=\u0661,v1=00"],
)  # fmt: skip
async def test_a_malformed_header_is_refused(header: str | None) -> None:
    with pytest.raises(webhooks.MalformedHeader, match="X-Service-Signature"):
        webhooks.verify(BODY, header, SECRET)


@pytest.mark.parametrize("digest", ["", "zz", "é", "\udcff", "00" * 32])
async def test_a_digest_that_is_none_is_refused(digest: str) -> None:
    with pytest.raises(webhooks.SignatureMismatch):
        webhooks.verify(BODY, f"t={time.time_ns() // 1_000_000},v1={digest}", SECRET)


@pytest.mark.parametrize("body", [b"", b"[]", b'"x"', b"{", b"\xff"])
async def test_a_signed_body_that_is_no_object_is_refused(body: bytes) -> None:
    with pytest.raises(webhooks.MalformedBody):
        webhooks.verify(body, signed(body=body), SECRET)


@pytest.mark.parametrize(
    ("secret", "tolerance"), [("", 300), (SECRET, 0), (SECRET, -1), (SECRET, float("nan"))]
)
async def test_an_empty_secret_and_no_tolerance_are_errors(secret: str, tolerance: float) -> None:
    with pytest.raises(ValueError, match=r"secret|tolerance"):
        webhooks.verify(BODY, signed(), secret, tolerance)
