"""A transcript that somebody removes, moves, replaces or cuts while arena writes to it."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from product import Log, TranscriptLost, errors, log, planted
from program import SPEAK, Program
from support import Puppets, Talk, member, team

if sys.platform == "win32":
    pytest.skip("Windows keeps a file that is open for writing", allow_module_level=True)

Damage = Callable[[Path], object]


def replace(path: Path) -> None:
    """Put another file in its place, as an editor does that saves whole files."""
    other = path.with_name("other")
    other.write_bytes(b'{"seq": 1, "type": "elsewhere"}\n')
    other.replace(path)


def cut(path: Path, size: int) -> None:
    with path.open("r+b") as file:
        file.truncate(size)


def append(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"{}\n")


DAMAGES: dict[str, Damage] = {
    "removed": Path.unlink,
    "renamed": lambda path: path.rename(path.with_name("away.jsonl")),
    "replaced": replace,
    "emptied": lambda path: cut(path, 0),
    "cut": lambda path: cut(path, path.stat().st_size // 2),
    "written to": append,
    "its folder removed": lambda path: shutil.rmtree(path.parent),
    "its folder renamed": lambda path: path.parent.rename(path.parents[1] / "moved"),
    "all sessions removed": lambda path: shutil.rmtree(path.parents[1]),
}
DAMAGES["linked"] = lambda path: path.symlink_to(path.rename(path.with_name("x")))


def talk(folder: Path, damage: Damage) -> Talk:
    """A chain of two agents, the second of which does the damage before it answers."""
    puppets = Puppets(
        {"a": lambda _: "first @b", "b": lambda _: (damage(opened.transcript), "二")[1]}
    )
    profile = {"adapter": {"type": "puppet"}}
    members = team(member("a", **profile), member("b", **profile), selection="none")
    opened = Talk(folder, members, adapter_type=puppets)
    return opened


def rescued(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.rescued-*"))


@pytest.mark.parametrize("name", DAMAGES)
def test_it_is_noticed_at_the_next_event_and_nothing_is_lost(tmp_path: Path, name: str) -> None:
    opened = talk(tmp_path, DAMAGES[name])
    with pytest.raises(TranscriptLost) as lost:
        opened.send("@a hi")
    (saved,) = rescued(tmp_path)
    told = str(lost.value)
    assert lost.value.exit_code == errors.EXIT_REFUSED
    assert str(opened.transcript) in told
    assert str(saved) in told
    assert saved.parent == opened.transcript.parent
    assert "gone" not in told
    records = [json.loads(line) for line in saved.read_text(encoding="utf-8").splitlines()]
    assert [record["seq"] for record in records] == list(range(1, len(records) + 1))
    # All that was told, and the answer in hand, which was to be written.
    assert len(records) == len(opened.events) + 1
    assert records[-1]["type"] == "reply_finished"
    assert records[-1]["message"]["content"] == "二"
    assert saved.stat().st_mode & 0o777 == 0o600


def test_what_took_its_place_stays_as_it_is(tmp_path: Path) -> None:
    opened = talk(tmp_path, replace)
    with pytest.raises(TranscriptLost, match="another file took the transcript's place"):
        opened.send("@a hi")
    assert opened.transcript.read_bytes() == b'{"seq": 1, "type": "elsewhere"}\n'


def test_the_saved_file_goes_on_in_its_place(tmp_path: Path) -> None:
    opened = talk(tmp_path, Path.unlink)
    with pytest.raises(TranscriptLost):
        opened.send("@a hi")
    rescued(tmp_path)[0].rename(opened.transcript)
    opened.adapter_type = Puppets({"a": lambda _: "x", "b": lambda _: "二"})
    ended = opened.resume()
    assert ended is not None
    assert ended.end == "quiet"


def test_an_earlier_session_is_saved_whole_where_the_file_is_still_open(tmp_path: Path) -> None:
    opened = talk(tmp_path, lambda _: None)
    opened.send("@a earlier")
    opened.adapter_type = talk(tmp_path, Path.unlink).adapter_type
    with pytest.raises(TranscriptLost):
        opened.send("@a later")
    (saved,) = rescued(tmp_path)
    assert len(saved.read_bytes().splitlines()) == len(opened.events) + 1


def test_what_is_gone_of_an_earlier_session_is_named(tmp_path: Path) -> None:
    opened = talk(tmp_path, lambda _: None)
    opened.send("@a earlier")
    size, before = opened.transcript.stat().st_size, len(opened.events)
    opened.adapter_type = talk(tmp_path, lambda path: cut(path, size - 3)).adapter_type
    with pytest.raises(TranscriptLost, match=r"except [\d,]+ missing bytes"):
        opened.send("@a later")
    (saved,) = rescued(tmp_path)
    records = [json.loads(line) for line in saved.read_bytes().splitlines()]
    # The line that was cut is left out; the others are there.
    kept = [record["seq"] for record in records]
    assert kept == [seq for seq in range(1, len(opened.events) + 2) if seq != before]


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    def damage(path: Path) -> None:
        path.unlink()
        for seq in range(40):
            path.with_name(f"transcript.rescued-{seq}.jsonl").write_bytes(b"mine")

    with pytest.raises(TranscriptLost):
        talk(tmp_path, damage).send("@a hi")
    mine = [path for path in rescued(tmp_path) if path.read_bytes() == b"mine"]
    (saved,) = set(rescued(tmp_path)) - set(mine)
    assert len(mine) == 40
    assert saved.stem.endswith("-2")


def test_without_the_workspace_it_goes_to_the_temporary_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work, away = tmp_path / "work", tmp_path / "away"
    away.mkdir()
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(away))
    with pytest.raises(TranscriptLost, match=r"arena-talk-transcript\.rescued"):
        talk(work, lambda _: shutil.rmtree(work)).send("@a hi")
    assert len(rescued(away)) == 1
    assert not work.exists()


def test_what_is_kept_for_it_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log.Held, "MOST_BYTES", 10)
    held = log.Held(100)
    for line in (b"aaaa\n", b"bbbb\n", b"cccc\n"):
        held.add(line)
    held.trim(115)
    assert (held.start, list(held.lines())) == (105, [b"bbbb\n", b"cccc\n"])


def test_where_it_cannot_be_saved_that_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(log, "_write", refuse)
    with pytest.raises(TranscriptLost, match=r"could not be saved: .*No space left"):
        talk(tmp_path, Path.unlink).send("@a hi")


def test_no_cache_is_written_for_a_transcript_that_is_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("arena_cli.transcript.reader.WORTH_BYTES", 1)
    opened = talk(tmp_path, replace)
    with opened.open() as session:
        replace(opened.transcript)
        with pytest.raises(TranscriptLost):
            session.plant(planted(opened.team, "user", "hi"))
    assert not opened.transcript.with_name("transcript.index.json").exists()


def test_one_look_at_the_path_an_event(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = talk(tmp_path, lambda _: None)
    looks: list[object] = []
    check = Log._check_file
    monkeypatch.setattr(
        Log, "_check_file", lambda self, line: (looks.append(line), check(self, line))[1]
    )
    opened.send("@a hi")
    assert len(looks) == len(opened.events)


def test_the_program_says_both_paths_and_exits_with_5(tmp_path: Path) -> None:
    program = Program(tmp_path)
    script = program.file("remove.py", "import os, sys\nos.remove(sys.argv[1])\nprint('done')\n")
    command = [SPEAK[0], str(script), str(program.transcript())]
    program.agent("dev", adapter={"type": "cli", "command": command})
    done = program.run("send", "-s", "s", "hello")
    assert done.code == errors.EXIT_REFUSED
    assert "the transcript was removed or moved while arena wrote to it" in done.stderr
    (saved,) = rescued(tmp_path)
    assert str(saved) in done.stderr
    assert "arena resume s" in done.stderr
    told = program.run("sessions")
    assert "Traceback" not in told.stderr
