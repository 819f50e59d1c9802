"""Who may do what: credentials, scopes, enrolment of machines."""
