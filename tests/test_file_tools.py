"""Agents read and change files in their folder: never out of it, each change whole and a diff."""

from __future__ import annotations

import asyncio
import os
import socket
import string
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from product import (
    Glob,
    IgnoreFile,
    ToolFailed,
    ToolOutput,
    ToolScope,
    WorkFolder,
    find_name_problem,
    make_file_tool,
    text_change,
)

ON_POSIX = pytest.mark.skipif(sys.platform == "win32", reason="links and pipes of POSIX")
SAME_FOLDER = [HealthCheck.function_scoped_fixture]

PARTS = st.sampled_from(
    [
        "..",
        ".",
        "",
        "a",
        "b.txt",
        "in",
        "out",
        "up",
        "loop",
        "/",
        "//",
        "~",
        "C:",
        "\\",
        "..\\",
        ".git",
    ]
)
NAMES = st.one_of(
    st.lists(PARTS, max_size=6).map("/".join),
    st.text(max_size=20),
    st.text(alphabet="ab./\\~:\0", max_size=12),
)


class Tools:
    """The tools of a folder `app`, next to which a file `secret` lies."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "app"
        self.root.mkdir(exist_ok=True)
        self.secret = folder / "secret"
        self.secret.write_text("secret")
        self.folder = WorkFolder("app", self.root, [self.root / "closed"])
        self.seen: list[tuple[Path, bytes | None]] = []

    def tool(self, name: str) -> Any:
        return make_file_tool(
            name, self.folder, self.root.parent, lambda path, data: self.seen.append((path, data))
        )

    async def acall(self, name: str, **arguments: Any) -> ToolOutput:
        tool = self.tool(name)
        tool.find_act(arguments)
        output: ToolOutput = await tool.call(arguments, ToolScope("1", lambda _: None))
        return output

    def call(self, name: str, **arguments: Any) -> ToolOutput:
        return asyncio.run(self.acall(name, **arguments))

    def fail(self, name: str, **arguments: Any) -> str:
        with pytest.raises(ToolFailed) as failure:
            self.call(name, **arguments)
        return str(failure.value)

    def link(self, name: str, target: Path) -> None:
        (self.root / name).symlink_to(target)


@pytest.fixture
def tools(tmp_path: Path) -> Tools:
    made = Tools(tmp_path)
    if sys.platform != "win32":
        (made.root / "a").mkdir()
        made.link("out", made.secret)
        made.link("up", tmp_path)
        made.link("loop", made.root / "loop")
        made.link("in", made.root / "a")
    return made


@settings(max_examples=300, suppress_health_check=SAME_FOLDER, deadline=None)
@given(name=NAMES)
def test_no_path_leads_out_of_the_folder(tools: Tools, name: str) -> None:
    try:
        path = tools.folder.locate(name)
    except ToolFailed:
        return
    assert path == path.resolve()
    assert path.is_relative_to(tools.root.resolve())
    assert ".git" not in path.relative_to(tools.root.resolve()).parts


@settings(max_examples=150, suppress_health_check=SAME_FOLDER, deadline=None)
@given(name=NAMES, tool=st.sampled_from(["write_file", "edit_file", "delete_file", "read_file"]))
def test_no_tool_touches_what_is_outside(tools: Tools, name: str, tool: str) -> None:
    before = set(tools.root.parent.iterdir())
    arguments = {
        "write_file": {"content": "changed"},
        "edit_file": {"old": "secret", "new": "changed"},
    }.get(tool, {})
    try:
        output = tools.call(tool, path=name, **arguments)
    except ToolFailed:
        pass
    else:
        assert "secret" not in output.text or "secret" in name
    assert tools.secret.read_text() == "secret"
    assert set(tools.root.parent.iterdir()) == before


@ON_POSIX
@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("../secret", "../secret: `..` is not allowed; give a path from your folder"),
        ("a/../../secret", "a/../../secret: `..` is not allowed; give a path from your folder"),
        ("..\\secret", "..\\secret: `..` is not allowed; give a path from your folder"),
        (
            "/etc/passwd",
            "/etc/passwd: is not in your folder; give a path from it, such as src/app.py",
        ),
        ("C:\\x", "C:\\x: is not in your folder; give a path from it, such as src/app.py"),
        ("out", "out: is a link that leads out of your folder"),
        ("up/secret", "up/secret: is a link that leads out of your folder"),
        (".git/config", ".git/config: is closed to your tools"),
        (".GIT/config", ".GIT/config: is closed to your tools"),
        (".g\u200cit/config", ".g\u200cit/config: is closed to your tools"),
        ("closed", "closed: is closed to your tools"),
        ("x" * 300, f"{'x' * 80}…: has a name of more than 255 bytes"),
        ("a\0b", "a\0b: has a control character in it"),
        ("\ud800", "\ud800: is not Unicode text"),
        ("none.txt", "none.txt: there is no such file; list_files shows those that there are"),
        ("a", "a: is a folder"),
    ],
)
def test_a_path_that_cannot_be_read_is_explained(tools: Tools, path: str, problem: str) -> None:
    assert tools.fail("read_file", path=path) == problem


@ON_POSIX
def test_pipes_sockets_and_devices_are_refused_at_once(
    tools: Tools, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tools.root / "pipe")
    assert tools.fail("read_file", path="pipe").startswith("pipe: expected a file, got a FIFO")
    assert "a FIFO" in tools.fail("write_file", path="pipe", content="x")
    with socket.socket(socket.AF_UNIX) as bound:
        monkeypatch.chdir(tools.root)  # the path of a socket is short
        bound.bind("socket")
        assert "a socket" in tools.fail("read_file", path="socket")
    tools.link("null", Path("/dev/null"))
    assert tools.fail("read_file", path="null") == "null: is a link that leads out of your folder"
    assert tools.call("list_files").text == "a/\nin/"


@pytest.mark.parametrize(
    "name",
    ["con", "NUL", "aux.txt", "COM1", "lpt9.log", "a/prn", "x:stream", "end.", "end ", "CON .x"],
)
def test_names_of_devices_are_no_files_on_windows(name: str) -> None:
    assert find_name_problem(name, is_windows=True)
    assert not find_name_problem("console.py", is_windows=True)
    assert not find_name_problem("a/.gitignore", is_windows=True)


TEXTS = st.text(alphabet="ab\n\r\u00e9 \ufeff", max_size=40)


@given(text=TEXTS, old=TEXTS, new=TEXTS, everywhere=st.booleans())
def test_an_edit_replaces_exactly_or_not_at_all(
    text: str, old: str, new: str, everywhere: bool
) -> None:
    try:
        changed, count = text_change.replace(text, old, new, everywhere=everywhere)
    except ToolFailed:
        return
    assert changed != text
    assert count >= 1
    if not everywhere:
        assert count == 1
        length = max(len(text), len(changed))
        head = next(i for i in range(length + 1) if text[:i] != changed[:i] or i == length)
        assert text[: head - 1] == changed[: head - 1]
    if "\n" not in text.replace("\r\n", ""):
        assert "\n" not in changed.replace("\r\n", "") or "\r\n" not in text


@pytest.mark.parametrize(
    ("before", "old", "new", "after"),
    [
        (b"a\r\nb\r\n", "a\nb\n", "x\ny\nz\n", b"x\r\ny\r\nz\r\n"),
        (b"\xef\xbb\xbfa\nb", "b", "c", b"\xef\xbb\xbfa\nc"),
        (b"\xff\xfea\0\n\0", "a", "\u00e9", b"\xff\xfe\xe9\0\n\0"),
        (b"a\nb\r\nc\r\n", "b\nc", "x\ny", b"a\nx\r\ny\r\n"),
        (b"no end", "end", "END", b"no END"),
    ],
)
def test_an_edit_keeps_the_encoding_and_the_line_ends(
    tools: Tools, before: bytes, old: str, new: str, after: bytes
) -> None:
    path = tools.root / "x.txt"
    path.write_bytes(before)
    path.chmod(0o755)
    assert tools.call("edit_file", path="x.txt", old=old, new=new).text == "Changed x.txt."
    assert path.read_bytes() == after
    assert sys.platform == "win32" or path.stat().st_mode & 0o777 == 0o755
    assert tools.seen == [(path.resolve(), after)]


def test_an_edit_that_is_not_certain_changes_nothing(tools: Tools) -> None:
    path = tools.root / "x.txt"
    path.write_text("aaa b b")
    assert tools.fail("edit_file", path="x.txt", old="b", new="c") == (
        "x.txt: `old` is in the file 2 times; add more of the text around it, or set `all` to "
        "replace each"
    )
    assert "2 times" in tools.fail("edit_file", path="x.txt", old="aa", new="c")  # they overlap
    with pytest.raises(ToolFailed, match="2 times"):
        text_change.replace("a" * 9_000_000, "a" * 4_000_000, "b", everywhere=False)
    assert "not in the file" in tools.fail("edit_file", path="x.txt", old="z", new="c")
    assert "empty" in tools.fail("edit_file", path="x.txt", old="", new="c")
    assert "equal" in tools.fail("edit_file", path="x.txt", old="b", new="b")
    assert path.read_text() == "aaa b b"
    text = tools.call("edit_file", path="x.txt", old="b", new="c", all=True).text
    assert text == "Changed x.txt in 2 places."
    path.write_bytes(b"\0\1\2")
    assert "is not a text" in tools.fail("edit_file", path="x.txt", old="b", new="c")
    path.write_bytes(b"\xff\xfe\xfd")
    assert "is not a text" in tools.fail("edit_file", path="x.txt", old="b", new="c")


LINES = st.lists(st.sampled_from(["a", "b", "c", "", "\x0cd\u2028", "\r"]), max_size=30)


@settings(max_examples=60, deadline=None, suppress_health_check=SAME_FOLDER)
@given(before=LINES, after=LINES, ends=st.tuples(st.booleans(), st.booleans()))
def test_git_makes_the_change_that_a_diff_shows(
    tools: Tools, before: list[str], after: list[str], ends: tuple[bool, bool]
) -> None:
    old, new = (
        ("\n".join(lines) + ("\n" if end and lines else "")).encode()
        for lines, end in zip((before, after), ends, strict=True)
    )
    diff = text_change.make_diff("some file", old, new)
    path = tools.root / "some file"
    path.write_bytes(old)
    if old == new:
        return
    subprocess.run(
        ["git", "apply", "--unidiff-zero", "--whitespace=nowarn", "-"],
        input=diff.encode(),
        cwd=tools.root,
        check=True,
        env={**os.environ, "GIT_CEILING_DIRECTORIES": str(tools.root.parent)},
    )
    assert path.read_bytes() == new


def test_a_diff_of_a_long_file_is_short_and_soon_there() -> None:
    lines = [f"line {number % 7}" for number in range(200_000)]
    old = "\n".join(lines).encode()
    new = "\n".join([*lines[:100_000], "new", *lines[100_000:]]).encode()
    assert len(text_change.make_diff("x", old, new).splitlines()) < 15
    many = [
        "\n".join(str(number * step % distinct) for number in range(9900)).encode()
        for step in (1, 7)
        for distinct in (150, 9900)
    ]
    for before in many:
        for after in many:
            text_change.make_diff("x", before, after)
    other = "\n".join(f"other {number}" for number in range(200_000)).encode()
    diff = text_change.make_diff("x", old, other)
    assert len(diff) < text_change.MOST_DIFF_CHARS + 100
    assert diff.endswith(" more lines)\n")
    assert text_change.make_diff("x", b"\0", None) == "Binary file x deleted\n"
    assert text_change.make_diff("x", None, b"") == "Empty file x created\n"


def test_files_are_written_and_deleted_as_diffs(tools: Tools) -> None:
    made = tools.call("write_file", path="new/x.py", content="one\n")
    assert made == ToolOutput(
        "Created new/x.py (4 bytes).",
        diff="--- /dev/null\n+++ b/new/x.py\n@@ -0,0 +1,1 @@\n+one\n",
    )
    assert tools.call("write_file", path="new/x.py", content="one\n").text == (
        "new/x.py has this content already."
    )
    gone = tools.call("delete_file", path="new/x.py")
    assert gone.diff == "--- a/new/x.py\n+++ /dev/null\n@@ -1,1 +0,0 @@\n-one\n"
    assert not (tools.root / "new/x.py").exists()
    assert tools.fail("delete_file", path="new/x.py") == "new/x.py: there is no such file"
    assert tools.fail("delete_file", path="new") == "new: is a folder"
    assert tools.fail("write_file", path="", content="x") == "`path` names no file"
    assert [entry.name for entry in (tools.root / "new").iterdir()] == []  # no leftovers


def test_a_change_does_not_reach_another_name_of_the_file(tools: Tools) -> None:
    os.link(tools.secret, tools.root / "x.txt")
    tools.call("edit_file", path="x.txt", old="secret", new="changed")
    assert (tools.root / "x.txt").read_text() == "changed"
    assert tools.secret.read_text() == "secret"


def test_an_act_is_the_path_and_what_it_leaves(tools: Tools) -> None:
    path = tools.root / "x.txt"
    path.write_text("one\n")
    write = tools.tool("write_file").find_act({"path": "x.txt", "content": "two\n"})
    edit = tools.tool("edit_file").find_act({"path": "./x.txt", "old": "one", "new": "two"})
    assert (write.action, write.detail) == ("modify_file", "x.txt")
    assert write.arguments == edit.arguments
    assert write.diff == edit.diff == "--- a/x.txt\n+++ b/x.txt\n@@ -1,1 +1,1 @@\n-one\n+two\n"
    other = tools.tool("write_file").find_act({"path": "x.txt", "content": "two"})
    assert other.arguments != write.arguments
    delete = tools.tool("delete_file").find_act({"path": "x.txt"})
    path.write_text("changed\n")
    assert tools.tool("delete_file").find_act({"path": "x.txt"}).arguments != delete.arguments
    assert tools.tool("write_file").find_act({"path": "x.txt", "content": "changed\n"}) is None


def test_a_change_that_was_not_asked_about_is_asked_about(tools: Tools) -> None:
    path = tools.root / "x.txt"
    path.write_text("one\n")
    arguments = {"path": "x.txt", "old": "one", "new": "two"}
    asked = []

    async def permit(act: Any) -> None:
        asked.append(act.diff)
        if len(asked) == 1:
            path.write_text("one\nthree\n")  # meanwhile again

    async def run() -> ToolOutput:
        tool = tools.tool("edit_file")
        tool.find_act(arguments)
        path.write_text("one\nmore\n")
        with pytest.raises(ToolFailed, match="has changed meanwhile"):
            await tool.call(arguments, ToolScope("1", lambda _: None))
        assert path.read_text() == "one\nmore\n"
        output: ToolOutput = await tool.call(
            arguments, ToolScope("1", lambda _: None, permit=permit)
        )
        return output

    output = asyncio.run(run())
    assert path.read_text() == "two\nthree\n"
    assert ["more" in diff for diff in asked] == [True, False]
    assert asked[-1] == output.diff


def test_changes_of_one_file_side_by_side_are_made_one_after_the_other(tools: Tools) -> None:
    letters = string.ascii_lowercase
    (tools.root / "x.txt").write_text(letters)

    async def run() -> None:
        async def permit(_: Any) -> None:
            await asyncio.sleep(0)

        async def edit(letter: str) -> None:
            tool = tools.tool("edit_file")
            arguments = {"path": "x.txt", "old": letter, "new": letter.upper()}
            tool.find_act(arguments)
            await tool.call(arguments, ToolScope("1", lambda _: None, permit=permit))

        await asyncio.gather(*map(edit, letters))

    asyncio.run(run())
    assert (tools.root / "x.txt").read_text() == letters.upper()


def test_a_file_is_read_in_parts(tools: Tools) -> None:
    path = tools.root / "x.txt"
    path.write_text("\n".join(f"line {number}" for number in range(1, 5001)) + "\n")
    first = tools.call("read_file", path="x.txt").text.splitlines()
    assert first[0] == "1\tline 1"
    assert first[-1].startswith("(lines 1 to ")
    assert sum(len(line) + 1 for line in first) < 16_000
    part = tools.call("read_file", path="x.txt", offset=4999, limit=1).text
    assert part == "4999\tline 4999\n(lines 4999 to 4999 of 5000; go on with offset 5000)"
    assert tools.call("read_file", path="x.txt", offset=5000).text == "5000\tline 5000"
    assert tools.fail("read_file", path="x.txt", offset=5001) == "x.txt: has only 5000 lines"
    path.write_text("x" * 100_000)
    assert tools.call("read_file", path="x.txt").text == f"1\t{'x' * 2000}… (100000 characters)"
    path.write_bytes(b"\x89PNG\0\0")
    assert tools.call("read_file", path="x.txt").text == (
        "(x.txt is not a text in UTF-8 or UTF-16: 6 bytes)"
    )
    path.write_bytes(b"")
    assert tools.call("read_file", path="x.txt").text == "(x.txt is empty)"
    with path.open("wb") as file:
        file.truncate(20_000_001)
    assert tools.fail("read_file", path="x.txt") == "x.txt: has more than 20 MB"


def test_what_git_ignores_is_not_listed(tools: Tools, tmp_path: Path) -> None:
    def write(name: str, text: str = "x needle") -> None:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    write(".gitignore", "*.log\n")
    write("app/.gitignore", "/build/\n!keep.log\n# no\nsub/*.tmp\n")
    for name in ("x.py", "a.log", "keep.log", "build/x.py", "sub/build/y.py", "sub/z.tmp", "z.tmp"):
        write(f"app/{name}")
    write("app/.git/config")
    write("app/closed/x.py")
    listed = tools.call("list_files", glob="**").text.splitlines()
    assert listed == [".gitignore", "keep.log", "sub/build/y.py", "x.py", "z.tmp"]
    assert tools.call("list_files", glob="*.py").text == "sub/build/y.py\nx.py"
    assert tools.call("list_files", path="sub").text == "sub/build/"
    everything = tools.call("list_files", glob="**", ignored=True).text.splitlines()
    assert {"a.log", "build/x.py", "sub/z.tmp"} < set(everything)
    assert not any("git/" in name or "closed" in name for name in everything)
    assert tools.call("find", pattern="needle", glob="*.py").text == (
        "sub/build/y.py:1: x needle\nx.py:1: x needle"
    )
    assert tools.call("find", pattern="needle", path="x.py").text == "x.py:1: x needle"
    assert tools.call("find", pattern="none").text == "(no line matches)"
    assert tools.fail("list_files", path="x.py") == "x.py: is not a folder"
    assert tools.fail("find", pattern="x", path="none") == "none: there is no such folder"


def test_find_takes_regular_expressions_and_ends(tools: Tools) -> None:
    (tools.root / "x.txt").write_bytes(b"one 12\r\ntwo\r\n" + b"a" * 60 + b"\r\n")
    assert tools.call("find", pattern=r"\d+$", regex=True).text == "x.txt:1: one 12"
    assert "is not a regular expression" in tools.fail("find", pattern="(", regex=True)
    assert "takes longer than" in tools.fail("find", pattern=r"(a|a|aa)+\d", regex=True)
    (tools.root / "long.txt").write_text("needle\n" * 10_000)
    text = tools.call("find", pattern="needle").text
    assert len(text) < 16_000
    assert text.endswith("(there are more; narrow it by `path` or `glob`)")


def test_a_cancelled_search_stops(tools: Tools) -> None:
    for number in range(300):
        (tools.root / f"{number}.txt").write_text("x")

    async def run() -> None:
        call = asyncio.create_task(tools.acall("find", pattern="none"))
        await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    asyncio.run(run())
    assert not [thread for thread in threading.enumerate() if "asyncio" in thread.name]


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("*.py", "a/b.py", True),
        ("*.py", "b.pyc", False),
        ("src/*.py", "src/a.py", True),
        ("src/*.py", "src/a/b.py", False),
        ("src/**/*.py", "src/a.py", True),
        ("src/**/*.py", "src/a/b/c.py", True),
        ("**/x", "x", True),
        ("a?c", "abc", True),
        ("[ab].txt", "b.txt", True),
        ("[!ab].txt", "b.txt", False),
        ("[z-a]x", "bx", False),
        ("a*b*c", "aXbXbc", True),
        ("\\*.txt", "x.txt", False),
        ("\\*.txt", "*.txt", True),
        ("./src/", "src", True),
    ],
)
def test_globs(pattern: str, path: str, matches: bool) -> None:
    assert Glob(pattern).matches(path.split("/")) is matches


def test_no_glob_takes_long() -> None:
    assert not Glob("*a" * 60 + "b").matches(["a" * 250])
    assert not Glob("/".join(["**", "a"] * 40) + "/b").matches(["a"] * 200)


@settings(max_examples=40, deadline=None, suppress_health_check=SAME_FOLDER)
@given(
    rules=st.lists(
        st.sampled_from(
            [
                "a",
                "/a",
                "a/",
                "!a",
                "*",
                "!b/",
                "a/b",
                "**/b",
                "a/**",
                "!a/b",
                "b*",
                "[ab]",
                "\\#a",
                "#a",
            ]
        ),
        max_size=4,
    )
)
def test_ignore_files_are_read_as_git_reads_them(tmp_path: Path, rules: list[str]) -> None:
    root = tmp_path / "repository"
    if not root.exists():
        subprocess.run(["git", "init", "-q", str(root)], check=True)
    (root / ".gitignore").write_text("\n".join(rules) + "\n")
    paths = ["a", "b", "#a", "a/b", "b/a", "c/a/b", "c/b"]
    for path in paths:
        (root / path).mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        ["git", "check-ignore", "--no-index", "--stdin"],
        input="\n".join(paths).encode(),
        cwd=root,
        capture_output=True,
        check=False,
    )
    ignored = done.stdout.decode().splitlines()
    file = IgnoreFile("\n".join(rules))
    for path in paths:
        parts = path.split("/")
        above = [parts[:count] for count in range(1, len(parts) + 1)]
        decided = any(file.decide(names, is_folder=True) for names in above)
        assert decided == (path in ignored), path
