"""Commands that install arena with what some of its features need."""

from __future__ import annotations

DISTRIBUTION = "arena-agents"
SOURCE = "git+https://..."  # wherever the reader has arena from


def with_extra(name: str) -> str:
    """Return the commands that install arena with an extra, in a checkout and elsewhere."""
    return (
        f"in arena's checkout `pip install '.[{name}]'`,"
        f" elsewhere `pip install '{DISTRIBUTION}[{name}] @ {SOURCE}'`"
    )
