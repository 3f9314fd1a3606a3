"""The adapters: a common protocol for every kind of agent."""
