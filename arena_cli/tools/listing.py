"""List the files of a folder and find text in them, within limits on time and size."""

from __future__ import annotations

import fnmatch
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from arena_cli.errors import UsageError
from arena_cli.tools import text_change
from arena_cli.tools.base import ToolFailed
from arena_cli.tools.folder import GIT, WorkFolder
from arena_cli.util import files
from arena_cli.util.text import shorten_text
from arena_cli.util.user_pattern import UserPattern

MOST_BYTES = 15_000
"""The most that is listed, in bytes of UTF-8."""

MOST_SEARCHED_BYTES = 5_000_000
"""Text is not looked for in larger files."""

IGNORE_FILE = ".gitignore"

_MOST_IGNORE_BYTES = 1_000_000
_MOST_SECONDS = 20.0
_MOST_LINE = 300


class Glob:
    """A glob over the path of a file from a folder; one without `/` matches a name anywhere.

    `*` is any part of a name, `?` a character, `[...]` one of several, and `**` any folders.
    """

    def __init__(self, pattern: str) -> None:
        components = [component for component in pattern.split("/") if component not in ("", ".")]
        if "/" not in pattern.rstrip("/"):
            components.insert(0, "**")
        self._parts = [
            None if component == "**" else _compile(component) for component in components
        ]

    def matches(self, components: Sequence[str]) -> bool:
        """Return True if the whole path matches, given by its names."""
        reached = {0}
        for pattern in self._parts:
            if pattern is None:
                reached = set(range(min(reached), len(components) + 1))
            else:
                reached = {
                    index + 1
                    for index in reached
                    if index < len(components) and pattern.match(components[index])
                }
            if not reached:
                return False
        return len(components) in reached


class _IgnoreRule(NamedTuple):
    glob: Glob
    ignores: bool
    folders_only: bool


class IgnoreFile:
    """The rules of a `.gitignore`, for the paths below its folder."""

    def __init__(self, text: str) -> None:
        self._rules = [rule for line in text.splitlines() if (rule := _read_rule(line))]

    def decide(self, components: Sequence[str], *, is_folder: bool) -> bool | None:
        """Return whether a path from its folder is ignored; None if no rule says so."""
        for rule in reversed(self._rules):
            if (is_folder or not rule.folders_only) and rule.glob.matches(components):
                return rule.ignores
        return None


def read_ignore_file(folder: Path) -> IgnoreFile | None:
    """Return the rules of a folder's `.gitignore`; None if it has none that can be read."""
    try:
        with files.open_binary(folder / IGNORE_FILE) as file:
            text = file.read(_MOST_IGNORE_BYTES).decode("utf-8-sig", "replace")
    except OSError:
        return None
    return IgnoreFile(text)


def _read_rule(line: str) -> _IgnoreRule | None:
    pattern = re.sub(r"(?<!\\)[ \t]+$", "", line)
    if not pattern or pattern.startswith("#"):
        return None
    ignores = not pattern.startswith("!")
    pattern = pattern.removeprefix("!")
    folders_only = pattern.endswith("/")
    if not pattern.strip("/"):
        return None
    if pattern.endswith("/**"):
        pattern += "/*"  # all below a folder, and not the folder itself
    return _IgnoreRule(Glob(pattern), ignores, folders_only)


def _compile(component: str) -> re.Pattern[str]:
    """Return the pattern of one name, in which a backslash makes the next sign plain."""
    plain = re.sub(r"\\([*?[])", r"[\1]", component.replace("[^", "[!"))
    return re.compile(fnmatch.translate(re.sub(r"\\(.)", r"\1", plain)))


class ListedFile(NamedTuple):
    """A file or folder: its resolved path, and its names from the folder where the walk began."""

    path: Path
    parts: tuple[str, ...]
    is_folder: bool


class Walk:
    """A walk through a folder: sorted, without `.git`, closed files and, as a rule, ignored ones.

    Links to folders are not followed, and those that lead out are left out. It ends early if `stop`
    is set, or after 20 seconds: then `is_cut`. `above` is the folder below which `.gitignore` files
    hold.
    """

    def __init__(
        self, folder: WorkFolder, above: Path, stop: threading.Event, *, ignored: bool
    ) -> None:
        self._folder = folder
        self._above = above
        self._stop = stop
        self._ignored = ignored
        self._until = time.monotonic() + _MOST_SECONDS
        self.is_cut = False
        self.is_full = False
        self.skipped = 0

    def entries(self, start: Path, *, deep: bool) -> Iterator[ListedFile]:
        """Yield the entries of a folder, with `deep` those of all folders below it too."""
        rules: list[tuple[Path, IgnoreFile]] = []
        for above in reversed(start.parents):
            if above.is_relative_to(self._above):
                rules += self._rules(above)
        yield from self._below(start, (), rules, deep=deep)

    def is_over(self) -> bool:
        """Return True if the walk must end now."""
        self.is_cut = self.is_cut or self._stop.is_set() or time.monotonic() > self._until
        return self.is_cut

    def _rules(self, folder: Path) -> list[tuple[Path, IgnoreFile]]:
        rules = None if self._ignored else read_ignore_file(folder)
        return [] if rules is None else [(folder, rules)]

    def _below(
        self,
        folder: Path,
        components: tuple[str, ...],
        rules: Sequence[tuple[Path, IgnoreFile]],
        *,
        deep: bool,
    ) -> Iterator[ListedFile]:
        rules = [*rules, *self._rules(folder)]
        try:
            with os.scandir(folder) as scan:
                items = sorted(scan, key=lambda item: item.name)
        except OSError:
            self.skipped += 1
            return
        for item in items:
            if self.is_over():
                return
            path = folder / item.name
            is_folder = _is_folder(item)
            if self._is_left_out(path, item, rules, is_folder=is_folder):
                continue
            entry = ListedFile(path, (*components, item.name), is_folder or path.is_dir())
            yield entry
            if deep and is_folder:
                yield from self._below(path, entry.parts, rules, deep=True)

    def _is_left_out(
        self,
        path: Path,
        item: os.DirEntry[str],
        rules: Sequence[tuple[Path, IgnoreFile]],
        *,
        is_folder: bool,
    ) -> bool:
        if item.name.casefold() == GIT or self._folder.is_closed(path):
            return True
        if _is_link(item) and not self._folder.holds(path):
            return True
        if not is_folder and not path.is_file() and not path.is_dir():
            return True
        for above, rule in reversed(rules):
            decision = rule.decide(path.relative_to(above).parts, is_folder=is_folder)
            if decision is not None:
                return decision
        return False


def _is_folder(item: os.DirEntry[str]) -> bool:
    try:
        return item.is_dir(follow_symlinks=False) and not _is_link(item)
    except OSError:
        return False


def _is_link(item: os.DirEntry[str]) -> bool:
    is_junction: Callable[[], bool] | None = getattr(item, "is_junction", None)  # Windows, 3.12
    return item.is_symlink() or (is_junction is not None and is_junction())


class BoundedLines:
    """Lines within `MOST_BYTES`."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._size = 0

    def add(self, line: str) -> bool:
        """Add a line; return False if there is no room for it."""
        size = len(line.encode("utf-8", "replace")) + 1
        if self._size + size > MOST_BYTES:
            return False
        self._lines.append(line)
        self._size += size
        return True

    @property
    def joined(self) -> str:
        """The lines as a text."""
        return "\n".join(self._lines)

    def text(self, walk: Walk, nothing: str) -> str:
        """Return the lines, and what was left out."""
        notes = [] if self._lines else [f"({nothing})"]
        if walk.is_full:
            notes.append("(there are more; narrow it by `path` or `glob`)")
        if walk.is_cut:
            notes.append(f"(stopped after {_MOST_SECONDS:g} s; narrow it by `path` or `glob`)")
        if walk.skipped:
            notes.append(f"({walk.skipped} could not be read)")
        return "\n".join([*self._lines, *notes])


def list_entries(walk: Walk, start: Path, prefix: str, glob: str) -> str:
    """Return the entries of a folder, or the files below it that a glob matches."""
    lines = BoundedLines()
    for entry in _list_files(walk, start, glob) if glob else walk.entries(start, deep=False):
        if not lines.add(prefix + "/".join(entry.parts) + ("/" if entry.is_folder else "")):
            walk.is_full = True
            break
    return lines.text(walk, "no files")


def _list_files(walk: Walk, start: Path, glob: str) -> Iterator[ListedFile]:
    """Yield the files below a folder that a glob matches, all without one; or the file itself."""
    if start.is_file():
        yield ListedFile(start, (), is_folder=False)
        return
    pattern = Glob(glob or "*")
    for entry in walk.entries(start, deep=True):
        if not entry.is_folder and pattern.matches(entry.parts):
            yield entry


class TextSearch:
    """What `find` looks for: a text, or a regular expression. Raises ToolFailed if it is none."""

    def __init__(self, pattern: str, *, is_regex: bool) -> None:
        if not pattern:
            raise ToolFailed("`pattern` is empty")
        self._text = pattern
        self._regex: UserPattern | None = None
        if is_regex:
            try:
                self._regex = UserPattern(pattern)
                self._regex.search("")
            except (re.error, UsageError) as error:
                raise ToolFailed(f"`pattern` is not a regular expression: {error}") from error

    def numbers(self, text: str, walk: Walk) -> Iterator[tuple[int, str]]:
        """Yield the number and text of each line that matches, until the walk is over.

        Raises UsageError if a line takes long.
        """
        if self._regex is None and self._text not in text:
            return
        for number, ended in enumerate(text.split("\n"), start=1):
            if walk.is_over():
                return
            line = ended.removesuffix("\r")
            if self._regex.search(line) if self._regex else self._text in line:
                yield number, line


def find_lines(walk: Walk, start: Path, prefix: str, search: TextSearch, glob: str) -> str:
    """Return the lines that match, as `file:line: text`. Raises ToolFailed."""
    lines = BoundedLines()
    try:
        for entry in _list_files(walk, start, glob):
            name = (prefix + "/".join(entry.parts)).rstrip("/")
            for number, line in search.numbers(_read_text(entry.path), walk):
                if not lines.add(f"{name}:{number}: {shorten_text(line.strip(), _MOST_LINE)}"):
                    walk.is_full = True
                    return lines.text(walk, "no line matches")
    except UsageError as error:
        raise ToolFailed(error.what) from error
    return lines.text(walk, "no line matches")


def _read_text(path: Path) -> str:
    """Return the text of a file; "" for one that is binary, too large or cannot be read."""
    try:
        if not path.is_file() or path.stat().st_size > MOST_SEARCHED_BYTES:
            return ""
        with files.open_binary(path) as file:
            decoded = text_change.decode(file.read(MOST_SEARCHED_BYTES))
    except OSError:
        return ""
    return decoded.text if decoded is not None else ""
