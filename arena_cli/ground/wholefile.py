"""A file is written as a whole, or stays as it was."""

from __future__ import annotations

import os
from pathlib import Path

from arena_cli.ground import ownfiles


def replace(path: Path, content: bytes, *, is_own: bool = False) -> None:
    """Put the content there; whoever reads meanwhile sees the old or the new. Raises OSError.

    A file of arena's own (`is_own`) keeps its mode, or is made for its owner only.
    """
    part = beside(path)
    try:
        ownfiles.write_part(part, content, instead_of=path if is_own else None)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def beside(path: Path) -> Path:
    """A path in the same folder, of this process alone."""
    return path.with_name(f".{path.name}.{os.getpid()}")
