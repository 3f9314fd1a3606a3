"""The adapter of Anthropic's API."""
