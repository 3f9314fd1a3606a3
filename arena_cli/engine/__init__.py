"""The turn engine."""
