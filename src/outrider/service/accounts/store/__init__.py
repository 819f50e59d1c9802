"""The statements on accounts, users, keys, sessions, codes, the audit and the month's usage."""
