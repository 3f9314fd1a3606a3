"""Agents behind an HTTP API."""
