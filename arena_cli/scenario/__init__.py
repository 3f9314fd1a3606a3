"""Scenarios: scripted conversations and what must come of them."""
