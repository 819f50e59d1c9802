"""Every endpoint of the API. No route exists that is not in here."""

from outrider.cloud.api import daemons, enrolment, shortcuts

ENDPOINTS = [*daemons.ENDPOINTS, *shortcuts.ENDPOINTS, *enrolment.ENDPOINTS]
