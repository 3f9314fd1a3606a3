"""A file is written as a whole, or stays as it was."""

from __future__ import annotations

import os
from pathlib import Path


def replace(path: Path, content: bytes) -> None:
    """Put the content there; whoever reads meanwhile sees the old or the new. Raises OSError."""
    part = beside(path)
    try:
        part.write_bytes(content)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def beside(path: Path) -> Path:
    """A path in the same folder, of this process alone."""
    return path.with_name(f".{path.name}.{os.getpid()}")
