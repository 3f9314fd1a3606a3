"""A command that writes is killed at any of its writes; the next one finds a whole state.

Each command is cut before every call that changes the disk, and in the middle of every write. By
default some of these cuts are tried; with ARENA_ALL_CUTS=1 all of them are.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from forked import Forked, needs_fork
from product import file

pytestmark = needs_fork

ALL = bool(os.environ.get("ARENA_ALL_CUTS"))
_MOST = 4
_KILLED = 9
_TIMES = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z")
_MESSAGES = re.compile(r"source: m\d+")
_PART = re.compile(r".*\.(\d+|part|staged)")
_SCENARIO = """\
scenario: talk
steps:
  - send: hello
    expect:
      replied: [dev]
      replies: {dev: [{snapshot: true}]}
  - send: again
    expect: {replied: [dev]}
"""


@dataclass
class Cut:
    """A command that writes: what is there before it, and what is whole after it.

    `before` are commands that make the workspace it is run in. `next` are commands of which each
    finds, after a cut, a state that is whole; `again` ends in the state after the command. `state`
    is what counts. `codes` are the exit codes that `again` may have. `killed`: before all that a
    `send` was killed at its write of that number.
    """

    command: tuple[str, ...]
    state: Callable[[Forked], Any]
    before: tuple[tuple[str, ...], ...] = ()
    next: tuple[tuple[str, ...], ...] = ()
    again: tuple[str, ...] = ()
    codes: tuple[int, ...] = (0,)
    killed: int = 0


def notes(arena: Forked) -> Any:
    """The notes and their trail, but for times."""
    found = []
    for path in sorted((arena.folder / "sessions").glob("**/knowledge/**/*.md")):
        text = _TIMES.sub("TIME", path.read_text(encoding="utf-8"))
        # A repair is an event too, so that messages after it have other ids.
        found.append((path.name, _MESSAGES.sub("source: MESSAGE", text)))
    acts = []
    trails = [arena.transcript(), arena.folder / "sessions" / "knowledge" / "history.jsonl"]
    for trail in trails:
        for line in trail.read_bytes().splitlines() if trail.exists() else ():
            event = json.loads(line)
            if event["type"] == "note":
                acts.append((event["note"], event["act"], event["status"], event["reason"]))
    return found, acts


def talk(arena: Forked) -> Any:
    """Who said what, with what is attached, and how each chain ended."""
    said: list[Any] = []
    for event in arena.records() if arena.raw() else ():
        message = event.get("message") if event["type"] != "note" else None
        if isinstance(message, dict):
            said.append((message["author_id"], message["content"]))
            for part in message["attachments"]:
                said.append((arena.folder / part["path"]).read_text(encoding="utf-8"))
        if event["type"] == "chain_finished":
            said.append(event["end"])
    return said


def recorded(arena: Forked) -> Any:
    """The recording and the snapshots, each of which must be whole."""
    found: list[Any] = []
    folder = arena.folder / "scenarios" / "recordings"
    path = folder / "talk.jsonl"
    if path.exists():
        file.read(path, "talk.jsonl")
        found.append(len(path.read_bytes().splitlines()))
    snapshots = folder / "talk.snapshots.json"
    if snapshots.exists():
        found.append(json.loads(snapshots.read_text(encoding="utf-8")))
    return found


def team(arena: Forked) -> Any:
    """The files of the workspace, without sessions and what is hidden."""
    return {
        path.relative_to(arena.folder).as_posix(): path.read_bytes()
        for path in sorted(arena.folder.rglob("*"))
        if path.is_file()
        and "sessions" not in path.parts
        and not _PART.fullmatch(path.name)
        and path.name != ".gitignore"
    }


def sent(arena: Forked) -> Any:
    """What was said, and the notes that were taken from it."""
    return talk(arena), notes(arena)


def promoted(arena: Forked) -> Any:
    """The scenario that was made of a session, and its recording, each of which is whole."""
    found: list[Any] = []
    for path in sorted((arena.folder / "scenarios").rglob("*.*")):
        if not _PART.fullmatch(path.name):
            found.append((path.name, path.read_bytes()))
    return found


def members(arena: Forked) -> Any:
    """The team's file; a new profile is there as a whole, or not at all."""
    profile = arena.folder / "agents" / "echo.yaml"
    assert not profile.exists() or "cat" in profile.read_text(encoding="utf-8")
    return team(arena)["agents/teams/crew.yaml"]


def of_output(arena: Forked) -> Any:
    path = arena.folder / "out.md"
    return _TIMES.sub("TIME", path.read_text(encoding="utf-8")) if path.exists() else None


KNOWN = ("knowledge", "list")
DRAFT = ("knowledge", "add", "Use OAuth", "--kind", "decision", "-s", "s", "--text", "yes")
NEW = ("knowledge", "add", "Use keys", "--kind", "decision", "-s", "s")
SUPERSEDING = (*NEW, "--supersedes", "decision-use-oauth")
APPROVE_OLD = ("knowledge", "approve", "decision-use-oauth")
APPROVE_NEW = ("knowledge", "approve", "decision-use-keys")
AGAIN = ("resume", "run", "record", "update", "export", "promote", "init")
SEND = ("send", "decided: we use OAuth", "-s", "s", "--quiet")
FIRST = ("send", "hello", "-s", "s", "--quiet")


def of_notes(*command: str, before: tuple[tuple[str, ...], ...], **options: Any) -> Cut:
    return Cut(("knowledge", *command), notes, (FIRST, *before), (KNOWN, FIRST), **options)


CUTS = {
    "send": Cut((*SEND, "--attach", "a.txt"), sent, again=("resume", "s")),
    "send-on": Cut((*SEND, "--attach", "a.txt"), sent, (FIRST,), again=("resume", "s")),
    "send-seen": Cut((*SEND, "--attach", "a.txt"), sent, (SEND,), again=("resume", "s")),
    "resume": Cut(("resume", "s"), sent, (FIRST,), again=("resume", "s"), killed=9),
    "init": Cut(("-w", "new", "init", "new"), team, codes=(0, 2)),
    "promote": Cut(("promote", "s", "--force"), promoted, (FIRST,)),
    "add": of_notes(*DRAFT[1:], before=()),
    "seen": of_notes(*DRAFT[1:6], *DRAFT[6:7], before=(DRAFT,)),
    "add-superseding": of_notes(*SUPERSEDING[1:], before=(DRAFT, APPROVE_OLD)),
    "submit": of_notes("submit", "decision-use-oauth", before=(DRAFT,)),
    "approve": of_notes(*APPROVE_OLD[1:], before=(DRAFT,)),
    "supersede": of_notes(*APPROVE_NEW[1:], before=(DRAFT, APPROVE_OLD, SUPERSEDING)),
    "reject": of_notes(
        *("reject", "decision-use-oauth", "--reason", "no"),
        before=(DRAFT, ("knowledge", "submit", "decision-use-oauth")),
    ),
    "archive": of_notes("archive", "decision-use-oauth", before=(DRAFT,)),
    "restore": of_notes(
        *("restore", "decision-use-oauth"),
        before=(DRAFT, ("knowledge", "archive", "decision-use-oauth")),
    ),
    "add-shared": of_notes("add", "Locks", "--kind", "pit", "--shared", before=()),
    "inspect": Cut(
        ("knowledge", "inspect", "--apply", "-s", "s"),
        notes,
        (FIRST, DRAFT, ("knowledge", "add", "we decided to use OAuth", *DRAFT[3:7])),
        (KNOWN,),
    ),
    "share": Cut(
        ("knowledge", "approve", "decision-use-oauth", "--share"),
        notes,
        (FIRST, DRAFT, APPROVE_OLD),
        (KNOWN,),
    ),
    "run": Cut(("run",), recorded, (("run", "--record", "talk"),)),
    "record": Cut(("run", "--record", "talk"), recorded),
    "update": Cut(("run", "--update", "talk"), recorded, (("run", "--record", "talk"),)),
    "agents-add": Cut(
        ("agents", "add", "echo", "--adapter", "cli", "--", "cat"), members, next=(("agents",),)
    ),
    "export": Cut(("export", "s", "--output", "out.md"), of_output, (FIRST,)),
}


def prepare(folder: Path, cut: Cut) -> Forked:
    arena = Forked(folder)
    arena.agent("dev", *[f"Done {count}." for count in range(9)]).team(humans=["ann"])
    arena.file("a.txt", "attached")
    arena.scenario(_SCENARIO, "talk")
    for command in cut.before:
        assert arena.run(*command).code == 0
    if cut.killed:
        assert arena.cut(cut.killed, *SEND).code == _KILLED
    return arena


def points(count: int) -> list[tuple[int, bool]]:
    """The cuts to try: before each change of the disk, and in the middle of each write."""
    every = [(number, half) for number in range(1, count + 1) for half in (False, True)]
    if ALL or len(every) <= _MOST:
        return every
    return [every[round(step * (len(every) - 1) / (_MOST - 1))] for step in range(_MOST)]


@pytest.mark.parametrize("name", CUTS)
def test_a_killed_command_leaves_one_of_two_whole_states(name: str, tmp_path: Path) -> None:
    cut = CUTS[name]
    start = prepare(tmp_path / "start", cut)
    before = cut.state(start)
    whole = copy(start, tmp_path / "whole")
    done = whole.cut(0, *cut.command)
    assert done.code == 0, done
    after = cut.state(whole)
    count = whole.count
    assert count > 1
    for number, half in points(count):
        place = f"{name}, cut {number} of {count}{', half of it' if half else ''}"
        arena = copy(start, tmp_path / f"{number}-{half}")
        killed = arena.cut(number, *cut.command, half=half)
        assert killed.code == _KILLED, (place, killed)
        for command in cut.next:
            done = arena.run(*command)
            assert done.code == 0, (place, command, done)
            assert cut.state(arena) in (before, after), place
        if name.startswith("send"):
            check_sent(arena, cut, before, after, place)
        else:
            if name in AGAIN or cut.state(arena) != after:
                done = arena.run(*(cut.again or cut.command))
                assert done.code in cut.codes, (place, done)
            assert cut.state(arena) == after, place
        if arena.raw():
            examined = arena.run("doctor", "s")
            assert examined.code == 0, (place, examined)
        assert leftovers(arena) == [], place
        shutil.rmtree(arena.folder)


def check_sent(arena: Forked, cut: Cut, before: Any, after: Any, place: str) -> None:
    """What was said before is there; the chain goes on to the same end, or never began."""
    done = arena.run(*cut.again)
    assert done.code in (0, 2), (place, done)
    if cut.state(arena) == before:
        assert arena.run(*cut.command).code == 0, place
    assert cut.state(arena) == after, place


def copy(arena: Forked, folder: Path) -> Forked:
    shutil.copytree(arena.folder, folder, symlinks=True)
    return Forked(folder)


def leftovers(arena: Forked) -> list[str]:
    """What arena wrote beside files and nobody removed."""
    return [
        path.relative_to(arena.folder).as_posix()
        for path in arena.folder.rglob("*")
        if _PART.fullmatch(path.name)
    ]
