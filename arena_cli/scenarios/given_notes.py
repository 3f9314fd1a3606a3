"""The notes with which a scenario starts: `given: {notes: [FILE]}`."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from arena_cli.errors import DiskRefused, Fault, FileFaults, UsageError
from arena_cli.notes import markdown
from arena_cli.notes.listing import SUFFIX
from arena_cli.notes.model import Note
from arena_cli.scenarios.variables import Reader
from arena_cli.util.files import make_own_folder, read_regular, replace_file
from arena_cli.util.text import make_safe_name
from arena_cli.yamlio.loader import Fragment, find_holder


class GivenNote(NamedTuple):
    """A note's file: its name, and its text without the message that it came from."""

    name: str
    text: str

    @property
    def note(self) -> Note:
        """The note that it becomes."""
        stem = self.name.removesuffix(SUFFIX)
        return markdown.parse(self.text, id=stem, file=self.name)

    def put(self, folder: Path) -> None:
        """Write it to a session's notes. Raises DiskRefused."""
        path = folder / self.name
        try:
            make_own_folder(folder, below=folder.parents[2])
            replace_file(path, self.text.encode("utf-8"), is_own=True)
        except OSError as error:
            raise DiskRefused(f"{path}: could not write: {error.strerror or error}") from error


def load_given_notes(
    names: Sequence[str],
    scenario: Path,
    reader: Reader,
    fragments: Sequence[Fragment],
    faults: list[Fault],
) -> tuple[GivenNote, ...]:
    """Return the notes that a scenario starts with; append their errors to the last argument."""
    notes: dict[str, GivenNote] = {}
    for index, name in enumerate(names):
        loc = ("given", "notes", index)
        try:
            note = _read(name, scenario, reader)
        except FileFaults as error:
            faults += error.faults
            continue
        except UsageError as error:
            faults.append(find_holder(fragments, loc).fault(loc, error.what, error.mend))
            continue
        folded = unicodedata.normalize("NFC", note.name).casefold()
        if folded in notes:
            problem = f"two notes are named `{note.name}`: names must be unique in a session"
            faults.append(
                find_holder(fragments, loc).fault(loc, problem, "rename one of the files")
            )
        notes.setdefault(folded, note)
    return tuple(notes.values())


def _read(name: str, scenario: Path, reader: Reader) -> GivenNote:
    """Return the note in that file. Raises UsageError, and FileFaults of the note's own file."""
    path = reader.located(name, scenario)
    if path is None:
        mend = f"paths start from {reader.root}, or from the folder of this file"
        raise UsageError(f"there is no file `{name}`", mend)
    if path.suffix != SUFFIX or make_safe_name(path.name) != path.name:
        raise UsageError(
            f"`{path.name}` is not the name of a note", f"such as decision-auth{SUFFIX}"
        )
    label = reader.shown(path)
    try:
        raw = read_regular(path)
    except OSError as error:
        raise UsageError(f"cannot read {label}: {error.strerror or error}") from error
    text = markdown.decoded(raw, label)
    if markdown.parse(text, id=path.stem, file=label).source is not None:
        # That message is of another session.
        text = markdown.changed(text, source=None)
    return GivenNote(path.name, text)
