"""Authentication, authorization data, limits and the audit trail.

A request's credential becomes a principal in `authentication` (API keys) or `sessions` (dashboard
sessions). `rate_limits` and `quota` bound what the principal may request; `handshakes` bounds the
connections of machines. `idempotency` makes repeated requests safe, and `audit` records requests
and their outcomes. `enrollment` connects machines to accounts. `client_address` finds the address
that limits and audit records use; `encryption` protects secrets at rest.
"""
