"""Joining: how a machine becomes part of an account."""

from outrider.cloud.access.enrolment import Enrolled, EnrolRequest
from outrider.cloud.api.endpoint import Call, Endpoint, Services


async def enrol(services: Services, call: Call) -> Enrolled:
    """Exchange a one-time code for a machine's connection token, shown this once."""
    request: EnrolRequest = call.body
    return await services.enrolment.redeem(request)


ENDPOINTS = [
    Endpoint(
        "POST",
        "/api/v1/auth/enroll",
        None,
        "Enrol a machine",
        enrol,
        Enrolled,
        body=EnrolRequest,
        tag="Enrolment",
    ),
]
