"""The debug bundle of a session: collected, redacted, limited in size, and rendered as text.

    bundle (daemon) ── parts ──> worker (child process): bounds + redaction, then report

- `bundle` collects the parts of a session and passes them to `worker`, a child process.
- `bounds` copies them within size limits, `redaction` removes secrets from every text in them, and
  `report` renders the result as Markdown.
- `redaction` normalizes a text (`control_sequences`, `escapes`), then runs detectors on it.
- `scan` is what detectors share. Each module of detectors knows one kind of evidence:
  `private_keys`, `tokens` (recognized by their shape), `known_formats` (URLs, headers, credential
  files), `command_lines`, `markup` and `named_values` (recognized by a name; `secret_names` knows
  which names, `values` where a value ends and which values are placeholders).
"""
