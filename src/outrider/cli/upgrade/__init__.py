"""`outrider upgrade`: whether a newer release exists, and the commands that install it.

    command ──▶ package_index      the newest release; asked only with `--check`
        │
        ├─────▶ installation       how this Outrider was installed, and what upgrades it
        │
        └─────▶ cli.doctor         the versions of the service and its machine agents

Nothing is installed, no server is contacted without `--check`.
"""
