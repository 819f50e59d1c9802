"""The asynchronous client. The synchronous one (`outrider.sdk.synchronous`) is generated from it.

    client ── machine, agent, webhooks ──▶ transport ── HTTP ──▶ service
                        │                      ▲
                        └── event_stream ──────┘

`make`, the tests and every installation run `scripts/generate_sync_client.py`. What does no I/O is
shared and lies in `outrider.sdk`.
"""
