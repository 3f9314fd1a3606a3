"""Graphs of what needs what: tasks, steps of plans and of flows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter


def find_circle(needs: Mapping[str, Sequence[str]]) -> list[str]:
    """Return ids that need each other, the first one again at the end; an empty list if none do."""
    try:
        TopologicalSorter(needs).prepare()
    except CycleError as error:
        circle: list[str] = error.args[1]
        return circle[::-1]
    return []
