"""Removes secrets from texts, in time that is linear in their length.

`redactor` is the front door: it normalizes a text (`control_sequences`, `escapes`), runs detectors
on it and replaces what they find with marks. `scan` is what detectors share. Each module of
detectors knows one kind of evidence: `private_keys`, `tokens` (recognized by their shape),
`known_formats` (URLs, headers, credential files), `command_lines`, `markup` and `named_values`
(recognized by a name; `secret_names` knows which names, `values` where a value ends and which
values are placeholders).
"""
