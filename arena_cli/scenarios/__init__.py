"""Scenarios: load, play, check, record."""
