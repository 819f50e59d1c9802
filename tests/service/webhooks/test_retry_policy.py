"""A delivery's life, attempt by attempt. Holds docs/webhooks.md."""

import pytest

from outrider.service.webhooks import retry_policy
from outrider.service.webhooks.retry_policy import Outcome
from tests.service.webhooks.delivery_node import DELAYS


def outcome(status: int | None, retry_after: float = 0.0) -> Outcome:
    error = None if status is not None and 200 <= status < 300 else "broken"
    return Outcome(status, "", error, 1_000_000, 20, retry_after)


class TestSchedule:
    @pytest.mark.parametrize("number", [0, 1, 2])
    @pytest.mark.parametrize(("chance", "factor"), [(0.0, 0.8), (0.5, 1.0), (1.0, 1.2)])
    def test_a_failure_is_tried_again(self, number: int, chance: float, factor: float) -> None:
        """After 5 s, 25 s and 125 s, 20 % more or less."""
        delivery = retry_policy.new_delivery("webhook_1", "evt_1", "agent:error", 1)
        delivery = delivery._replace(attempt=number)
        after = retry_policy.after_attempt(delivery, outcome(500), DELAYS, chance)
        assert after.status == "pending"
        assert after.attempt == number + 1
        assert after.next_attempt_at == 1_000_020 + int(DELAYS[number] * factor * 1000)

    def test_the_fourth_failure_is_the_last(self) -> None:
        delivery = retry_policy.new_delivery("webhook_1", "evt_1", "agent:error", 1)._replace(
            attempt=3
        )
        after = retry_policy.after_attempt(delivery, outcome(None), DELAYS, 0.5)
        assert (after.status, after.next_attempt_at) == ("failed", None)
        assert after.completed_at == 1_000_020

    @pytest.mark.parametrize(("asked", "waited"), [(2.0, 5.0), (7.5, 7.5), (3600.0, 3600.0)])
    def test_retry_after_is_the_least(self, asked: float, waited: float) -> None:
        delivery = retry_policy.new_delivery("webhook_1", "evt_1", "agent:error", 1)
        after = retry_policy.after_attempt(delivery, outcome(503, asked), DELAYS, 0.5)
        assert after.next_attempt_at == 1_000_020 + int(waited * 1000)
