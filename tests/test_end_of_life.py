"""Sessions are archived, restored, renamed and deleted; a kill or a full disk loses nothing."""

from __future__ import annotations

import errno
import json
import os
import shutil
import sqlite3
import sys
import time
import zipfile
from pathlib import Path

import pytest
from forked import Forked, needs_fork
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from product import archive, end_of_life, tickets
from product import session_store as store
from program import Program, until

NOTE = "sessions/knowledge/decisions/cache.md"
DAY_S = 86_400


def fill(program: Program, name: str = "会话.1") -> None:
    """Write a workspace with one session: a message with a file, a reply and a note."""
    program.agent("dev", "We use SQLite. @user which cache?", "ok")
    program.file("plan.txt", "第一步\n")
    done = program.run("send", "-q", "-s", name, "We decided to use SQLite.", "-a", "plan.txt")
    assert done.code == 0, done.stderr
    front = f"title: Cache\nkind: decision\nrelated_sessions: [other, {name}]\nsource: m2"
    program.file(NOTE, f"---\n{front}\n---\n\nOne cache.\n")


@pytest.fixture
def program(tmp_path: Path) -> Program:
    program = Program(tmp_path)
    fill(program)
    return program


def tree(folder: Path) -> dict[str, bytes]:
    """Return the files of a session that are not derived."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not path.name.startswith(("transcript.lock", "transcript.index"))
    }


def names(program: Program, *options: str) -> list[str]:
    rows = json.loads(program.run("sessions", "--json", *options).stdout)
    return [row["session"] for row in rows]


def session(program: Program, name: str = "会话.1") -> Path:
    return program.folder / "sessions" / name


def zip_of(program: Program, name: str = "会话.1") -> Path:
    return program.folder / "sessions" / ".archive" / f"{name}.zip"


# Archive and restore


def test_an_archived_session_is_read_and_restored_as_it_was(program: Program) -> None:
    before = tree(session(program))
    reads = [
        ("show", "会话.1"),
        ("show", "会话.1", "--json"),
        ("export", "会话.1", "--audit", "--format", "json"),
        ("export", "--all", "--format", "csv"),
        ("usage", "会话.1", "--json"),
        ("usage", "--json"),
    ]
    said = [program.run(*words).check().stdout for words in reads]
    row = json.loads(program.run("sessions", "--json").stdout)
    program.run("sessions", "archive", "会话.1").check(
        stdout="archived 会话.1: sessions/.archive/会话.1.zip\n"
    )
    assert not session(program).exists()
    assert names(program) == []
    assert json.loads(program.run("sessions", "--archived", "--json").stdout) == row
    assert [program.run(*words).check().stdout for words in reads] == said
    if os.name == "posix":
        assert zip_of(program).stat().st_mode & 0o777 == 0o600
    program.run("sessions", "restore", "会话.1").check(stdout="restored 会话.1\n")
    assert tree(session(program)) == before
    assert (names(program), names(program, "--archived")) == (["会话.1"], [])
    assert program.run("send", "-q", "-s", "会话.1", "more").code == 0


@pytest.mark.parametrize(
    "words",
    [
        ("send", "-s", "会话.1", "hi"),
        ("resume", "会话.1"),
        ("show", "会话.1", "--context", "--agent", "dev"),
        ("context", "会话.1", "--agent", "dev"),
        ("sessions", "archive", "会话.1"),
        ("sessions", "rename", "会话.1", "b"),
        ("doctor", "会话.1"),
        ("promote", "会话.1"),
    ],
)
def test_what_continues_an_archived_session_says_how_to_restore_it(
    program: Program, words: tuple[str, ...]
) -> None:
    program.run("sessions", "archive", "会话.1")
    program.run(*words).check(
        code=2,
        stderr="arena: session 会话.1 is archived\n"
        "  `arena sessions restore 会话.1` makes it usable again.\n",
    )
    assert not session(program).exists()


def test_the_chinese_of_it(program: Program) -> None:
    program.env["ARENA_LANG"] = "zh"
    program.run("sessions", "archive", "会话.1").check(
        stdout="已归档 会话.1：sessions/.archive/会话.1.zip\n"
    )
    assert program.run("resume", "会话.1").stderr == (
        "arena: 会话 会话.1 已归档\n  运行 `arena sessions restore 会话.1` 即可继续使用。\n"
    )
    program.run("sessions", "restore", "会话.1").check(stdout="已恢复 会话.1\n")
    program.run("sessions", "rename", "会话.1", "新名").check(stdout="已将 会话.1 改名为 新名\n")
    program.run("sessions", "delete", "-y", "新名").check(stdout="已删除 新名\n")


def test_a_session_whose_chain_was_cut_short_is_not_put_away(program: Program) -> None:
    lines = program.raw("会话.1").splitlines(keepends=True)
    cut = b"".join(line for line in lines if b'"type":"chain_finished"' not in line)
    program.transcript("会话.1").write_bytes(cut)
    for words in (("archive", "会话.1"), ("delete", "-y", "会话.1")):
        done = program.run("sessions", *words)
        assert (done.code, program.raw("会话.1")) == (2, cut)
        assert (
            "its last chain is still open\n"
            "  Complete it: `arena resume 会话.1`, or end it: `arena cancel 会话.1`." in done.stderr
        )


def test_a_session_in_use_is_not_put_away(program: Program) -> None:
    program.real = True
    program.program("slow", "sleep")
    with program.start("send", "-q", "-s", "会话.1", "@slow go") as running:
        until(lambda: program.finished("会话.1") and b"@slow go" in program.raw("会话.1"))
        for words in (("archive",), ("delete", "-y"), ("rename",)):
            more = ("b",) if words == ("rename",) else ()
            done = program.run("sessions", *words, "会话.1", *more)
            assert done.code == 5
            assert "session 会话.1 is busy" in done.stderr
        running.kill()
    assert session(program).is_dir()


def test_a_process_that_waits_for_a_session_that_goes_is_told(program: Program) -> None:
    program.real = True
    lock = store.acquire(session(program), "x", wait_s=0, on_wait=lambda: None)
    with program.start("send", "-q", "-s", "会话.1", "hi") as waiting:
        until(lambda: tickets.has_queue(lock.path))
        session(program).rename(session(program, "gone"))
        lock.release()
        done = program.finish(waiting)
    assert done.code == 2
    assert "session 会话.1 was archived, renamed or deleted meanwhile" in done.stderr
    assert not session(program).exists()


@pytest.mark.skipif(sys.platform == "win32", reason="links need a right there")
def test_a_link_in_a_session_is_not_archived_and_not_followed(program: Program) -> None:
    outside = program.file("outside/keep.txt", "kept")
    (session(program) / "link").symlink_to(outside.parent)
    done = program.run("sessions", "archive", "会话.1")
    assert done.code == 2
    assert "link is a link, so it cannot be archived" in done.stderr
    assert session(program).is_dir()
    program.run("sessions", "delete", "-y", "会话.1").check(stdout="deleted 会话.1\n")
    assert outside.read_text() == "kept"
    session(program).symlink_to(outside.parent)
    assert program.run("sessions", "delete", "-y", "会话.1").code == 2
    assert outside.read_text() == "kept"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no FIFOs")
def test_a_fifo_in_a_session_is_not_archived(program: Program) -> None:
    os.mkfifo(session(program) / "pipe")
    done = program.run("sessions", "archive", "会话.1")
    assert (done.code, session(program).is_dir()) == (2, True)
    assert "is neither a file nor a folder" in done.stderr


@pytest.mark.parametrize("call", ["fsync", "replace", "rename"])
def test_a_disk_that_refuses_leaves_the_session(
    program: Program, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    before = tree(session(program))

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as full:
        full.setattr(Path if call != "fsync" else os, call, refuse)
        done = program.run("sessions", "archive", "会话.1")
    assert done.code == 5
    assert "No space left on device" in done.stderr
    assert "no session was changed" in done.stderr
    assert tree(session(program)) == before
    assert names(program) == ["会话.1"]
    assert names(program, "--archived") == []
    program.run("sessions", "archive", "会话.1")
    with monkeypatch.context() as full:
        full.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(1, 1, 0))  # type: ignore[attr-defined]
        done = program.run("sessions", "restore", "会话.1")
    assert (done.code, "do not fit here" in done.stderr) == (5, True)
    assert (names(program), names(program, "--archived")) == ([], ["会话.1"])


# Archives that are damaged, or made to do harm


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_damaged_archive_is_an_error_and_writes_nothing(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("damaged")
    source = folder / "s"
    source.mkdir()
    (source / store.TRANSCRIPT).write_bytes(b'{"seq":1}\n' * 50)
    (source / "a.txt").write_text("text" * 50)
    target = folder / "s.zip"
    archive.pack(source, target)
    whole = target.read_bytes()
    if data.draw(st.booleans()):
        broken = whole[: data.draw(st.integers(0, len(whole) - 1))]
    else:
        place = data.draw(st.integers(0, len(whole) - 1))
        broken = whole[:place] + bytes([whole[place] ^ data.draw(st.integers(1, 255))])
        broken += whole[place + 1 :]
    target.write_bytes(broken)
    restored = folder / "restored"
    restored.mkdir()
    try:
        archive.unpack(target, restored)
    except archive.ArchiveDamaged:
        return
    # The byte was one of a time, a comment, a mode or a name.
    contents = sorted(path.read_bytes() for path in restored.rglob("*") if path.is_file())
    assert contents == sorted(path.read_bytes() for path in source.iterdir())
    shutil.rmtree(folder)


TRICKS = {
    "../outside.txt": "leads out of the session",
    "/etc/x": "leads out of the session",
    "a/../../x": "leads out of the session",
    "a//b": "leads out of the session",
    "C:x": "has a character that some systems do not allow",
    "..\\x": "has a character that some systems do not allow",
}


@pytest.mark.parametrize("name", TRICKS)
def test_an_entry_that_leads_out_is_refused(program: Program, name: str) -> None:
    program.run("sessions", "archive", "会话.1")
    with zipfile.ZipFile(zip_of(program), "a") as changed:
        changed.writestr(zipfile.ZipInfo(name), b"x")
    before = set(program.folder.rglob("*"))
    for words in (("sessions", "restore", "会话.1"), ("show", "会话.1"), ("usage",)):
        done = program.run(*words)
        assert done.code == 2
        assert f"{zip_of(program)}: the archive is damaged: its entry" in done.stderr
        assert TRICKS[name] in done.stderr
    assert set(program.folder.rglob("*")) == before
    done = program.run("sessions", "--archived")
    assert (done.code, done.stdout) == (0, "")
    assert TRICKS[name] in done.stderr


def test_an_entry_that_is_a_link_or_is_there_twice_is_refused(program: Program) -> None:
    program.run("sessions", "archive", "会话.1")
    link = zipfile.ZipInfo("link")
    link.external_attr = 0o120777 << 16
    for entry, fault in ((link, "is a link"), (zipfile.ZipInfo("plan"), "is there twice")):
        copy = zip_of(program, "copy")
        shutil.copy(zip_of(program), copy)
        with zipfile.ZipFile(copy, "a") as changed:
            changed.writestr(entry, b"/etc/passwd")
            if fault == "is there twice":
                with pytest.warns(UserWarning, match="Duplicate"):
                    changed.writestr(entry, b"2")
        done = program.run("sessions", "restore", "copy")
        assert (done.code, fault in done.stderr) == (2, True)
        assert names(program) == []


def test_an_archive_that_another_program_packed_again_is_restored(program: Program) -> None:
    before = tree(session(program))
    program.run("sessions", "archive", "会话.1")
    with zipfile.ZipFile(zip_of(program)) as packed:
        contents = {name: packed.read(name) for name in packed.namelist()}
    with zipfile.ZipFile(zip_of(program, "again"), "w") as other:
        other.mkdir("attachments")
        for name, content in contents.items():
            other.writestr(name, content)
    zip_of(program).unlink()
    program.run("sessions", "--archived").check(stdout="again\n")
    program.run("sessions", "restore", "again").check(stdout="restored again\n")
    assert tree(session(program, "again")) == before


def test_an_archive_is_not_replaced_by_that_of_another_session(program: Program) -> None:
    program.run("sessions", "archive", "会话.1")
    kept = zip_of(program).read_bytes()
    shutil.copytree(program.folder / "sessions" / ".archive", program.folder / "aside")
    zip_of(program).unlink()
    program.run("send", "-q", "-s", "会话.1", "another")
    shutil.copy(program.folder / "aside" / "会话.1.zip", zip_of(program))
    done = program.run("sessions", "archive", "会话.1")
    assert done.code == 2
    assert "is the archive of another session of that name" in done.stderr
    assert zip_of(program).read_bytes() == kept
    done = program.run("sessions", "restore", "会话.1")
    assert (done.code, "there is a session 会话.1 already" in done.stderr) == (2, True)
    assert names(program) == ["会话.1"]


# Rename


def test_a_renamed_session_continues_with_its_lines_files_and_notes(program: Program) -> None:
    before = program.raw("会话.1")
    program.run("knowledge", "approve", "-s", "会话.1", "decision-we-decided-to-use-sqlite").check(
        stdout=None
    )
    before = program.raw("会话.1")
    program.run("sessions", "rename", "会话.1", "发布 v1.2").check(
        stdout="renamed 会话.1 to 发布 v1.2\n"
    )
    after = program.raw("发布 v1.2")
    assert after.startswith(before)
    (event,) = map(json.loads, after[len(before) :].splitlines())
    assert (event["type"], event["session"]) == ("session", "发布 v1.2")
    assert (names(program), session(program).exists()) == (["发布 v1.2"], False)
    assert "related_sessions: [other, 发布 v1.2]" in (program.folder / NOTE).read_text("utf-8")
    (note,) = json.loads(program.run("knowledge", "list", "-s", "发布 v1.2", "--json").stdout)
    assert (note["status"], note["related_sessions"]) == ("approved", ["发布 v1.2"])
    assert program.run("doctor", "发布 v1.2").check(stdout=None).code == 0
    assert (
        "at sessions/发布 v1.2/attachments/m2/plan.txt" in program.run("show", "发布 v1.2").stdout
    )
    with sqlite3.connect(program.folder / "sessions" / ".knowledge.sqlite") as index:
        places = {row[0] for row in index.execute("SELECT place FROM note")}
    index.close()
    assert "sessions/会话.1/knowledge" not in places
    assert "sessions/发布 v1.2/knowledge" in places
    program.run("send", "-q", "-s", "发布 v1.2", "more").check()
    assert sum(record["type"] == "session" for record in program.records("发布 v1.2")) == 2


def test_agents_are_given_the_files_of_a_renamed_session(program: Program) -> None:
    program.program("reader", "read", "tell", adapter={"prompt": "json"})
    program.run("sessions", "rename", "会话.1", "b")
    other = program.file("sessions/会话.1/attachments/m2/plan.txt", "another session's")
    done = program.run("send", "--json", "-s", "b", "@reader read it")
    assert '"path\\": \\"sessions/b/attachments/m2/plan.txt' in done.stdout or (
        "sessions/b/attachments/m2/plan.txt" in done.stdout
    )
    assert "会话.1/attachments" not in done.stdout
    assert other.exists()


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("other", "there is a session other already"),
        ("OTHER", "there is a session other already"),
        ("old", "there is an archived session old already"),
        ("会话.1", "has that name already"),
        ("../x", "path separator"),
        (".hidden", "starts with a dot"),
        ("knowledge", "that name is reserved"),
        ("CON", "that name is reserved"),
        ("", "it is empty"),
        ("x" * 65, "longer than 64"),
    ],
)
def test_a_name_that_a_session_cannot_have_is_refused(
    program: Program, name: str, problem: str
) -> None:
    for other in ("other", "old"):
        program.run("send", "-q", "-s", other, "hi")
    program.run("sessions", "archive", "old")
    done = program.run("sessions", "rename", "会话.1", name)
    assert done.code == 2
    assert problem in done.stderr
    assert sorted(names(program)) == ["other", "会话.1"]


# Delete


def test_without_a_terminal_delete_needs_yes(program: Program) -> None:
    done = program.run("sessions", "delete", "会话.1")
    assert (done.code, session(program).is_dir()) == (2, True)
    assert done.stderr == (
        "arena: nothing was deleted: deleting 会话.1 needs a confirmation\n  Add --yes.\n"
    )
    assert program.run("sessions", "delete", "-y", "会话.1", "nope").code == 2
    assert session(program).is_dir()  # nothing goes if a name is wrong
    program.run("sessions", "delete", "-y", "会话.1").check(stdout="deleted 会话.1\n")
    assert "decided" not in program.written()


def test_an_archived_session_is_deleted(program: Program) -> None:
    program.run("sessions", "archive", "会话.1")
    program.run("sessions", "delete", "-y", "会话.1").check(stdout="deleted 会话.1\n")
    assert not zip_of(program).exists()
    program.run("sessions", "--archived").check(
        stderr="no session is archived; archive one: arena sessions archive SESSION\n"
    )


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
@pytest.mark.parametrize(("answer", "code"), [("y", 0), ("n", 2), ("", 2)])
def test_on_a_terminal_delete_asks(program: Program, answer: str, code: int) -> None:
    import pty

    ours, theirs = pty.openpty()
    os.write(ours, f"{answer}\n".encode())
    with program.start("sessions", "delete", "会话.1", stdin=theirs, stderr=theirs) as running:
        os.close(theirs)
        running.wait(timeout=60)
        said = os.read(ours, 4096).decode()
    os.close(ours)
    assert "Delete 会话.1 for good? [y/N]" in said
    assert running.returncode == code
    assert session(program).is_dir() is (code != 0)


# Retention


def age(program: Program, name: str, days: int) -> None:
    then = time.time() - days * DAY_S
    os.utime(program.transcript(name), (then, then))


def test_old_sessions_are_archived_once_a_day_in_one_line(program: Program) -> None:
    program.file("arena.yaml", "retention: {archive_after_days: 90}")
    for name in ("old", "new", "continued"):
        program.run("send", "-q", "-s", name, "hi")
    assert names(program, "--archived") == []
    checked = program.folder / "sessions" / ".archive" / ".checked"
    for days, name in enumerate(("会话.1", "old", "continued"), 91):
        age(program, name, days)
    age(program, "new", 89)
    program.run("send", "-q", "-s", "continued", "hi").check()  # looked for today already
    age(program, "continued", 91)
    checked.write_text("2026-01-01")
    program.run("sessions").check(stdout=None)
    program.run("show", "old").check(stdout=None)
    assert names(program, "--archived") == []  # what only reads changes nothing
    done = program.run("send", "-q", "-s", "continued", "hi")
    assert done.stderr == "archived, unchanged for 90 days: 会话.1, old\n"
    assert sorted(names(program)) == ["continued", "new"]
    assert sorted(names(program, "--archived")) == ["old", "会话.1"]


def test_what_is_cut_short_or_cannot_be_archived_stays_and_does_not_stop_a_message(
    program: Program,
) -> None:
    program.file("arena.yaml", "retention: {archive_after_days: 1}")
    lines = program.raw("会话.1").splitlines(keepends=True)
    program.transcript("会话.1").write_bytes(b"".join(lines[:-1]))
    shutil.copytree(session(program), session(program, "odd"))
    (session(program, "odd") / "a\\b").write_text("x") if os.name == "posix" else None
    with program.transcript("odd").open("ab") as file:
        file.write(lines[-1])
    for name in ("会话.1", "odd"):
        age(program, name, 3)
    done = program.run("send", "-q", "hi")
    assert done.code == 0
    assert done.stderr.startswith("warning: ") is (os.name == "posix")
    assert "会话.1" in names(program)


@pytest.mark.parametrize("value", ["0", "-1", "1.5", "soon", "true"])
def test_a_wrong_retention_is_an_error_with_its_line(program: Program, value: str) -> None:
    program.file("arena.yaml", f"retention:\n  archive_after_days: {value}\n")
    done = program.run("send", "hi")
    assert done.code == 2
    assert "arena.yaml:2: retention.archive_after_days:" in done.stderr


def test_so_long_a_retention_archives_nothing(program: Program) -> None:
    program.file("arena.yaml", "retention: {archive_after_days: 99999999}")
    program.run("send", "-q", "hi").check()


# Kills


CHANGES = {
    "archive": ("archive", "会话.1"),
    "restore": ("restore", "会话.1"),
    "rename": ("rename", "会话.1", "新名"),
    "delete": ("delete", "-y", "会话.1"),
}


@needs_fork
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("half", [False, True], ids=["", "half"])
def test_a_kill_at_any_step_loses_nothing(tmp_path: Path, change: str, half: bool) -> None:
    prepared = Forked(tmp_path / "prepared")
    prepared.folder.mkdir()
    fill(prepared)
    before = tree(session(prepared))
    if change == "restore":
        prepared.run("sessions", "archive", "会话.1").check(stdout=None)
    cut, code = 0, -1
    while code != 0:
        cut += 1
        arena = Forked(tmp_path / f"{cut}")
        shutil.copytree(prepared.folder, arena.folder)
        done = arena.cut(cut, "sessions", *CHANGES[change], half=half)
        code = done.code
        assert code in (0, 9), done.stderr
        check_after_kill(arena, change, before)
        shutil.rmtree(arena.folder)
    assert cut > 5


def check_after_kill(arena: Forked, change: str, before: dict[str, bytes]) -> None:
    """Check that nothing is lost or doubled, and that the next command completes the change."""
    config = arena.place()
    live = [stored.name for stored in store.stored(arena.folder)]
    archived = [entry.name for entry in end_of_life.list_archived(arena.folder)]
    assert len(live + archived) <= 1
    assert live + archived or change == "delete"
    assert end_of_life.archive_old(config, None, ()) == ([], [])  # as each command that writes does
    for name in live:
        if name == "新名":
            assert tree(session(arena, name))["transcript.jsonl"].startswith(
                before["transcript.jsonl"]
            )
            assert "[other, 新名]" in (arena.folder / NOTE).read_text("utf-8")
            events = [record for record in arena.records(name) if record["type"] == "session"]
            assert events[-1]["session"] == name
        else:
            assert tree(session(arena, name)) == before
        end_of_life.archive_session(config, name, lambda: None)
    for name in live + archived:
        assert end_of_life.restore_session(config, name) == name
        if name != "新名":
            assert tree(session(arena, name)) == before
    left = {path.name for path in (arena.folder / "sessions" / ".archive").glob("*")}
    assert left <= {".checked", "transcript.lock"}
