"""What is expected of a conversation, and whether it holds: pure functions of its events."""
