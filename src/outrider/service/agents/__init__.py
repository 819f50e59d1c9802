"""Agents: the requests that launch, ask, answer, interrupt and wait for them (`/shortcuts`)."""
