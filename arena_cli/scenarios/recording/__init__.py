"""Recordings, replay and drift."""
