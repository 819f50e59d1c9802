"""The service: the REST API, accounts, and the gateway that machines connect to."""
