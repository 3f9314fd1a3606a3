"""Scenario files: chosen, put together, checked; before anything runs."""
