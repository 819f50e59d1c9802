"""Who makes a request, what they may do and how much, and the audit trail.

    a user ─▶ passwords, one_time_links ─▶ dashboard_sessions ──▶ session token ┐
    operator (`outrider admin`) ──▶ credentials ─────────────▶ API key ────────┤
    a request ─▶ http.client_address ─▶ authentication ◀───────────────────────┘
                                   │ principal
                                   ▼ http.authorization: rate_limits, scope, recent login, quota
                    handler (`idempotency` makes a repeated request safe) ─▶ audit

`endpoints` has the account, its keys and its audit; `login_endpoints` logging in, and how machines
join; `pages` the HTML pages for both. A user proves their identity with a password (`passwords`) or
with the link of `outrider up`: `one_time_links` makes it, and those that set a password.
`credentials` generates all tokens, keys and codes. `revocation` ends what a credential keeps open,
and `account_changes` finds what operators have changed. `enrollment` connects machines to accounts.
`encryption` protects secrets at rest.
"""
