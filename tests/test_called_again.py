"""A mention that calls no agent again is shown where it happens, with the setting."""

from __future__ import annotations

from pathlib import Path

import pytest
from program import Program

CALLED = "(was called in this turn, is not called again: re_invoke_already_replied is false)"
CALLING = "(is called in this turn, again only if it declines: re_invoke_already_replied is false)"


def crew(tmp_path: Path, **config: object) -> Program:
    """Return a team in which each reply of a turn starts after the one before has ended."""
    program = Program(tmp_path)
    program.agent("poet", {"say": "a poem, @critic", "delay_s": 0.2}, {"say": "done"}, name="诗人")
    program.agent("critic", {"say": "weak, @poet @extra", "delay_s": 0.6}, {"say": "fine"})
    program.agent("extra", {"say": "ok"})
    program.team(selection="none", **config)
    return program


def test_a_mention_in_vain_names_the_setting(tmp_path: Path) -> None:
    program = crew(tmp_path)
    done = program.run("send", "-s", "s", "@poet @critic discuss")
    assert f"  → critic {CALLING}\n" in done.stdout
    assert f"  → 诗人 {CALLED}, extra\n" in done.stdout
    assert "── turn 2 · must reply: extra (mentioned by critic)\n" in done.stdout
    assert program.run("show", "s").stdout.count("re_invoke_already_replied") == 2
    program.run("show", "s", "--html", "s.html").check(stdout=None)
    page = (tmp_path / "s.html").read_text(encoding="utf-8")
    assert f"诗人 {CALLED}" in page
    assert f"critic {CALLED}" in page
    assert f"extra {CALLED}" not in page
    program.env["ARENA_LANG"] = "zh"
    assert "→ 诗人（本轮已调用，不再调用：" in program.run("show", "s").stdout


def test_a_mention_that_calls_again_is_plain(tmp_path: Path) -> None:
    program = crew(tmp_path, re_invoke_already_replied=True)
    done = program.run("send", "@poet @critic discuss")
    assert "  → critic\n" in done.stdout
    assert "  → 诗人, extra\n" in done.stdout
    assert "re_invoke" not in done.stdout


@pytest.mark.parametrize("phase", ["A", "B"])
def test_a_mention_of_an_agent_of_another_turn_or_a_later_phase_is_plain(
    tmp_path: Path, phase: str
) -> None:
    program = Program(tmp_path)
    program.agent("poet", {"say": "@critic look"}, {"say": "thanks"})
    program.agent("critic", {"say": "@poet nice"}, response={"keywords": ["look", "discuss"]})
    program.team(selection="none" if phase == "A" else "relevance")
    done = program.run("send", "@poet discuss")
    assert "  → critic\n" in done.stdout
    in_vain = f"  → poet {CALLED}\n" if phase == "B" else "  → poet\n"
    assert in_vain in done.stdout


def test_an_agent_that_declined_is_called_again(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.agent("poet", {"decline": True}, {"say": "now"})
    program.agent("critic", {"say": "@poet please", "delay_s": 0.4}, {"say": "fine"})
    program.team(selection="none")
    done = program.run("send", "@poet @critic discuss")
    assert "  → poet\n" in done.stdout
    assert "── turn 2 · must reply: poet (mentioned by critic)\n" in done.stdout
