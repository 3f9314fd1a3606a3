"""A session that somebody had becomes a scenario with its recording."""
