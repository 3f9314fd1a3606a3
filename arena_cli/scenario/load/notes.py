"""`given: {notes: [FILE, ...]}`: what the team knows when a scenario begins."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from arena_cli.ground import filenames, ownfiles, regularfiles, wholefile
from arena_cli.ground.errors import DiskRefused, Fault, FileFaults, UsageError
from arena_cli.memory import reading
from arena_cli.memory.folder import SUFFIX
from arena_cli.memory.note import Note
from arena_cli.scenario.load.include import Reader
from arena_cli.scenario.load.shapes import Given
from arena_cli.yamlio.document import Part, find_holder


class GivenNote(NamedTuple):
    """A note's file: its name, and its text without the message that it came from."""

    name: str
    text: str

    @property
    def note(self) -> Note:
        """The note that it becomes."""
        stem = self.name.removesuffix(SUFFIX)
        return reading.parse(self.text, id=stem, file=self.name)

    def put(self, folder: Path) -> None:
        """Write it among a session's notes. Raises DiskRefused."""
        path = folder / self.name
        try:
            ownfiles.make_folder(folder, below=folder.parents[2])
            wholefile.replace(path, self.text.encode("utf-8"), is_own=True)
        except OSError as error:
            raise DiskRefused(f"{path}: could not write: {error.strerror or error}") from error


def of(
    given: Given, scenario: Path, reader: Reader, parts: Sequence[Part], faults: list[Fault]
) -> tuple[GivenNote, ...]:
    """The notes that a scenario starts with; `faults` takes what is wrong with them."""
    found: dict[str, GivenNote] = {}
    for index, name in enumerate(given.notes):
        loc = ("given", "notes", index)
        try:
            note = _read(name, scenario, reader)
        except FileFaults as error:
            faults += error.faults
            continue
        except UsageError as error:
            faults.append(find_holder(parts, loc).fault(loc, error.what, error.mend))
            continue
        folded = unicodedata.normalize("NFC", note.name).casefold()
        if folded in found:
            what = f"`{note.name}` is the name of two notes: a session has one of a name"
            faults.append(find_holder(parts, loc).fault(loc, what, "rename one of the files"))
        found.setdefault(folded, note)
    return tuple(found.values())


def _read(name: str, scenario: Path, reader: Reader) -> GivenNote:
    """Raises UsageError, and FileFaults of the note's own file."""
    path = reader.located(name, scenario)
    if path is None:
        mend = f"paths start from {reader.root}, or from the folder of this file"
        raise UsageError(f"there is no file `{name}`", mend)
    if path.suffix != SUFFIX or filenames.safe(path.name) != path.name:
        raise UsageError(f"`{path.name}` is no note's name", f"such as decision-auth{SUFFIX}")
    shown = reader.shown(path)
    try:
        raw = regularfiles.read(path)
    except OSError as error:
        raise UsageError(f"cannot read {shown}: {error.strerror or error}") from error
    text = reading.decoded(raw, shown)
    if reading.parse(text, id=path.stem, file=shown).source is not None:
        # That message is of another session.
        text = reading.changed(text, source=None)
    return GivenNote(path.name, text)
