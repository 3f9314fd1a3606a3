"""Differences of sessions and runs."""
