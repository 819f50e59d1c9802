"""Who may do what: credentials, scopes, enrollment of machines."""
