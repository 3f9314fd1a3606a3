"""ACP agents, by the SDK of the protocol."""
