"""Streams that are closed, full or no longer read; places that cannot be written."""

from __future__ import annotations

import errno
import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TextIO

import forks
import pytest
from fasteners import InterProcessLock
from product import DiskRefused, Stdout
from program import Program


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """A workspace of one agent, who says back what it was told."""
    made = Program(tmp_path)
    made.agent("dev", {"say": "heard: ${message}"})
    return made


@pytest.mark.skipif(
    sys.platform == "win32", reason="closed descriptors are a thing of POSIX shells"
)
def test_closed_and_full_streams(program: Program) -> None:
    forked, fresh = forks.list_command(), [sys.executable, "-m", "arena_cli"]

    def shell(line: str) -> tuple[str, int]:
        arena = shlex.join(fresh if "&-" in line else forked)
        done = subprocess.run(
            ["bash", "-c", line.replace("arena", arena)],
            cwd=program.folder,
            env=program.environment(),
            capture_output=True,
            encoding="utf-8",
            timeout=60,
            check=False,
        )
        assert done.stdout == ""
        return done.stderr, done.returncode

    full = "arena: stdout: could not write: No space left on device\n"
    empty = "arena: the message is empty\n  Write a message, or attach a file.\n"
    assert shell("arena send -s s <&-") == (empty, 2)
    assert shell("arena send -s s hello >&-") == ("", 0)
    assert shell("arena send -s s hello >&- 2>&- <&-") == ("", 0)
    assert len(program.finished()) == 2
    if Path("/dev/full").exists():
        assert shell("arena send -s s hello >/dev/full") == (full, 5)
        assert len(program.finished()) == 3
        assert program.records()[-1]["type"] == "chain_finished"
        assert shell("arena show >/dev/full") == (full, 5)
        assert shell("arena --version >/dev/full") == (full, 5)
        assert shell("arena --help >/dev/full") == (full, 5)
        assert shell("arena show nobody 2>/dev/full") == ("", 2)
    assert shell("arena show --json | head -n 1 >/dev/null; exit ${PIPESTATUS[0]}") == ("", 0)
    assert shell("arena schema agent | true; exit ${PIPESTATUS[0]}") == ("", 0)
    assert shell("arena --version | true; exit ${PIPESTATUS[0]}") == ("", 0)
    assert shell("arena --version >&-") == ("", 0)
    assert shell("arena send -s t hello | true; exit ${PIPESTATUS[0]}") == ("", 0)
    assert program.records("t")[-1]["end"] == "quiet"
    program.agent("dev", {"fail": "error"})
    assert shell("arena send -s t hello | true; exit ${PIPESTATUS[0]}") == ("", 3)


class Refusing:
    """A stdout that takes nothing, for that reason."""

    def __init__(self, under: TextIO, why: int) -> None:
        self.fileno = under.fileno
        self.why = why
        self.asked = 0

    def write(self, text: str) -> None:
        self.asked += 1
        raise OSError(self.why, "no")


@pytest.mark.parametrize(
    ("platform", "why", "refused"),
    [
        ("linux", errno.EPIPE, False),
        ("win32", errno.EINVAL, False),  # what `arena show | more` gives when more is left
        ("linux", errno.EINVAL, True),
        ("win32", errno.ENOSPC, True),
    ],
)
def test_a_pipe_that_is_read_no_more_is_no_refusal(
    platform: str, why: int, refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (tmp_path / "out").open("w", encoding="utf-8") as under:
        stdout = Refusing(under, why)
        monkeypatch.setattr("sys.stdout", stdout)
        monkeypatch.setattr("sys.platform", platform)
        out = Stdout()
        out.write("first\n")
        out.write("second\n")
        monkeypatch.undo()
    assert stdout.asked == 1
    assert not out.is_read
    if refused:
        with pytest.raises(DiskRefused, match="stdout: could not write"):
            out.check()
    else:
        out.check()


def test_a_sessions_place_that_cannot_be_written(program: Program) -> None:
    program.file("sessions", "a file")
    done = program.run("send", "-s", "s", "hello")
    assert (done.code, done.stdout) == (2, "")
    what, mend = done.stderr.splitlines()
    assert what.startswith(f"arena: {program.folder / 'sessions'}: cannot make a folder here: ")
    assert mend.startswith("  arena keeps transcripts there; ")
    program.run("sessions").check(
        stdout="", stderr='no sessions yet; start one: arena send "hello"\n'
    )


def test_a_busy_session_exits_5_and_nothing_is_written(program: Program) -> None:
    program.real = True
    program.run("send", "-s", "s", "-q", "hello").check()
    before = program.transcript().read_bytes()
    with InterProcessLock(program.folder / "sessions" / "s" / "transcript.lock"):
        for args in (("send", "-s", "s", "hello"), ("resume", "s")):
            program.run(*args, "--wait", "0").check(
                code=5,
                stdout="",
                stderr="arena: session s is busy: another arena is writing to it (waited 0 s)\n"
                "  Nothing was written. Try again later, or wait longer with --wait SECONDS.\n",
            )
        assert program.run("show", "s").check().stdout
        program.run("doctor", "s").check()
    assert program.transcript().read_bytes() == before


def test_json_holds_no_command_for_a_ci_runner(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.agent("dev", {"say": "##vso[task.complete] and # #[error]"}).team()
    sent = program.run("send", "--session", "s", "--json", "hi ##[group]x")
    shown = program.run("show", "s", "--json")
    for done in (sent, shown):
        assert "##" not in done.stdout
        said = [json.loads(line) for line in done.stdout.splitlines()]
        contents = [one["message"]["content"] for one in said if one.get("message")]
        assert contents == ["hi ##[group]x", "##vso[task.complete] and # #[error]"]
