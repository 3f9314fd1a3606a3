"""The page of a session or a run."""
