"""Explain why the system cannot start a script: its line ends, its first line."""

from __future__ import annotations

import os
from pathlib import Path

_HEAD_BYTES = 512
_RUNNERS = {".js": "node", ".mjs": "node", ".rb": "ruby", ".sh": "sh"}


def suggest_runner(path: Path) -> str:
    """Return the program that probably runs a script, by the ending of its name."""
    return _RUNNERS.get(path.suffix.lower(), "python3")


def find_script_problem(path: Path, *, key: str) -> tuple[str, str] | None:
    """Return why the system cannot start the file, and a hint; None if it looks sound.

    `key` is the setting that names the file. Windows starts programs by their ending.
    """
    head = _read_head(path) if os.name == "posix" else b""
    if b"\0" in head or not head:  # a binary
        return None
    first_line = head.partition(b"\n")[0]
    runner = suggest_runner(path)
    other_way = f"name the program that runs it: {key}: [{runner}, {path.name}]"
    if key == "program":
        other_way = f"start it with a script of two lines: `#!/bin/sh` and `exec {runner} ...`"
    interpreter = os.fsdecode(first_line[2:].split()[0]) if first_line[2:].split() else ""
    problem = hint = ""
    if not first_line.startswith(b"#!"):
        problem = "is a script without a `#!` line, so the system cannot start it"
        hint = f"begin it with `#!/usr/bin/env {runner}`"
    elif first_line.endswith(b"\r"):
        problem = "has the line ends of Windows (CRLF), so the system cannot start it"
        hint = f"convert it (sed -i 's/\\r$//' {path.name})"
    elif interpreter and not Path(interpreter).exists():
        problem = f"names {interpreter} in its first line, which is missing"
        hint = "install that program"
    return (f"{path} {problem}", f"{hint}, or {other_way}") if problem else None


def _read_head(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_HEAD_BYTES)
    except OSError:
        return b""
