"""The statements on machines and on the history of their sessions."""
