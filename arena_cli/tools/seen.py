"""Remember the files that agents read or wrote, to tell them if others change these.

Each file has a record in the session's folder: its agents, its hash, and its redacted text.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from arena_cli.tools import text_change
from arena_cli.util import files

_MOST_TEXT = 256 * 1024


class ChangedFile(NamedTuple):
    """A file that has changed: its path from the workspace or its folder, its agents, its diff."""

    name: str
    agents: tuple[str, ...]
    diff: str


class SeenFiles:
    """The records of a session, in `folder`; `redact` is applied to each text that is kept."""

    def __init__(self, folder: Path, redact: Callable[[str], str]) -> None:
        self._folder = folder
        self._redact = redact
        self._lock = threading.Lock()

    def note(self, path: Path, name: str, agent: str, content: bytes | None) -> None:
        """Remember that an agent knows this content of a file; None: that there is none."""
        with self._lock, contextlib.suppress(OSError):
            record = self._read(self._place(path))
            agents = record["agents"] if record else []
            self._write(path, name, sorted({*agents, agent}), content)

    def refresh(self) -> None:
        """Take the files as they are now, such as after a command of an agent."""
        with self._lock:
            for record, content in self._changed():
                self._write(Path(record["path"]), record["name"], record["agents"], content)

    def take_changes(self) -> list[ChangedFile]:
        """Return the files that are not as agents know them, each change once."""
        changes = []
        with self._lock:
            for record, content in self._changed():
                known_text = None if record["sha256"] is None else record["text"]
                diff = ""
                if record["sha256"] is None or known_text is not None:
                    old = None if known_text is None else known_text.encode("utf-8")
                    diff = text_change.make_diff(record["name"], old, self._redact_bytes(content))
                agents = tuple(record["agents"])
                changes.append(ChangedFile(record["name"], agents, diff))
                self._write(Path(record["path"]), record["name"], record["agents"], content)
        return changes

    def _changed(self) -> Iterator[tuple[dict[str, Any], bytes | None]]:
        """Yield the records of changed files, with the contents of now."""
        for record_path in sorted(self._folder.glob("*.json")):
            record = self._read(record_path)
            if record is None:
                continue
            try:
                content: bytes | None = files.read_regular(Path(record["path"]))
            except FileNotFoundError:
                content = None
            except OSError:
                continue
            if _hash(content) != record["sha256"]:
                yield record, content

    def _place(self, path: Path) -> Path:
        digest = hashlib.sha256(str(path).encode("utf-8", "surrogatepass")).hexdigest()
        return self._folder / f"{digest[:32]}.json"

    def _read(self, record_path: Path) -> dict[str, Any] | None:
        try:
            record: dict[str, Any] = json.loads(files.read_regular(record_path))
        except (OSError, ValueError):
            return None
        return record if {"path", "name", "agents", "sha256", "text"} <= {*record} else None

    def _write(self, path: Path, name: str, agents: list[str], content: bytes | None) -> None:
        redacted = self._redact_bytes(content)
        text = redacted and text_change.decode(redacted)
        record = {
            "path": str(path),
            "name": name,
            "agents": agents,
            "sha256": _hash(content),
            "text": text.text if text else ("" if redacted == b"" else None),
        }
        files.make_own_folder(self._folder, below=self._folder.parent)
        files.replace_file(self._place(path), json.dumps(record).encode("ascii"), is_own=True)

    def _redact_bytes(self, content: bytes | None) -> bytes | None:
        """Return a content as it may be kept and shown; binary or long ones as a NUL."""
        if content is None:
            return None
        file = text_change.decode(content) if len(content) <= _MOST_TEXT else None
        return b"\0" if file is None else self._redact(file.text).encode("utf-8")


def _hash(content: bytes | None) -> str | None:
    return None if content is None else hashlib.sha256(content).hexdigest()
