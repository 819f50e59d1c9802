"""What an operator does: health, metrics, TLS, backup and restore, checks at the start."""
