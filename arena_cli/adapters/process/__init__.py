"""The programs of agents: start, read and end them."""
