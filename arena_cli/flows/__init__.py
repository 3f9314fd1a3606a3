"""Flows: steps that a person wrote down, as a graph (docs/guides/workflows.md)."""
