"""Coding agents that are programs."""
