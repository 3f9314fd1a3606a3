"""Compare replies with their snapshots (`snapshot: true`).

`recordings/<stem>.snapshots.json` contains the replies of all cases of a scenario's file. They are
sorted, each text as a list of its lines, so that a diff of the file is readable.
"""

from __future__ import annotations

import difflib
import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import ValidationError

from arena_cli.errors import DiskRefused
from arena_cli.scenarios.expect import text_checks
from arena_cli.scenarios.expect.context import Folders, Subject
from arena_cli.scenarios.expect.text_checks import NoVerdict, Verdict
from arena_cli.util import files
from arena_cli.util.text import cut_text
from arena_cli.yamlio.nodes import Loc
from arena_cli.yamlio.shapes import FileShape

FOLDER = "recordings"
SUFFIX = ".snapshots.json"
VERSION = 1
MOST_LINES = 40  # of a difference that a verdict shows


class NotSnapshots(Exception):
    """A file without valid snapshots; the message has the line and the reason."""


class _SnapshotEntry(FileShape):
    """A snapshot as its file has it: the text is a list of its lines."""

    case: str | None
    step: int | None
    agent: str
    reply: int
    text: list[str]


class Key(NamedTuple):
    """The reply of a snapshot: `case` is empty if a file has none, `step` is 0 over all steps."""

    case: str
    step: int
    agent: str
    reply: int


def path_of(scenario: Path) -> Path:
    """Return the path of the snapshots of a scenario's file."""
    return scenario.parent / FOLDER / f"{scenario.stem}{SUFFIX}"


class Snapshots:
    """The snapshots of one case of a scenario.

    With `update` each reply replaces its snapshot, with `sync` each write is flushed to the disk.

    `cases` are all that its file has; if it has none, `case` is None, and `cases` are None alone.
    Its snapshots are read when the first is requested.
    """

    def __init__(
        self,
        scenario: Path,
        case: str | None,
        *,
        cases: Iterable[str | None],
        update: bool = False,
        sync: bool = False,
    ) -> None:
        self.update = update
        self._sync = sync
        self.scenario = scenario
        self._path = path_of(scenario)
        self._case = case or ""
        self._cases = {name or "" for name in cases}
        self._kept: dict[Key, str] | None = None
        self._seen: dict[Key, str] = {}

    def kept(self, subject: Subject) -> str | None:
        """Return the snapshot of a reply, None without one. Raises NotSnapshots."""
        if self._kept is None:
            self._kept = self._read()
        key = self._key(subject)
        self._seen[key] = _lines_alike(subject.text)
        return subject.text if self.update else self._kept.get(key)

    def save(self, *, is_whole: bool) -> bool:
        """Write the new snapshots in `update` mode; return True if the file changed.

        With `is_whole` the scenario was played to its end, so snapshots that were not used are
        removed. Those of other cases are kept as long as these cases exist. Raises DiskRefused and
        NotSnapshots.
        """
        if not self.update or (not self._seen and not self._path.is_file()):
            return False
        stored = self._read()
        stay = {
            key: text
            for key, text in stored.items()
            if not is_whole or (key.case != self._case and key.case in self._cases)
        }
        new = {**stay, **self._seen}
        if new == stored:
            return False
        _write(self._path, new, sync=self._sync)
        return True

    def _read(self) -> dict[Key, str]:
        try:
            return read(self._path)
        except NotSnapshots as error:
            raise NotSnapshots(f"{self._path}{error}") from error
        except OSError as error:
            reason = error.strerror or error
            raise NotSnapshots(f"{self._path}: cannot be read: {reason}") from error

    def _key(self, subject: Subject) -> Key:
        step, agent, reply, *_ = subject.place
        return Key(self._case, int(step), str(agent), int(reply))


def read(path: Path) -> dict[Key, str]:
    """Return the snapshots in a file, none if it is missing. Raises NotSnapshots and OSError."""
    try:
        data = json.loads(files.read_regular(path).decode("utf-8-sig"))
    except FileNotFoundError:
        return {}
    except json.JSONDecodeError as error:
        raise NotSnapshots(f":{error.lineno}: not JSON: {error.msg}") from error
    except (ValueError, RecursionError) as error:
        raise NotSnapshots(f": cannot be read: {error}") from error
    if not isinstance(data, dict) or not isinstance(data.get("snapshots"), list):
        raise NotSnapshots(": holds no snapshots")
    if data.get("version") != VERSION:
        raise NotSnapshots(f": is of version {data.get('version')}; this arena reads {VERSION}")
    snapshots: dict[Key, str] = {}
    for number, fields in enumerate(data["snapshots"]):
        try:
            entry = _SnapshotEntry.model_validate(fields, strict=True)
        except ValidationError as error:
            names = ", ".join(_SnapshotEntry.model_fields)
            problem = f": snapshots[{number}] is not a snapshot: it needs {names}"
            raise NotSnapshots(problem) from error
        key = Key(entry.case or "", entry.step or 0, entry.agent, entry.reply)
        if key in snapshots:
            raise NotSnapshots(f": snapshots[{number}] appears twice")
        snapshots[key] = "\n".join(entry.text)
    return snapshots


def _write(path: Path, entries: dict[Key, str], *, sync: bool) -> None:
    """Write the whole file atomically; remove it if there are no entries. Raises DiskRefused."""
    listed = [
        _SnapshotEntry(
            case=key.case or None,
            step=key.step or None,
            agent=key.agent,
            reply=key.reply,
            text=text.split("\n"),
        ).model_dump()
        for key, text in sorted(entries.items())
    ]
    content = json.dumps({"version": VERSION, "snapshots": listed}, ensure_ascii=False, indent=2)
    try:
        if not entries:
            path.unlink(missing_ok=True)
            if sync:
                files.sync_folders([path.parent])
            return
        files.replace_file_synced(path, f"{content}\n".encode(), sync=sync)
        files.remove_leftovers(path.parent, path.suffix)
    except OSError as error:
        raise DiskRefused(f"{path}: could not write: {error.strerror or error}") from error


def judge(subject: Subject, _: Literal[True], *, ignore_case: bool = False) -> Verdict:
    """Check that the reply equals its snapshot; show the lines that differ next to each other."""
    snapshots = subject.context.snapshots
    if snapshots is None:
        raise LookupError("snapshots cannot be stored here")
    try:
        snapshot = snapshots.kept(subject)
    except NotSnapshots as error:
        raise NoVerdict(asks(True), str(error)) from error
    mend = f"`{_update(snapshots.scenario, subject.context.folders)}` writes it"
    if snapshot is None:
        return Verdict(
            False, asks(True), f"no snapshot yet ({mend}): {text_checks.excerpt(subject.text)}"
        )
    old_lines, new_lines = (_lines_alike(text).split("\n") for text in (snapshot, subject.text))
    if _forms(old_lines, ignore_case) == _forms(new_lines, ignore_case):
        return Verdict(True, asks(True), text_checks.excerpt(subject.text))
    old_lines, new_lines = _difference(old_lines, new_lines, ignore_case)
    return Verdict(False, "\n".join(old_lines), "\n".join([*new_lines, f"(it differs; {mend})"]))


def asks(_: Literal[True], **__: bool) -> str:
    """Describe the expectation of a snapshot."""
    return "the reply equals its snapshot"


def wrong(loc: Loc, folders: Folders) -> Iterator[tuple[Loc, str, str]]:
    """Yield problems of the place of a snapshot, below `expect`, or of its file."""
    if loc[0] != "replies" or "any" in loc[2:3] or {"not", "any_of"} & set(loc[2:]):
        mend = "write it in `replies`, under an agent, or its first, last or all"
        yield (), "a snapshot is not allowed here", mend
        return
    if folders.scenario is None:
        return
    path = path_of(folders.scenario)
    try:
        read(path)
    except NotSnapshots as error:
        mend = f"correct it, or delete it and write it again: {_update(folders.scenario, folders)}"
        yield (), f"{folders.shown(path)}{error}", mend
    except OSError as error:
        yield (), f"{folders.shown(path)}: cannot be read: {error.strerror or error}", ""


def _update(scenario: Path, folders: Folders) -> str:
    """Return the command that updates the snapshots of a scenario."""
    by_name = scenario.parent.resolve() == (folders.workspace / "scenarios").resolve()
    name = scenario.stem if by_name else folders.shown(scenario)
    return f"arena run --update {text_checks.quoted(name) if ' ' in name else name}"


def _lines_alike(text: str) -> str:
    """Return a text with uniform line ends."""
    return text.replace("\r\n", "\n")


def _forms(lines: Iterable[str], ignore_case: bool) -> list[str]:
    return [text_checks.form(line, ignore_case) for line in lines]


def _difference(
    old_lines: Sequence[str], new_lines: Sequence[str], ignore_case: bool
) -> tuple[list[str], list[str]]:
    """Return the lines that differ, on both sides, each with a line around it.

    `-` and `+` mark the lines that differ.
    """
    removed: list[str] = []
    right: list[str] = []
    forms = _forms(old_lines, ignore_case), _forms(new_lines, ignore_case)
    matcher = difflib.SequenceMatcher(None, *forms, autojunk=False)
    for group in matcher.get_grouped_opcodes(1):
        if removed or group[0][1]:
            removed.append("…")
            right.append("…")
        for tag, start, end, from_, to in group:
            if tag == "equal":
                removed += [f"  {_cut(line, 0)}" for line in old_lines[start:end]]
                right += [f"  {_cut(line, 0)}" for line in new_lines[from_:to]]
            else:
                _pair(old_lines[start:end], new_lines[from_:to], removed, right)
    return _most(removed), _most(right)


def _pair(
    old_lines: Sequence[str], new_lines: Sequence[str], removed: list[str], right: list[str]
) -> None:
    for index in range(max(len(old_lines), len(new_lines))):
        old = old_lines[index] if index < len(old_lines) else None
        new = new_lines[index] if index < len(new_lines) else None
        if old is not None and new is not None and old.split() == new.split():
            old, new = text_checks.quoted(old), text_checks.quoted(new)  # only blanks differ
        same = _count_alike(old or "", new or "")
        removed.append("" if old is None else f"- {_cut(old, same)}")
        right.append("" if new is None else f"+ {_cut(new, same)}")


def _count_alike(first: str, second: str) -> int:
    """Count the characters that both have in common at the beginning."""
    pairs = zip(first, second, strict=False)
    return len([*itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)])


def _cut(line: str, same: int) -> str:
    """Return an excerpt of a long line around the position where it begins to differ."""
    start = max(same - text_checks.EXCERPT // 4, 0) if len(line) > text_checks.EXCERPT else 0
    excerpt = cut_text(line[start:], text_checks.EXCERPT)
    return f"{'…' if start else ''}{excerpt}{'…' if start + len(excerpt) < len(line) else ''}"


def _most(lines: list[str]) -> list[str]:
    omitted = len(lines) - MOST_LINES
    return [*lines[:MOST_LINES], f"… {omitted} more lines"] if omitted > 0 else lines
