"""`arena knowledge`: what a person does to notes, what it says, and the trail of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from product import session_store as store
from program import Done, Program


@pytest.fixture
def arena(tmp_path: Path) -> Program:
    program = Program(tmp_path)
    program.agent("dev", "Done.").team(humans=["ann"])
    program.run("send", "hello", "-s", "s", "--quiet").check()
    return program


def knowledge(arena: Program, *args: str, **options: Any) -> Done:
    return arena.run("knowledge", *args, **options)


def put(arena: Program, name: str, text: str = "---\ntitle: x\n---\nbody\n") -> Path:
    return arena.file(f"sessions/{name}.md", text)


def acts(arena: Program, session: str = "s") -> list[tuple[str, str, str]]:
    events = [one for one in arena.records(session) if one["type"] == "note"]
    return [(one["note"], one["act"], one["by"]) for one in events]


def test_a_note_lives_from_draft_to_archive_and_leaves_a_trail(arena: Program) -> None:
    first = knowledge(
        *(arena, "add", "Use OAuth", "--kind", "decision", "-s", "s", "--text", "-"),
        *("--tag", "auth", "--importance", "0.9", "--source", "m2"),
        given="因为标准。\n".encode(),
    )
    first.check(stdout="decision-use-oauth · draft · Use OAuth · auth\n")
    note = "decision-use-oauth"
    shown = knowledge(arena, "show", "decision-use").check().stdout
    assert shown.startswith(f"Use OAuth\n{note} · decision · draft · importance 0.9\n")
    assert "source: m2\n" in shown
    assert "## Decision\n\n因为标准。\n" in shown
    knowledge(arena, "submit", note, "-c").check(
        stdout=f"{note} · pending_user · Use OAuth · auth\n"
    )
    knowledge(arena, "reject", note, "-c", "--reason", "too short", "--by", "bob").check()
    knowledge(arena, "approve", f"sessions/s/knowledge/{note}.md").check(
        stdout=f"{note} · approved · Use OAuth · auth\n"
    )
    knowledge(arena, "archive", note, "-s", "s").check()
    steps = ["added", "submitted", "rejected", "submitted", "approved", "archived"]
    by = ["ann", "ann", "bob", "ann", "ann", "ann"]
    assert acts(arena) == [(note, act, who) for act, who in zip(steps, by, strict=True)]
    trail = knowledge(arena, "history", note, "-s", "s").check().stdout.splitlines()
    assert [line.split(" · ")[2] for line in trail] == steps
    assert trail[0].endswith(" · added · ann · from m2")
    assert trail[2].endswith(" · rejected · bob · too short")
    events = json.loads(knowledge(arena, "history", "--json").stdout)
    assert [event["act"] for event in events] == steps
    arena.run("doctor", "s").check(stdout=None, code=0)
    timeline = arena.run("show", "s").check().stdout
    assert f"  note {note} rejected by bob: Use OAuth (too short)\n" in timeline
    arena.run("send", "again", "-s", "s", "--quiet")
    assert arena.finished()[-1][0] == "dev"


def test_an_archived_note_is_restored_as_a_draft(arena: Program) -> None:
    for title in ("Old", "新决定"):
        knowledge(arena, "add", title, "--kind", "decision", "-c", "--text", title).check()
    knowledge(arena, "approve", "decision-old").check()
    front = "title: 新决定\nkind: decision\nsupersedes: decision-old"
    put(arena, "s/knowledge/decision-新决定", f"---\n{front}\n---\n")
    knowledge(arena, "approve", "decision-新决定").check()
    assert acts(arena)[-1][:2] == ("decision-old", "superseded")
    done = knowledge(arena, "restore", "decision-old", "--reason", "又要用", "--by", "小王")
    done.check(stdout="decision-old · draft · Old\n")
    old = json.loads(knowledge(arena, "show", "decision-old", "--json").stdout)
    facts = ("status", "superseded_by", "approved_by", "approval")
    assert [old.get(name, "") for name in facts] == ["draft", "", "", ""]
    assert acts(arena)[-1] == ("decision-old", "restored", "小王")
    timeline = arena.run("show", "s").check().stdout
    assert "note decision-old restored by 小王: Old (又要用)\n" in timeline
    arena.env["ARENA_LANG"] = "zh"
    assert "恢复" in arena.run("show", "s").check().stdout
    del arena.env["ARENA_LANG"]
    knowledge(arena, "approve", "decision-old").check(stdout="decision-old · approved · Old\n")
    done = knowledge(arena, "restore", "decision-old")
    assert (done.code, done.stdout) == (2, "")
    assert "decision-old is approved: it cannot be restored\n  Allowed now: archive." in done.stderr
    arena.run("doctor", "s").check(stdout=None, code=0)


def test_an_illegal_step_says_what_is_legal_and_does_nothing(arena: Program) -> None:
    put(arena, "s/knowledge/pit-a", "---\ntitle: a\n---\n")
    knowledge(arena, "approve", "pit-a").check()
    put(arena, "s/knowledge/pit-b")
    before = arena.written()
    knowledge(arena, "submit", "pit-b", "pit-a").check(
        code=2,
        stdout="",
        stderr="arena: pit-a is approved: it cannot be submitted\n"
        "  Allowed now: archive. Approved notes are not changed but superseded: `arena "
        "knowledge add --supersedes pit-a TITLE`.\n",
    )
    knowledge(arena, "reject", "pit-b").check(
        code=2, stderr="arena: a rejection needs a reason\n  Add --reason TEXT.\n"
    )
    assert arena.written() == before


def test_a_note_is_superseded_when_the_new_one_is_approved(arena: Program) -> None:
    put(arena, "s/knowledge/decision-old", "---\ntitle: Old\n---\nwords\n")
    knowledge(arena, "approve", "decision-old").check()
    refused = knowledge(arena, "add", "old!", "--kind", "decision", "-c", "--text", "others")
    assert refused.code == 2
    assert "decision-old has the same text and is approved" in refused.stderr
    knowledge(arena, "add", "New", "--supersedes", "decision-old", "-c").check(
        stdout="decision-new · draft · New\n"
    )
    shown = json.loads(knowledge(arena, "show", "decision-old", "--json").stdout)
    assert (shown["status"], shown["superseded_by"]) == ("approved", "")
    knowledge(arena, "approve", "decision-new", "--by", "ann").check()
    old = json.loads(knowledge(arena, "show", "decision-old", "--json").stdout)
    assert (old["status"], old["superseded_by"], old["body"]) == (
        *("archived", "decision-new"),
        "words\n",
    )
    assert acts(arena)[-1] == ("decision-old", "superseded", "ann")
    listed = json.loads(knowledge(arena, "list", "--status", "approved", "--json").stdout)
    assert [note["id"] for note in listed] == ["decision-new"]


@pytest.mark.parametrize("old", ["x" * 300, "../s/knowledge/pit-old", "pit-new", "a\0b"])
def test_what_no_note_can_be_is_not_superseded(arena: Program, old: str) -> None:
    front = f"title: new\nkind: pit\nsupersedes: {json.dumps(old)}"
    put(arena, "s/knowledge/pit-new", f"---\n{front}\n---\n")
    done = knowledge(arena, "approve", "pit-new", "-s", "s")
    assert (done.code, done.stdout) == (0, "pit-new · approved · new\n")
    assert ("is not superseded: there is no note" in done.stderr) is (old != "pit-new")
    found = json.loads(knowledge(arena, "show", "pit-new", "--json", "-s", "s").stdout)
    assert (found["status"], found["superseded_by"]) == ("approved", "")


def test_a_note_is_shared_and_the_next_session_counts_it(arena: Program) -> None:
    knowledge(arena, "add", "Slow DB", "--kind", "pit", "-c", "--text", "Add an index.").check()
    knowledge(arena, "add", "Do it", "--kind", "task", "-c").check()
    assert knowledge(arena, "approve", "task", "--share").code == 2
    shared = knowledge(arena, "approve", "pit-slow", "--share", "-c").check().stdout
    assert shared == "pit-slow-db · approved · Slow DB\npits/slow-db · approved · Slow DB\n"
    again = knowledge(arena, "approve", "pit-slow", "--share", "-c").check()
    assert again.stdout == shared
    arena.run("send", "hello", "-s", "t", "--quiet").check()
    knowledge(arena, "add", "slow db", "--kind", "pit", "-s", "t", "--by", "bob").check(
        stdout="pits/slow-db · approved · Slow DB · seen 2 times\n"
    )
    assert not (arena.folder / "sessions/t/knowledge").exists()
    assert acts(arena, "t") == [("pits/slow-db", "seen", "bob")]
    note = json.loads(knowledge(arena, "show", "pits/slow-db", "--json").stdout)
    assert (note["related_sessions"], note["approved_by"]) == (["s", "t"], "ann")
    assert "Add an index." in note["body"]
    listed = knowledge(arena, "search", "slow db", "--json").check().stdout
    assert [hit["id"] for hit in json.loads(listed)["hits"]] == ["pit-slow-db"]
    trail = knowledge(arena, "history", "--shared").check().stdout.splitlines()
    assert [line.split(" · ")[2] for line in trail] == ["added", "submitted", "approved"]


def test_the_message_of_a_shared_note_is_told_with_its_session(arena: Program) -> None:
    put(arena, "s/knowledge/pit-a", "---\ntitle: Slow\nkind: pit\nsource: m2\n---\n")
    knowledge(arena, "approve", "pit-a", "--share", "-s", "s").check()
    assert "source: m2 of session s\n" in knowledge(arena, "show", "pits/slow").check().stdout
    (added,) = [
        event
        for event in json.loads(knowledge(arena, "history", "--shared", "--json").stdout)
        if event["act"] == "added"
    ]
    assert (added["message"], added["reason"]) == (None, "sessions/s/knowledge/pit-a.md")


def test_the_trail_of_shared_notes_bears_a_torn_line(arena: Program) -> None:
    knowledge(arena, "add", "One", "--kind", "pit", "--shared").check()
    trail = arena.folder / "sessions/knowledge/history.jsonl"
    with trail.open("ab") as file:
        file.write(b'not json\n{"seq":2,"ts":"2026')
    knowledge(arena, "add", "Two", "--kind", "pit", "--shared").check()
    told = knowledge(arena, "history", "--shared", "--json").check().stdout
    assert [event["note"] for event in json.loads(told)] == ["pits/one", "pits/two"]
    raw = trail.read_bytes()
    assert raw.endswith(b"}\n")
    assert raw.count(b"\n") == 4  # the bad line stays; what was torn is told of
    assert (trail.parent / "history.torn-2").read_bytes() == b'{"seq":2,"ts":"2026'


def test_lists_are_filtered_and_broken_notes_told(arena: Program) -> None:
    put(arena, "s/knowledge/pit-a", "---\ntitle: a\ntags: [x, y]\n---\n")
    put(arena, "s/knowledge/task-b", "---\ntitle: b\nstatus: archived\n---\n")
    put(arena, "s/knowledge/pit-broken", "---\ntitle: a\nstatus: aproved\n---\n")
    put(arena, "knowledge/pits/手写", "没有 front matter")
    told = knowledge(arena, "list")
    assert (
        told.stdout == "pit-a · draft · a · x, y\ntask-b · archived · b\npits/手写 · draft · 手写\n"
    )
    assert told.stderr.startswith("sessions/s/knowledge/pit-broken.md:3: status:")
    assert told.code == 0
    for args, ids in (
        (["--kind", "pit"], ["pit-a", "pits/手写"]),
        (["--kind", "pit", "-s", "s"], ["pit-a"]),
        (["--status", "archived"], ["task-b"]),
        (["--tag", "x", "--tag", "y"], ["pit-a"]),
        (["--shared"], ["pits/手写"]),
    ):
        listed = json.loads(knowledge(arena, "list", *args, "--json").stdout)
        assert [note["id"] for note in listed] == ids
    wrong = knowledge(arena, "show", "pit-broken")
    assert (wrong.code, "pit-broken.md:3: status:" in wrong.stderr) == (2, True)
    knowledge(arena, "list", "--kind", "pti").check(
        code=2, stdout="", stderr="arena: --kind: unknown kind pti\n  did you mean `pit`?\n"
    )


WRONG = [
    (["show", "pit-alhpa"], "did you mean `pit-alpha`?"),
    (["show", "pit"], "pit is ambiguous: pit-alpha, pit-beta"),
    (["show", "arena.yaml.md"], "there is no note"),
    (["show", "other.md"], "is not a note of this workspace"),
    (["show", "x" * 300 + ".md"], "there is no note"),
    (["add", "x"], "no place is given for the note"),
    (["add", " ", "-c"], "a note needs a title"),
    (["add", "x", "-c", "--source", "m99"], "there is no message m99"),
    (["add", "x", "--shared", "--kind", "pit", "--source", "m2"], "--source"),
    (["add", "Beta", "-c", "--kind", "pit", "--source", "m2", "--text", "y"], "Add to it by hand"),
    (["add", "x", "--shared", "--kind", "task"], "cannot be shared"),
    (["add", "x", "-c", "--supersedes", "nothing"], "there is no note nothing"),
    (["list", "-c", "--shared"], "exclude each other"),
    (["list", "-s", "nope"], "there is no session"),
    (["archive", "pit-alpha", "--by", " "], "--by"),
]


def test_wrong_use_is_told_and_changes_nothing(arena: Program) -> None:
    put(arena, "s/knowledge/pit-alpha")
    put(arena, "s/knowledge/pit-beta", "---\ntitle: beta\nsource: m2\n---\n")
    arena.file("other.md", "x")
    before = arena.raw()
    for args, told in WRONG:
        done = knowledge(arena, *args)
        assert (done.code, done.stdout) == (2, ""), args
        assert told in done.stderr
    assert arena.raw() == before


def busy(arena: Program, folder: str, *args: str) -> Done:
    """What a command comes to while somebody else holds that folder."""
    held = store.acquire(arena.folder / folder, folder, wait_s=0, on_wait=lambda: None)
    try:
        return knowledge(arena, *args, "--wait", "0")
    finally:
        held.release()


def test_a_busy_session_is_waited_for_then_refused(arena: Program) -> None:
    put(arena, "s/knowledge/pit-a")
    done = busy(arena, "sessions/s", "archive", "pit-a")
    assert done.code == 5
    assert "session s is busy" in done.stderr
    assert "status: archived" not in put(arena, "s/knowledge/pit-b").with_name(
        "pit-a.md"
    ).read_text(encoding="utf-8")


def test_busy_shared_notes_are_told_by_their_folder(arena: Program) -> None:
    put(arena, "knowledge/pits/a")
    done = busy(arena, "sessions/knowledge", "archive", "pits/a", "--shared")
    done.check(
        code=5,
        stderr="arena: sessions/knowledge is busy: another arena is writing to it (waited 0 s)\n"
        "  Nothing was written. Try again later, or wait longer with --wait SECONDS.\n",
    )


def test_a_note_can_be_added_while_a_chain_is_cut_short(arena: Program) -> None:
    whole = arena.raw()
    opened = whole[: whole.index(b'"type":"reply_finished"')]
    arena.transcript().write_bytes(opened)  # cut in the middle of a line, too
    knowledge(arena, "add", "Use OAuth", "--kind", "decision", "-s", "s").check()
    types = [record["type"] for record in arena.records()]
    assert types[-2:] == ["recovered", "note"]
    arena.run("resume", "s", "--quiet").check()
    assert arena.finished() == [("dev", "success")]
    arena.run("doctor", "s").check(code=0)


def test_two_people_at_once_lose_nothing(arena: Program) -> None:
    for where in (["-s", "s"], ["--shared"]):
        running = [
            arena.start("knowledge", "add", "Slow", "--kind", "pit", *where, "--text", text)
            for text in ("one thing", "another")
        ]
        assert [arena.finish(one).code for one in running] == [0, 0]
    for note in ("pit-slow", "pits/slow"):
        shown = json.loads(knowledge(arena, "show", note, "--json").stdout)
        assert shown["occurrences"] == 2
        assert "one thing" in shown["body"]
        assert "another" in shown["body"]
    assert sorted(act for _, act, _ in acts(arena)) == ["added", "edited"]


def test_a_secret_does_not_get_into_a_note(arena: Program) -> None:
    arena.file("arena.yaml", "team: crew\nredact: ['tok-[0-9]+']\n")
    beside = ("--tag", "tok-7", "--owner", "tok-8")
    knowledge(arena, "add", "Use tok-123", "--text", "it is tok-456", *beside, "-c").check()
    knowledge(arena, "archive", "reference-use", "--reason", "tok-9 has leaked").check()
    assert "has leaked" in arena.written()
    assert "tok-" not in arena.written()


def test_what_others_wrote_is_shown_escaped(arena: Program) -> None:
    put(arena, "s/knowledge/pit-a", "# \x1b[31mred\n::error::x\n\u202ex")
    for command in (["list"], ["show", "pit-a"]):
        out = knowledge(arena, *command).check().stdout
        assert "\x1b" not in out
        assert "\u202e" not in out
        assert "\n::error" not in out


def test_of_a_huge_note_it_is_said_what_is_read(arena: Program) -> None:
    put(arena, "s/knowledge/pit-a", "x" * 65_536)
    put(arena, "s/knowledge/pit-b", "x" * 65_537)
    put(arena, "s/knowledge/pit-c", "---\r\ntitle: c\r\n---\r\n\r\n正文\r\n")
    knowledge(arena, "show", "pit-a").check()
    knowledge(arena, "show", "pit-c").check()
    file = "sessions/s/knowledge/pit-b.md"
    told = f"{file}: arena reads only the part that is shown, the rest stays in the file\n"
    knowledge(arena, "show", "pit-b").check(stderr=told)


def test_a_note_that_cannot_be_written_is_left_out_and_told_in_plain_lines(
    tmp_path: Path,
) -> None:
    program = Program(tmp_path)
    program.agent("dev", {"say": "ok"})
    program.run("send", "-q", "-s", "talk", "@dev hello").check()
    (tmp_path / "sessions/talk/knowledge").write_text("no folder", encoding="utf-8")
    done = program.run("send", "-q", "-s", "talk", "@dev Decision: we use Redis here.")
    first, second = done.stderr.splitlines()
    assert done.code == 0
    assert first.startswith("sessions/talk/knowledge: a note is left out: ")
    assert "Free disk space" not in first
    assert second == "  Free disk space, or fix the permissions there."
