"""Read which commit a folder is at, without running git: its settings may name programs."""

from __future__ import annotations

import re
from pathlib import Path

_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_MOST_BYTES = 1 << 22
_SHORT = 10


def read_commit(folder: Path) -> str:
    """Return the short id of the commit that is checked out; empty outside of a repository."""
    try:
        return _read_commit(folder.resolve())[:_SHORT]
    except (OSError, ValueError):
        return ""


def _read_commit(folder: Path) -> str:
    marks = (parent / ".git" for parent in (folder, *folder.parents))
    mark = next((path for path in marks if path.exists()), None)
    if mark is None:
        return ""
    git = mark
    if mark.is_file():  # of a worktree or a submodule
        git = mark.parent / _read(mark).removeprefix("gitdir:").strip()
    head = _read(git / "HEAD").strip()
    if not head.startswith("ref:"):
        return head if _COMMIT.fullmatch(head) else ""
    name = head.removeprefix("ref:").strip()
    shared = git / "commondir"
    common = git / _read(shared).strip() if shared.is_file() else git
    for base in (git, common):
        if _is_plain(name) and (base / name).is_file():
            commit = _read(base / name).strip()
            return commit if _COMMIT.fullmatch(commit) else ""
    packed = common / "packed-refs"
    rows = _read(packed).split("\n") if packed.is_file() else []
    commits = (row.partition(" ")[0] for row in rows if row.partition(" ")[2].strip() == name)
    return next(filter(_COMMIT.fullmatch, commits), "")


def _is_plain(name: str) -> bool:
    return name.startswith("refs/") and ".." not in name.split("/")


def _read(path: Path) -> str:
    if not path.is_file():  # a pipe would block
        raise FileNotFoundError(path)
    with path.open("rb") as file:
        return file.read(_MOST_BYTES).decode("utf-8", "replace")
