"""Who makes a request, what they may do and how much, and the audit trail.

    a user ──▶ passwords, login_links ──▶ dashboard_sessions ──▶ session token ┐
    operator (`outrider admin`) ──▶ credentials ─────────────▶ API key ────────┤
    a request ─▶ client_address ─▶ authentication ◀────────────────────────────┘
                                   │ principal
                                   ▼ api.authorization: rate_limits, scope, recent login, quota
                    handler (`idempotency` makes a repeated request safe) ─▶ audit

`authentication` finds the principal of a credential: an API key, or a token of
`dashboard_sessions`. A user proves their identity with a password (`passwords`; `password_resets`
makes the links that set one) or with a one-time link of `outrider up` (`login_links`).
`credentials` generates all tokens, keys and codes. `revocation` ends what a credential keeps open,
and `account_changes` finds what operators have changed. Machines: `enrollment` connects them to
accounts, `handshakes` limits their connections. `encryption` protects secrets at rest.
"""
