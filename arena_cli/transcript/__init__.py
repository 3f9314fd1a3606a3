"""The transcript of a session: its events, how they are appended, read, folded and repaired."""
