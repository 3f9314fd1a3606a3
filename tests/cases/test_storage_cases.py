"""Cases from the field: what is written, by whom, and what becomes of it (C35, C37 to C40)."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest
from fasteners import InterProcessLock
from product import session_store as store
from product import tickets
from program import Program, until

ECHO = {"say": "heard: ${message}"}


@pytest.fixture
def program(tmp_path: Path) -> Program:
    made = Program(tmp_path)
    made.agent("dev", ECHO)
    return made


def test_c35_broken_lines_are_passed_over_told_and_set_aside(program: Program) -> None:
    program.run("send", "-s", "s", "-q", "one").check()
    whole = program.transcript().read_bytes()
    two = json.dumps({"seq": 8, "ts": "t", "type": "later"}).encode()
    bad = b"not json\n" + two + two.replace(b"8", b"9") + b"\n" + b"\0" * 40 + b"\n"
    program.transcript().write_bytes(whole + bad + b'{"seq":10,"te')
    before = program.transcript().read_bytes()
    lines = whole.count(b"\n")
    place = program.transcript()

    doctor = program.run("doctor", "s")
    assert doctor.code == 1
    told = doctor.stderr.splitlines()
    assert told[:3] == [
        f"{place}:{lines + 1}: not JSON",
        f"{place}:{lines + 2}: two records on one line",
        f"{place}:{lines + 3}: empty",
    ]
    assert told[-1].startswith(f"{place}:{lines + 4}: the last 13 bytes are not a whole line; ")
    shown = program.run("show", "s")
    assert shown.code == 0
    assert shown.stderr.splitlines() == told[:3]
    assert "heard: one" in shown.stdout
    assert program.transcript().read_bytes() == before

    skipped = "".join(f"{line}\n" for line in told[:3])
    done = program.run("send", "-s", "s", "two")
    assert (done.code, done.stderr) == (0, skipped)
    assert "recovered: the last line was torn (13 bytes set aside, kept in " in done.stdout
    torn = program.transcript().with_name("transcript.torn-10")
    assert torn.read_bytes() == b'{"seq":10,"te'
    after = program.transcript().read_bytes()
    assert after.startswith(whole + bad)
    added = [json.loads(line) for line in after[len(whole + bad) :].splitlines()]
    assert [one["seq"] for one in added] == list(range(10, 10 + len(added)))
    assert added[0]["type"] == "recovered"
    assert added[-1]["end"] == "quiet"


@pytest.mark.skipif(sys.platform == "win32", reason="a limit on the size of files")
def test_c35_a_full_disk_ends_the_run_and_resume_goes_on(program: Program) -> None:
    import resource

    # What Python compiled would be cut off at the limit too, for all who import it later.
    program.env["PYTHONDONTWRITEBYTECODE"] = "1"
    program.agent("dev", {"say": "x" * 3_000})
    program.run("send", "-s", "s", "-q", "one").check()
    room = program.transcript().stat().st_size + 2_000

    def no_more() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))

    full = program.run("send", "-s", "s", "two", preexec_fn=no_more)
    assert full.code == 5
    what, mend = full.stderr.splitlines()
    assert what.startswith(f"arena: {program.transcript()}: could not write: ")
    assert (
        mend == "  Everything written before is intact; free disk space or fix the "
        "permissions, then run `arena resume s`."
    )
    assert program.finished() == [("dev", "success")]
    program.run("resume").check()
    assert program.finished() == [("dev", "success"), ("dev", "success")]

    program.agent("dev", {"say": "x" * room})
    program.scenario("scenario: x\nsteps: [{send: hi}]")
    played = program.run("run", preexec_fn=no_more)
    assert played.code == 3
    assert "could not write" in played.stdout
    assert "arena resume" not in played.stdout  # it is played again


def test_c37_two_senders_to_one_session_lose_and_mix_nothing(program: Program) -> None:
    program.file(
        "bot.py",
        "import pathlib, time\n"
        "def answer(input):\n"
        "    while not pathlib.Path('go').exists():\n"
        "        time.sleep(0.01)\n"
        "    return 'heard: ' + input.messages[-1].content\n",
    )
    program.agent("dev", adapter={"type": "python", "target": "bot.py:answer"})
    first = program.start("send", "-s", "s", "from the first")
    until(lambda: b"reply_started" in program.raw())
    second = program.start("send", "-s", "s", "from the second")
    assert second.stderr
    assert second.stderr.readline() == b"session s is busy; waiting up to 600 s\n"
    program.file("go", "")
    one = program.finish(first).check()
    two = program.finish(second).check()
    assert "heard: from the first" in one.stdout
    assert "heard: from the second" in two.stdout
    assert "first" not in two.stdout
    chains = [one["chain"] for one in program.records() if "chain" in one]
    assert chains == sorted(chains)
    assert set(chains) == {1, 2}
    assert len(program.finished()) == 2


def test_c37_who_waits_in_vain_is_told_and_wrote_nothing(program: Program) -> None:
    program.real = True
    folder = program.folder / "sessions" / "s"
    folder.mkdir(parents=True)
    with InterProcessLock(folder / "transcript.lock"):
        program.run("send", "-s", "s", "hello", "--wait", "0.1").check(
            code=5,
            stdout="",
            stderr="session s is busy; waiting up to N s\n"
            "arena: session s is busy: another arena is writing to it (waited N s)\n"
            "  Nothing was written. Try again later, or wait longer with --wait SECONDS.\n",
        )
    assert [path.name for path in folder.iterdir()] == ["transcript.lock"]
    program.run("send", "-s", "s", "hello", "--wait", "0").check()


def test_c37_those_that_wait_are_served_in_the_order_in_which_they_came(program: Program) -> None:
    folder = program.folder / "sessions" / "s"
    folder.mkdir(parents=True)
    waiting = []
    with InterProcessLock(folder / "transcript.lock"):
        for number in range(7):
            waiting.append(program.start("send", "-s", "s", f"message {number}"))
            assert waiting[-1].stderr
            assert waiting[-1].stderr.readline() == b"session s is busy; waiting up to 600 s\n"
        killed, interrupted = waiting.pop(4), waiting.pop(1)
        killed.kill()
        program.finish(killed)
        interrupted.send_signal(signal.SIGINT)
        assert program.finish(interrupted).code == 130
    for running in waiting:
        program.finish(running).check()
    records = [record for record in program.records() if record["type"] == "message"]
    contents = [record["message"]["content"] for record in records]
    assert contents == [f"message {number}" for number in (0, 2, 3, 5, 6)]
    assert [path.name for path in folder.glob("transcript.lock*")] == ["transcript.lock"]


def test_c37_a_sender_does_not_overtake_those_that_wait(program: Program) -> None:
    program.real = True
    folder = program.folder / "sessions" / "s"
    folder.mkdir(parents=True)
    with tickets.draw_ticket(folder / store.NAME):
        refused = program.run("send", "-s", "s", "hello", "--wait", "0")
        assert (refused.code, refused.stdout) == (5, "")
        second = program.start("send", "-s", "s", "second")
        assert second.stderr
        assert second.stderr.readline() == b"session s is busy; waiting up to 600 s\n"
    program.finish(second).check()
    program.run("send", "-s", "s", "hello", "--wait", "0").check()


def test_c37_the_place_of_a_process_that_was_killed_is_free(program: Program) -> None:
    folder = program.folder / "sessions" / "s"
    folder.mkdir(parents=True)
    (folder / "transcript.lock.000007").touch()
    (folder / "transcript.lock.txt").touch()
    program.run("send", "-s", "s", "hello", "--wait", "0").check()
    names = sorted(path.name for path in folder.glob("transcript.lock*"))
    assert names == ["transcript.lock", "transcript.lock.txt"]


def test_c38_bad_bytes_and_half_characters_are_replaced_once(program: Program) -> None:
    program.program("bytes", "raw", "6f6bff21")
    program.program("half", "say", '{"content": "half \\ud83d @bytes"}', adapter={"output": "json"})
    program.agent("dev", {"say": "and on"})
    program.run("send", "-s", "s", "@half go").check()
    done = program.run("send", "-s", "s", "@dev go").check()
    assert "and on" in done.stdout
    text = program.transcript().read_bytes().decode("utf-8")
    replies = [one for one in map(json.loads, text.splitlines()) if one["type"] == "reply_finished"]
    said = {one["agent"]: (one["message"]["content"], one["metadata"]) for one in replies}
    assert said["half"][0] == "half \ufffd @bytes"
    assert said["bytes"][0] == "ok\ufffd!"
    assert said["bytes"][1]["replaced_bytes"] is True
    assert said["half"][1]["replaced_bytes"] is True
    program.run("doctor", "s").check()


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("../../x", "path separator"),
        ("a/b", "path separator"),
        ("a\\b", "path separator"),
        ("/etc", "path separator"),
        ("..", "starts with a dot"),
        ("CON", "reserved"),
        ("nul.txt", "reserved"),
        ("Knowledge", "reserved"),
        ("字" * 300, "longer than 64 characters"),
        ("a\x1b[31mb", "cannot be printed"),
        ("a\u202eb", "cannot be printed"),
        ("", "it is empty"),
    ],
)
def test_c39_names_that_are_no_session_are_refused(program: Program, name: str, why: str) -> None:
    done = program.run("send", "--session", name, "hello")
    assert (done.code, done.stdout) == (2, "")
    assert done.stderr.startswith("arena: session name ")
    assert why in done.stderr
    assert "\x1b" not in done.stderr
    assert not (program.folder / "sessions").exists()
    assert [path.name for path in program.folder.iterdir()] == ["agents"]


@pytest.mark.skipif(sys.platform == "win32", reason="making a link takes rights there")
def test_c39_a_link_out_of_the_folder_is_no_session(tmp_path: Path) -> None:
    program = Program(tmp_path / "space")
    program.agent("dev", ECHO)
    program.run("send", "-s", "s", "-q", "hello").check()
    outside = tmp_path / "outside"
    (program.folder / "sessions" / "s").rename(outside)
    before = sorted(path.name for path in outside.iterdir())
    (program.folder / "sessions" / "s").symlink_to(outside)
    for args in (("send", "-s", "S", "hello"), ("show", "s"), ("resume", "s"), ("doctor", "s")):
        done = program.run(*args)
        assert (done.code, done.stdout) == (2, "")
        assert f"{program.folder / 'sessions'}" in done.stderr
        assert " is a link\n" in done.stderr
    assert program.run("sessions").stdout == ""
    assert sorted(path.name for path in outside.iterdir()) == before


def test_c39_a_folder_that_cannot_be_written(program: Program) -> None:
    folder = program.folder / "sessions" / "s"
    (folder / "transcript.lock").mkdir(parents=True)  # stands where a file is to be made
    done = program.run("send", "-s", "s", "hello")
    assert (done.code, done.stdout) == (2, "")
    what, mend = done.stderr.splitlines()
    assert what.startswith(f"arena: {folder}: cannot write here: ")
    assert mend.startswith("  arena keeps transcripts there; ")
    assert [path.name for path in folder.iterdir()] == ["transcript.lock"]


def test_c39_names_of_attachments_cannot_leave_their_folder(tmp_path: Path) -> None:
    program = Program(tmp_path)
    names = ["../../evil.txt", "/etc/evil", "con.txt", ".", "a\n::b", "字\u202e.txt", "x" * 300]
    parts = [{"name": name, "data": "content"} for name in names]
    program.agent("dev", {"say": "take these", "attachments": parts})
    kept = program.file("odd;name $(x) 名.txt", "mine")
    done = program.run("send", "-s", "s", "--attach", kept.name, "hello").check()
    assert "[file: odd;name $(x) 名.txt, 4 bytes at sessions/s/attachments/m2/" in done.stdout
    assert "::b, 7 bytes" in done.stdout
    assert "\n::" not in done.stdout
    assert "\u202e" not in done.stdout
    stored = [path for path in tmp_path.rglob("attachments/*/*") if path.is_file()]
    assert len(stored) == len(names) + 1
    everything = {path.name for path in tmp_path.iterdir()}
    assert everything == {"agents", "sessions", kept.name}
    program.run("doctor", "s").check()


@pytest.mark.skipif(sys.platform != "linux", reason="names of files are text elsewhere")
def test_c38_an_attachment_whose_name_is_no_text(program: Program) -> None:
    (program.folder / os.fsdecode(b"caf\xe9.txt")).write_bytes(b"\xe9")
    done = program.run("send", "-s", "s", "--attach", os.fsdecode(b"caf\xe9.txt"), "hello").check()
    assert "[file: caf\ufffd.txt, 1 bytes at " in done.stdout
    program.run("doctor", "s").check()


@pytest.mark.skipif(sys.platform == "win32", reason="a signal that one process sends another")
@pytest.mark.parametrize("number", ["SIGINT", "SIGKILL"])
def test_c40_what_was_answered_is_kept_and_what_was_not_is_not_called_by_itself(
    tmp_path: Path, number: str
) -> None:
    program = Program(tmp_path)
    program.agent("one", {"say": "done"})
    program.agent("two", {"say": "late", "delay_s": 30})
    program.agent("three", {"say": "late", "delay_s": 30})
    running = program.start("send", "-s", "s", "@one @two @three go")
    until(lambda: b"reply_finished" in program.raw())
    running.send_signal(signal.Signals[number])
    program.finish(running)
    cancelled = [("two", "cancelled"), ("three", "cancelled")] if number == "SIGINT" else []
    first, *others = program.finished()
    assert first == ("one", "success")
    assert sorted(others) == sorted(cancelled)

    last = program.records()[-1]["seq"]
    done = program.run("send", "-s", "s", "@one again").check(
        stderr="session s: the chain that was cut short is closed as interrupted (`arena "
        "resume` would have continued it)\n"
    )
    assert "══ interrupted · 1 reply in 1 turn" in done.stdout
    added = program.records()[last:]
    assert [one["agent"] for one in added if one["type"] == "reply_started"] == ["one"]
    program.run("resume", "s").check(
        stderr="session s: no chain was cut short, there is nothing to resume\n"
    )
