"""Replies with tools in timelines, on terminals and live: calls, thoughts, goals and ends."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from product import LONGEST_ROW, MOST_LINES, Timeline, Words, columns
from test_terminal import Seen
from test_timeline import ended, finished, made, over, sent, session, started, told, turn

DIFF = "--- a/calc.py\n+++ b/calc.py\n@@ -1 +1 @@\n-a - b\n+a + b\n"


def asked(call: str, tool: str, step: int = 1, **more: Any) -> dict[str, Any]:
    base = {"reply": 1, "agent": "dev", "call": call, "step": step, "tool": tool}
    return {"type": "tool_requested", **base, **more}


def gave(call: str, tool: str, result: str = "", **more: Any) -> dict[str, Any]:
    base = {"reply": 1, "agent": "dev", "call": call, "tool": tool, "status": "ok", "ms": 4}
    return {"type": "tool_finished", **base, "result": result, **more}


def thought(text: str, step: int = 1, **more: Any) -> dict[str, Any]:
    base = {"reply": 1, "agent": "dev", "step": step, "text": text, "kind": "thinking"}
    return {"type": "thought", **base, **more}


def goal(action: str, text: str, **more: Any) -> dict[str, Any]:
    about = {"goal": {"id": "g1", "description": text}, "count": 1}
    return {"type": "goal", "reply": 1, "agent": "dev", "action": action, **about, **more}


def end(mode: str = "goal", turns: int = 3, **more: Any) -> dict[str, Any]:
    return {"type": "agent_ended", "reply": 1, "agent": "dev", "mode": mode, "turns": turns, **more}


def whole() -> list[dict[str, Any]]:
    """A reply with a colleague as a tool, a changed file, an error and a goal."""
    usage = {"input_tokens": 9, "output_tokens": 1, "cost_usd": 0.002}
    by_ops = {"agent": "ops"}
    return [
        thought("Who is here?\nLet me see."),
        asked("1", "list_members"),
        asked("2", "push_goal", arguments={"description": "mend it"}),
        goal("push", "mend it"),
        gave("2", "push_goal", "g1 is the current goal"),
        gave("1", "list_members", "one\ntwo"),
        thought("Ops knows.", 2, kind="text"),
        asked("3", "agent:ops", 2, arguments={"task": "看一下", "lines": [1, 2]}),
        thought("Where is it?", within="3", **by_ops),
        asked("3.1", "find", arguments={"pattern": "add"}, **by_ops),
        gave("3.1", "find", "calc.py:1: a - b", ms=1250, **by_ops),
        end("max_turns", 2, within="3", usage=usage, **by_ops),
        gave("3", "agent:ops", "not done\nat all", status="error", ms=1300, usage=usage),
        asked("4", "edit_file", 3, arguments={"path": "calc.py"}),
        gave("4", "edit_file", "Changed.", diff=DIFF),
        asked("5", "complete_task", 4, arguments={"report": "done"}),
        gave("5", "complete_task", "accepted"),
        end(turns=4),
    ]


def shown(*records: dict[str, Any], steps: bool = False, language: Any = "en") -> list[str]:
    """The lines of a chain with these events between the start of a reply and its end."""
    timeline = Timeline(Words(language), has_steps=steps)
    told(session(), sent(), turn("dev"), started("dev"), timeline=timeline)
    return told(*records, finished("dev", "Done."), timeline=timeline).splitlines()


def test_calls_stand_below_the_heading_of_their_reply() -> None:
    assert shown(*whole()) == [
        "09:30:05  dev · turn 1 A · 1.2 s · 4 turns of the model",
        "  ▸ list_members()",
        "  goal g1 begins: mend it",
        '  ▸ agent:ops(task: "看一下", lines: [1, 2]) · error · 1.3 s · 2 turns of the model · '
        "max_turns · $0.0020: not done",
        '    ▸ find(pattern: "add") · Ops · 1.2 s → calc.py:1: a - b',
        '  ▸ edit_file(path: "calc.py") → Changed.',
        "    | --- a/calc.py",
        "    | +++ b/calc.py",
        "    | @@ -1 +1 @@",
        "    | -a - b",
        "    | +a + b",
        "  Done.",
    ]


def test_steps_are_reasoning_action_and_observation() -> None:
    assert shown(*whole(), steps=True) == [
        "09:30:05  dev · turn 1 A · 1.2 s · 4 turns of the model",
        "    thinking",
        "    | Who is here?",
        "    | Let me see.",
        "  ▸ list_members()",
        "    result",
        "    | one",
        "    | two",
        '  ▸ push_goal(description: "mend it") → g1 is the current goal',
        "  goal g1 begins: mend it",
        "    text",
        "    | Ops knows.",
        '  ▸ agent:ops(task: "看一下", lines: [1, 2]) · error · 1.3 s · 2 turns of the model · '
        "max_turns · $0.0020: not done",
        "    result",
        "    | not done",
        "    | at all",
        "      thinking · Ops",
        "      | Where is it?",
        '    ▸ find(pattern: "add") · Ops · 1.2 s → calc.py:1: a - b',
        '  ▸ edit_file(path: "calc.py") → Changed.',
        "    | --- a/calc.py",
        "    | +++ b/calc.py",
        "    | @@ -1 +1 @@",
        "    | -a - b",
        "    | +a + b",
        '  ▸ complete_task(report: "done") → accepted',
        "  Done.",
    ]


def test_the_lines_are_chinese_too() -> None:
    failed = end("error_no_complete_task", 1)
    records = [*whole()[:-1], asked("6", "run_command", 4), failed]
    lines = shown(*records, language="zh")
    assert lines[0] == (
        "09:30:05  dev · 第 1 轮 A · 1.2 秒 · 模型 1 轮 · error_no_complete_task（没有交出结果）"
    )
    assert lines[2:5] == [
        "  目标 g1 开始：mend it",
        '  ▸ agent:ops(task: "看一下", lines: [1, 2]) · error（出错） · 1.3 秒 · 模型 2 轮 · '
        "max_turns（轮数用尽） · $0.0020：not done",
        '    ▸ find(pattern: "add") · Ops · 1.2 秒 → calc.py:1: a - b',
    ]
    assert "  ▸ run_command() · 没有结果" in lines
    steps = shown(*records, language="zh", steps=True)
    assert {"    思考", "    结果", "    文字", "      思考 · Ops"} <= set(steps)


def test_agents_that_act_side_by_side_stay_apart() -> None:
    timeline = Timeline()
    told(session(), sent(), turn("dev", "ops"), timeline=timeline)
    told(started("dev"), started("ops", reply=2), timeline=timeline)
    by_ops = {"reply": 2, "agent": "ops"}
    text = told(
        asked("1", "find"),
        asked("1", "read_file", **by_ops),
        gave("1", "find", "here"),
        asked("2", "find"),
        gave("1", "read_file", "there", **by_ops),
        end(turns=2, **by_ops),
        finished("ops", "Read.", reply=2),
        gave("2", "find", "nothing"),
        end(),
        finished("dev", "Found."),
        timeline=timeline,
    )
    assert text.splitlines() == [
        "09:30:05  Ops (ops) · turn 1 A · 1.2 s · 2 turns of the model",
        "  ▸ read_file() → there",
        "  Read.",
        "09:30:05  dev · turn 1 A · 1.2 s · 3 turns of the model",
        "  ▸ find() → here",
        "  ▸ find() → nothing",
        "  Found.",
    ]


@given(st.permutations(range(4)), st.booleans())
def test_calls_keep_their_order_however_they_end(order: list[int], steps: bool) -> None:
    """Two colleagues side by side, each with a call of its own, and two calls that are alike."""
    requests = [
        asked("1", "agent:a"),
        asked("2", "agent:b"),
        asked("3", "find"),
        asked("4", "find"),
    ]
    nested = [
        [thought("A?", within="1"), asked("1.1", "find"), gave("1.1", "find", "x")],
        [thought("B?", within="2"), asked("2.1", "find"), gave("2.1", "find", "y")],
        [],
        [],
    ]
    ends = [
        gave("1", "agent:a", "a"),
        gave("2", "agent:b", "b"),
        gave("3", "find", "3"),
        gave("4", "find", "4"),
    ]
    records = [*requests, *(record for index in order for record in (*nested[index], ends[index]))]
    in_order = [
        *requests,
        *(record for index in range(4) for record in (*nested[index], ends[index])),
    ]
    assert shown(*records, steps=steps) == shown(*in_order, steps=steps)


def test_ten_calls_are_sorted_by_number() -> None:
    calls = [record for n in range(1, 13) for record in (asked(f"{n}", f"t{n}"), gave(f"{n}", "t"))]
    assert shown(*calls)[1:-1] == [f"  ▸ t{n}()" for n in range(1, 13)]


def test_what_was_written_twice_is_shown_once() -> None:
    """A reply that is interrupted right after a turn of its model writes that turn again."""
    again = [thought("Who?"), asked("1", "find"), thought("Who?"), asked("1", "find")]
    lines = shown(*again, gave("1", "find", "here"), steps=True)
    assert lines[1:] == ["    thinking", "    | Who?", "  ▸ find() → here", "  Done."]


def test_a_reply_that_was_interrupted_shows_the_end_of_its_call_later() -> None:
    timeline = Timeline()
    told(session(), sent(), turn("dev"), started("dev"), timeline=timeline)
    cut = told(
        asked("1", "find"),
        gave("1", "find", "here"),
        asked("2", "run_command"),
        finished("dev", status="cancelled"),
        timeline=timeline,
    )
    assert cut.splitlines()[1:3] == ["  ▸ find() → here", "  ▸ run_command() · no result"]
    resumed = told(
        started("dev", 2),
        gave("2", "run_command", "arena was interrupted", status="error"),
        end(),
        finished("dev", "Done."),
        timeline=timeline,
    )
    assert [line for line in resumed.splitlines() if "▸" in line] == [
        "  ▸ run_command() · error: arena was interrupted"
    ]


def test_a_reply_without_an_end_shows_its_calls_when_its_chain_ends() -> None:
    timeline = Timeline()
    told(session(), sent(), turn("dev"), started("dev"), timeline=timeline)
    text = told(asked("1", "run_command"), ended("interrupted"), timeline=timeline)
    assert text.splitlines()[:2] == [
        "09:30:05  dev · no answer yet",
        "  ▸ run_command() · no result",
    ]
    assert list(timeline.draw_open()) == []


def test_a_part_without_the_request_names_the_tool() -> None:
    assert shown(gave("7", "find", "here"))[1] == "  ▸ find(…) → here"


def test_tools_are_not_listed_again() -> None:
    status = {"type": "status", "reply": 1, "agent": "dev", "status": "calling_tool"}
    lines = shown({**status, "detail": "find"}, asked("1", "find"), gave("1", "find", "here"))
    assert lines[1:] == ["  ▸ find() → here", "  Done."]
    assert shown({**status, "detail": "grep"})[-1] == "  used: grep"  # an agent with its own loop


def test_long_arguments_and_results_are_cut() -> None:
    path = "x" * 300
    result = "\n".join(f"row {number}" for number in range(MOST_LINES + 5)) + "\n"
    call = [asked("1", "find", arguments={"path": path}), gave("1", "find", result)]
    assert shown(*call)[1] == f'  ▸ find(path: "{"x" * 113}…)'
    steps = shown(*call, steps=True)
    assert f'    |   "path": "{path}"' in steps
    assert steps[-3:] == [f"    | row {MOST_LINES - 1}", "    5 more lines", "  Done."]
    wide = shown(asked("1", "find"), gave("1", "find", "y" * (LONGEST_ROW + 7)), steps=True)
    assert wide[3] == f"    | {'y' * LONGEST_ROW} … 7 more characters"
    assert shown(thought("z" * 900), steps=True)[2] == f"    | {'z' * 900}"


def test_files_of_a_result_are_named_with_the_steps() -> None:
    image = {"type": "image", "name": "图.png", "path": "sessions/s/图.png", "size": 9}
    lines = shown(asked("1", "shoot"), gave("1", "shoot", attachments=[image]), steps=True)
    assert lines[2] == "    [image: 图.png, 9 bytes at sessions/s/图.png]"


# Terminals


@pytest.fixture
def size(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """How large the terminal is now."""
    now = {"width": 40, "height": 24}
    for name in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setattr(
        os, "get_terminal_size", lambda *_: os.terminal_size((now["width"], now["height"]))
    )
    return now


@pytest.mark.parametrize("language", ["en", "zh"])
def test_calls_wrap_on_a_narrow_terminal(size: dict[str, int], language: str) -> None:
    seen = Seen(size["width"], language=language)
    seen.show(session(), sent(), turn("dev"), started("dev"), *whole(), finished("dev", "Done."))
    rows = seen.lines()
    assert max(map(columns.width_of, rows)) <= size["width"]
    first = next(index for index, row in enumerate(rows) if "agent:ops" in row)
    assert all(row.startswith("      ") for row in rows[first + 1 : first + 3])
    assert "    | +a + b" in rows


def test_without_colour_a_terminal_gets_the_text_of_a_pipe(size: dict[str, int]) -> None:
    size["width"] = 200
    seen = Seen(size["width"], colour=False)
    events = [session(), sent(), turn("dev"), started("dev"), *whole(), finished("dev", "Done.")]
    seen.show(*events)
    assert "\x1b" not in seen.screen.raw
    assert seen.lines() == told(*events, timeline=Timeline(avatars={})).rstrip("\n").split("\n")


def test_a_diff_has_its_colours(size: dict[str, int]) -> None:
    seen = Seen(size["width"])
    seen.show(session(), turn("dev"), started("dev"), *whole(), finished("dev", "Done."))
    assert {"38;5;28", "38;5;160"} <= seen.screen.styles


def live_row(seen: Seen) -> str:
    seen.terminal.tick()
    return seen.lines()[-1]


def test_a_call_is_seen_while_it_runs(size: dict[str, int]) -> None:
    size["width"] = 90
    seen = Seen(size["width"])
    seen.show(session(), turn("dev"), started("dev"), thought("Who\nis here?"))
    assert live_row(seen) == "dev · 0 s · generating · Who is here?"
    seen.show(asked("1", "find", arguments={"path": "a.py"}), asked("2", "agent:ops"))
    assert live_row(seen) == 'dev · 0 s · ▸ find(path: "a.py"), agent:ops() · Who is here?'
    seen.show(thought(""), gave("1", "find", "here"))
    assert live_row(seen) == "dev · 0 s · ▸ agent:ops()"
    seen.show(asked("2.1", "read_file", agent="ops"))
    assert live_row(seen) == "dev · 0 s · ▸ read_file()"
    progress = {"status": "calling_tool", "detail": "half of it", "progress": 0.5}
    seen.show({"type": "status", "reply": 1, "agent": "dev", **progress})
    assert live_row(seen) == "dev · 0 s · calling_tool 50%: half of it"
    seen.show(gave("2.1", "read_file", agent="ops"), gave("2", "agent:ops"))
    assert live_row(seen) == "dev · 0 s · generating"
    seen.show(end(), finished("dev", "Done."), over())
    assert "generating" not in seen.screen.text
    assert '  ▸ find(path: "a.py") → here' in seen.lines()


def test_what_runs_fits_a_narrow_terminal(size: dict[str, int]) -> None:
    seen = Seen(size["width"], language="zh")
    long = {"path": "很长的路径" * 40}
    seen.show(session(), turn("dev"), started("dev"), asked("1", "find", arguments=long))
    seen.show(thought("想" * 200))
    assert columns.width_of(live_row(seen)) < size["width"]


def test_events_of_a_reply_that_is_not_shown_change_nothing(size: dict[str, int]) -> None:
    """A follower that starts in the middle of a reply."""
    seen = Seen(size["width"])
    seen.show(session(), asked("1", "find"), gave("1", "find"))
    seen.terminal.tick()
    assert made(asked("1", "find")).is_acting
    assert "find" not in seen.screen.text
