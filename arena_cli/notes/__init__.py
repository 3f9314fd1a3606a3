"""Notes: files, search, extraction, compliance."""
