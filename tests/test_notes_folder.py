"""A folder of notes: what is listed, what is taken as the same, and that nothing is lost."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from product import (
    Draft,
    Folder,
    NoSuchNote,
    Note,
    NoteFault,
    TakenNote,
    UsageError,
    lifecycle,
    markdown,
)
from product import model_Status as Status
from product import notes_model as model
from program import ROOT

NOW = datetime(2026, 11, 28, 9, 30, tzinfo=UTC)


@pytest.fixture
def own(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "sessions" / "s" / "knowledge", tmp_path, shared=False)


@pytest.fixture
def shared(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "sessions" / "knowledge", tmp_path, shared=True)


def text(folder: Folder, id: str) -> str:
    return (folder.path / f"{id}.md").read_bytes().decode("utf-8")


def put(folder: Folder, name: str, content: str = "x") -> Path:
    path = folder.path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode("utf-8"))
    return path


def set_fields(folder: Folder, id: str, **fields: Any) -> None:
    folder.edit(id, lambda _, text: markdown.changed(text, **fields))


def add(folder: Folder, title: str, **fields: Any) -> Note:
    fields = {"kind": "decision", "title": title, **fields}
    return folder.add(Draft(**fields), session="s", now=NOW)


def take(draft: Draft, folder: Folder, session: str = "s", **options: Any) -> TakenNote:
    known = [folder.read(entry.id) for entry in folder.entries()]
    shared = options.get("shared")
    if isinstance(shared, Folder):
        known += [shared.read(entry.id) for entry in shared.entries()]
    return lifecycle.take_note(draft, known, folder, session=session, now=NOW, **options)


@pytest.mark.parametrize(
    ("title", "slug"),
    [
        ("Use OAuth 2.0, always!", "use-oauth-2-0-always"),
        ("用户系统 必须 符合 GDPR", "用户系统-必须-符合-gdpr"),
        ("Cafe\u0301 \u00e0 la_carte", "café-à-la_carte"),
        ("../../etc/passwd", "etc-passwd"),
        ("NUL", "note-nul"),
        ("???", "note"),
        ("", "note"),
        ("\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645", "میخواهم"),
        ("हिन्दी भाषा", "हिन्दी-भाषा"),
    ],
)
def test_a_slug_is_of_any_script(title: str, slug: str) -> None:
    assert model.slugify(title) == slug


def test_a_slug_is_cut_between_characters() -> None:
    slug = model.slugify("करना" * 100)
    assert len(slug.encode()) <= model.MOST_BYTES
    assert model.slugify("字" * 300) == "字" * 40


def test_a_missing_folder_has_no_notes_and_reading_makes_none(own: Folder) -> None:
    assert own.entries() == []
    with pytest.raises(NoSuchNote):
        own.read("decision-x")
    assert not own.path.exists()


def test_a_new_note_is_read_back(own: Folder, shared: Folder) -> None:
    note = add(own, "  Use\nOAuth ", body="Because.", source="m3", tags=("a", "a", ""), owner="dev")
    assert note == own.read("decision-use-oauth")
    assert (note.title, note.tags, note.owner, note.source) == ("Use OAuth", ["a"], "dev", "m3")
    assert (note.created, note.related_sessions) == ("2026-11-28T09:30:00.000Z", ["s"])
    assert note.body == "## Decision\n\nBecause.\n\n## Context\n\n## Consequences\n"
    assert note.file == "sessions/s/knowledge/decision-use-oauth.md"
    assert add(own, "use OAUTH").id == "decision-use-oauth-2"
    assert add(shared, "Use OAuth").id == "decisions/use-oauth"
    assert [entry.id for entry in own.entries()] == ["decision-use-oauth", "decision-use-oauth-2"]
    with pytest.raises(UsageError, match="cannot be shared"):
        add(shared, "x", kind="task")


@pytest.mark.parametrize("importance", [float("nan"), -3.0, 7.0])
def test_an_importance_that_is_none_is_brought_into_range(own: Folder, importance: float) -> None:
    assert 0 <= add(own, "x", importance=importance).importance <= 1


def test_sections_are_in_the_language_and_headings_are_kept(own: Folder) -> None:
    pit = Draft("pit", "慢", "很慢")
    note = own.add(pit, session="s", now=NOW, language="zh")
    assert note.body == "## 问题\n\n很慢\n\n## 根本原因\n\n## 解决办法\n\n## 如何预防\n"
    assert add(own, "y", body="# Own\n\ntext").body == "# Own\n\ntext\n"


def test_names_that_look_alike_are_both_read_and_both_told(own: Folder) -> None:
    put(own, "pit-e\u0301.md", "# one")
    put(own, "pit-\u00e9.md", "# two")
    put(own, "pit-Auth.md", "# three")
    put(own, "pit-auth.md", "# four")
    put(own, ".hidden.md")
    put(own, "notes.txt")
    (own.path / "folder.md").mkdir()
    entries = own.entries()
    titles = {own.read(entry.id).title for entry in entries}
    assert len(titles) == len(entries) == len(list(own.path.glob("pit-*.md")))
    assert len(own.problems) == len(entries) - len({model.folded(one.id) for one in entries})
    assert all("pit-" in problem.file and "pit-" in problem.what for problem in own.problems)


@pytest.mark.parametrize(
    ("there", "title"),
    [
        ("decision-Use-OAuth.md", "use oauth"),
        ("decision-cafe\u0301.md", "Caf\u00e9"),
        ("decision-strasse.md", "Straße"),
        ("decision-straße.md", "Strasse"),
    ],
)
@pytest.mark.parametrize("is_late", [False, True], ids=["before", "later"])
def test_a_new_name_is_like_none_in_any_spelling(
    own: Folder, there: str, title: str, is_late: bool
) -> None:
    if is_late:
        add(own, "something else")
    put(own, there)
    os.utime(own.path, ns=(1, 1))  # a disk's clock may not have ticked meanwhile
    assert add(own, title).id.endswith("-2")
    assert add(own, title).id.endswith("-3")
    names = [path.name for path in own.path.glob("decision-*")]
    assert len(set(map(model.folded, names))) == len(names) == 3 + is_late


def keep_time(path: Path, change: Callable[[], object]) -> None:
    before = path.stat()
    change()
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.skipif(sys.platform == "win32", reason="links need a right there")
@pytest.mark.parametrize(
    "change",
    [
        lambda here: None,
        lambda here: (here / "a.md").write_text("y", encoding="utf-8"),
        lambda here: keep_time(here / "a.md", lambda: (here / "a.md").write_text("y")),
        lambda here: (here / "a.md").unlink(),
        lambda here: (here / "new.md").write_text("y", encoding="utf-8"),
        lambda here: (here / "a.md").rename(here / "b.md"),
        lambda here: (here / "a.md").rename(here / "a.txt"),
        lambda here: (here / "deeper").mkdir() or (here / "deeper" / "b.md").write_text("y"),
        lambda here: (here / "below" / "c.md").unlink(),
        lambda here: (here / "a.md").rename(here / "a") or (here / "a.md").symlink_to("a"),
        lambda here: (here / "e.md").symlink_to("nothing"),
        lambda here: (here / ".hidden.md").write_text("y", encoding="utf-8"),
        lambda here: (here / "d.md").mkdir(),
    ],
)
def test_whatever_changes_is_listed_also_if_no_time_of_a_folder_tells(
    shared: Folder, change: Callable[[Path], object]
) -> None:
    for name in ("decisions/a.md", "decisions/below/c.md", "tasks/t.md"):
        put(shared, name)
    here = shared.path / "decisions"
    listed = shared.entries()
    assert shared.entries() is listed
    keep_time(here / "below", lambda: keep_time(here, lambda: change(here)))
    again = Folder(shared.path, shared.workspace, shared=True)
    assert shared.entries() == again.entries()
    assert shared.problems == again.problems


@pytest.mark.skipif(sys.platform == "win32", reason="links need a right there")
def test_links_that_lead_nowhere_are_no_notes(own: Folder) -> None:
    put(own, "pit-real.md")
    (own.path / "pit-loop.md").symlink_to("pit-loop.md")
    (own.path / "pit-gone.md").symlink_to("nothing.md")
    os.mkfifo(own.path / "pit-pipe.md")
    assert [entry.id for entry in own.entries()] == ["pit-real"]
    told = {(problem.file, problem.what[:15]) for problem in own.problems}
    names = ("pit-loop.md", "pit-pipe.md")
    assert told == {(f"sessions/s/knowledge/{name}", "cannot be read:") for name in names}


def test_a_folder_that_may_not_be_read_is_told(
    own: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(own, "pit-real.md")

    def refuse(path: object) -> None:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(os, "scandir", refuse)
    assert own.entries() == []
    told = str(own.problems[0])
    assert told == "sessions/s/knowledge: cannot be read: Permission denied"


def test_a_sentence_that_says_it_all_stands_in_the_first_section(own: Folder) -> None:
    note = take(Draft("decision", "We use OAuth", by="rules", source="m1"), own).note
    assert note.body == "## Decision\n\nWe use OAuth\n\n## Context\n\n## Consequences\n"
    assert take(Draft("task", "Do it", by="rules", source="m1"), own).note.body == ""


@pytest.mark.skipif(sys.platform == "win32", reason="links need a right there")
def test_links_that_lead_out_out_of_the_workspace_are_refused(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.md").write_text("secret", encoding="utf-8")
    work = tmp_path / "work"
    own = Folder(work / "sessions" / "s" / "knowledge", work, shared=False)
    own.path.mkdir(parents=True)
    (own.path / "pit-x.md").symlink_to(outside / "secret.md")
    put(own, "pit-real.md", "# real")
    (own.path / "pit-inside.md").symlink_to(own.path / "pit-real.md")
    assert [entry.id for entry in own.entries()] == ["pit-inside", "pit-real"]
    assert [problem.file for problem in own.problems] == ["sessions/s/knowledge/pit-x.md"]
    with pytest.raises(NoSuchNote):
        own.read("pit-x")
    with pytest.raises(UsageError, match=r"pit-inside\.md is a link"):
        set_fields(own, "pit-inside", status="archived")
    assert (own.path / "pit-inside.md").is_symlink()
    assert own.read("pit-real").status == "draft"
    away = Folder(work / "away", work, shared=False)
    away.path.symlink_to(outside, target_is_directory=True)
    assert away.entries() == []
    for act in (lambda: add(away, "x"), lambda: set_fields(away, "secret", status="archived")):
        with pytest.raises(UsageError, match="away is a link"):
            act()
    assert [path.name for path in outside.iterdir()] == ["secret.md"]


@pytest.mark.parametrize("id", ["../secret", "a/../b", ".x", "", "pits/../../x", "a\\b", "c:x"])
def test_an_id_never_leads_out(own: Folder, shared: Folder, id: str) -> None:
    put(own, "../secret.md")
    put(shared, "pits/x.md")
    for folder in (own, shared):
        with pytest.raises(NoSuchNote):
            folder.read(id)


def test_a_huge_note_is_read_up_to_a_limit_and_kept_whole(own: Folder) -> None:
    content = "---\ntitle: big\n---\n" + "数据 data\n" * 500_000
    put(own, "pit-big.md", content)
    assert len(own.read("pit-big").body) == 65_536
    set_fields(own, "pit-big", status="archived")
    assert text(own, "pit-big") == content.replace("---\n数", "status: archived\n---\n数", 1)


def test_a_note_of_megabytes_is_told_with_what_is_read_of_it(own: Folder) -> None:
    put(own, "pit-a.md", "大象 " * 60_000)
    put(own, "pit-b.md", "x" * 65_536)
    assert len(own.entries()) == 2
    (told,) = own.problems
    assert told.file == "sessions/s/knowledge/pit-a.md"
    assert "its first 65,536 characters" in told.what


def test_a_broken_note_is_told_with_its_line_and_kept(own: Folder) -> None:
    path = put(own, "pit-x.md", "---\ntitle: x\nstatus: [\n---\nbody")
    before = path.read_bytes()
    for act in (lambda: own.read("pit-x"), lambda: set_fields(own, "pit-x", status="archived")):
        with pytest.raises(NoteFault) as told:
            act()
        assert (told.value.file, told.value.line) == ("sessions/s/knowledge/pit-x.md", 3)
    assert path.read_bytes() == before


def test_what_somebody_saves_meanwhile_is_not_overwritten(own: Folder) -> None:
    path = put(own, "pit-x.md", "---\ntitle: x\n---\none\n")
    calls = []

    def make(note: Note, text: str) -> str:
        calls.append(text)
        if len(calls) == 1:
            path.write_bytes(b"---\ntitle: x\n---\none\ntwo, by hand\n")
        return text.replace("title: x", "title: y")

    own.edit("pit-x", make)
    assert text(own, "pit-x") == "---\ntitle: y\n---\none\ntwo, by hand\n"
    assert len(calls) == 2


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Use OAuth for login", "use OAuth, for login!"),
        ("Use OAuth for the login", "Use OAuth for login"),
        ("“必须”符合 GDPR", "必须 符合GDPR。"),
        ("ＡＰＩ ｖ２", "api v2"),
        ("???", "???"),
        ("API𠀀", "api 𠀀"),
    ],
)
def test_the_same_thing(one: str, other: str) -> None:
    assert lifecycle.match_titles(one, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            "The connections pool leaks memory under load",
            "The connection pool leaks memory under load",
        ),
        (
            "Deployments run on Fridays after the review",
            "Deployments run on Friday after the review",
        ),
    ],
)
def test_nearly_the_same_thing(one: str, other: str) -> None:
    assert lifecycle.words(one) != lifecycle.words(other)
    assert lifecycle.match_titles(one, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Keep at most 30 backups of the database", "Keep at most 31 backups of the database"),
        (
            "We will use Postgres for the storage layer",
            "We will not use Postgres for the storage layer",
        ),
        (
            "Alice takes the login page and the registration",
            "Alice takes the logout page and the registration",
        ),
        (
            "使用云数据库存储所有用户的登录日志和审计数据",
            "不使用云数据库存储所有用户的登录日志和审计数据",
        ),
        (
            "登录接口的全部开发和测试工作由小王负责完成",
            "登录接口的全部开发和测试工作由小李负责完成",
        ),
        ("Move the queue from Redis to Kafka", "Move the queue from Kafka to Redis"),
        (
            "The orders queue moves from Redis to Kafka",
            "The order queue moves from Kafka to Redis",
        ),
        ("把消息队列从甲迁移到乙", "把消息队列从乙迁移到甲"),
        (
            "Keep the orders in store X for reads and in store Y for writes of everybody",
            "Keep the orders in store Y for reads and in store X for writes of everybody",
        ),
        ("Write it in C++", "Write it in C#"),
        ("Latency < 5 ms", "Latency > 5 ms"),
        ("Offset -3", "Offset 3"),
        ("ใช้กี", "ใช้กู"),
        ("???", "!!!"),
        ("", "x"),
    ],
)
def test_not_the_same_thing(one: str, other: str) -> None:
    assert not lifecycle.match_titles(one, other)


def test_the_same_again_is_counted_once_a_message(own: Folder) -> None:
    first = take(Draft("decision", "Use OAuth", source="m3", by="rules"), own)
    assert first.act == "added"
    again = Draft("decision", "use oauth", source="m3", by="rules")
    assert take(again, own) == TakenNote(first.note, None)
    seen = take(again._replace(source="m9"), own)
    assert (seen.act, seen.note.occurrences, seen.note.source) == ("seen", 2, "m3")
    told = {(seen.note.id, "m9")}
    assert take(again._replace(source="m9"), own, noted=told).act is None
    assert own.read("decision-use-oauth").occurrences == 2
    assert take(again._replace(kind="task", source="m9"), own).act == "added"


def test_a_message_with_two_things_makes_two_notes_and_again_none(own: Folder) -> None:
    drafts = [Draft("decision", title, source="m3") for title in ("Use OAuth", "Use Postgres")]
    assert take(drafts[0], own).act == "added"
    assert [take(draft, own).act for draft in drafts] == [None, "added"]
    assert [take(draft, own).act for draft in drafts] == [None, None]


def test_text_of_an_agent_is_added_under_a_date_and_hand_edits_stay(own: Folder) -> None:
    add(own, "Use OAuth", body="Because.")
    path = own.path / "decision-use-oauth.md"
    edited = path.read_bytes() + "\n手写\r\nby hand  \n".encode()
    path.write_bytes(edited)
    taken = take(Draft("decision", "Use OAuth", "It is\nstandard.", by="dev", source="m9"), own)
    assert taken.act == "edited"
    body = path.read_bytes().partition(b"---\n\n")[2]
    added = "\n## Added 2026-11-28 by dev\n\nIt is\nstandard.\n"
    assert body == edited.partition(b"---\n\n")[2] + added.encode()
    before = path.read_bytes()
    again = Draft("decision", "Use OAuth", "It is standard.", by="critic", source="m12")
    assert take(again, own).act == "seen"
    assert path.read_bytes().partition(b"---\n\n")[2] == before.partition(b"---\n\n")[2]


def test_an_approved_note_is_only_counted(own: Folder) -> None:
    add(own, "Use OAuth", body="Because.")
    own.edit("decision-use-oauth", lifecycle.stepping("approve", by="ann", now=NOW))
    before = own.read("decision-use-oauth")
    taken = take(Draft("decision", "Use OAuth", "Other.", by="dev", source="m9"), own, "t")
    assert taken.act == "seen"
    expected = {"occurrences": 2, "related_sessions": ["s", "t"]}
    assert taken.note == before.model_copy(update=expected)


def test_an_archived_note_does_not_take_what_comes_again(own: Folder) -> None:
    add(own, "Use OAuth", source="m3")
    set_fields(own, "decision-use-oauth", status="archived")
    assert take(Draft("decision", "Use OAuth", source="m3"), own).act is None
    assert take(Draft("decision", "Use OAuth", source="m9"), own).note.id == "decision-use-oauth-2"


def test_a_shared_note_is_counted_instead_of_a_new_file(own: Folder, shared: Folder) -> None:
    shared.add(Draft("pit", "Slow DB", source="m3"), session="t", now=NOW)
    taken = take(Draft("pit", "slow db", source="m3"), own, shared=shared)
    assert (taken.act, taken.note.id, taken.note.occurrences) == ("seen", "pits/slow-db", 2)
    assert taken.note.related_sessions == ["t", "s"]
    assert own.entries() == []
    assert take(Draft("task", "slow db"), own, shared=shared).note.id == "task-slow-db"


def test_a_note_that_is_gone_or_broken_meanwhile_stops_nothing(own: Folder) -> None:
    note = add(own, "Use OAuth")
    path = own.path / "decision-use-oauth.md"
    draft = Draft("decision", "Use OAuth", source="m9")
    path.write_text("---\nstatus: [", encoding="utf-8")
    taken = lifecycle.take_note(draft, [note], own, session="s", now=NOW)
    assert (taken.act, path.read_text(encoding="utf-8")) == (None, "---\nstatus: [")
    path.unlink()
    assert lifecycle.take_note(draft, [note], own, session="s", now=NOW).act == "added"


def test_a_draft_without_a_title_is_called_by_its_text(own: Folder) -> None:
    assert take(Draft("pit", " \n", "\n# It is slow\nmore"), own).note.title == "It is slow"
    assert len(take(Draft("pit", "x" * 999), own).note.title) == 200
    with pytest.raises(UsageError, match="needs a title"):
        take(Draft("pit", "", "\n"), own)


LEGAL = {
    "draft": {"submit": "pending_user", "approve": "approved", "archive": "archived"},
    "pending_user": {"approve": "approved", "reject": "draft", "archive": "archived"},
    "approved": {"archive": "archived"},
    "archived": {},
}


@pytest.mark.parametrize("status", LEGAL)
@pytest.mark.parametrize("step", ["submit", "approve", "reject", "archive"])
def test_only_legal_steps_are_taken(own: Folder, status: Status, step: lifecycle.Step) -> None:
    add(own, "x")
    set_fields(own, "decision-x", status=status)
    before = text(own, "decision-x")
    if step in LEGAL[status]:
        stepped = own.edit("decision-x", lifecycle.stepping(step, by="ann", now=NOW))
        assert stepped.status == LEGAL[status][step]
        assert (stepped.approved_by == "ann") is (step == "approve")
        return
    with pytest.raises(UsageError) as told:
        own.edit("decision-x", lifecycle.stepping(step, by="ann", now=NOW))
    assert f"is {status}" in told.value.what
    assert all(legal in told.value.mend for legal in LEGAL[status])
    assert text(own, "decision-x") == before


WRITER = """
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from arena_cli.notes import lifecycle
from arena_cli.notes.model import Draft
from arena_cli.notes.store import Folder
root, name = Path(sys.argv[1]), sys.argv[2]
folder = Folder(root / "knowledge", root, shared=False)
now = datetime(2026, 11, 28, tzinfo=UTC)
for count in range(25):
    known = [folder.read(entry.id) for entry in folder.entries()]
    draft = Draft("pit", "Slow", f"{name}-{count}.", by=name, source=f"m{count}{name}")
    lifecycle.take_note(draft, known, folder, session=name, now=now)
    folder.add(Draft("task", "Do it", f"{name}-{count}."), session=name, now=now)
"""


def test_two_processes_lose_nothing(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "knowledge", tmp_path, shared=False)
    folder.add(Draft("pit", "Slow"), session="s", now=NOW)
    command = [sys.executable, "-c", WRITER, str(tmp_path)]
    writers = [subprocess.Popen([*command, name], cwd=ROOT) for name in ("one", "two")]
    assert [writer.wait(60) for writer in writers] == [0, 0]
    note = folder.read("pit-slow")
    assert note.occurrences == 51
    assert sorted(note.related_sessions) == ["one", "s", "two"]
    said = [f"{name}-{count}." for name in ("one", "two") for count in range(25)]
    assert all(note.body.count(f"\n{one}\n") == 1 for one in said)
    tasks = [folder.read(entry.id) for entry in folder.entries() if entry.id != "pit-slow"]
    assert sorted(task.body.strip() for task in tasks) == sorted(said)
    names = {path.name for path in folder.path.iterdir()}
    assert names == {".lock", "pit-slow.md", *(f"{task.id}.md" for task in tasks)}
