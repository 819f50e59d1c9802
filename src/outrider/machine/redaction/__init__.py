"""Removes secrets from texts, in time that is linear in their length (SECURITY.md, docs/debug.md).

`redactor` is the front door: it normalizes a text (`control_sequences`, `escapes`), runs detectors
on it and replaces what they detect with marks. `scan` is what detectors share. Most detectors are
rows of `rules.toml`, in the form of gitleaks' rules (`rules` makes them; `tables` reads the file).

What those rules cannot express is our own, and each form of it is in the corpus of the tests
(`tests/machine/redaction/corpus.py`), which a debug bundle promises to remove: tokens inside longer
words (`tokens`), private keys whose beginning has scrolled off (`private_keys`), passwords in URLs
that are not escaped (`urls`), values of secret names in code, YAML and prose (`named_values`) and
in XML and pairs (`markup`). `secret_names` knows which names, `values` where a value ends and which
values are placeholders. detect-secrets is not used: some of its patterns take quadratic time.
"""
