"""The adapters of Codex, Gemini, Cursor, opencode and pi."""
