"""Programs as agents: start, read, end."""
