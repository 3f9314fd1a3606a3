"""Scenarios played, in sessions of their own."""
