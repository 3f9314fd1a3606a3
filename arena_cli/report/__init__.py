"""What people and programs read: timelines and results, made of events alone."""
