"""Tools that agents call."""
