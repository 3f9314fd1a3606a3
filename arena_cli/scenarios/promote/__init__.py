"""Make a scenario of a session."""
