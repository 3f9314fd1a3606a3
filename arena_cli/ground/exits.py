"""The exit codes of the program, as docs/exit-codes.md explains them."""

from __future__ import annotations

NOT_HELD = 1
"""An expectation failed, a fault was found, nobody was found."""

USAGE = 2
"""Wrong use or a wrong file, before anything ran."""

FAILED = 3
"""A chain, an agent or a check failed; or arena itself."""

REFUSED = 5
"""The session is busy, or the disk refused a write."""

INTERRUPTED = 130
"""Ctrl-C or SIGTERM."""
