"""The tools by which an agent reads and changes files in its folder, and only there.

Changes of a file are made one after the other, each whole or not at all. A person approves one by
the content that it leaves: if the file has changed meanwhile, the new change is asked about.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import secrets
import shutil
import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from arena_cli.protocol import PermissionRequest, ToolSpec
from arena_cli.tools import listing, text_change
from arena_cli.tools.base import Tool, ToolFailed, ToolOutput, ToolScope, make_spec
from arena_cli.tools.folder import WorkFolder
from arena_cli.util import files

MOST_BYTES = 20_000_000
"""Larger files are neither read nor edited."""

_MOST_LINES = 2000
_MOST_LINE_CHARS = 2000
_MODIFY = "modify_file"

OnSeen = Callable[[Path, bytes | None], None]
"""Gets the path and the content of a file that an agent read or changed."""

_PATH = {"type": "string", "description": "Path in your folder, such as src/app.py."}
_START = {"type": "string", "description": "Folder to begin in; by default your whole folder."}
_GLOB = {"type": "string", "description": "Only files that match, such as *.py or src/**/*.ts."}
_IGNORED = {"type": "boolean", "description": "Also what .gitignore leaves out."}


_READ = make_spec(
    "read_file",
    "Read a text file. Each line has its number and a tab in front.",
    "path",
    path=_PATH,
    offset={"type": "integer", "minimum": 1, "description": "First line, from 1."},
    limit={"type": "integer", "minimum": 1, "description": "Most lines; by default 2000."},
)
_LIST = make_spec(
    "list_files",
    "List a folder, or with `glob` all files below it that match. Folders end with /.",
    "",
    path=_START,
    glob=_GLOB,
    ignored=_IGNORED,
)
_FIND = make_spec(
    "find",
    "Find the lines in files that contain a text, as file:line: text.",
    "pattern",
    pattern={"type": "string", "description": "The text to look for."},
    path={**_START, "description": "File or folder to look in; by default your whole folder."},
    regex={"type": "boolean", "description": "`pattern` is a regular expression."},
    glob=_GLOB,
    ignored=_IGNORED,
)
_WRITE = make_spec(
    "write_file",
    "Write a whole file; it is created, or replaced. Folders are made.",
    "path content",
    path=_PATH,
    content={"type": "string", "description": "The whole new text."},
)
_EDIT = make_spec(
    "edit_file",
    "Replace a text in a file. `old` must be in it exactly once, unless `all` is set.",
    "path old new",
    path=_PATH,
    old={"type": "string", "description": "The exact text to replace, without line numbers."},
    new={"type": "string", "description": "The text to put in its place."},
    all={"type": "boolean", "description": "Replace each."},
)
_DELETE = make_spec("delete_file", "Delete a file.", "path", path=_PATH)


class ReadingTool:
    """A tool that only looks: `look` returns its text, in a thread, until `stop` is set."""

    idempotent = True

    def __init__(
        self, spec: ToolSpec, look: Callable[[Mapping[str, Any], threading.Event], str]
    ) -> None:
        self.spec = spec
        self._look = look

    def find_act(self, arguments: Mapping[str, Any]) -> PermissionRequest | None:  # noqa: ARG002
        """Return None: reading needs no approval."""
        return None

    async def call(self, arguments: Mapping[str, Any], scope: ToolScope) -> ToolOutput:  # noqa: ARG002
        """Return what it saw. Raises ToolFailed."""
        stop = threading.Event()
        try:
            return ToolOutput(await asyncio.to_thread(self._look, arguments, stop))
        except OSError as error:
            raise ToolFailed(f"{error.strerror or error}") from error
        finally:
            stop.set()


class FileChange(NamedTuple):
    """A change of a file: its contents (None: no file), and what is said when it is made."""

    path: Path
    name: str
    before: bytes | None
    after: bytes | None
    text: str

    def act(self, folder: WorkFolder, tool: str) -> PermissionRequest | None:
        """Return the act that people approve; None if the file would stay as it is."""
        if self.before == self.after:
            return None
        effect = (
            {"deleted": _hash(self.before)} if self.after is None else {"sha256": _hash(self.after)}
        )
        return PermissionRequest(
            action=_MODIFY,
            detail=self.name,
            tool=tool,
            arguments={"workdir": folder.name, "path": self.name, **effect},
            diff=self.diff,
        )

    @property
    def diff(self) -> str:
        """The unified diff."""
        return text_change.make_diff(self.name, self.before, self.after)


class ChangingTool:
    """A tool that changes a file: `plan` returns the change that its arguments ask for."""

    idempotent = False

    def __init__(
        self,
        spec: ToolSpec,
        folder: WorkFolder,
        plan: Callable[[Mapping[str, Any]], FileChange],
        on_seen: OnSeen,
    ) -> None:
        self.spec = spec
        self._folder = folder
        self._plan = plan
        self._on_seen = on_seen
        self._acts: dict[str, PermissionRequest | None] = {}

    def find_act(self, arguments: Mapping[str, Any]) -> PermissionRequest | None:
        """Return the change as people approve it: its path, the hash of what it leaves, its diff.

        Raises ToolFailed if it cannot be made.
        """
        act = self._plan(arguments).act(self._folder, self.spec.name)
        self._acts[_key(arguments)] = act
        return act

    async def call(self, arguments: Mapping[str, Any], scope: ToolScope) -> ToolOutput:
        """Make the change. Raises ToolFailed.

        If the file is not the one that the act was found for, the new change needs a permission.
        """
        path = self._folder.locate(arguments["path"])
        async with self._folder.lock(path):
            change = self._plan(arguments)
            act = change.act(self._folder, self.spec.name)
            while act is not None and not _is_same(act, self._acts.get(_key(arguments))):
                if scope.permit is None:
                    raise ToolFailed(f"{change.name}: has changed meanwhile; read it again")
                await scope.permit(act)
                self._acts[_key(arguments)] = act
                change = self._plan(arguments)  # people take their time
                act = change.act(self._folder, self.spec.name)
            if act is None:
                return ToolOutput(f"{change.name} has this content already.")
            try:
                _make(change)
            except OSError as error:
                raise ToolFailed(f"{change.name}: {error.strerror or error}") from error
            self._on_seen(change.path, change.after)
            return ToolOutput(change.text, diff=change.diff)


def make_file_tool(name: str, folder: WorkFolder, above: Path, on_seen: OnSeen) -> Tool:
    """Return the file tool of that name for a folder.

    `.gitignore` files hold from `above` on. `on_seen` is called with each file that was read or
    changed.
    """
    reading = {
        "read_file": (_READ, partial(_read, folder, on_seen)),
        "list_files": (_LIST, partial(_list, folder, above)),
        "find": (_FIND, partial(_find, folder, above)),
    }
    changing = {
        "write_file": (_WRITE, partial(_plan_write, folder)),
        "edit_file": (_EDIT, partial(_plan_edit, folder)),
        "delete_file": (_DELETE, partial(_plan_delete, folder)),
    }
    if name in reading:
        spec, look = reading[name]
        return ReadingTool(spec, look)
    spec, plan = changing[name]
    return ChangingTool(spec, folder, plan, on_seen)


def _key(arguments: Mapping[str, Any]) -> str:
    return json.dumps(arguments, sort_keys=True)


def _is_same(act: PermissionRequest, granted_act: PermissionRequest | None) -> bool:
    return granted_act is not None and act.arguments == granted_act.arguments


def _hash(data: bytes | None) -> str:
    return hashlib.sha256(data or b"").hexdigest()


def _read(
    folder: WorkFolder,
    on_seen: OnSeen,
    arguments: Mapping[str, Any],
    stop: threading.Event,  # noqa: ARG001 - of all that look
) -> str:
    path = folder.locate(arguments["path"])
    name = folder.name_of(path)
    data = folder.read(path, MOST_BYTES)
    if data is None:
        raise ToolFailed(f"{name}: there is no such file; list_files shows those that there are")
    on_seen(path, data)
    file = text_change.decode(data)
    if file is None:
        return f"({name} is not a text in UTF-8 or UTF-16: {len(data)} bytes)"
    if not file.text:
        return f"({name} is empty)"
    lines = file.text.removesuffix("\n").split("\n")
    first = int(arguments.get("offset", 1))
    if first > len(lines):
        raise ToolFailed(f"{name}: has only {len(lines)} lines")
    output = listing.BoundedLines()
    last = min(first - 1 + int(arguments.get("limit", _MOST_LINES)), len(lines))
    for number in range(first, last + 1):
        line = lines[number - 1].rstrip("\r")
        cut = f"{line[:_MOST_LINE_CHARS]}… ({len(line)} characters)"
        if not output.add(f"{number}\t{cut if len(line) > _MOST_LINE_CHARS else line}"):
            last = number - 1
            break
    text = output.joined
    if last < len(lines):
        text += f"\n(lines {first} to {last} of {len(lines)}; go on with offset {last + 1})"
    return text


def _locate_start(folder: WorkFolder, arguments: Mapping[str, Any]) -> tuple[Path, str]:
    """Return the path to begin at, and the prefix of the names below it."""
    start = folder.locate(arguments.get("path", ""))
    name = folder.name_of(start)
    if not start.exists():
        raise ToolFailed(f"{name}: there is no such folder")
    return start, "" if name == "." else f"{name}/"


def _list(
    folder: WorkFolder, above: Path, arguments: Mapping[str, Any], stop: threading.Event
) -> str:
    start, prefix = _locate_start(folder, arguments)
    if not start.is_dir():
        raise ToolFailed(f"{prefix.rstrip('/')}: is not a folder")
    walk = listing.Walk(folder, above, stop, ignored=bool(arguments.get("ignored")))
    return listing.list_entries(walk, start, prefix, arguments.get("glob", ""))


def _find(
    folder: WorkFolder, above: Path, arguments: Mapping[str, Any], stop: threading.Event
) -> str:
    start, prefix = _locate_start(folder, arguments)
    search = listing.TextSearch(arguments["pattern"], is_regex=bool(arguments.get("regex")))
    walk = listing.Walk(folder, above, stop, ignored=bool(arguments.get("ignored")))
    return listing.find_lines(walk, start, prefix, search, arguments.get("glob", ""))


def _open_change(
    folder: WorkFolder, arguments: Mapping[str, Any]
) -> tuple[Path, str, bytes | None]:
    """Return the path of a file to change, its name and its content."""
    path = folder.locate(arguments["path"])
    if path == folder.root:
        raise ToolFailed("`path` names no file")
    return path, folder.name_of(path), folder.read(path, MOST_BYTES)


def _plan_write(folder: WorkFolder, arguments: Mapping[str, Any]) -> FileChange:
    path, name, old_data = _open_change(folder, arguments)
    try:
        new_data = arguments["content"].encode("utf-8")
    except UnicodeEncodeError as error:
        raise ToolFailed("`content` is not Unicode text") from error
    verb = "Created" if old_data is None else "Replaced"
    return FileChange(path, name, old_data, new_data, f"{verb} {name} ({len(new_data)} bytes).")


def _plan_edit(folder: WorkFolder, arguments: Mapping[str, Any]) -> FileChange:
    path, name, old_data = _open_change(folder, arguments)
    if old_data is None:
        raise ToolFailed(f"{name}: there is no such file; write_file creates one")
    file = text_change.decode(old_data)
    if file is None:
        raise ToolFailed(f"{name}: is not a text in UTF-8 or UTF-16")
    try:
        text, count = text_change.replace(
            file.text, arguments["old"], arguments["new"], everywhere=bool(arguments.get("all"))
        )
        new_data = file.encode(text)
    except ToolFailed as failure:
        raise ToolFailed(f"{name}: {failure}") from failure
    except UnicodeEncodeError as error:
        raise ToolFailed("`new` is not Unicode text") from error
    times = "" if count == 1 else f" in {count} places"
    return FileChange(path, name, old_data, new_data, f"Changed {name}{times}.")


def _plan_delete(folder: WorkFolder, arguments: Mapping[str, Any]) -> FileChange:
    path, name, old_data = _open_change(folder, arguments)
    if old_data is None:
        raise ToolFailed(f"{name}: there is no such file")
    return FileChange(path, name, old_data, None, f"Deleted {name}.")


def _make(change: FileChange) -> None:
    """Make a change, whole or not at all; a file keeps its mode. Raises OSError."""
    if change.after is None:
        change.path.unlink()
        return
    change.path.parent.mkdir(parents=True, exist_ok=True)
    temporary = change.path.with_name(f".arena-{secrets.token_hex(8)}")
    try:
        files.write_part(temporary, change.after)
        if change.before is not None:
            shutil.copymode(change.path, temporary)
        temporary.replace(change.path)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
