"""The input of an agent: window, history, summary."""
