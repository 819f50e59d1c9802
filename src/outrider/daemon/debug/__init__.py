"""The debug bundle: gathered, redacted, bounded, and told as text."""
