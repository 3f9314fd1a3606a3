"""arena: a team of AI agents that already exist, in one conversation."""

__version__ = "0.1.0"
