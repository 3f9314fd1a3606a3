"""The record of a session, for people and for agents: what was said, and every call behind it."""
