"""The adapter of OpenAI and of servers with the same API."""
