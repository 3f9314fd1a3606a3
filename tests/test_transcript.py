"""The transcript as a file: appended whole, read past what is broken, repaired, never lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from product import (
    LONGEST_NAME,
    LONGEST_NAME_BYTES,
    Attachment,
    DiskRefused,
    Log,
    Message,
    MessageEvent,
    SessionBusy,
    StatusReported,
    events,
    log,
    make_safe_name,
    reader,
)
from product import outgoing_outgoing as outgoing
from support import WORKED_MESSAGE, CountingClock, Talk, member, team, worked_team


def event(seq: int, content: str = "hi") -> MessageEvent:
    message = Message(
        id=f"m{seq}",
        author_id="user",
        author_name="user",
        author_type="human",
        content=content,
        timestamp="2026-11-28T00:00:00.000Z",
    )
    return MessageEvent(seq=seq, ts="2026-11-28T00:00:00.000Z", chain=seq, message=message)


def opened(path: Path, seq: int = 0) -> closing[Log]:
    return closing(Log(path, clock=CountingClock(), durability="fsync", seq=seq))


def seqs(path: Path) -> list[int]:
    return [one.seq for line in reader.read_lines(path) for one in line.events]


def problems(path: Path) -> list[tuple[int, str]]:
    found = (line.problem for line in reader.read_lines(path))
    return [(problem.line, problem.what) for problem in found if problem]


@settings(deadline=None, max_examples=60)
@given(st.lists(st.text(), max_size=6))
def test_what_is_appended_is_read(
    tmp_path_factory: pytest.TempPathFactory, said: list[str]
) -> None:
    path = tmp_path_factory.mktemp("log") / "transcript.jsonl"
    with opened(path) as file:
        for seq, content in enumerate(said, 1):
            file.append(event(seq, content.encode("utf-8", "replace").decode()))
    assert path.read_bytes().count(b"\n") == len(said)
    assert seqs(path) == list(range(1, len(said) + 1))
    backwards = [record["seq"] for raw in reader.backwards(path, path.stat().st_size)
                 for record in reader.records(raw)[0]]  # fmt: skip
    assert backwards == seqs(path)[::-1]


def test_backwards_reads_lines_longer_than_a_block(tmp_path: Path) -> None:
    path = tmp_path / "t"
    with opened(path) as file:
        for seq, size in enumerate([10, reader.BLOCK * 3, 1, reader.BLOCK, 0], 1):
            file.append(event(seq, "x" * size))
    raw = path.read_bytes().splitlines()
    assert list(reader.backwards(path, path.stat().st_size)) == raw[::-1]


def test_a_record_is_a_line_even_with_line_separators_in_it(tmp_path: Path) -> None:
    path = tmp_path / "t"
    with opened(path) as file:
        file.append(event(1, "a\u2028b\u0085c\rd\n"))
        file.append(event(2))
    assert path.read_bytes().count(b"\n") == 2
    assert seqs(path) == [1, 2]


def test_unknown_types_and_fields_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "t"
    line = json.loads(events.encode_line(event(1)))
    line["later"] = {"a": 1}
    path.write_text(json.dumps(line) + '\n{"seq":2,"ts":"x","type":"moon_phase"}\n')
    assert seqs(path) == [1]
    assert problems(path) == []
    assert reader.last_seq(path) == 2


def test_c35_broken_lines_are_skipped_and_numbered(tmp_path: Path) -> None:
    path = tmp_path / "t"
    one, two, three, four = (events.encode_line(event(seq)) for seq in range(1, 5))
    path.write_bytes(
        one
        + b"not json\n"
        + two[:-1]
        + three
        + b"\x00" * 40
        + four
        + b'{"seq":9,"type":"message"}\n'
    )
    assert seqs(path) == [1, 2, 3, 4]
    found = problems(path)
    assert [number for number, _ in found] == [2, 3, 4, 5]
    assert found[0][1] == "not JSON"
    assert "two records" in found[1][1]
    assert "NUL" in found[2][1]
    assert "message" in found[3][1]


@pytest.mark.parametrize("torn", [b'{"seq":7,"te', b"\x00" * 30, '{"a":"架'.encode()[:-1], b"x"])
def test_c35_a_torn_end_is_set_aside(tmp_path: Path, torn: bytes) -> None:
    path = tmp_path / "transcript.jsonl"
    path.write_bytes(events.encode_line(event(1)) + torn)
    repair = log.repair(path, 2)
    assert repair is not None
    assert path.read_bytes() == events.encode_line(event(1))
    assert (tmp_path / "transcript.torn-2").read_bytes() == torn
    assert log.repair(path, 2) is None


def test_c35_what_is_set_aside_never_overwrites(tmp_path: Path) -> None:
    path = tmp_path / "transcript.jsonl"
    for torn in (b"one", b"two"):
        with path.open("ab") as file:
            file.write(torn)
        log.repair(path, 1)
    kept = {one.read_bytes() for one in tmp_path.glob("transcript.torn-*")}
    assert kept == {b"one", b"two"}


def test_c35_an_end_that_only_lacks_its_newline_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_bytes(events.encode_line(event(1))[:-1])
    log.repair(path, 2)
    assert path.read_bytes() == events.encode_line(event(1))


def test_c35_both_halves_of_a_torn_join_are_saved(tmp_path: Path) -> None:
    path = tmp_path / "transcript.jsonl"
    path.write_bytes(events.encode_line(event(1))[:-1] + b'{"seq":2')
    log.repair(path, 2)
    assert path.read_bytes() == events.encode_line(event(1))
    assert (tmp_path / "transcript.torn-2").read_bytes() == b'{"seq":2'


def test_c35_the_session_goes_on_after_a_torn_end(tmp_path: Path) -> None:
    talk = Talk(tmp_path, worked_team())
    talk.send(WORKED_MESSAGE)
    written = len(talk.records())
    with talk.transcript.open("ab") as file:
        file.write(b'{"seq":99,"te')
    talk.send("@测试工程师 再来")
    assert talk.last("recovered").kept_in == f"transcript.torn-{written + 1}"
    assert talk.last("chain_finished").chain == 2
    assert [one["seq"] for one in talk.records()] == list(range(1, len(talk.records()) + 1))


def test_a_short_write_is_cut_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t"
    with opened(path) as file:
        file.append(event(1))
        real = os.write
        monkeypatch.setattr(os, "write", lambda fd, data: real(fd, data[: len(data) // 2]))
        with pytest.raises(DiskRefused, match="bytes were written"):
            file.append(event(2))
        monkeypatch.undo()
        file.append(event(2))
    assert seqs(path) == [1, 2]
    assert problems(path) == []


FULL_DISK = """
import resource, signal, sys, asyncio
from pathlib import Path
sys.dont_write_bytecode = True  # it would be cut off at the limit, for whoever imports it next
sys.path.insert(0, {tests!r})
from support import Talk, member, team
from arena_cli.errors import DiskRefused
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000))
a, b = member("a", [{{"say": "@b " + "x" * 300}}]), member("b", [{{"say": "@a"}}])
talk = Talk(Path({folder!r}), team(a, b))
try:
    talk.send("@a go")
except DiskRefused as error:
    print(error.exit_code, error)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs a limit on file sizes")
def test_c35_a_full_disk_ends_the_run_with_a_whole_file(tmp_path: Path) -> None:
    code = FULL_DISK.format(tests=str(Path(__file__).parent), folder=str(tmp_path))
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.startswith("5 "), done.stderr
    assert "could not write" in done.stdout
    path = tmp_path / "sessions" / "talk" / "transcript.jsonl"
    assert path.read_bytes().endswith(b"\n")
    assert problems(path) == []
    talk = Talk(tmp_path, team(member("a", [{"say": "x"}]), member("b", [{"say": "y"}])))
    assert talk.resume() is not None


def test_c37_the_second_sender_fails_as_busy_and_writes_nothing(tmp_path: Path) -> None:
    talk = Talk(tmp_path, worked_team())
    with talk.open():
        size = talk.transcript.stat().st_size
        with pytest.raises(SessionBusy) as caught:
            Talk(tmp_path, worked_team()).send(WORKED_MESSAGE)
        assert talk.transcript.stat().st_size == size
    assert caught.value.exit_code == 5
    talk.send(WORKED_MESSAGE)


def test_c37_the_lock_of_a_dead_process_is_free(tmp_path: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path\n"
        f"sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from support import Talk, worked_team\n"
        f"session = Talk(Path({str(tmp_path)!r}), worked_team()).open(); os._exit(1)"
    )
    subprocess.run([sys.executable, "-c", code], check=False, timeout=60)
    assert Talk(tmp_path, worked_team()).send(WORKED_MESSAGE).end == "quiet"


def test_an_event_out_of_order_is_a_fault_of_the_program(tmp_path: Path) -> None:
    with opened(tmp_path / "t") as file, pytest.raises(ValueError, match="cannot follow"):
        file.append(event(5))


def test_the_session_event_comes_again_when_the_team_changed(tmp_path: Path) -> None:
    talk = Talk(tmp_path, worked_team())
    talk.send(WORKED_MESSAGE)
    talk.send("@测试工程师 再来")
    assert len(talk.of("session")) == 1
    talk.team = team(*worked_team().members, selection="none")
    talk.send("@测试工程师 再来")
    assert [one.config["selection"] for one in talk.of("session")] == ["relevance", "none"]


def test_a_cache_that_does_not_match_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "WORTH_BYTES", 0)
    talk = Talk(tmp_path, worked_team())
    talk.send(WORKED_MESSAGE)
    cache = reader.cache_path(talk.transcript)
    record = json.loads(cache.read_text(encoding="utf-8"))
    record["reply"] = 77
    cache.write_text(json.dumps(record | {"check": "wrong"}), encoding="utf-8")
    talk.send("@测试工程师 再来")
    assert talk.last("reply_finished").reply == 5
    for damage in ("", "{", "[]", '{"offset": "x"}'):
        cache.write_text(damage, encoding="utf-8")
        talk.send("@测试工程师 再来")
    assert talk.last("reply_finished").reply == 9


def test_history_comes_from_the_end_of_a_long_transcript(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "WORTH_BYTES", 0)
    people = team(member("a", [{"say": "x" * 400}], context={"window_tokens": 3000}))
    talk = Talk(tmp_path, people)
    for number in range(40):
        talk.send(f"message {number}")
    whole = talk.last("reply_started")
    reader.cache_path(talk.transcript).unlink()
    talk.send("once more")
    without_cache = talk.last("reply_started").input_tokens
    talk.send("once more")
    assert abs(talk.last("reply_started").input_tokens - without_cache) < 200
    assert abs(whole.input_tokens - without_cache) < 200


def test_attachments_are_kept_in_their_folder(tmp_path: Path) -> None:
    (tmp_path / "图.txt").write_text("内容", encoding="utf-8")
    (tmp_path / "a.bin").write_bytes(b"\xff\x00\x01")
    talk = Talk(tmp_path, team(member("a", [{"say": "ok"}])))
    sent = outgoing(talk.team, "look", files=[tmp_path / "图.txt", tmp_path / "a.bin"])
    talk.send("look", files=[tmp_path / "图.txt", tmp_path / "a.bin"])
    assert len(sent.attachments) == 2
    text, binary = talk.of("message")[0].message.attachments
    assert text.path == "sessions/talk/attachments/m2/图.txt"
    assert (tmp_path / text.path).read_text(encoding="utf-8") == "内容"
    assert (tmp_path / binary.path).read_bytes() == b"\xff\x00\x01"
    assert (text.size, text.data, len(text.sha256)) == (6, None, 64)


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("../../etc/passwd", "passwd"),
        ("..\\..\\x.txt", "x.txt"),
        ("/etc/passwd", "passwd"),
        ("..", "attachment"),
        ("", "attachment"),
        ("CON", "_CON"),
        ("con.txt", "_con.txt"),
        ("CON .x", "_CON .x"),
        ("com¹.log", "_com¹.log"),
        ("a:b", "a_b"),
        ("x\x1b[31m.py", "x_[31m.py"),
        ("报告.md", "报告.md"),
        ("a" * 300 + ".py", "a" * 97 + ".py"),
        ("文" * 96 + ".txt", "文" * 65 + ".txt"),
        ("a ." + "b" * 99, "b" * 99),
    ],
)
def test_attachment_names_cannot_leave_their_folder(name: str, safe: str) -> None:
    assert make_safe_name(name) == safe


@settings(deadline=None)
@given(st.text())
def test_any_attachment_name_is_one_part_of_a_path(name: str) -> None:
    safe = make_safe_name(name)
    assert safe
    assert Path(safe).name == safe
    assert safe not in {".", ".."}
    assert len(safe) <= LONGEST_NAME + 1
    assert len(safe.encode()) <= LONGEST_NAME_BYTES + 1


def test_an_attachment_of_any_name_can_be_stored(tmp_path: Path) -> None:
    parts = [Attachment(name="文" * 96 + ".txt", data=str(number)) for number in range(12)]
    stored = log.store(parts, "m1", session=tmp_path / "s", workspace=tmp_path)
    assert [(tmp_path / str(one.path)).read_text() for one in stored] == list(map(str, range(12)))
    assert {one.name for one in stored} == {parts[0].name}


def test_two_attachments_with_one_name_are_both_kept(tmp_path: Path) -> None:
    parts = [Attachment(name="a.txt", data="1"), Attachment(name="A.TXT", data="2")]
    stored = log.store(parts, "m1", session=tmp_path / "s", workspace=tmp_path)
    assert [(tmp_path / str(one.path)).read_text() for one in stored] == ["1", "2"]


def test_status_events_are_not_synced_but_written(tmp_path: Path) -> None:
    path = tmp_path / "t"
    with opened(path) as file:
        stamp = file.stamp()
        file.append(
            StatusReported(seq=stamp.seq, ts=stamp.ts, reply=1, agent="a", status="waiting")
        )
        assert seqs(path) == [1]


def test_two_sessions_of_one_second_never_share_a_folder(tmp_path: Path) -> None:
    class Same(CountingClock):
        draws = iter(["aaaa", "aaaa", "aaaa", "bbbb"])

        def now(self) -> datetime:
            return datetime(2026, 11, 28, tzinfo=UTC)

        def token(self, digits: int) -> str:
            return next(self.draws)

    talk = Talk(tmp_path, worked_team(), name=None, clock=Same())
    with talk.open() as one, talk.open() as two:
        assert [one.name, two.name] == ["20261128-000000-aaaa", "20261128-000000-bbbb"]
