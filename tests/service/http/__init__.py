"""Tests of the API's framework, on endpoint tables of their own."""
