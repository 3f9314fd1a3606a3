"""A conversation of a team, open for writing: send a message, or go on with what was cut short."""
