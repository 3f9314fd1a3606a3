"""One protocol over every kind of agent."""
