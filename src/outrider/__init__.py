"""Outrider drives coding agents on many machines over one REST API."""

__version__ = "0.1.0"
