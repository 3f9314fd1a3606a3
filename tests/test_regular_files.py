"""FIFOs, sockets and devices where a file is expected: refused at once, wherever they are named."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from product import ArenaError, Folder, errors, file, files, models, read_lines, snapshots, tail
from product import session_outgoing as outgoing
from product import yamlio_loader as loader
from program import LIMIT_S, Program

if sys.platform == "win32":
    pytest.skip("Windows has no FIFO in a folder", allow_module_level=True)


def fifo(path: Path) -> None:
    os.mkfifo(path)


def bound(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        here = Path.cwd()
        os.chdir(path.parent)  # the path of a socket is short
        try:
            server.bind(path.name)
        finally:
            os.chdir(here)


KINDS: dict[str, Callable[[Path], object]] = {
    "a FIFO": fifo,
    "a socket": bound,
    "a device": lambda path: path.symlink_to("/dev/zero"),
}

READERS: dict[str, Callable[[Path], object]] = {
    "a file": files.read_regular,
    "YAML": lambda path: _raised(loader.load(path, "x").faults),
    ".env": lambda path: files.read_dotenv_file(path, ".env"),
    "a transcript": lambda path: list(read_lines(path)),
    "its end": tail,
    "a recording": lambda path: file.read(path, "x"),
    "snapshots": snapshots.read,
    "a text that is sent": outgoing.read_text_file,
    "an attachment": lambda path: outgoing.outgoing(_team(), "hi", files=[path]),
    "a note": lambda path: _raised(_listed(path).problems),
}


def _raised(faults: object) -> None:
    raise ArenaError(str(faults))


def _team() -> models.Team:
    from support import member, team

    return team(member("a"))


def _listed(path: Path) -> Folder:
    path.rename(path.with_suffix(".md"))
    notes = Folder(path.parent, path.parent, shared=False)
    assert notes.entries() == []
    return notes


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("reader", READERS)
def test_whoever_reads_a_file_refuses_what_is_none(tmp_path: Path, reader: str, kind: str) -> None:
    path = tmp_path / "x"
    KINDS[kind](path)
    with pytest.raises((OSError, ArenaError), match=f"expected a file, got {kind}"):
        READERS[reader](path)


def test_a_folder_and_a_missing_file_are_what_they_were(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError):
        files.read_regular(tmp_path)
    with pytest.raises(FileNotFoundError):
        files.read_regular(tmp_path / "x")


STEP = "scenario: x\nsteps: [{send: hi}]\n"
PLACES = [
    ("agents/dev.yaml", "", ("send", "hi")),
    ("agents/teams/t.yaml", "", ("send", "hi")),
    ("arena.yaml", "", ("send", "hi")),
    (".env", "", ("send", "hi")),
    ("prompt.md", "", ("send", "hi")),
    ("sessions/s/transcript.jsonl", "", ("send", "-s", "s", "hi")),
    ("sessions/s/transcript.lock", "", ("send", "-s", "s", "hi")),
    ("scenarios/x.yaml", "", ("run",)),
    ("scenarios/x.yaml", "", ("run", "x")),
    ("a.txt", STEP.replace("}", ", attach: [a.txt]}"), ("run",)),
    ("a.txt", STEP.replace("hi", "{file: a.txt}"), ("run",)),
    ("a.yaml", f"{STEP}include: a.yaml\n", ("run",)),
    ("t.jsonl", f"{STEP}given: {{transcript: t.jsonl}}\n", ("run",)),
    ("pit-x.md", f"{STEP}given: {{notes: [pit-x.md]}}\n", ("run",)),
    (
        "s.json",
        STEP.replace("}", ", expect: {replies: {dev: [{json: {schema: s.json}}]}}}"),
        ("run",),
    ),
    ("c.py", STEP.replace("}", ", expect: {replies: {dev: [{python: 'c.py:f'}]}}}"), ("run",)),
    ("scenarios/recordings/x.jsonl", STEP, ("run", "--replay")),
    (
        "scenarios/recordings/x.snapshots.json",
        STEP.replace("}", ", expect: {replies: {dev: [{snapshot: true}]}}}"),
        ("run",),
    ),
]


@pytest.mark.parametrize(("place", "scenario", "command"), PLACES)
def test_the_program_never_hangs_on_what_is_named(
    tmp_path: Path, place: str, scenario: str, command: tuple[str, ...]
) -> None:
    program = Program(tmp_path)
    prompt = {"role_prompt": {"file": "prompt.md"}} if place == "prompt.md" else {}
    program.agent("dev", "hello", **prompt)
    if scenario:
        program.file("scenarios/x.yaml", scenario)
    path = tmp_path / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    began = time.monotonic()
    done = program.run(*command)
    assert time.monotonic() - began < LIMIT_S
    assert done.code in (errors.EXIT_USAGE, errors.EXIT_REFUSED)
    assert "expected a file, got a FIFO" in done.stderr
    assert (path.parent if path.suffix == ".lock" else path).name in done.stderr
    assert "Traceback" not in done.stderr


def test_a_pipe_on_the_command_line_is_read(tmp_path: Path) -> None:
    program = Program(tmp_path, real=True)
    program.agent("dev", "hello")
    for option in ("--file", "--attach"):
        words = [] if option == "--file" else ["see"]
        name = option.strip("-")
        done = program.run("send", "-s", name, option, "/dev/stdin", *words, given=b"from a pipe")
        assert done.code == 0, done.stderr
        assert "from a pipe" in program.written() if option == "--attach" else done.stdout
    reader, writer = os.pipe()
    os.write(writer, "你好 from a substitution".encode())
    os.close(writer)
    done = program.run("send", "--file", f"/dev/fd/{reader}", pass_fds=[reader])
    os.close(reader)
    assert "你好 from a substitution" in done.stdout


def test_a_named_fifo_on_the_command_line_waits_for_its_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "WRITER_WAIT_S", LIMIT_S)
    path = tmp_path / "pipe"
    os.mkfifo(path)

    def write() -> None:
        time.sleep(0.1)
        with path.open("wb") as pipe:
            pipe.write(b"one ")
            pipe.flush()
            time.sleep(0.1)
            pipe.write(b"two")

    writer = threading.Thread(target=write)
    writer.start()
    assert files.read_input(path) == b"one two"
    writer.join()


def test_one_that_nobody_writes_to_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "WRITER_WAIT_S", 0.1)
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(OSError, match=r"no process wrote to this FIFO for 0\.1 s"):
        files.read_input(path)


def test_an_inherited_pipe_without_a_word_is_empty() -> None:
    reader, writer = os.pipe()
    os.close(writer)
    try:
        assert files.read_input(Path(f"/dev/fd/{reader}")) == b""
    finally:
        os.close(reader)


def test_a_device_without_an_end_is_refused_on_the_command_line_too() -> None:
    with pytest.raises(files.NotRegular):
        files.read_input(Path("/dev/zero"))
    assert files.read_input(Path(os.devnull)) == b""
