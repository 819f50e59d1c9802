"""A stub model, as a program of its own."""
