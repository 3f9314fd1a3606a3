"""What a real terminal shows: colours, wrapping, who is at work, and nothing that steers it."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from product import AGENT_STYLES, AtWork, Terminal, Timeline, Words, columns, terminal
from rich.color import Color
from screen import Screen
from test_timeline import finished, hostile_events, made, over, sent, session, started, turn

LONG_NAME = "名" * 100 + "x" * 100


class Stream(io.StringIO):
    """A terminal's stream, of which only the encoding counts."""

    encoding = "utf-8"  # type: ignore[assignment]  # in the base it is a property


class Seen:
    """A screen, and a terminal that draws a timeline on it. `at` is the clock, in seconds."""

    def __init__(self, width: int, *, language: Any = "en", live: bool = True, **more: Any) -> None:
        self.screen = Screen(width)
        self.at = 0.0
        say = Words(language)
        self.timeline = Timeline(say, {"architect": "👩🏽‍💻"})
        work = AtWork(say, self.timeline.named, lambda: self.at) if live else None
        stream = Stream()
        stream.encoding = more.pop("encoding", "utf-8")  # type: ignore[misc] # typed as read-only
        self.terminal = Terminal(self.screen.write, stream, at_work=work, **more)

    def show(self, *records: dict[str, Any]) -> None:
        for record in records:
            event = made(record)
            self.terminal.show(self.timeline.drawn(event), event)

    def lines(self) -> list[str]:
        return self.screen.text.split("\n")


@pytest.fixture(autouse=True)
def size(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, int]]:
    """How large the terminal is now."""
    now = {"width": 80, "height": 24}
    for name in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setattr(
        os, "get_terminal_size", lambda *_: os.terminal_size((now["width"], now["height"]))
    )
    return now


def seen(size: dict[str, int], width: int, **more: Any) -> Seen:
    size["width"] = width
    return Seen(width, **more)


def test_text_is_the_same_as_in_a_pipe_where_it_fits(size: dict[str, int]) -> None:
    events = [session(), sent("@dev 请看"), turn("dev"), finished("dev", "好\n\n- one"), over()]
    shown = seen(size, 80)
    shown.show(*events)
    timeline = Timeline()
    plain = [line.text for event in events for line in timeline.drawn(made(event))]
    assert shown.lines() == "\n".join(plain).rstrip("\n").split("\n")
    assert {style for style in shown.screen.styles if "38;5" in style}


def test_narrow_terminals_wrap_with_a_hanging_indent(size: dict[str, int]) -> None:
    shown = seen(size, 20)
    text = "1. 用户认证，包括注册、登录、找回密码。\n- one two three four five"
    shown.show(session(), finished("architect", text))
    assert shown.lines() == [
        "session s · team",
        "crew",
        "",
        "09:30:05  👩🏽‍💻 架",
        "     构师",
        "     (architect) ·",
        "     turn 0 A · 1.2",
        "     s",
        "  1. 用户认证，包括",
        "     注册、登录、找",
        "     回密码。",
        "  - one two three",
        "    four five",
    ]


def test_code_is_never_broken(size: dict[str, int]) -> None:
    code = "x = " + "1 + " * 30 + "1"
    said = f"```py\n{code}\n```\nafter the code stands prose that wraps"
    data = {"type": "code_block", "data": code}
    part = sent(said, message={"structured": [data]})
    shown = seen(size, 30)
    shown.show(part)
    assert shown.screen.raw.count(code) == 2
    assert "  after the code stands prose" in shown.lines()


@pytest.mark.parametrize("name", [LONG_NAME, "👨‍👩‍👧", "עברית مرحبا", "e\u0301" * 70, "🇩🇪" * 40])
@pytest.mark.parametrize("width", [20, 80])
def test_no_name_breaks_the_layout(size: dict[str, int], name: str, width: int) -> None:
    shown = seen(size, width)
    members = [{"id": "dev", "name": name}, {"id": "ops", "name": "Ops"}]
    shown.show(
        session(members=members), turn("dev", "ops"), started("dev"), started("ops", reply=2)
    )
    shown.terminal.tick()
    live = [row for row in shown.lines() if row.endswith("· 0 s")]
    assert len(live) == 2
    shown.show(finished("dev", "fine"))
    assert "  fine" in shown.lines()
    for row in shown.lines():
        assert columns.width_of(row) <= width
        assert not row.endswith("\u200d")
    shown.terminal.close()
    assert shown.screen.cursor


def test_names_from_right_to_left_are_isolated(size: dict[str, int]) -> None:
    shown = seen(size, 80)
    shown.show(session(members=[{"id": "dev", "name": "עברית"}]), turn("dev"))
    assert "must reply: \u2068עברית\u2069" in shown.screen.text


@pytest.mark.parametrize("event", list(hostile_events()), ids=lambda event: event["type"])
@pytest.mark.parametrize("width", [20, 80])
def test_nothing_that_is_said_steers_it(
    size: dict[str, int], event: dict[str, Any], width: int
) -> None:
    shown = seen(size, width)
    shown.show(session(), event)
    assert "31" not in shown.screen.styles
    for row in shown.lines():
        assert row.isprintable()
    for line in re.sub("\x1b\\[[0-9;]*m", "", shown.screen.raw).splitlines():
        assert not line.lstrip().startswith("::")
        assert "##[" not in line


def test_markup_of_rich_is_text(size: dict[str, int]) -> None:
    shown = seen(size, 80)
    shown.show(sent("[bold red]x[/] :smile: [link=http://a.example]y[/link] 1.5 'q' http://b"))
    assert "  [bold red]x[/] :smile: [link=http://a.example]y[/link]" in shown.screen.text
    assert shown.screen.styles <= {"0", "1", "2"}


def test_no_colour_is_no_escape_at_all(size: dict[str, int]) -> None:
    shown = seen(size, 40, colour=False)
    shown.show(session(), turn("dev"), started("dev"))
    shown.terminal.tick()
    shown.show(finished("dev", "a line that is longer than forty columns, and wraps"))
    shown.terminal.close()
    assert "\x1b" not in shown.screen.raw
    assert "  columns, and wraps" in shown.lines()


def test_what_the_encoding_has_not_is_measured_as_its_escape(size: dict[str, int]) -> None:
    shown = seen(size, 40, encoding="gbk")
    members = [{"id": "dev", "name": "👩‍🔬 科学"}]
    shown.show(session(members=members), turn("dev"), started("dev"))
    shown.terminal.tick()
    (live,) = [row for row in shown.lines() if row.startswith("\\U0001f469")]
    assert columns.width_of(live) < 40
    shown.terminal.text("dev", "👩‍🔬" * 30)
    shown.terminal.tick()
    assert columns.width_of(shown.lines()[-1]) < 40
    shown.screen.raw.encode("gbk")


def test_who_is_at_work_stands_beneath_what_is_finished(size: dict[str, int]) -> None:
    shown = seen(size, 60)
    shown.show(session(), turn("architect", "dev"), started("architect"), started("dev", reply=2))
    before = shown.lines()
    shown.at = 3.9
    shown.terminal.tick()
    assert shown.lines() == [*before, "👩🏽‍💻 架构师 · 3 s", "dev · 3 s"]
    assert not shown.screen.cursor

    status = {"type": "status", "reply": 2, "agent": "dev"}
    shown.show({**status, "status": "calling_tool", "detail": "grep\x1b[2J", "progress": 0.4})
    shown.terminal.text("architect", "一\n\n二 and so on, " * 20)
    shown.at = 75
    shown.terminal.tick()
    assert shown.lines()[-2:] == [
        "👩🏽‍💻 架构师 · 1:15 · … 一 二 and so on, 一 二 and so on,",
        "dev · 1:15 · calling_tool 40%: grep\\x1b[2J",
    ]
    shown.show(finished("architect", "好", reply=1))
    assert shown.lines()[-3:] == [
        "09:30:05  👩🏽‍💻 架构师 (architect) · turn 1 A · 1.2 s",
        "  好",
        "dev · 1:15 · calling_tool 40%: grep\\x1b[2J",
    ]
    shown.show(started("dev", 2, reply=2))
    assert shown.lines()[-2:] == ["  dev: attempt 2", "dev · 1:15"]
    shown.show(finished("dev", "done", reply=2), over())
    assert shown.lines()[-2:] == ["  done", "  used: grep\\x1b[2J"]
    shown.terminal.tick()
    assert shown.screen.cursor
    shown.show(turn("dev", turn=2, depth=1))
    assert shown.lines()[-2:] == ["", "── turn 2 · must reply: dev"]


def test_a_live_display_that_is_closed_leaves_nothing(size: dict[str, int]) -> None:
    shown = seen(size, 40, language="zh")
    shown.show(session(), turn("dev", "ops"), started("dev"), started("ops", reply=2))
    before = shown.lines()
    shown.terminal.tick()
    assert shown.lines() == [*before, "dev · 0 秒", "Ops · 0 秒"]
    shown.terminal.close()
    shown.terminal.close()
    assert shown.lines() == before
    assert shown.screen.cursor
    shown.screen.write("arena: interrupted\n")
    assert shown.lines() == [*before, "arena: interrupted"]


@pytest.mark.parametrize("then", ["tick", "show", "close"])
def test_a_resize_in_the_middle_leaves_nothing_behind(size: dict[str, int], then: str) -> None:
    shown = seen(size, 80)
    shown.show(session(), turn("dev", "ops"), started("dev"), started("ops", reply=2))
    before = shown.lines()
    shown.terminal.text("dev", "word " * 50)
    shown.terminal.text("ops", "字" * 50)
    shown.terminal.tick()
    size["width"] = 33
    shown.screen.resize(33)
    if then == "tick":
        shown.terminal.tick()
        assert [row[:6] for row in shown.lines()] == [
            *(row[:6] for row in before),
            "dev · ",
            "Ops · ",
        ]
    elif then == "show":
        shown.show(finished("dev", "好"))
        assert shown.lines()[: len(before)] == before
        assert [row[:6] for row in shown.lines()[len(before) :]] == ["09:30:", "  好", "Ops · "]
    else:
        shown.terminal.close()
        assert shown.lines() == before
    size["width"] = 100
    shown.screen.width = 100
    shown.terminal.tick()
    shown.terminal.close()
    assert shown.lines()[: len(before)] == before


def test_more_at_work_than_the_terminal_has_rows(size: dict[str, int]) -> None:
    size["height"] = 6
    shown = seen(size, 40)
    shown.show(*(started(f"a{number}", reply=number) for number in range(9)))
    shown.terminal.tick()
    assert shown.lines() == ["a0 · 0 s", "a1 · 0 s", "a2 · 0 s", "and 6 more"]


def test_a_reply_of_megabytes_is_not_broken_character_by_character(size: dict[str, int]) -> None:
    taken = 0

    def take(text: str) -> None:
        nonlocal taken
        taken += len(text)

    shown = Terminal(take, Stream())
    line = "字" * 1_500_000
    for text in (line, "[b]\x1b" * 500_000, " \t\n" * 50_000, "word " * 1_000_000):
        event = made(finished("dev", text))
        shown.show(Timeline().drawn(event), event)
    assert taken > 10_000_000


@pytest.mark.parametrize("background", [(0, 0, 0), (255, 255, 255)])
def test_colours_can_be_read_on_dark_and_on_light(background: tuple[int, int, int]) -> None:
    def light(rgb: tuple[int, ...]) -> float:
        parts = [part / 255 for part in rgb]
        line = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * line[0] + 0.7152 * line[1] + 0.0722 * line[2]

    numbers = re.findall(r"color\((\d+)\)", " ".join(terminal.STYLES.values()))
    assert len(set(terminal.AGENT_COLOURS)) == AGENT_STYLES
    for number in numbers:
        ours = light(tuple(Color.parse(f"color({number})").get_truecolor()))
        dark, bright = sorted((ours, light(background)))
        assert (bright + 0.05) / (dark + 0.05) >= 3, number


PIECES = [
    *"ab 中，。（）:-·",
    "word",
    "中文",
    "::",
    "👩🏽‍💻",
    "🇩🇪",
    "e\u0301",
    "- ",
    "(x)",
]
prose = st.lists(st.sampled_from(PIECES), max_size=60).map("".join)


@settings(deadline=None)
@given(prose, st.integers(12, 60), st.none() | st.integers(0, 12))
def test_rows_keep_the_text_and_the_width(text: str, width: int, hang: int | None) -> None:
    indent, rows = columns.wrap_rows(text, width, hang)
    assert indent <= width // 4
    assert rows[0][0] == 0
    assert rows[-1][1] == len(text)
    for (_, end), (start, _) in pairwise(rows):
        assert text[end:start].strip() == ""
    for number, (start, end) in enumerate(rows):
        row = text[start:end]
        room = width - (indent if number else 0)
        # Only a run of colons that no row has room for is longer.
        colons = re.search(rf"[\s:]{{{width - indent - 2},}}", row)
        assert columns.width_of(row.rstrip()) <= room or colons
        if number:
            assert not row.startswith((":", "\u200d", "\u0301"))


@pytest.mark.parametrize("width", [20, 40])
def test_no_row_begins_with_what_commands_a_ci_runner(size: dict[str, int], width: int) -> None:
    said = [f"{'12345678901234567890123456789012345678'[:length]}:: x" for length in range(39)]
    said += [f"{'字' * length} ::: x" for length in range(20)]
    for text in said:
        shown = seen(size, width)
        shown.show(session(), finished("dev", text))
        told = columns.draw_columns(text, f"{text}\n(all)", Words(), width=width, indent="    ")
        shown.terminal.show(
            [*told, *columns.draw_columns(text, "x", Words(), width=width, indent="  ")]
        )
        no_row_commands_or_overflows(shown, width)


def no_row_commands_or_overflows(shown: Seen, width: int) -> None:
    """In what was written, and in what the terminal made of it."""
    written = re.sub("\x1b\\[[0-9;]*m", "", shown.screen.raw).split("\n")
    for row in written:
        assert columns.width_of(row.rstrip()) <= width
    for row in (*written, *shown.lines()):
        assert not row.lstrip().startswith("::")


words = st.text("ab中 ，(#", min_size=1, max_size=24)
unbroken = st.integers(1, 60).map(lambda length: "a" * length)
commands = st.lists(words | unbroken | st.just("::") | st.just(":::"), max_size=12).map("".join)


@settings(
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(commands, st.integers(20, 60))
def test_nothing_said_begins_a_row_with_colons(size: dict[str, int], text: str, width: int) -> None:
    assume(not re.search("[: ]{8}", text))
    shown = seen(size, width)
    shown.show(session(), finished("dev", text))
    no_row_commands_or_overflows(shown, width)


@settings(deadline=None)
@given(prose, st.integers(0, 40))
def test_what_is_cut_fits(text: str, width: int) -> None:
    for cut, whole in ((columns.fit(text, width), text), (columns.fit_end(text, width), text)):
        assert cut == whole or columns.width_of(cut) <= width
    assert text.startswith(columns.fit(text, width).removesuffix("…"))
    assert text.endswith(columns.fit_end(text, width).removeprefix("…"))
