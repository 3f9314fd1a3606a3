"""`arena run --github`: annotations as GitHub's runner reads them, and the summary of a step."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from product import (
    CheckResult,
    Drift,
    Failure,
    RunResult,
    ScenarioResult,
    StepResult,
    Words,
    ci,
    result,
)
from stage import Stage

SAY = Words()
HOSTILE = """x%0A::warning::y, a: b
::stop-commands::t
  ::set-output name=x::1
##[error]told \x1b[31mred\x00
</pre></details><img src=x onerror=alert(1)> & "quotes"

# heading | **bold** [link](https://example.org) `code` <!-- - [ ] -->
```
"""


class Command(NamedTuple):
    """A workflow command as the runner reads it."""

    name: str
    properties: dict[str, str]
    data: str


def read(line: str) -> Command:
    """By the rules of the runner (actions/runner, ActionCommand.TryParseV2)."""
    assert line.startswith("::")
    head, data = line[2:].split("::", 1)
    name, _, rest = head.partition(" ")
    pairs = [pair.split("=", 1) for pair in rest.split(",") if pair]
    return Command(name, {key: _unescaped(value) for key, value in pairs}, _unescaped(data))


def _unescaped(text: str) -> str:
    for code, char in (("%0D", "\r"), ("%0A", "\n"), ("%3A", ":"), ("%2C", ","), ("%25", "%")):
        text = text.replace(code, char)
    return text


def whole(*told: ScenarioResult) -> RunResult:
    return result.of_run([*told], selected=len(told), seconds=1.5)


def commands(*told: ScenarioResult, say: Words = SAY, error: str = "") -> list[Command]:
    lines = ci.commands(whole(*told), say, lambda file: file, error)
    assert all(len(line.splitlines()) == 1 for line in lines)
    return [read(line) for line in lines]


def check(line: int = 7, status: str = "failed", **more: Any) -> CheckResult:
    known = {"expected": "dev", "actual": "nobody", "field": "replied", **more}
    return CheckResult(place=lambda: ("s/x.yaml", line), status=status, **known)


def step(number: int = 1, status: str = "failed", **more: Any) -> StepResult:
    return StepResult(number=number, place=lambda: ("s/x.yaml", 3), status=status, **more)


def scenario(status: str = "failed", *steps: StepResult, **more: Any) -> ScenarioResult:
    known = {"scenario": "x", "file": "s/x.yaml", "seconds": 0.25, **more}
    return ScenarioResult(status=status, steps=list(steps), place=lambda: ("s/x.yaml", 1), **known)


def test_each_thing_that_went_wrong_stands_at_its_line() -> None:
    failure = Failure(agent="dev", turn=1, status="timeout", error="late")
    told = scenario("error", step(status="error", failures=[failure], checks=[check()]))
    assert commands(told) == [
        Command("error", {"file": "s/x.yaml", "line": "3", "title": "x"}, "dev: timeout\nlate"),
        Command(
            "error",
            {"file": "s/x.yaml", "line": "7", "title": "x"},
            "replied\nexpected: dev\nactual:   nobody",
        ),
    ]


def test_what_passed_was_skipped_or_was_to_fail_says_nothing() -> None:
    bad = [step(checks=[check()])]
    assert commands(scenario("passed"), scenario("skipped"), scenario("xfailed", *bad)) == []


def test_what_warns_is_a_warning() -> None:
    told = commands(scenario("passed", step(status="passed", checks=[check(status="warned")])))
    assert [one.name for one in told] == ["warning"]


def test_a_cause_of_drift_is_one_annotation_for_all_that_it_touches() -> None:
    one = Drift(kind="input", agent="dev", field="role_prompt", before="old\n1", after="new\n1")
    more = {"drift": [one], "drift_fails": True}
    told = [scenario(scenario=f"x{n}", file=f"s/{n}.yaml", **more) for n in range(200)]
    (only,) = commands(*told)
    assert (only.name, only.properties) == (
        "error",
        {"file": "s/0.yaml", "line": "1", "title": "drift: dev is shown a different role_prompt"},
    )
    assert "in 200 scenarios" in only.data
    assert only.data.splitlines()[0].strip() in ("~ {-old-}{+new+}", "- old")
    updates = {"status": "passed", "drift_fails": False}
    (warned,) = commands(*(one.model_copy(update=updates) for one in told))
    assert warned.name == "warning"
    updates |= {"mode": "update", "written": True}
    accepted = [one.model_copy(update=updates) for one in told]
    assert commands(*accepted) == []
    refused = told[0].model_copy(update={**updates, "written": False, "unkept": "it failed"})
    (left,) = commands(refused, *accepted[1:])
    assert left.data.splitlines()[-1].strip() == "not accepted: it failed"


def test_there_are_ten_of_a_type_the_most_telling_first() -> None:
    one = Drift(kind="settings", agent="dev", field="model", before="a", after="b")
    checks = [check(line) for line in range(10, 18)]
    told = commands(
        scenario("failed", step(checks=checks), scenario="a"),
        scenario("failed", step(checks=[check(90)]), scenario="b", drift=[one], drift_fails=True),
        scenario("error", scenario="c", error="disk full"),
        scenario("passed", step(status="passed", checks=[check(status="warned")] * 11)),
    )
    errors = [one for one in told if one.name == "error"]
    assert len(errors) == 10
    titles = [one.properties["title"] for one in errors]
    assert titles[:4] == ["drift: dev has a different model: a → b", "a", "b", "c"]
    assert errors[-1].data == "and 2 more in the log"
    assert "file" not in errors[-1].properties
    assert sum(one.name == "warning" for one in told) == 10
    assert len(commands(scenario("failed", step(checks=[*checks, check(), check()])))) == 10


def test_an_error_that_ended_the_run_comes_first() -> None:
    first, *_ = commands(scenario("failed", step(checks=[check()])), error="disk full")
    assert (first.properties, first.data) == ({"title": "arena"}, "disk full")


def test_c45_no_text_of_an_agent_is_a_command_or_ends_one(tmp_path: Path) -> None:
    stage = Stage(tmp_path).agent("evil", {"say": HOSTILE.replace("\0", "")}).team()
    expect = "{replies: {evil: [{contains: 'a, b: 100%'}]}}"
    told = stage.play(f"scenario: 'a, b::c %25'\nsteps: [{{send: '@evil x', expect: {expect}}}]")
    (one,) = commands(told)
    assert one.properties["title"] == "a, b::c %25"
    assert "a, b: 100%" in one.data
    assert "x%0A::warning::y, a: b" in one.data
    assert "\x1b" not in one.data


@given(st.text(), st.text(min_size=1))
def test_what_the_runner_reads_is_what_was_said(said: str, title: str) -> None:
    lines = ci.commands(
        whole(scenario("error", scenario=title, error=f"a{said}")), SAY, lambda file: file
    )
    (line,) = lines
    assert len(line.splitlines()) == 1
    one = read(line)
    assert (one.name, {*one.properties}) == ("error", {"file", "line", "title"})
    assert not any(row.strip().startswith("::") for row in one.data.splitlines())


def test_paths_are_those_of_the_repository(tmp_path: Path) -> None:
    root = tmp_path / "repo" / "arena"
    root.mkdir(parents=True)
    inside = ci.in_repository(root, {"GITHUB_WORKSPACE": str(tmp_path / "repo")})
    assert inside("scenarios/a.yaml") == "arena/scenarios/a.yaml"
    assert inside((tmp_path / "repo" / "b.yaml").as_posix()) == "b.yaml"
    outside = (tmp_path / "c.yaml").as_posix()
    assert inside(outside) == outside
    assert ci.in_repository(root, {})("scenarios/a.yaml") == "scenarios/a.yaml"


class Page(HTMLParser):
    """The tags that take effect in a summary, with the attributes, and the text of each block."""

    def __init__(self, markdown: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[str] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(MarkdownIt("commonmark", {"html": True}).enable("table").render(markdown))
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [name for name, _ in attrs]
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


TAGS = {"h3", "table", "tr", "td", "b", "code", "details", "summary", "pre"}


def test_a_summary_of_what_passed_is_a_line() -> None:
    text = ci.summary(whole(scenario("passed", mode="replay")), SAY)
    assert text == "### arena: 1 passed in 1.5 s · 1 replayed\n"


def test_a_summary_has_a_table_the_causes_and_the_details() -> None:
    one = Drift(kind="settings", agent="dev", field="model", before="a", after="b")
    told = [
        scenario("failed", step(checks=[check()]), scenario="a"),
        scenario("failed", scenario="b", drift=[one]),
        scenario("passed", scenario="c"),
    ]
    page = Page(ci.summary(whole(*told), SAY))
    assert page.tags == TAGS
    assert page.attributes == ["open"]
    order = [
        "arena: 1 passed, 2 failed",
        "s/x.yaml:7",
        "drift: dev has a different model",
        "FAILED  a",
    ]
    places = [page.text.index(part) for part in order]
    assert places == sorted(places)
    assert "c" not in [row.strip() for row in page.text.splitlines()]


def test_c45_nothing_that_was_said_is_markdown_or_html(tmp_path: Path) -> None:
    (tmp_path / "bot.py").write_text(f"def answer(input):\n    return {HOSTILE!a}\n")
    adapter = {"type": "python", "target": "bot.py:answer"}
    stage = Stage(tmp_path).agent("evil", adapter=adapter, name="<b>e</b>").team()
    title = "<img src=x onerror=alert(1)> | **a** `b`"
    told = stage.play(f"scenario: '{title}'\nsteps: [{{send: '@evil x', expect: {{end: failed}}}}]")
    one = Drift(kind="input", agent="evil", field=HOSTILE, before=HOSTILE, after=HOSTILE * 2)
    text = ci.summary(whole(told.model_copy(update={"drift": [one]})), SAY, error=HOSTILE)
    page = Page(text)
    assert page.tags == TAGS
    assert page.attributes == ["open"]
    for part in (title, "</pre></details><img src=x onerror=alert(1)>", "# heading | **bold**"):
        assert part in page.text
    assert "\\x1b[31mred\\x00" in page.text
    assert "\x1b" not in text
    assert not any(line.strip().startswith("::") for line in text.splitlines())


@given(st.text(), st.text(min_size=1))
def test_a_summary_of_anything_has_our_tags_only(said: str, title: str) -> None:
    bad = check(field=title, expected=said, actual=said)
    text = ci.summary(
        whole(scenario("failed", step(checks=[bad]), scenario=title, error=said)), SAY, error=said
    )
    assert Page(text).tags <= TAGS


@pytest.mark.parametrize("room", [300, 5_000, 50_000, ci.MOST_BYTES])
def test_a_summary_keeps_to_its_room(room: int) -> None:
    bad = check(actual="错" * 3_000)
    told = [scenario("failed", step(checks=[bad] * 20), scenario=f"x{n}") for n in range(30)]
    text = ci.summary(whole(*told), SAY, room)
    assert len(text.encode()) <= room
    assert "more in the log" in text
    assert Page(text).tags <= {*TAGS, "p"}


def test_a_summary_without_any_room_is_empty() -> None:
    assert ci.summary(whole(scenario("passed")), SAY, 100) == ""


def test_a_chinese_reader_gets_chinese() -> None:
    told = scenario("failed", step(checks=[check()]))
    (one,) = commands(told, say=Words("zh"))
    assert one.data == "replied\n期望：dev\n实际：nobody"
    assert "1 failed（失败）" in ci.summary(whole(told), Words("zh"))
