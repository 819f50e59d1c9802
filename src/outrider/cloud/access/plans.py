"""What each plan allows. The figures are the specification's."""

from typing import Final, Literal, NamedTuple

PlanName = Literal["free", "pro", "team", "enterprise"]


class Plan(NamedTuple):
    """The limits of a plan; None is unlimited."""

    calls_per_month: int | None
    webhooks: int | None


PLANS: Final[dict[str, Plan]] = {
    "free": Plan(1_000, 2),
    "pro": Plan(50_000, 10),
    "team": Plan(500_000, 50),
    "enterprise": Plan(None, None),
}
