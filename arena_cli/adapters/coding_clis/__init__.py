"""Codex, Gemini, Cursor, opencode and pi."""
