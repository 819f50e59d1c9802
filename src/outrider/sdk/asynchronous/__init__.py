"""The asynchronous client. The synchronous one (`outrider.sdk.synchronous`) is generated from it.

    client ── machine, agent, webhooks ──▶ transport ── HTTP ──▶ service
                        │                      ▲
                        └── event_stream ──────┘

After a change run `scripts/generate_sync_client.py`; a test says if it is not current. What does no
I/O is shared and lies in `outrider.sdk`.
"""
