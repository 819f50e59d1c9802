"""The debug bundle: gathered, redacted, bounded, and told as text.

`bundle` gathers the parts and hands them to `worker`, a child process: there `bounds` copies them
into a bounded space and `report` makes the text.
`redaction` takes secrets out of every text on the way: `controls` removes control sequences
first, `escapes` reads JSON in a text, and `scan` looks for each form of secret, which are in
`keys` (private keys), `tokens` (by their shape), `forms` (URLs, headers, files), `commands`,
`markup` and `named` (by a name; `names` knows which, `values` what stands behind them).
"""
