"""The debug bundle of a session: collected, redacted, limited in size, and rendered as text.

    bundle (daemon) ── parts ──> worker (child process): bounds with redaction, then report

- `bundle` collects the parts of a session and passes them to `worker`, a child process.
- `bounds` copies the parts within size limits and has `machine.redaction` remove their secrets.
- `report` renders the result as Markdown.
"""
