"""`durability: fsync` has all that a session needs reach the disk, in order; `flush` nothing."""

from __future__ import annotations

import asyncio
import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
from product import (
    Attachment,
    Draft,
    Outgoing,
    RecordingStore,
    Redactor,
    Runner,
    Session,
    base,
    notes,
    shelves,
    workspace,
)
from product import session_store as store
from stage import Stage

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows syncs no folder")
Durability = Literal["fsync", "flush"]


class Disk:
    """What was synced and renamed, by number of the file, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.told: list[tuple[str, int]] = []
        sync, rename = os.fsync, os.replace

        def fsync(handle: int) -> None:
            state = os.fstat(handle)
            kind = "folder" if stat.S_ISDIR(state.st_mode) else "file"
            self.told.append((kind, state.st_ino))
            sync(handle)

        def renamed(source: Path, target: Path) -> None:
            rename(source, target)
            self.told.append(("name", Path(target).stat().st_ino))

        monkeypatch.setattr(os, "fsync", fsync)
        monkeypatch.setattr(os, "replace", renamed)

    def check_whole(self, path: Path, *, renamed: bool = True) -> None:
        """The file was synced before it got its name, the folder after."""
        number = path.stat().st_ino
        assert ("file", number) in self.told, path
        at = self.told.index(("file", number))
        if renamed:
            assert ("name", number) in self.told[at:], path
            at = self.told.index(("name", number))
        assert ("folder", path.parent.stat().st_ino) in self.told[at:], path

    def folders(self) -> set[int]:
        return {number for kind, number in self.told if kind == "folder"}

    def synced(self) -> bool:
        return any(kind in ("file", "folder") for kind, _ in self.told)


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    block = "```note\nkind: decision\ntitle: Use OAuth\n\nIt is what they have.\n```"
    return Stage(tmp_path).agent("dev", f"Done.\n\n{block}").team(humans=["ann"])


def send(stage: Stage, durability: Durability) -> Path:
    """Say something with an attachment in a new session, of which a note is taken."""
    place = replace(stage.place(), durability=durability)
    team = workspace.load_workspace(stage.folder.resolve(), kinds=base.KINDS).team("crew")
    files = (Attachment(type="file", name="a.txt", data="attached"),)
    with Session(place, "s", team) as session:
        asyncio.run(session.last(session.send(Outgoing("hello", attachments=files))))
        return session.folder


@pytest.mark.parametrize("durability", ["fsync", "flush"])
def test_a_session_its_attachments_and_notes(
    stage: Stage, durability: Durability, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)
    folder = send(stage, durability)
    (note,) = (folder / "knowledge").glob("*.md")
    if durability == "flush":
        assert not disk.synced()
        return
    disk.check_whole(note)
    attached = folder / "attachments" / "m2" / "a.txt"
    disk.check_whole(attached, renamed=False)
    disk.check_whole(folder / store.TRANSCRIPT, renamed=False)
    above = [folder, folder.parent, stage.folder, folder / "attachments", note.parent]
    assert {path.stat().st_ino for path in above} <= disk.folders()
    assert disk.told.index(("file", attached.stat().st_ino)) < disk.told.index(
        ("file", (folder / store.TRANSCRIPT).stat().st_ino)
    )


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("durability", ["fsync", "flush"])
def test_an_act_on_a_note(
    stage: Stage, durability: Durability, shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(stage, "flush")
    place = replace(stage.place(), durability=durability)
    stored = None if shared else store.find(stage.folder, "s")
    shelf = shelves.open_shelf(stage.folder, stored)
    disk = Disk(monkeypatch)
    keeper = notes.Keeper(place, shelf, "ann", redactor=Redactor(set(), ()))
    note = keeper.add(Draft("decision", "Rotate keys", by="ann"))
    path = stage.folder / note.file
    if durability == "fsync":
        disk.check_whole(path)
        at = disk.told.index(("file", shelf.trail.stat().st_ino))
        assert at < disk.told.index(("name", path.stat().st_ino))
    keeper.step(note.id, "approve")
    keeper.close()
    if durability == "fsync":
        disk.check_whole(path)
        assert shelf.trail.parent.stat().st_ino in disk.folders()
    else:
        assert not disk.synced()


@pytest.mark.parametrize("durability", ["fsync", "flush"])
def test_recordings_and_snapshots(
    stage: Stage, durability: Durability, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenarios = stage.load(
        "scenario: talk\nsteps:\n"
        "  - send: hello\n    expect: {replies: {dev: [{snapshot: true}]}}\n"
    )
    place = replace(stage.place(), durability=durability)
    disk = Disk(monkeypatch)
    recordings = RecordingStore(scenarios, "record", sync=durability == "fsync")
    told: list[object] = []
    asyncio.run(Runner(scenarios, place, told.append, shelf=recordings).run())
    folder = stage.folder / "scenarios" / "recordings"
    if durability == "flush":
        assert (folder / "s0.jsonl").is_file()
        assert not disk.synced()
        return
    disk.check_whole(folder / "s0.jsonl")
    disk.check_whole(folder / "s0.snapshots.json")
    assert folder.parent.stat().st_ino in disk.folders()


def test_parts_of_a_dead_process_are_removed_by_the_next_writer(stage: Stage) -> None:
    folder = send(stage, "flush") / "knowledge"
    dead = folder / ".decision-use-oauth.md.999999999"
    alive = folder / f".decision-use-oauth.md.{os.getppid()}"
    other = folder / ".hidden.txt.999999999"
    for path in (dead, alive, other):
        path.write_text("half", encoding="utf-8")
    shelf = shelves.open_shelf(stage.folder, store.find(stage.folder, "s"))
    assert [note.id for note in shelves.list_notes(shelf)[0]] == ["decision-use-oauth"]
    keeper = notes.Keeper(stage.place(), shelf, "ann", redactor=Redactor(set(), ()))
    keeper.step("decision-use-oauth", "approve")
    keeper.close()
    assert not dead.exists()
    assert alive.exists()
    assert other.exists()
