"""Make a scenario from a session."""
