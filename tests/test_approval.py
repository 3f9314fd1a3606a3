"""An approval holds for the text that was approved, and only where the trail has it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from program import Program
from stage import Stage, printed

CHANGED = "changed since it was approved"
UNTOLD = "says approved, but no approval is recorded"


@pytest.fixture
def arena(tmp_path: Path) -> Program:
    """A session whose agents are shown approved notes only, with one that was approved."""
    program = Program(tmp_path)
    program.agent("dev", *["Done."] * 9).team(humans=["ann"], memory={"approved_only": True})
    program.run("send", "hello", "-s", "s", "--quiet").check()
    program.run("knowledge", "add", "Use OAuth", "--kind", "decision", "-s", "s", "--text", "yes")
    program.run("knowledge", "approve", "decision-use-oauth").check()
    return program


def note_of(arena: Program, name: str = "decision-use-oauth") -> Path:
    return arena.folder / "sessions" / "s" / "knowledge" / f"{name}.md"


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def listed(arena: Program, *args: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(
        arena.run("knowledge", "list", "--json", *args).check().stdout
    )
    return found


def shown(arena: Program) -> list[str]:
    """The notes that an agent is shown now."""
    arena.run("send", "what about OAuth?", "-s", "s", "--quiet").check()
    started = [one for one in arena.records() if one["type"] == "reply_started"]
    notes: list[str] = started[-1].get("notes", [])
    return notes


def test_the_hash_of_an_approved_text_is_in_the_trail(arena: Program) -> None:
    assert shown(arena) == ["decision-use-oauth"]
    (event,) = [one for one in arena.records() if one.get("act") == "approved"]
    assert len(event["sha256"]) == 64
    assert not any("sha256" in one for one in arena.records() if one.get("act") == "added")


@pytest.mark.parametrize(
    ("old", "new"),
    [("yes", "no"), ("Use OAuth", "Use OAuth 2"), ("kind: decision", "kind: requirement")],
)
def test_a_changed_text_is_not_approved_until_somebody_approves_it(
    arena: Program, old: str, new: str
) -> None:
    edit(note_of(arena), old, new)
    line = arena.run("knowledge", "list").check().stdout
    assert f"decision-use-oauth · {CHANGED} · " in line
    (note,) = listed(arena)
    assert (note["status"], note["approval"]) == ("pending_user", CHANGED)
    assert listed(arena, "--status", "approved") == []
    told = arena.run("knowledge", "show", "decision-use").check().stdout
    assert CHANGED in told
    assert "`arena knowledge approve decision-use-oauth` approves this text" in told
    assert json.loads(arena.run("knowledge", "show", "decision-use", "--json").stdout)["approval"]
    assert CHANGED in arena.run("knowledge", "inspect").check().stdout
    (finding,) = json.loads(arena.run("knowledge", "inspect", "--json", "--apply").stdout)
    assert (finding["what"], finding["reason"], finding["applied"]) == ("approval", CHANGED, False)
    last = arena.run("knowledge", "history").check().stdout.splitlines()[-1]
    assert f" · decision-use-oauth · changed · {CHANGED}" in last
    assert shown(arena) == []
    hit = json.loads(arena.run("knowledge", "search", "use", "--json").stdout)["hits"][0]
    assert hit["approval"] == CHANGED
    arena.run("knowledge", "approve", "decision-use-oauth", "--by", "bob").check()
    assert "approval" not in listed(arena)[0]
    acts = [(one["act"], one["by"]) for one in arena.records() if one["type"] == "note"]
    assert acts[-2:] == [("changed", ""), ("approved", "bob")]
    assert len({one["sha256"] for one in arena.records() if one.get("act") == "approved"}) == 2
    assert shown(arena) == ["decision-use-oauth"]


def test_bookkeeping_is_no_text(arena: Program) -> None:
    path = note_of(arena)
    edit(path, "occurrences: 1", "occurrences: 4")
    edit(path, "tags: []", "tags: [auth]\nx-mine: 1")
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    arena.run("knowledge", "add", "use oauth", "--kind", "decision", "-s", "s").check()
    assert listed(arena)[0]["status"] == "approved"
    assert shown(arena) == ["decision-use-oauth"]


def test_a_changed_note_can_be_sent_back_or_put_away(arena: Program) -> None:
    edit(note_of(arena), "yes", "no")
    arena.run("knowledge", "reject", "decision-use-oauth", "--reason", "who did this?").check()
    assert listed(arena)[0]["status"] == "draft"
    acts = [one["act"] for one in arena.records() if one["type"] == "note"]
    assert acts == ["added", "submitted", "approved", "changed", "rejected"]


def test_a_file_that_says_approved_without_an_approval_is_a_draft(arena: Program) -> None:
    arena.file(
        "sessions/s/knowledge/decision-forged.md",
        "---\ntitle: OAuth is out\nkind: decision\nstatus: approved\napproved_by: ann\n---\n",
    )
    assert f"decision-forged · draft ({UNTOLD})" in arena.run("knowledge", "list").stdout
    forged = {note["id"]: note for note in listed(arena)}["decision-forged"]
    assert (forged["status"], forged["approval"]) == ("draft", UNTOLD)
    assert shown(arena) == ["decision-use-oauth"]
    arena.run("knowledge", "approve", "decision-forged").check()
    assert sorted(shown(arena)) == ["decision-forged", "decision-use-oauth"]
    arena.run("knowledge", "archive", "decision-forged").check()
    edit(note_of(arena, "decision-forged"), "status: archived", "status: approved")
    assert shown(arena) == ["decision-use-oauth"]


def test_an_approval_without_a_hash_stays(arena: Program) -> None:
    path = arena.transcript()
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    kept = [json.loads(line) for line in lines]
    for one in kept:
        one.pop("sha256", None)
    path.write_text(
        "".join(f"{json.dumps(one, separators=(',', ':'))}\n" for one in kept), encoding="utf-8"
    )
    edit(note_of(arena), "yes", "no")
    assert listed(arena)[0]["status"] == "approved"
    assert shown(arena) == ["decision-use-oauth"]


def test_shared_notes_have_their_approvals_in_their_own_trail(arena: Program) -> None:
    arena.run("knowledge", "add", "Lock timeout", "--kind", "pit", "--shared").check()
    arena.run("knowledge", "approve", "pits/lock-timeout").check()
    path = arena.folder / "sessions" / "knowledge" / "pits" / "lock-timeout.md"
    assert shown(arena) == ["decision-use-oauth"]
    arena.run("send", "a lock timeout", "-s", "s", "--quiet").check()
    started = [one for one in arena.records() if one["type"] == "reply_started"]
    assert "pits/lock-timeout" in started[-1]["notes"]
    edit(path, "Lock timeout", "Lock timeouts")
    arena.run("send", "a lock timeout", "-s", "s", "--quiet").check()
    started = [one for one in arena.records() if one["type"] == "reply_started"]
    assert "pits/lock-timeout" not in started[-1].get("notes", [])


def test_notes_in_sub_folders_of_a_category(arena: Program, tmp_path: Path) -> None:
    name = "decisions/auth/2026/令牌"
    arena.file(f"sessions/knowledge/{name}.md", "---\ntitle: rotate OAuth tokens\n---\nweekly\n")
    arena.file("sessions/knowledge/decisions/.old/x.md", "hidden")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "y.md").write_text("linked", encoding="utf-8")
    (arena.folder / "sessions/knowledge/decisions/link").symlink_to(outside)
    listing = arena.run("knowledge", "list", "--shared")
    assert listing.stdout == f"{name} · draft · rotate OAuth tokens\n"
    assert "decisions/link: is a link to a folder, which is not followed" in listing.stderr
    (arena.folder / "sessions/knowledge/decisions/link").unlink()
    assert listed(arena, "--shared")[0]["kind"] == "decision"
    for said in (name, "令牌", f"sessions/knowledge/{name}.md"):
        assert "weekly" in arena.run("knowledge", "show", said, "--shared").check().stdout
    hits = json.loads(arena.run("knowledge", "search", "tokens", "--json").stdout)["hits"]
    assert [hit["id"] for hit in hits] == [name]
    arena.run("knowledge", "approve", name).check(
        stdout=f"{name} · approved · rotate OAuth tokens\n"
    )
    assert name in shown(arena)


def test_notes_that_a_scenario_gives_as_approved_are_approved(tmp_path: Path) -> None:
    stage = Stage(tmp_path).agent("dev", "Done.").team(memory={"approved_only": True})
    note = "---\ntitle: Use OAuth\nkind: decision\nstatus: {}\n---\n"
    (tmp_path / "notes").mkdir()
    for name, status in (("decision-auth", "approved"), ("decision-oauth", "draft")):
        path = tmp_path / "notes" / f"{name}.md"
        path.write_text(note.format(status), encoding="utf-8")
    result = stage.play(
        "scenario: talk\n"
        "given: {notes: [notes/decision-auth.md, notes/decision-oauth.md]}\n"
        "steps:\n"
        "  - send: what about OAuth?\n"
        "    expect: {shown_notes: {dev: {exactly: [decision-auth]}}}\n"
    )
    assert result.status == "passed", printed(result)
