"""What a team remembers: notes in markdown, their life cycle, and how they are found."""
