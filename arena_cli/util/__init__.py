"""Text, files, redaction, clock."""
