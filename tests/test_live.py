"""The program in a real terminal: what is seen while agents work, and what is left of it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from program import Program, until
from screen import Screen, chunks

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="pty is a thing of POSIX")

HIDDEN, SHOWN = "\x1b[?25l", "\x1b[?25h"


Watch = Callable[..., "Watched"]


class Watched:
    """A run of the program whose stdout, and stderr too, is a terminal of so many columns."""

    def __init__(self, program: Program, *args: str, columns: int = 80, lines: int = 24) -> None:
        import pty

        self.screen = Screen(columns)
        self.ours, self.theirs = pty.openpty()
        self.resize(columns, lines)
        program.env = {"TERM": "xterm-256color", **program.env}
        environment = program.environment()
        del environment["COLUMNS"]
        terminal = {"stdin": self.theirs, "stdout": self.theirs, "stderr": self.theirs}
        self.process = program.start(*args, env=environment, **terminal)
        os.close(self.theirs)
        self.encoding = program.env.get("PYTHONIOENCODING", "utf-8")
        self.raw = b""
        self.reader = threading.Thread(target=self._read)
        self.reader.start()

    def resize(self, columns: int, lines: int = 24) -> None:
        import fcntl
        import struct
        import termios

        fcntl.ioctl(self.ours, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def _read(self) -> None:
        for chunk in chunks(self.ours):
            self.raw += chunk

    @property
    def text(self) -> str:
        """All that was written so far."""
        return self.raw.decode(self.encoding, "replace").replace("\r\n", "\n")

    def until(self, *texts: str) -> None:
        until(lambda: all(text in self.text for text in texts))

    def until_seconds_pass(self) -> None:
        """Wait until an agent is shown to have worked for a second or more."""
        until(lambda: re.search(r"(?<![.\d])[1-9]\d* s\b", self.text))

    def end(self) -> int:
        """The exit code; the screen shows what is left then."""
        code = self.process.wait(60)
        self.reader.join(60)
        os.close(self.ours)
        self.screen.write(self.text)
        return code


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """`dev` answers at once and calls `ops`; `slow` writes some words and waits for a file."""
    made = Program(tmp_path)
    made.agent("dev", {"say": "✓ 好的 \x1b[31m @ops"}, name="全栈开发")
    made.agent("ops", {"say": "done, and this line is longer than twenty columns"})
    made.program("slow", "read", "say", "so far 你好 ", "wait", "go", "say", "and on", name="慢")
    made.team()
    return made


@pytest.fixture
def watch(program: Program) -> Iterator[Watch]:
    """Starts the program in a terminal; what still runs in the end is killed."""
    started: list[Watched] = []

    def start(*args: str, **size: int) -> Watched:
        started.append(Watched(program, *args, **size))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
            one.end()


def test_who_works_is_seen_and_then_gone(program: Program, watch: Watch) -> None:
    watched = watch("send", "-s", "s", "@dev @slow go")
    watched.until("慢", "so far 你好", "好的")
    watched.until_seconds_pass()
    (program.folder / "go").touch()
    assert watched.end() == 0
    plain = program.run("show", "s").check().stdout
    assert watched.screen.text == plain.rstrip("\n")
    assert watched.screen.cursor
    assert watched.text.count(HIDDEN) == watched.text.count(SHOWN) > 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_a_whole_screen(
    program: Program, watch: Watch, number: signal.Signals
) -> None:
    watched = watch("send", "-s", "s", "@dev @slow go")
    watched.until(HIDDEN, "so far 你好")
    watched.process.send_signal(number)
    assert watched.end() == 130
    rows = watched.screen.text.split("\n")
    assert rows[-3].endswith("· cancelled")
    assert rows[-2:] == [
        "arena: interrupted",
        "  Every completed reply is kept; `arena resume s` continues.",
    ]
    assert watched.screen.cursor


def test_a_terminal_of_20_columns_that_changes(program: Program, watch: Watch) -> None:
    watched = watch("send", "-s", "s", "@dev @slow go", columns=20)
    watched.until(HIDDEN)
    watched.until_seconds_pass()
    watched.resize(60)
    until(lambda: "so far 你好" in watched.text)
    watched.resize(20)
    (program.folder / "go").touch()
    assert watched.end() == 0
    assert "  done, and this" in watched.screen.rows
    assert watched.screen.cursor


@pytest.mark.parametrize("term", ["dumb", ""])
def test_a_terminal_that_can_do_nothing_gets_plain_text(
    program: Program, watch: Watch, term: str
) -> None:
    program.env["TERM"] = term
    watched = watch("send", "-s", "s", "@dev go", columns=20)
    assert watched.end() == 0
    assert watched.text == program.run("show", "s").check().stdout


def test_no_color_takes_colour_and_movement_away(program: Program, watch: Watch) -> None:
    program.env["NO_COLOR"] = "1"
    watched = watch("send", "-s", "s", "@dev go")
    assert watched.end() == 0
    assert watched.text == program.run("show", "s").check().stdout


@pytest.mark.parametrize("args", [("--json",), ("--quiet",)])
def test_json_and_quiet_draw_nothing(program: Program, watch: Watch, args: tuple[str, ...]) -> None:
    watched = watch("send", "-s", "s", "@dev go", *args)
    assert watched.end() == 0
    assert "\x1b" not in watched.text
    assert (watched.text == "") == (args == ("--quiet",))


def test_a_gbk_terminal_changes_neither_the_outcome_nor_the_layout(
    program: Program, watch: Watch
) -> None:
    program.env["PYTHONIOENCODING"] = "gbk"
    watched = watch("send", "-s", "s", "@dev go")
    assert watched.end() == 0
    assert "全栈开发 (dev) · turn 1 A" in watched.screen.text
    assert "  \\u2713 好的 \\x1b[31m @ops" in watched.screen.text
    assert watched.screen.cursor


def test_show_is_drawn_too_and_nothing_moves(program: Program, watch: Watch) -> None:
    plain = program.run("send", "-s", "s", "@dev go").check().stdout
    watched = watch("show", "s")
    assert watched.end() == 0
    assert watched.screen.text == plain.rstrip("\n")
    assert any("38;5" in style for style in watched.screen.styles)
    assert HIDDEN not in watched.text


@pytest.mark.parametrize(
    ("env", "chinese"),
    [
        ({"ARENA_LANG": "zh"}, True),
        ({"ARENA_LANG": "zh_TW.UTF-8"}, True),
        ({"ARENA_LANG": "fr", "LANG": "zh_CN.UTF-8"}, False),
        ({"ARENA_LANG": "", "LANG": "zh_CN.UTF-8"}, True),
        ({"ARENA_LANG": "", "LANG": "en_GB.UTF-8", "LC_MESSAGES": "zh_CN.UTF-8"}, True),
        ({"ARENA_LANG": "", "LANG": "zh_CN.UTF-8", "LC_ALL": "C.UTF-8"}, False),
    ],
)
def test_the_language_of_the_timeline_is_asked_for(
    program: Program, env: dict[str, str], chinese: bool
) -> None:
    program.env |= env
    done = program.run("send", "-s", "s", "@dev go").check()
    assert ("会话 s · 团队 crew" in done.stdout) == chinese
    assert ("session s · team crew" in done.stdout) != chinese
    assert "会话" not in program.raw().decode("utf-8")
    assert program.records()[-1]["end"] == "quiet"


def test_a_pipe_pays_nothing_for_terminals(program: Program, watch: Watch) -> None:
    running = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "arena_cli", "send", "@dev go"],
        cwd=program.folder,
        env=program.environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        check=True,
    )
    imported = running.stderr.decode("utf-8")
    assert "arena_cli.reports.timeline" in imported
    assert " rich" not in imported
    assert "arena_cli.reports.terminal" not in imported


PAGED = "paged.txt"


@pytest.fixture
def talk(program: Program) -> Program:
    """A session that is higher than a terminal of 24 lines."""
    program.agent("dev", {"say": "甲 " * 40 + "."})
    for number in range(8):
        program.run("send", "-s", "s", f"@dev {number}", "-q").check()
    program.env["ARENA_PAGER"] = f"tee {PAGED}"
    return program


def test_what_is_higher_than_the_terminal_goes_to_the_pager(talk: Program, watch: Watch) -> None:
    plain = talk.run("show", "s").check().stdout
    paged = talk.folder / PAGED
    assert not paged.exists()
    watched = watch("show", "s", columns=200)
    assert watched.end() == 0
    text = re.sub("\x1b\\[[0-9;]*m", "", paged.read_text(encoding="utf-8"))
    assert text == plain
    assert watched.screen.text == plain.rstrip("\n")


@pytest.mark.parametrize(
    ("args", "env"),
    [
        (("show", "s", "--no-pager"), {}),
        (("--no-pager", "show", "s"), {}),
        (("show", "s", "--last", "1"), {}),
        (("show", "s"), {"ARENA_PAGER": ""}),
        (("show", "s"), {"ARENA_PAGER": "cat", "PAGER": f"tee {PAGED}"}),
        (("show", "s"), {"ARENA_PAGER": "no-such-program-anywhere"}),
    ],
)
def test_no_pager(talk: Program, watch: Watch, args: tuple[str, ...], env: dict[str, str]) -> None:
    plain = talk.run(*args).check().stdout
    talk.env |= env
    watched = watch(*args, columns=200)
    assert watched.end() == 0
    assert watched.screen.text == plain.rstrip("\n")
    assert not (talk.folder / PAGED).exists()


def test_the_user_may_leave_the_pager_early(talk: Program, watch: Watch) -> None:
    talk.env["ARENA_PAGER"] = "head -n 1"
    watched = watch("show", "s", columns=200)
    assert watched.end() == 0
    assert watched.screen.text == "session s · team crew"


def test_the_pager_shows_chinese_also_where_the_locale_does_not(
    talk: Program, watch: Watch
) -> None:
    talk.env |= {"LC_ALL": "C", "ARENA_PAGER": "printenv LESSCHARSET"}
    watched = watch("show", "s", columns=200)
    assert watched.end() == 0
    assert watched.screen.text == "utf-8"


def test_lists_and_errors_break_between_words(program: Program, watch: Watch) -> None:
    program.agent(
        "dev", {"say": "hi"}, name="全栈开发工程师", skills=["Python", "PostgreSQL", "数据建模"]
    )
    program.run("send", "-s", "s", "@dev 请拆解需求：做一个登录页").check()
    for args, code in (
        (("sessions",), 0),
        (("agents",), 0),
        (("teams",), 0),
        (("show", "s", "--no-pager", "--turn", "1"), 0),
        (("send", "--to", "somebody else", "x"), 2),
        (("run", "--jobs", "x"), 2),
    ):
        plain = program.run(*args)
        watched = watch(*args, columns=40)
        assert watched.end() == code
        rows = watched.screen.rows
        words = set(re.sub(r"\(\d+ s", "(0 s", plain.stdout + plain.stderr).split())
        shown = re.sub(r"\(\d+ s", "(0 s", "\n".join(rows))
        ascii_words = {word for word in shown.split() if word.isascii()}
        assert ascii_words <= words
        assert max(map(len, rows)) > 20
    path = watch("path", columns=20)
    assert path.end() == 0
    assert str(program.folder) in path.text


def test_errors_fit_their_terminal_if_stdout_is_a_pipe(program: Program) -> None:
    import fcntl
    import pty
    import struct
    import termios

    ours, theirs = pty.openpty()
    fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 40, 0, 0))
    environment = {**program.environment(), "TERM": "xterm-256color"}
    del environment["COLUMNS"]
    done = program.run("diff", "2026", "no such session", env=environment, stderr=theirs)
    os.close(theirs)
    text = b"".join(chunks(ours)).decode("utf-8").replace("\r\n", "\n")
    os.close(ours)
    assert done.code == 2
    assert max(map(len, text.splitlines())) <= 40
    assert "there is no session, recording or\n" in text
