"""What other people's tools say of the API's description; `make test-openapi` runs them."""
