"""Links below `sessions/`: nothing is written or removed through one; new files are private."""

from __future__ import annotations

import os
import shutil
import stat
import sys
from pathlib import Path

import pytest
from product import ArenaError, UsageError, cleanup, errors, files
from product import session_store as store
from program import Program
from stage import Stage
from support import Talk, member, team

if sys.platform == "win32":
    pytest.skip("links need a right there", allow_module_level=True)

ATTACHED = "sessions/s/attachments/m2"
ATTACH = {
    "output": {"content": "see", "attachments": [{"type": "file", "name": "a.txt", "data": "new"}]}
}

# Each place that arena writes to, and the commands that do.
SEND = ("send", "-q", "-s", "s", "-a", "a.txt", "hi")
NOTE = ("knowledge", "add", "-s", "s", "--kind", "pit", "A title")
SHARED = ("knowledge", "add", "--shared", "--kind", "pit", "A title")
PLACES = [
    ("sessions", SEND),
    ("sessions", SHARED),
    ("sessions/s", SEND),
    ("sessions/s/transcript.jsonl", SEND),
    ("sessions/s/transcript.lock", SEND),
    ("sessions/s/attachments", SEND),
    (ATTACHED, SEND),
    (f"{ATTACHED}/a.txt", SEND),
    ("sessions/.processes", SEND),
    ("sessions/s/scratch", ("send", "-q", "-s", "s", "@prog hi")),
    ("sessions/s/knowledge", NOTE),
    ("sessions/s/knowledge/.lock", NOTE),
    ("sessions/s/transcript.lock", NOTE),
    ("sessions/knowledge", SHARED),
    ("sessions/knowledge/pits", SHARED),
    ("sessions/knowledge/.lock", SHARED),
    ("sessions/knowledge/history.jsonl", SHARED),
    ("sessions/knowledge/transcript.lock", SHARED),
]
FOLDERS = {"sessions", "s", "attachments", "m2", ".processes", "scratch", "knowledge", "pits"}


def state(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize(
    ("place", "command", "is_there"),
    [
        *((place, command, True) for place, command in PLACES),
        *((place, command, False) for place, command in PLACES[2:8:2]),
    ],
)
def test_nothing_is_written_through_a_link(
    tmp_path: Path, place: str, command: tuple[str, ...], is_there: bool
) -> None:
    outside, work = tmp_path / "outside", tmp_path / "work"
    outside.mkdir()
    program = Program(work)
    program.file("a.txt", "new")
    program.agent("dev", "hello")
    program.agent(
        "prog",
        adapter={"type": "cli", "command": ["cat", "{prompt_file}"], "prompt": "file"},
    )
    if command is NOTE:
        program.run("send", "-q", "-s", "s", "@dev hi").check()
    link = work / place
    link.parent.mkdir(parents=True, exist_ok=True)
    aim = outside / link.name
    if is_there and link.name in FOLDERS:
        aim.mkdir()
        (aim / "1-2.json").write_text("{}", encoding="utf-8")
    elif is_there:
        aim.write_bytes(b'{"torn": ')
    if link.is_dir():
        shutil.rmtree(link)
    link.unlink(missing_ok=True)
    link.symlink_to(aim)
    before = state(outside)
    done = program.run(*command)
    assert state(outside) == before
    if link.name == "scratch":  # one call of one agent fails
        assert done.code == errors.EXIT_FAILED
        assert f"{place} is a link" in program.transcript().read_text(encoding="utf-8")
    else:
        assert done.code in (errors.EXIT_USAGE, errors.EXIT_REFUSED)
        assert f"{place} is a link" in done.stderr
        assert done.stderr.count("\n  ") == 1
    assert "Traceback" not in done.stderr
    assert link.is_symlink()


def test_before_anything_runs_it_is_a_wrong_file_later_a_refused_write(tmp_path: Path) -> None:
    program = Program(tmp_path / "work")
    program.file("a.txt", "new")
    program.agent("dev", "hello")
    (tmp_path / "work" / "sessions").symlink_to(tmp_path)
    assert program.run(*SEND).code == errors.EXIT_USAGE
    (tmp_path / "work" / "sessions").unlink()
    (tmp_path / "work" / "sessions" / "s").mkdir(parents=True)
    (tmp_path / "work" / "sessions" / "s" / "attachments").symlink_to(tmp_path)
    assert program.run(*SEND).code == errors.EXIT_REFUSED


def talk(folder: Path) -> Talk:
    return Talk(folder, team(member("a", ["hi"])))


def test_caches_replace_a_link_and_leave_what_it_leads_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("arena_cli.transcript.reader.WORTH_BYTES", 1)
    aim = tmp_path / "aim"
    aim.write_bytes(b"mine")
    opened = talk(tmp_path / "work")
    opened.transcript.parent.mkdir(parents=True)
    for name in ("transcript.index.json", "transcript.index.json.part"):
        opened.transcript.with_name(name).symlink_to(aim)
    opened.send("hi")
    assert aim.read_bytes() == b"mine"
    cache = opened.transcript.with_name("transcript.index.json")
    assert not cache.is_symlink()
    assert cache.read_bytes().startswith(b"{")


def test_an_index_of_notes_that_is_a_link_is_left_and_told(tmp_path: Path) -> None:
    program = Program(tmp_path / "work")
    program.agent("dev", "hello")
    program.run(*SHARED).check(stdout=None)
    link = tmp_path / "work" / "sessions" / ".knowledge.sqlite"
    link.unlink(missing_ok=True)
    aim = tmp_path / "aim"
    aim.write_bytes(b"")
    link.symlink_to(aim)
    done = program.run("send", "-q", "hi")
    assert (aim.read_bytes(), done.code) == (b"", 0)
    assert "sessions/.knowledge.sqlite" in done.stderr
    assert "is a link" in done.stderr
    assert program.run("knowledge", "search", "title").code == 0
    assert aim.read_bytes() == b""


def test_records_behind_a_link_are_not_removed(tmp_path: Path) -> None:
    aim = tmp_path / "aim"
    aim.mkdir()
    (aim / "settings.json").write_text('{"mine": 1}', encoding="utf-8")
    folder = tmp_path / "sessions" / ".processes"
    folder.parent.mkdir()
    folder.symlink_to(aim)
    with pytest.raises(UsageError, match=r"\.processes is a link"):
        cleanup.end_recorded(folder)
    assert (aim / "settings.json").exists()


def test_a_note_is_not_edited_through_a_link(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.agent("dev", "hello")
    program.run("send", "-q", "-s", "s", "hi").check()
    profile = (tmp_path / "agents" / "dev.yaml").read_bytes()
    aim = program.file("x.md", "---\ntitle: T\nkind: pit\nstatus: draft\n---\nbody\n")
    before = aim.read_bytes()
    note = tmp_path / "sessions" / "s" / "knowledge" / "pit-t.md"
    note.parent.mkdir()
    note.symlink_to(aim)
    done = program.run("knowledge", "approve", "-s", "s", "pit-t")
    assert done.code == errors.EXIT_USAGE
    assert "pit-t.md is a link" in done.stderr
    assert aim.read_bytes() == before
    assert (tmp_path / "agents" / "dev.yaml").read_bytes() == profile


def test_a_link_that_takes_a_files_place_meanwhile_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the system opens through links, as Windows does."""
    aim, path = tmp_path / "aim", tmp_path / "file"
    aim.write_bytes(b"mine")
    path.write_bytes(b"")
    monkeypatch.setattr(files, "_FLAGS", 0)
    opened = os.open

    def swapped(name: Path, *rest: int) -> int:
        path.unlink()
        path.symlink_to(aim)
        return opened(name, *rest)

    monkeypatch.setattr(os, "open", swapped)
    with pytest.raises(files.LinkRefused):
        files.write_file(path, b"theirs", below=tmp_path)
    assert aim.read_bytes() == b"mine"


def test_a_junction_is_a_link() -> None:
    class Junction:
        st_mode = stat.S_IFDIR
        st_reparse_tag = 0xA0000003

    class OnlineFile(Junction):
        st_reparse_tag = 0x9000001A

    assert files._is_link(Junction())  # type: ignore[arg-type]
    assert not files._is_link(OnlineFile())  # type: ignore[arg-type]


def test_the_workspace_itself_may_be_reached_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "alias").symlink_to(tmp_path / "work")
    talk(tmp_path / "alias").send("hi")
    assert (tmp_path / "work" / "sessions" / "talk" / "transcript.jsonl").is_file()


def test_a_busy_session_is_asked_for_without_opening_a_link(tmp_path: Path) -> None:
    aim = tmp_path / "aim"
    aim.write_bytes(b"")
    (tmp_path / "sessions" / "s").mkdir(parents=True)
    (tmp_path / "sessions" / "s" / store.NAME).symlink_to(aim)
    assert not store.is_held(tmp_path / "sessions" / "s")


def test_the_part_of_a_file_is_never_somebody_elses(tmp_path: Path) -> None:
    aim, path = tmp_path / "aim", tmp_path / "recording.jsonl"
    aim.write_bytes(b"mine")
    files.temporary_path(path).symlink_to(aim)
    files.replace_file(path, b"new")
    assert (aim.read_bytes(), path.read_bytes()) == (b"mine", b"new")
    assert not path.is_symlink()


def test_new_files_are_private_and_others_keep_their_mode(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.agent("dev", ATTACH, ATTACH)
    program.agent("prog", adapter={"type": "cli", "command": ["echo", "hi"]})
    program.run("send", "-q", "-s", "s", "@dev @prog hi").check()
    program.run(*NOTE).check(stdout=None)
    program.run(*SHARED).check(stdout=None)
    program.run("send", "-q", "-s", "s", "@dev about title").check()
    (tmp_path / "sessions").chmod(0o755)
    paths = [tmp_path / "sessions", *(tmp_path / "sessions").rglob("*")]
    assert len(paths) > 12
    modes = {path.name: stat.S_IMODE(path.lstat().st_mode) for path in paths[1:]}
    folders = {path.name for path in paths if path.is_dir()}
    assert {mode for name, mode in modes.items() if name in folders} == {0o700}
    assert {mode for name, mode in modes.items() if name not in folders} == {0o600}
    note = next((tmp_path / "sessions" / "s" / "knowledge").glob("*.md"))
    program.transcript().chmod(0o640)
    note.chmod(0o664)
    program.run("knowledge", "approve", "-s", "s", note.stem).check(stdout=None)
    assert stat.S_IMODE(program.transcript().stat().st_mode) == 0o640
    assert stat.S_IMODE(note.stat().st_mode) == 0o664
    assert stat.S_IMODE((tmp_path / "sessions").stat().st_mode) == 0o755


def test_recordings_have_the_users_usual_mode(tmp_path: Path) -> None:
    usual = os.umask(0o022)
    try:
        Stage(tmp_path).agent("dev", "hello").team()
        Program(tmp_path).file(
            "scenarios/x.yaml", "scenario: x\nsteps:\n- send: hi\n  expect: {replied: [dev]}\n"
        )
        Program(tmp_path).run("run", "--record").check(stdout=None)
    finally:
        os.umask(usual)
    recording = tmp_path / "scenarios" / "recordings" / "x.jsonl"
    assert stat.S_IMODE(recording.stat().st_mode) == 0o644


def test_every_refusal_is_an_error_of_arena() -> None:
    error = files.LinkRefused(Path("sessions/s"))
    assert isinstance(error, OSError)
    assert not isinstance(error, ArenaError)
    assert files.suggest_fix(error, "free space") == files.LINK_HINT
    assert files.suggest_fix(OSError("full"), "free space") == "free space"
