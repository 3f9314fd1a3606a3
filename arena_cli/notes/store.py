"""Read and write a folder of notes: a session's, or the workspace's shared ones.

Readers take no lock. A writer holds the folder's lock, reads the file again under it, and only puts
complete files there, so that two writers lose nothing and a hand edit is never overwritten.
"""

from __future__ import annotations

import contextlib
import math
import os
import stat
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path, PurePosixPath

from fasteners import InterProcessLock

from arena_cli.errors import DiskRefused, Fault, SessionBusy, UsageError
from arena_cli.notes import markdown, model, staging
from arena_cli.notes.listing import (
    SUFFIX,
    TYPE,
    FolderEntry,
    Listing,
    NoteFiles,
    is_folder,
    make_entries,
    mtime_of,
    read_stamps,
    unused_name,
    was_edited,
)
from arena_cli.notes.markdown import NoteFault
from arena_cli.notes.model import CATEGORIES, Draft, Note
from arena_cli.notes.staging import Carry, NoteChange, StagedFile
from arena_cli.util import clock
from arena_cli.util.files import (
    LINK_HINT,
    LinkRefused,
    check_no_link,
    check_regular,
    make_file,
    make_own_folder,
    open_binary,
    read_regular,
    remove_leftovers,
    replace_file,
    suggest_fix,
    sync_folders,
)
from arena_cli.util.text import escape_line

NAME = ".lock"
WAIT_S = 30.0

_POLL_S = 0.01

# The operating system's locks are a process's own; its threads take turns by this.
_turn = threading.RLock()


@contextlib.contextmanager
def held(folder: Path, label: str, *, below: Path) -> Iterator[None]:
    """Hold the lock of a folder, which is created if needed; `label` is its name in messages.

    `below` is the workspace, in which the folder must be.

    Raises SessionBusy or DiskRefused.
    """
    with _turn:
        try:
            make_own_folder(folder, below=below)
            make_file(folder / NAME, below=below)
            lock = InterProcessLock(folder / NAME)
            got = lock.acquire(blocking=True, delay=_POLL_S, max_delay=_POLL_S, timeout=WAIT_S)
        except (OSError, threading.ThreadError) as error:
            raise refused(label, error) from error
        if not got:
            raise SessionBusy(
                f"{label} is busy: another arena writes notes there (waited {WAIT_S:g} s)"
            )
        try:
            yield
        finally:
            lock.release()


def refused(label: str, error: Exception) -> DiskRefused:
    """Return the error for a write that the disk refuses."""
    problem = getattr(error, "strerror", None) or error
    hint = suggest_fix(error, "Free disk space, or fix the permissions there.")
    return DiskRefused(f"{label}: could not write: {problem}", hint)


MOST_BYTES = 4 * markdown.LONGEST_BODY + 65_536
"""Bytes of a file that are read to show or find it, its front matter included."""

DEEPEST = 8
"""Folders below a category in which notes are looked for."""

Make = Callable[[Note, str], str]
"""Gives the new text of a note's file, of the note and the text that it has."""

_AGAIN = 20  # times that a file is read again because somebody saved it meanwhile


class NoSuchNote(UsageError):
    """No note has that id, or its file was removed."""


class Folder:
    """The notes in one folder; nothing may lead out of `workspace`.

    `problems` are entries that the last `entries` found to be invalid, or similar to another. With
    `sync`, writes reach the disk: each file at once, the names in folders after `settle`.
    """

    def __init__(self, path: Path, workspace: Path, *, shared: bool, sync: bool = False) -> None:
        self.path = path
        self.workspace = workspace
        self.shared = shared
        self.sync = sync
        self.problems: list[Fault] = []
        self._unsettled: dict[Path, None] = {}
        self._swept: set[Path] = set()
        self._listing = Listing()
        self._next_look = 0

    def entries(self, most_looks: int | None = None) -> list[FolderEntry]:
        """Return its notes, sorted by id; none if the folder is missing.

        With `most_looks`, a call looks for edits in place only in that number of files, each time
        in the next ones. Files that were added, replaced or deleted are always found.
        """
        last = self._listing
        if most_looks is not None and last.has_same_names() and not self._was_edited(most_looks):
            return last.entries
        self.problems = []
        folders: dict[Path, int] = {}
        files: dict[tuple[str, Path], NoteFiles] = {}
        for prefix, folder in self._folders():
            folders[folder] = mtime_of(folder)
            if self._is_inside(folder):
                files[prefix, folder] = self._files(folder)
        # Most often nothing has changed since the last look.
        if files != last.files:
            entries = sorted(make_entries(files))
            last = Listing(
                folders, files, entries, [*self._find_alike(entries), *self._find_huge(entries)]
            )
        self._listing = replace(last, folders=folders)
        self.problems += last.problems
        return last.entries

    def read(self, id: str) -> Note:
        """Return the note with that id. Raises NoteFault or NoSuchNote."""
        path = self._existing(id)
        label = self.shown(path)
        return parsed(beginning(path, label), id, label)

    def add(
        self,
        draft: Draft,
        *,
        session: str,
        now: datetime,
        language: str = "en",
        carry: Carry | None = None,
        make: Make = lambda _, text: text,
    ) -> Note:
        """Add a file for a draft, first seen in that session ("" for none).

        Its headings are in `language`; `make` may change its text before it is written; `carry`
        writes it. Raises UsageError, SessionBusy or DiskRefused, and the errors of `carry`.
        """
        folder, prefix, stem = self._home(draft)
        self.check(folder)
        with self._held():
            name = unused_name(stem, folder)
            path = folder / f"{name}{SUFFIX}"
            index = clock.format_timestamp(now)
            note = Note(
                id=prefix + name,
                file=self.shown(path),
                title=model.line(draft.title) or name,
                kind=draft.kind,
                importance=_within(draft.importance),
                tags=list(dict.fromkeys(filter(None, map(model.line, draft.tags)))),
                aliases=model.aliases(draft.aliases),
                owner=model.line(draft.owner),
                created=index,
                updated=index,
                source=draft.source,
                related_sessions=[session] if session else [],
                supersedes=draft.supersedes,
                body=model.body(draft.kind, model.valid(draft.body), language),
            )
            text = make(note, markdown.write_note(note))
            note_made = markdown.parse(text, id=note.id, file=note.file)
            self._carry([NoteChange(path, note_made.id + SUFFIX, "", text, note_made)], carry)
        return note_made

    def whole(self, id: str) -> str:
        """Return the complete text of a note's file. Raises as `read`."""
        path = self._existing(id)
        return markdown.decoded(_whole(path, self.shown(path))[0], self.shown(path))

    def edit(self, id: str, make: Make, carry: Carry | None = None) -> Note:
        """Replace a note's file by the result of `make`.

        `make` is called with the note and the complete text of its file. Raises as `edit_all`.
        """
        return self.edit_all([(id, make)], carry)[0]

    def edit_all(self, makes: Sequence[tuple[str, Make]], carry: Carry | None = None) -> list[Note]:
        """Replace each note's file by the result of its `make`.

        Each `make` is called under the lock, with the note and the current text of its file.
        `carry` writes the changes. Raises NoteFault, NoSuchNote, SessionBusy or DiskRefused, and
        the errors of `make` and `carry`; after an error of `make` no file is changed.
        """
        with self._held():
            changes = [self._change(name, make) for name, make in makes]
            self._carry(changes, carry)
        return [change.note for change in changes]

    def put(self, change: NoteChange) -> None:
        """Write a change to its file, under the lock, unless the file was edited meanwhile.

        An edited file keeps its text; only the fields of the front matter are set. Raises
        DiskRefused.
        """
        path = change.path
        try:
            content = read_regular(path)
        except FileNotFoundError:
            content = None
        except OSError as error:
            raise refused(self.shown(path), error) from error
        current = staging.hash_of(content) if content is not None else ""
        if current == staging.hash_of(change.text.encode("utf-8")):
            return
        if current == change.before:
            self._write(path, change.text)
        elif content is not None and change.before:
            with contextlib.suppress(NoteFault):  # it is told where it is read
                text = markdown.decoded(content, "note")
                self._write(path, markdown.changed(text, **markdown.standing_of(change.text)))

    def finish(self, files: Sequence[StagedFile], *, is_held: bool = False) -> None:
        """Write the files that another process staged before it died.

        `is_held`: the caller holds the lock. Raises SessionBusy, UsageError or DiskRefused.
        """
        with contextlib.nullcontext() if is_held else self._held():
            for file in files:
                path = self.path / PurePosixPath(file.file)
                if self._may_hold(file.file) and self._is_inside(path):
                    blank = Note(id="", file="", title="", kind="reference")
                    self.put(NoteChange(path, file.file, file.before, file.text, blank))
        self.settle()

    def staged(self, change: NoteChange) -> StagedFile:
        """Return a change in the form in which it is staged."""
        return StagedFile(
            shared=self.shared, file=change.file, before=change.before, text=change.text
        )

    def settle(self) -> None:
        """Sync the names of the written files to disk, with `sync`. Raises DiskRefused."""
        folders, self._unsettled = list(self._unsettled), {}
        try:
            sync_folders(folders)
        except OSError as error:
            raise refused(self.shown(self.path), error) from error

    def shown(self, path: Path) -> str:
        """Return a path in it for display: within the workspace, with `/`."""
        for root in (self.workspace, self.workspace.resolve()):
            with contextlib.suppress(ValueError):
                return path.relative_to(root).as_posix()
        return path.as_posix()

    def check(self, path: Path | None = None) -> None:
        """Raise UsageError if a link leads to a path in it: nothing is written through a link."""
        try:
            check_no_link(path or self.path, below=self.workspace)
        except LinkRefused as error:
            raise UsageError(escape_line(str(error.strerror)), LINK_HINT) from error

    def _was_edited(self, most_looks: int) -> bool:
        """Return True if one of the next files was edited in place."""
        first, end = self._next_look, self._next_look + most_looks
        self._next_look = end if end < len(self._listing.entries) else 0
        return any(was_edited(entry.place, entry[2:]) for entry in self._listing.entries[first:end])

    def _folders(self) -> Iterator[tuple[str, Path]]:
        """Yield each folder of notes, and the prefix of the ids of its notes."""
        if not self.shared:
            yield "", self.path
            return
        for category in sorted(CATEGORIES.values()):
            yield f"{category}/", self.path / category
            yield from self._below(f"{category}/", self.path / category, DEEPEST)

    def _below(self, prefix: str, folder: Path, depth: int) -> Iterator[tuple[str, Path]]:
        """Yield the folders below one, except hidden ones; no link is followed."""
        try:
            with os.scandir(folder) as scan:
                names = [entry for entry in scan if is_folder(entry)]
        except OSError:  # it is missing, or told where its files are listed
            return
        for entry in sorted(names, key=lambda entry: entry.name):
            path = folder / entry.name
            if entry.is_symlink():
                mend = "put the notes themselves there"
                problem = "is a link to a folder, which is not followed"
                self.problems.append(Fault(self.shown(path), 0, "", problem, mend))
            elif depth > 0:
                yield f"{prefix}{entry.name}/", path
                yield from self._below(f"{prefix}{entry.name}/", path, depth - 1)
            else:
                problem, mend = "is nested too deeply to be read", "move it further up"
                self.problems.append(Fault(self.shown(path), 0, "", problem, mend))

    def _may_hold(self, file: str) -> bool:
        """Return True if a path below it is a valid path of a note."""
        *folders, name = file.split("/")
        fits = bool(folders) and folders[0] in CATEGORIES.values() if self.shared else not folders
        names = [*folders, name.removesuffix(SUFFIX)]
        return fits and all(
            part_name and part_name[0] != "." and not set(part_name) & set("\\:\0")
            for part_name in names
        )

    def _home(self, draft: Draft) -> tuple[Path, str, str]:
        """Return a new note's folder, the prefix of its id, and its name without a number."""
        slug = model.slugify(draft.title)
        if not self.shared:
            return self.path, "", f"{draft.kind}-{slug}"
        category = CATEGORIES.get(draft.kind)
        if category is None:
            kinds = ", ".join(CATEGORIES)
            raise UsageError(
                f"a note of the kind {draft.kind} cannot be shared",
                f"kinds that can be shared: {kinds}",
            )
        return self.path / category, f"{category}/", slug

    def _existing(self, id: str) -> Path:
        """Return the file of that id. Raises NoSuchNote if there is none, or if it leads out."""
        if self._may_hold(id):
            path = self.path / f"{id}{SUFFIX}"
            with contextlib.suppress(OSError):  # no file has so long a name
                if path.is_file() and self._is_inside(path) and not self._is_linked(path):
                    return path
            by_id = {entry.id: entry.path for entry in self.entries()}
            if id in by_id:
                return by_id[id]
        raise NoSuchNote(f"there is no note {escape_line(id)}", "`arena knowledge list` lists them")

    def _is_inside(self, path: Path) -> bool:
        """Return True if a path leads into the workspace; otherwise report a problem."""
        root, place = os.path.realpath(self.workspace), os.path.realpath(path)
        if place == root or place.startswith(root.rstrip(os.sep) + os.sep):
            return True
        problem = "is a link that leads out of the workspace"
        fault = Fault(self.shown(path), 0, "", problem, "put the notes themselves there")
        self.problems.append(fault)
        return False

    def _is_linked(self, path: Path) -> bool:
        """Return True if a folder below a category is a link, on the way to a file."""
        folders = path.relative_to(self.path).parent.parts[1:]
        above = self.path / path.relative_to(self.path).parts[0]
        for name in folders:
            above = above / name
            if above.is_symlink():
                return True
        return False

    def _files(self, folder: Path) -> NoteFiles:
        """Return the files of notes, in the order in which the disk has them."""
        files: NoteFiles = {}
        try:
            with os.scandir(folder) as scan:
                for file in scan:
                    name = file.name
                    if name.endswith(SUFFIX) and name[0] != ".":
                        try:
                            state = file.stat()
                        except FileNotFoundError:  # it is gone, or a link that leads nowhere
                            continue
                        except OSError as error:
                            self.problems += _unreadable(self.shown(folder / name), error).faults
                            continue
                        is_plain = state.st_mode & TYPE == stat.S_IFREG and not file.is_symlink()
                        if is_plain or self._can_be_read(folder / name, state):
                            files[name] = read_stamps(state)
        except (FileNotFoundError, NotADirectoryError):
            pass
        except OSError as error:
            self.problems += _unreadable(self.shown(folder), error).faults
        return files

    def _can_be_read(self, file: Path, state: os.stat_result) -> bool:
        """Return True for a file within the workspace, also by a link; else report a problem."""
        try:
            check_regular(file, state)
        except OSError as error:
            self.problems += _unreadable(self.shown(file), error).faults
            return False
        return stat.S_ISREG(state.st_mode) and self._is_inside(file)

    def _find_alike(self, entries: list[FolderEntry]) -> Iterator[Fault]:
        names = [entry.id for entry in entries]
        folded: dict[str, FolderEntry] = {}
        for fold, entry in zip(model.all_folded(names), entries, strict=True):
            existing = folded.setdefault(fold, entry)
            if existing is not entry:
                problem = (
                    f"has the same name as {self.shown(existing.path)}, except for "
                    "letters that look alike"
                )
                mend = "both are read; rename one of them"
                yield Fault(self.shown(entry.path), 0, "", problem, mend)

    def _find_huge(self, entries: list[FolderEntry]) -> Iterator[Fault]:
        problem = (
            "is longer than a note may be: arena reads its first "
            f"{markdown.LONGEST_BODY:,} characters"
        )
        mend = "split it into several notes, or shorten it"
        for entry in entries:
            if entry.size > MOST_BYTES:
                yield Fault(self.shown(entry.path), 0, "", problem, mend)

    def _change(self, id: str, make: Make) -> NoteChange:
        path = self._existing(id)
        self.check(path)
        file = path.relative_to(self.path).as_posix()
        label = self.shown(path)
        for _ in range(_AGAIN):
            raw, state = _whole(path, label)
            text = markdown.decoded(raw, label)
            note = markdown.parse(text, id=id, file=label)
            try:
                new_text = make(note, text)
            except NoteFault as fault:
                raise NoteFault([replace(each, file=label) for each in fault.faults]) from fault
            if _state(path) == state:
                note = markdown.parse(new_text, id=id, file=label)
                return NoteChange(path, file, staging.hash_of(raw), new_text, note)
        raise SessionBusy(f"{label} keeps being written to; try again later")

    def _carry(self, changes: Sequence[NoteChange], carry: Carry | None) -> None:
        if carry is not None:
            carry(changes)
            return
        for change in changes:
            self.put(change)
        self.settle()

    @contextlib.contextmanager
    def _held(self) -> Iterator[None]:
        """Hold the folder's lock, created if needed."""
        self.check()
        with held(self.path, self.shown(self.path), below=self.workspace):
            yield

    def _write(self, path: Path, text: str) -> None:
        try:
            own_folder = make_own_folder(path.parent, below=self.workspace)
            if path.parent not in self._swept:
                self._swept.add(path.parent)
                remove_leftovers(path.parent, SUFFIX)
            replace_file(path, text.encode("utf-8"), is_own=True, sync=self.sync)
        except OSError as error:
            raise refused(self.shown(path), error) from error
        if self.sync:
            self._unsettled |= dict.fromkeys([path.parent, *own_folder])


def beginning(path: Path, label: str) -> bytes:
    """Return the part of a note's file that is read, and one byte more. Raises NoteFault."""
    try:
        with open_binary(path) as file:
            return file.read(MOST_BYTES + 1)
    except OSError as error:
        raise _unreadable(label, error) from error


def parsed(raw: bytes, id: str, file: str) -> Note:
    """Return the note in the result of `beginning`. Raises NoteFault."""
    text = markdown.decoded(raw[:MOST_BYTES], file, is_cut=len(raw) > MOST_BYTES)
    return markdown.parse(text, id=id, file=file)


def _within(importance: float) -> float:
    return 0.5 if math.isnan(importance) else min(max(importance, 0.0), 1.0)


def _whole(path: Path, label: str) -> tuple[bytes, tuple[int, int]]:
    try:
        state = _state(path)
        return read_regular(path), state
    except OSError as error:
        raise _unreadable(label, error) from error


def _state(path: Path) -> tuple[int, int]:
    """Return a mark that changes whenever the file is saved; (0, -1) for a missing file."""
    try:
        stat = path.stat()
    except FileNotFoundError:
        return (0, -1)
    return stat.st_mtime_ns, stat.st_size


def _unreadable(label: str, error: OSError) -> NoteFault:
    return NoteFault([Fault(label, 0, "", f"cannot be read: {error.strerror or error}")])
