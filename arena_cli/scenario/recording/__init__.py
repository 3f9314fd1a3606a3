"""Recordings: what agents were asked and answered in a live run, from which it is played again."""
