"""What tests of the service stand on: a running service, accounts, and scripted machines."""
