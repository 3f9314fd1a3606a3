"""The page of a run and of a session: what it says, that it is only text, what a browser does."""

from __future__ import annotations

import base64
import hashlib
import html as escaping
import http.server
import json
import os
import re
import shutil
import subprocess
import threading
from dataclasses import dataclass, field
from html.parser import HTMLParser
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from product import (
    AgentOverloaded,
    Drift,
    Failure,
    Line,
    RunResult,
    ScenarioResult,
    Span,
    Usage,
    Words,
    escape_text,
    page_text,
    result,
)
from product import html_render as render
from product import html_results as results
from program import Program
from stage import Stage
from support import WORKED_MESSAGE, Puppets, Talk, member, puppet, team, worked_team

VOID = {"meta", "link", "input", "br", "img"}
TAGS = """html head meta title link style body header main footer script h1 h2 h3 h4 p ul li span b
a bdi code time label select option input button output form section article details summary div
table caption thead tbody tr th td del ins meter"""
ATTRIBUTES = """lang charset http-equiv content name rel href id class value role hidden type
autocomplete spellcheck aria-live aria-hidden aria-label tabindex datetime scope colspan open
min max high
data-status data-mode data-drift data-tag data-end data-agent"""
HOSTILE = (
    '"><img src=x onerror=alert(1)> \' </script><script>document.title="owned"</script> '
    "javascript:alert(1) </style> </textarea> <!-- &amp; \0 \x1b[31m \u202egnp {{ 7 * 7 }} {% x %}"
)


@dataclass
class Element:
    """One element of a page that was read."""

    tag: str
    attributes: dict[str, str]
    inside: list[Element | str] = field(default_factory=list)

    @property
    def classes(self) -> list[str]:
        return self.attributes.get("class", "").split()

    @property
    def text(self) -> str:
        """Its text, spaces joined, but for what is hidden from view and its icons."""
        return " ".join(self.raw.split())

    @property
    def raw(self) -> str:
        return "".join(one if isinstance(one, str) else one.raw for one in self.inside)

    def all(self, tag: str = "", cls: str = "") -> list[Element]:
        """The elements in it with that tag and class, in the order of the page."""
        found: list[Element] = []
        for one in self.inside:
            if isinstance(one, Element):
                if (not tag or one.tag == tag) and (not cls or cls in one.classes):
                    found.append(one)
                found += one.all(tag, cls)
        return found

    def one(self, tag: str = "", cls: str = "") -> Element:
        (found,) = self.all(tag, cls)
        return found

    def texts(self, tag: str = "", cls: str = "") -> list[str]:
        return [one.text for one in self.all(tag, cls)]


class Reader(HTMLParser):
    """Reads a page as a browser does; every element must be closed where it should be."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.root = Element("", {})
        self.ids: list[str] = []
        self._open = [self.root]
        self.feed(page)
        self.close()
        assert self._open == [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in TAGS.split()
        attributes = {name: value or "" for name, value in attrs}
        assert set(attributes) <= set(ATTRIBUTES.split())
        self.ids += [attributes["id"]] if "id" in attributes else []
        element = Element(tag, attributes)
        self._open[-1].inside.append(element)
        if tag not in VOID:
            self._open.append(element)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop().tag == tag

    def handle_data(self, data: str) -> None:
        self._open[-1].inside.append(data)


def read(page: str) -> Element:
    """The page, after what must hold of every page."""
    reader = Reader(page)
    root = reader.root
    assert escape_text(page) == page  # no control, nothing invisible
    assert len(reader.ids) == len(set(reader.ids))
    for link in root.all("a"):
        target = link.attributes["href"].removeprefix("#")
        assert target in reader.ids or re.fullmatch(r"[a-z]+=[a-z]+", target)
    for link in root.all("link"):
        assert link.attributes == {"rel": "icon", "href": "data:,"}
    (policy,) = (
        one.attributes["content"] for one in root.all("meta") if "http-equiv" in one.attributes
    )
    hashed = [
        base64.b64encode(hashlib.sha256(root.one(tag).raw.encode()).digest()).decode()
        for tag in ("style", "script")
    ]
    assert policy.split("; ") == [
        "default-src 'none'",
        f"style-src 'sha256-{hashed[0]}'",
        f"script-src 'sha256-{hashed[1]}'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
    ]
    return root


def whole(*told: ScenarioResult, **more: Any) -> RunResult:
    return result.of_run([*told], selected=more.pop("selected", len(told)), seconds=1.5, **more)


def page_of(*told: ScenarioResult, say: Words | None = None, **more: Any) -> Element:
    return read(render.page(whole(*told, **more), say or Words()))


def session_of(talk: Talk, say: Words | None = None, **avatars: str) -> Element:
    return read(render.session_page("talk", talk.events, avatars, say or Words()))


@pytest.fixture
def crew(tmp_path: Path) -> Stage:
    stage = Stage(tmp_path)
    stage.agent("dev", {"say": "done @ops go"}, name="开发", avatar="💻")
    return stage.agent("ops", {"say": "gone"}).agent("qa", {"say": "ok"}).team()


# A run


def test_a_run_is_told_from_its_counts_to_each_expectation(crew: Stage) -> None:
    told = crew.play_all(
        """scenario: fine
tags: [fast, 中文]
steps:
  - send: "@dev hi"
    expect: {replied: [dev, ops], end: quiet}
""",
        """scenario: wrong
steps:
  - step: first
    send: "@dev hi"
    expect: {replied: [dev], turns: 2, timeline: [{agent: dev}, {agent: qa}]}
  - send: "never"
""",
        "scenario: all\nsteps: [{send: '@dev hi'}]\nexpect: {replies_count: 9}\n",
        "scenario: later\nskip: not yet\nsteps: [{send: '@dev hi'}]\n",
        detail=True,
    )
    page = page_of(*told, selected=5)
    assert page.one("title").text == "failed · arena run"
    assert page.one("ul", "figures").texts("li") == [
        "1 passed",
        "2 failed",
        "1 skipped",
        "1 not run",
    ]
    facts = page.one("header").one("p", "facts").text
    assert facts.startswith("exit code 1")
    assert "1.5 s" in facts
    fine, wrong, over_all, later = page.all("article", "item")
    assert page.texts("h2") == ["3 failures", "fine", "wrong", "all", "later"]
    index = page.one("section", "index")
    assert index.texts("h3") == ["wrong", "all"]
    assert [
        (one.one("a").attributes["href"], one.one("a").text, *one.texts("div", "brief"))
        for one in index.all("li")
    ] == [
        ("#s2-1", "replied", "expected: dev", "actual: dev, ops"),
        ("#s2-1", "timeline[1]", *index.all("li")[1].texts("div", "brief")),
        ("#s3", "replies_count", *index.all("li")[2].texts("div", "brief")),
    ]
    assert fine.attributes["data-tag"].split("\n") == ["fast", "中文"]
    assert "open" not in fine.one("details", "fold").attributes
    assert "open" in wrong.one("details", "fold").attributes
    assert "scenarios/s1.yaml:1" in wrong.one("summary").text
    assert "not yet" in later.text
    assert fine.texts("ul", "held") == ["✓passed replied dev, ops ✓passed end quiet"]
    first, second = wrong.all("section", "step")
    assert first.one("h3").text.startswith("step 1: first failed scenarios/s1.yaml:3")
    assert second.one("h3").text.startswith("step 2 not run")
    assert over_all.texts("h3")[-1] == "over all steps"
    replied, timeline = first.all("div", "check")
    assert replied.one("code").text == "replied"
    assert replied.texts("div", "side") == ["expecteddev", "actualdev, ops"]
    assert "2. qa" in timeline.one("div", "expected").text
    assert "1. turn 1 A · dev" in timeline.one("div", "actual").text


def test_turns_go_down_and_agents_across(tmp_path: Path) -> None:
    talk = Talk(tmp_path, worked_team())
    talk.send(WORKED_MESSAGE)
    page = session_of(talk, architect="📐", tester="https://example.org/me.png")
    table = page.one("table", "talk")
    lanes = table.one("thead").texts("th")[1:]
    assert lanes == [
        "📐 架构师 architect",
        "合规 compliance",
        "全栈开发 developer",
        "测试工程师 tester",
    ]
    told = []
    for row in table.one("tbody").all("tr"):
        if "across" in row.classes:
            continue
        cells = [cell.all("div", "prose") or cell.all("div", "why") for cell in row.all("td")]
        told.append((row.one("th").text, [[one.text[:4] for one in cell] for cell in cells]))
    assert told == [
        ("turn 1 A must reply", [["需求拆解"], ["GDPR"], [], []]),
        ("turn 1 B may reply", [[], [], ["收到，先"], ["测试工程"]]),
        ("turn 2 A must reply", [[], [], [], ["好的，准"]]),
    ]
    assert table.one("div", "why").text == "测试工程师 passed over: relevance 0.4 < 0.8"
    last = table.all("div", "card")[-1]
    assert "mentioned by 合规, 全栈开发" in last.text
    assert table.one("div", "end").text.startswith("quiet 4 replies in 2 turns")
    across = [one for one in table.all("td") if "colspan" in one.attributes]
    assert {one.attributes["colspan"] for one in across} == {"5"}
    assert [one.text.split(" ")[0] for one in across] == ["user", "note", "note", "quiet"]


def test_all_that_can_come_of_a_call_is_told(tmp_path: Path) -> None:
    people = team(
        member("a", [{"say": "@b @c @nobody @maya hi", "usage": {"cost_usd": 0.5}}], name="Ann"),
        member("b", [{"fail": "timeout"}]),
        member("c", [{"decline": True}]),
        member("d", [{"say": "late"}], response={"auto_respond": False}),
        member("e", response={"auto_respond": False}),
        humans=["maya"],
        max_responders=1,
    )
    talk = Talk(tmp_path, people)
    talk.send("@a @d hi")
    page = session_of(talk)
    cards = {one.all("bdi", "who")[0].text: one for one in page.all("div", "card")}
    assert set(cards) == {"user", "Ann", "b", "c", "d"}
    assert "→calls b, c, maya" in cards["Ann"].text
    assert "no member is called @nobody" in cards["Ann"].text
    assert "$0.5000" in cards["Ann"].text
    assert cards["b"].texts("b", "badge") == ["timeout"]
    assert cards["b"].one("div", "wrong").text
    assert cards["c"].texts("b", "badge") == ["declined"]
    assert "deferred to the next turn" in page.texts("div", "why")[0]
    assert page.one("p", "idle").text == (
        "not called: e not asked (it answers only when it is named)"
    )
    assert "awaiting_human: maya" in page.one("div", "end").text


def test_a_chain_that_is_open_has_its_calls_and_says_nothing_of_the_rest(tmp_path: Path) -> None:
    talk = Talk(tmp_path, worked_team())
    talk.send("@架构师 hi")
    started = next(at for at, one in enumerate(talk.events) if one.type == "reply_started")
    page = read(render.session_page("talk", talk.events[: started + 1], {}, Words()))
    assert page.all("div", "card")[-1].text == "架构师 architect no answer yet"
    assert not page.all("p", "idle")
    assert page.one("section", "item").attributes["data-end"] == "open"
    part = read(render.session_page("talk", [talk.events[0], *talk.events[started:]], {}, Words()))
    assert part.one("tbody").texts("th")[0] == "turn 1 A must reply"


def test_attempts_and_parts_of_messages_are_drawn(tmp_path: Path) -> None:
    tries: list[int] = []

    def answer(_: Any) -> Any:
        tries.append(1)
        if len(tries) == 1:
            raise AgentOverloaded("a", "asked", "busy", "wait")
        return "```python\nprint(1)\n\nprint(2)\n```\ntext"

    people = team(puppet("a", on_failure="retry", retries=1))
    talk = Talk(tmp_path, people, adapter_type=Puppets({"a": answer}))
    talk.send("hi")
    page = session_of(talk)
    card = page.all("div", "card")[1]
    assert "2 attempts" in card.one("div", "facts").text
    assert card.one("div", "code").raw == "print(1)\n\nprint(2)"
    assert card.texts("div", "label") == ["python"]
    assert "`" not in card.raw


def test_each_cause_of_drift_stands_once_with_links_to_what_it_touches(crew: Stage) -> None:
    drift = Drift(
        kind="input",
        agent="dev",
        field="role_prompt",
        before="You are a developer.\nName @ops at the end.\n" + "same\n" * 9,
        after="You are a developer.\nName nobody at the end.\n" + "same\n" * 9,
        step=1,
        turn=1,
        calls=2,
    )
    left = Drift(kind="left_over", agent="qa", field="must", step=2)
    text = "scenario: {}\nsteps: [{{send: '@dev hi'}}, {{send: '@qa hi'}}]\n"
    told = [
        one.model_copy(update={"drift": found, "mode": "replay", "recording": "r.jsonl"})
        for one, found in zip(
            crew.play_all(*map(text.format, "abc"), detail=True),
            ([drift], [drift.model_copy(update={"turn": 2}), left], []),
            strict=True,
        )
    ]
    page = page_of(*told)
    assert [one.attributes["data-drift"] for one in page.all("article", "item")] == [
        "yes",
        "yes",
        "no",
    ]
    prompt, qa = page.all("article", "cause")
    assert "role_prompt" in prompt.one("h3").text
    assert "qa" in qa.one("h3").text
    links = [(one.text, one.attributes["href"]) for one in prompt.one("ul").all("a")]
    assert links == [("a", "#s1-1"), ("b", "#s2-1")]
    lines = [(one.classes[0], one.raw) for one in prompt.one("div", "diff").inside if one != "\n"]
    assert lines == [
        ("same", "You are a developer."),
        ("removed", "beforeName @ops at the end."),
        ("added", "nowName nobody at the end."),
        ("same", "same"),
        ("same", "same"),
        ("left_out", "(7 equal lines)"),
    ]
    assert (prompt.one("del").raw, prompt.one("ins").raw) == ("@ops", "nobody")
    second = page.all("article", "item")[1].one("ul", "drift")
    assert [one.attributes["href"] for one in second.all("a")] == ["#cause-1", "#cause-2"]
    assert "3 replayed" in page.one("header").text
    assert [one.texts("code") for one in (prompt, qa)] == [
        ["arena run --update s0 s1"],
        ["arena run --update s1"],
    ]


def test_drift_of_two_agents_that_is_alike_leads_to_its_one_cause(crew: Stage) -> None:
    (told,) = crew.play_all("scenario: x\nsteps: [{send: '@dev hi'}]\n", detail=True)
    drift = [
        Drift(kind="settings", agent=agent, field="model", before="a", after="b")
        for agent in ("dev", "qa")
    ]
    rows = page_of(told.model_copy(update={"drift": drift})).one("ul", "drift").all("a")
    assert [(one.text.split()[0], one.attributes["href"]) for one in rows] == [
        ("dev", "#cause-1"),
        ("qa", "#cause-1"),
    ]


def test_what_follows_from_drift_is_no_cause_and_was_not_kept_is_said(crew: Stage) -> None:
    (told,) = crew.play_all("scenario: x\nsteps: [{send: '@dev hi'}]\n", detail=True)
    root = Drift(kind="routing", field="must", before="dev", after="qa", step=1)
    after = Drift(kind="miss", agent="qa", field="calls", step=1, follows=True)
    like = root.model_copy(update={"step": 2, "follows": True})
    missed = Failure(agent="qa", turn=1, status="error", error="no record")
    steps = [one.model_copy(update={"failures": [missed]}) for one in told.steps]
    update = {
        "drift": [after, root, like],
        "mode": "update",
        "recording": "r.jsonl",
        "steps": steps,
    }
    why = "there are calls without a recorded answer"
    page = page_of(told.model_copy(update={**update, "unkept": why}))
    rows = page.one("ul", "drift").all("li")
    assert [row.classes for row in rows] == [[], ["dim"], ["dim"]]
    assert [len(row.all("a")) for row in rows] == [1, 0, 0]
    assert len(page.all("article", "cause")) == 1
    assert f"not updated: {why}" in page.one("p", "wrong").text
    assert "1 not updated" in page.one("header").text
    assert "if this is expected" not in page.text


def test_a_check_that_crashed_has_one_side_and_a_long_one_that_held_is_folded(crew: Stage) -> None:
    (told,) = crew.play_all("scenario: x\nsteps: [{send: '@dev hi', expect: {turns: 2}}]\n")
    (step,) = told.steps
    (held,) = step.checks
    crashed = held.model_copy(update={"status": "error", "expected": "", "actual": "KeyError"})
    long = held.model_copy(update={"expected": "long " * 99})
    steps = [step.model_copy(update={"checks": [crashed, long]})]
    page = page_of(told.model_copy(update={"steps": steps}))
    assert page.texts("div", "side") == ["actualKeyError"]
    (row,) = page.all("ul", "held")
    assert row.one("details").one("summary").text == "expected"
    assert ("long " * 99).strip() in row.text


def test_tokens_cost_and_mode_stand_at_every_level(crew: Stage) -> None:
    (told,) = crew.play_all("scenario: x\nsteps: [{send: '@dev hi'}]\n", detail=True)
    used = Usage(input_tokens=100, output_tokens=20, cost_usd=0.25)
    steps = [one.model_copy(update={"usage": used}) for one in told.steps]
    judges = Usage(input_tokens=7, output_tokens=3)
    update = {"usage": used, "judges_usage": judges, "steps": steps, "mode": "record"}
    told = told.model_copy(update={**update, "recording": "r.jsonl", "written": True})
    page = page_of(told)
    spent = "100 → 20 tokens · $0.2500"
    assert spent in page.one("header").text
    assert spent in page.one("summary").text
    assert "judges: 7 → 3 tokens" in page.one("summary").text
    assert spent in page.one("section", "step").one("h3").text
    assert "recording written: r.jsonl" in page.text
    assert not page.all("form")  # one scenario: nothing to filter


def test_chinese_is_spoken_where_it_is_asked_for(crew: Stage) -> None:
    told = crew.play_all("scenario: x\nsteps: [{send: '@dev hi', expect: {turns: 1}}]\n")
    page = page_of(*told, *told, say=Words("zh"))
    assert page.one("html").attributes["lang"] == "zh"
    assert page.one("title").text == "failed（失败） · arena run"
    assert page.all("span", "label")[0].text == "期望"
    assert page.one("form").one("output").text == ""
    assert "第 1 轮" in page.text


def test_five_agents_fit_beside_each_other_on_1200_pixels(tmp_path: Path) -> None:
    ids = ["a", "b", "c", "d", "e"]
    talk = Talk(tmp_path, team(*(member(one, [{"say": "hi"}]) for one in ids)))
    talk.send(" ".join(f"@{one}" for one in ids))
    style = session_of(talk).one("style").text
    width = re.search(r"\.lanes-5\{min-width:([\d.]+)rem\}", style)
    assert width
    assert 16 * float(width[1]) <= 1200 - 70  # without the margins of the page


def card_saying(tmp_path: Path, text: str) -> Element:
    """The card of a reply with that text."""
    talk = Talk(tmp_path, team(member("a", [{"say": text}])))
    talk.send("@a hi")
    return session_of(talk).all("div", "card")[1]


def test_a_table_is_drawn_with_its_head_and_cells(tmp_path: Path) -> None:
    card = card_saying(
        tmp_path,
        "两项：\n\n| 任务 | 天数 |\n| --- | ---: |\n"
        "| 登录 \\| 注册 | 2 |\n| <b>x</b> |\n\nend | of it",
    )
    table = card.one("table", "grid")
    assert table.one("thead").texts("th") == ["任务", "天数"]
    assert [row.texts("td") for row in table.one("tbody").all("tr")] == [
        ["登录 | 注册", "2"],
        ["<b>x</b>", ""],
    ]
    assert [one.raw for one in card.all("div", "prose")] == ["两项：\n", "\nend | of it"]
    assert "---" not in card.raw


@pytest.mark.parametrize(
    "text",
    [
        "a | b\nno delimiters | here",
        "a | b\n--- | --- | ---\nthree columns below two",
        "---\n| a |",
        "```\n| a | b |\n| - | - |\n```",
    ],
)
def test_what_is_no_table_stays_as_it_was_written(tmp_path: Path, text: str) -> None:
    card = card_saying(tmp_path, text)
    assert card.all("table", "grid") == []
    kept = text.removeprefix("```\n").removesuffix("\n```")
    assert [one.raw for one in card.all("div", "prose") + card.all("div", "code")] == [kept]


def test_every_fence_is_a_block_of_its_own(tmp_path: Path) -> None:
    card = card_saying(
        tmp_path, "~~~py\n\nx = 1\n```\n~~~\n```js\ny\n```\n```\n```\nleft `open`:\n```\nz"
    )
    assert [one.raw for one in card.all("div", "code")] == ["\nx = 1\n```", "y", "z"]
    assert card.texts("div", "label") == ["py", "js"]
    assert [one.raw for one in card.all("div", "prose")] == ["left `open`:"]


def test_replies_of_a_page_are_those_of_its_chains(tmp_path: Path) -> None:
    people = team(
        member("a", [{"say": "@b @c hi"}]),
        member("b", [{"fail": "timeout"}]),
        member("c", [{"decline": True}]),
    )
    talk = Talk(tmp_path, people)
    talk.send("@a hi")
    page = session_of(talk)
    assert "1 reply" in page.one("header").one("p", "facts").texts("span")
    assert page.one("div", "end").text.startswith("quiet 1 reply in 2 turns")


@pytest.mark.parametrize(("count", "lanes"), [(5, 5), (6, 1), (20, 1)])
def test_a_wide_team_folds_those_that_were_passed_over(
    tmp_path: Path, count: int, lanes: int
) -> None:
    names = [f"a{number}" for number in range(count)]
    members = [member(name, [{"say": "done"}], response={"keywords": ["x"]}) for name in names]
    talk = Talk(tmp_path, team(*members))
    talk.send("@a3 please")
    page = session_of(talk)
    assert len(page.one("table", "talk").one("thead").all("th")) == lanes + 1
    folds = [one for one in page.all("details", "more") if "passed over" in one.text]
    if lanes == count:
        assert folds == []
        return
    assert folds[0].one("summary").text == f"passed over: {count - 1} agents"
    assert folds[0].texts("bdi", "who") == [name for name in names if name != "a3"]


def test_failed_only_by_drift_is_counted_apart(crew: Stage) -> None:
    (fine,) = crew.play_all("scenario: x\nsteps: [{send: '@dev hi'}]\n")
    drift = [Drift(kind="settings", agent="dev", field="role_prompt", before="a", after="b")]
    only = fine.model_copy(update={"status": "failed", "drift": drift, "drift_fails": True})
    (wrong,) = crew.play_all("scenario: y\nsteps: [{send: '@dev hi', expect: {turns: 9}}]\n")
    both = wrong.model_copy(update={"drift": drift, "drift_fails": True})
    told = whole(only, both)
    assert (told.failed, told.drifted, told.drift_only) == (2, 2, 1)
    assert page_of(only, both).one("ul", "figures").texts("li") == [
        "1 failed",
        "1 failed only by drift",
        "1 drifted",
    ]


# What is untrusted


def test_c45_nothing_that_anybody_said_is_markup(tmp_path: Path) -> None:
    names = {"name": HOSTILE.replace("\0", "")[:60], "avatar": "<b>x</b>"}
    people = team(
        member(
            "a",
            [
                {
                    "say": HOSTILE,
                    "structured": [
                        {"type": "diff", "data": HOSTILE},
                        {"type": "task_list", "data": [HOSTILE]},
                        {"type": "approval_request", "data": {HOSTILE: HOSTILE}},
                    ],
                    "attachments": [{"type": "file", "name": "x<img>.txt", "data": HOSTILE}],
                }
            ],
        ),
        humans=["m"],
    )
    talk = Talk(tmp_path, people)
    talk.send(HOSTILE)
    session = talk.events[0]
    members = [
        one.model_copy(update={"name": names["name"], "role": HOSTILE}) for one in session.members
    ]
    events = [session.model_copy(update={"members": members, "team": HOSTILE}), *talk.events[1:]]
    page = read(render.session_page(HOSTILE, events, {"a": names["avatar"]}, Words()))
    assert escape_text(HOSTILE) in page.one("body").raw
    assert page.raw.count(escape_text(HOSTILE)) >= 6


def test_c45_nor_what_stands_in_files_and_results(crew: Stage) -> None:
    crew.agent("qa", {"fail": "error"})
    (told,) = crew.play_all(
        "scenario: x\nsteps: [{send: '@qa hi', expect: {turns: 3}}, {check: {turns: 1}}]\n"
    )
    steps = [
        one.model_copy(
            update={
                "name": HOSTILE,
                "session": HOSTILE,
                "error": HOSTILE,
                "checks": [
                    check.model_copy(
                        update={
                            "field": HOSTILE,
                            "expected": HOSTILE,
                            "actual": f"{HOSTILE}\n(x)",
                            "judge": HOSTILE,
                        }
                    )
                    for check in one.checks
                ],
                "failures": [
                    failure.model_copy(update={"agent": HOSTILE, "error": HOSTILE})
                    for failure in one.failures
                ],
            }
        )
        for one in told.steps
    ]
    drift = [
        Drift(kind=kind, agent=agent, field=HOSTILE, before=HOSTILE, after=f"{HOSTILE}\nx")
        for kind in ("input", "settings", "routing", "left_over", "miss")
        for agent in (HOSTILE, None)
    ]
    texts = ("scenario", "case", "reason", "error", "recording")
    update = dict.fromkeys(texts, HOSTILE) | {"tags": [HOSTILE], "sessions": [HOSTILE]}
    told = told.model_copy(update={**update, "steps": steps, "drift": drift})
    page = page_of(told, told)
    assert page.raw.count(escape_text(HOSTILE)) > 40


TEXT = st.text(st.sampled_from("ab 开<>&\"'`{}%/\\\0\x1b\u202e\u2028\n\t é👩‍🔬~"), max_size=60)


@given(TEXT, TEXT)
def test_any_text_is_shown_and_only_shown(said: str, other: str) -> None:
    lines = [Line((Span("  "), Span(one, "added"))) for one in escape_text(said).split("\n")]
    kept = page_text.of_lines(lines)
    assert "".join(piece.text for block in kept.first for piece in block.pieces) == escape_text(
        said
    )
    rows = results.diff_rows(said, other)
    for kind, text in (("removed", said), ("added", other)):
        told = ["".join(part.text for part in row.parts) for row in rows if row.kind == kind]
        lines_of = escape_text(text).split("\n") if text else []
        assert set(told) <= set(lines_of)
        same = sum(row.left_out or 1 for row in rows if row.kind in ("same", "left_out"))
        assert len(told) + same == len(lines_of)


@given(st.lists(st.text("ab开é👩‍🔬 ", max_size=1500), min_size=1, max_size=60), st.booleans())
def test_a_long_text_is_folded_and_kept_whole(rows: list[str], code: bool) -> None:
    text = page_text.of_lines(Line((Span(f"  {row}"),), whole=code) for row in rows)
    parts = [
        "".join(piece.text for block in part for piece in block.pieces)
        for part in (text.first, text.more)
    ]
    folded = len(rows) > page_text.MOST_LINES or sum(map(len, rows)) > page_text.LONGEST
    assert bool(text.more) == folded
    assert "".join(parts).replace("\n", "") == "".join(rows)
    if folded:
        assert len(parts[0]) <= page_text.KEPT + page_text.KEPT_LINES
        assert text.characters == len(parts[1].replace("\n", ""))


def test_what_differs_within_a_long_line_is_found_in_it() -> None:
    rows = results.diff_rows(
        "begin " * 200 + "old" + " end" * 200, "begin " * 200 + "new" + " end" * 200
    )
    assert [row.kind for row in rows] == ["removed", "added"]
    assert [[part.text for part in row.parts if part.differs] for row in rows] == [["old"], ["new"]]
    assert all(len("".join(part.text for part in row.parts)) < 400 for row in rows)


# How it looks


def test_text_has_enough_contrast_in_both_schemes() -> None:
    style = (resources.files("arena_cli.reports.html") / "templates" / "style.css").read_text(
        "utf-8"
    )
    colours = dict(re.findall(r"--(\w[\w-]*): light-dark\((.+?)\)", style))
    agents = re.findall(r"--agent: light-dark\((.+?)\)", style)
    assert len(agents) == 10
    inks = [colours[name] for name in ("text", "dim", "link", "good", "bad", "warn", "drift")]
    pairs = [(ink, paper) for ink in inks + agents for paper in ("back", "paper", "sunk")]
    pairs += [
        ("text", paper) for paper in ("good-back", "bad-back", "good-mark", "bad-mark", "found")
    ]
    for ink, paper in pairs:
        for scheme in (0, 1):
            one, other = (colours.get(at, at).split(", ")[scheme] for at in (ink, paper))
            assert _contrast(one, other) >= 4.5, (ink, paper, scheme)  # WCAG 2.2, 1.4.3


def _contrast(one: str, other: str) -> float:
    def light(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        red, green, blue = (
            part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
        )
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    darker, lighter = sorted((light(one), light(other)))
    return (lighter + 0.05) / (darker + 0.05)


# arena show --html


@pytest.fixture
def program(tmp_path: Path) -> Program:
    program = Program(tmp_path)
    program.agent("dev", {"say": "heard"}, name="开发", avatar="💻")
    program.run("send", "-s", "s", "first").check()
    program.run("send", "-s", "s", "second").check()
    return program


def test_show_writes_the_page_to_stdout_or_a_file(program: Program) -> None:
    out = program.run("show", "s", "--html").check().stdout
    page = read(out)
    assert page.one("h1").text == "session s"
    assert [one.attributes["data-agent"] for one in page.all("section", "item")] == ["dev", "dev"]
    assert "💻 开发" in page.text
    for args in (
        ("show", "s", "--html", "a/b.html"),
        ("show", "--html=a/b.html"),
        ("show", "--html", "a/b.html", "s"),
    ):
        program.run(*args).check(stdout="")
        assert (program.folder / "a" / "b.html").read_bytes() == out.encode()
    for args in (("show", "s", "--html", "-"), ("show", "--html", "--", "s"), ("show", "--html")):
        assert program.run(*args).check().stdout == out
    program.env["PYTHONIOENCODING"] = "gbk"
    assert program.run("show", "s", "--html").out == out.encode()


def test_a_page_tells_what_was_done_for_the_memory(tmp_path: Path) -> None:
    program = Program(tmp_path)
    blocked = "Blocker: the payment API credentials are missing."
    ignored = "I will deploy the payment API tonight."
    program.agent("dev", blocked, ignored, name="开发").team()
    for text in "ab":
        program.run("send", "--session", "s", f"@dev {text}").check()
    told = program.run("show", "s").stdout
    page = read(program.run("show", "s", "--html").stdout)
    note = "blocker-the-payment-api-credentials-are-missing"
    lines = [
        f"note {note} added by rules: the payment API credentials are missing",
        f"replan_required, high: 开发 ignored {note}: goes ahead ({ignored}) and says "
        "nothing of the blocker",
    ]
    rows = [one.text for one in page.all("tr", "across")]
    replan = "ignored the note"  # the message that asks for another plan names it, too
    assert [one for one in rows if note in one and replan not in one] == lines
    told_of = [one.strip() for one in told.splitlines() if note in one and replan not in one]
    assert told_of == lines


def test_what_a_session_used_has_the_work_for_its_memory_in_it(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.agent("dev", {"say": "ok", "usage": {"input_tokens": 100, "output_tokens": 10}}).team()
    found = {"say": "[]", "usage": {"input_tokens": 20, "output_tokens": 2}}
    program.agent("scribe", found, member=False)
    program.file("arena.yaml", "team: crew\nmemory: {extractor: scribe}\n")
    program.run("send", "@dev hi", "-s", "s", "-q").check()
    page = program.run("show", "s", "--html").check().stdout
    head = page[: page.index("chain 1")]
    assert "120 → 12 tokens" in head
    assert "100 → 10 tokens" in head  # of the agent


def test_show_takes_a_part_of_a_session(program: Program) -> None:
    (last,) = read(program.run("show", "s", "--html", "--turn", "last").check().stdout).all(
        "section", "item"
    )
    assert "second" in last.text
    assert "开发" in last.text
    seq = next(one["seq"] for one in program.records() if one["type"] == "chain_finished")
    after = read(program.run("show", "--after-seq", str(seq), "--html").check().stdout).one("main")
    assert "first" not in after.text
    assert "second" in after.text


def test_show_refuses_what_makes_no_sense_with_a_page(program: Program) -> None:
    for other in ("--json", "--follow", "--context", "--agent=dev"):
        args = ["--agent=dev"] if other == "--context" else []
        refused = program.run("show", "s", "--html", other, *args)
        assert refused.code == 2
        assert refused.stderr.startswith("arena: --html and --")
    program.run("show", "--html", "s").check(
        code=2,
        stdout="",
        stderr="arena: --html s: this is the name of a session, and --html expects a file\n"
        "  Put the session first: `arena show s --html`; or write the file as ./s\n",
    )
    program.run("show", "--html", "./s").check(stdout="")
    assert (program.folder / "s").read_bytes().startswith(b"<!doctype html>")
    refused = program.run("show", "s", "--html", "sessions")
    assert (refused.code, refused.stdout) == (2, "")
    assert "sessions" in refused.stderr


def test_a_page_names_its_workspace_commit_and_command(program: Program) -> None:
    program.agent("dev", {"say": "done"})
    program.scenario("scenario: x\nsteps: [{send: '@dev hi', expect: {turns: 1}}]\n", "x")
    commit = "0123456789" * 4

    def origin() -> list[str]:
        program.run("run", "-k", "x or y", "--html", "p.html").check(stdout=None)
        page = read((program.folder / "p.html").read_text("utf-8"))
        return page.one("header").all("p", "facts")[1].texts("span")

    command = "arena run -k 'x or y' --html p.html"
    name = f"workspace {program.folder.name}"
    assert origin() == [name, command]
    program.file(".git/HEAD", f"{commit}\n")
    assert origin() == [name, "commit 0123456789", command]
    program.file(".git/HEAD", "ref: refs/heads/功能/x\n")
    program.file(".git/packed-refs", f"# pack-refs\n{'f' * 40} refs/heads/功能/x\n")
    assert origin() == [name, "commit ffffffffff", command]
    program.file(".git/refs/heads/功能/x", f"{commit}\n")
    assert origin() == [name, "commit 0123456789", command]
    program.file(".git/HEAD", "ref: refs/../../secret\n")
    program.file("secret", commit)
    assert origin() == [name, command]


def test_a_worktree_names_its_commit(program: Program) -> None:
    program.agent("dev", {"say": "done"})
    program.scenario("scenario: x\nsteps: [{send: '@dev hi', expect: {turns: 1}}]\n", "x")
    program.file("main/.git/refs/heads/b", "a" * 40)
    program.file("main/.git/worktrees/w/HEAD", "ref: refs/heads/b\n")
    program.file("main/.git/worktrees/w/commondir", "../..\n")
    program.file(".git", "gitdir: main/.git/worktrees/w\n")
    program.run("run", "--html", "p.html").check(stdout=None)
    assert "commit aaaaaaaaaa" in (program.folder / "p.html").read_text("utf-8")


def test_run_writes_the_page_of_all_that_was_played(program: Program) -> None:
    program.scenario("scenario: x\nsteps: [{send: '@dev hi', expect: {turns: 2}}]\n", "x")
    program.scenario("scenario: y\nsteps: [{send: '@dev hi', expect: {turns: 1}}]\n", "y")
    assert program.run("run", "--html", "report.html").code == 1
    page = read((program.folder / "report.html").read_text(encoding="utf-8"))
    assert page.one("ul", "figures").texts("li") == ["1 passed", "1 failed"]
    assert [len(one.all("table", "talk")) for one in page.all("article", "item")] == [1, 1]


# In a browser

BROWSERS = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chrome",
    "msedge",
)


@dataclass
class Browser:
    """A headless browser, and a server that counts what it asks for."""

    program: str
    folder: Path
    asked: list[str] = field(default_factory=list)

    def open(self, page: str, state: str = "", *, width: int = 1280) -> tuple[str, str]:
        """(the document after its scripts have run, what was logged)."""
        browser = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                browser.asked.append(self.path)
                self.send_response(200)
                self.send_header("Content-Type", "text/html")
                self.end_headers()
                self.wfile.write(page.encode())

            def log_message(self, *_: Any) -> None: ...

        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            thread = threading.Thread(target=server.serve_forever)
            thread.start()
            try:
                done = self._run(f"http://127.0.0.1:{server.server_port}/page{state}", width)
            finally:
                server.shutdown()
                thread.join()
        logged = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
        return done.stdout, "\n".join(logged)

    def _run(self, address: str, width: int) -> subprocess.CompletedProcess[str]:
        root = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
        return subprocess.run(
            [
                self.program,
                *root,
                "--headless=new",
                "--disable-gpu",
                "--disable-background-networking",
                "--no-first-run",
                f"--user-data-dir={self.folder / 'browser'}",
                f"--window-size={width},1000",
                "--enable-logging=stderr",
                "--dump-dom",
                address,
            ],
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=60,
            check=True,
        )


@pytest.fixture
def browser(tmp_path: Path) -> Browser:
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip(f"none of {', '.join(BROWSERS)} is on the PATH")
    return Browser(found, tmp_path)


@pytest.fixture
def report(tmp_path: Path) -> str:
    """A page with three scenarios, one of which fails; agents say what they should not."""
    stage = (
        Stage(tmp_path).agent("dev", {"say": HOSTILE}).agent("ops", {"say": "全部完成 ＧＤＰＲ"})
    )
    long = f"a{'b' * 300}"
    stage.agent("qa", {"say": f"{long}\n```\n{long}\n```"}).team()
    told = stage.play_all(
        f"scenario: one {long}\ntags: [a]\n"
        "steps: [{send: '@dev @ops @qa hi', expect: {turns: 9}}]\n",
        "scenario: two\ntags: [a b]\nsteps: [{send: '@ops hi'}]\n",
        "scenario: three\ntags: [a]\nsteps: [{send: '@ops hi'}]\n",
        detail=True,
    )
    drift = [Drift(kind="settings", agent="ops", field="x", before=long, after=f"{long}c", step=1)]
    told[1] = told[1].model_copy(update={"drift": drift})
    return render.page(whole(*told), Words())


def hidden(document: str) -> list[bool]:
    """Of each scenario whether it is hidden."""
    return [' hidden=""' in tag for tag in re.findall(r'<article class="item"[^>]*>', document)]


@pytest.mark.real_program
@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("#status=failed", [False, True, True]),
        ("#tag=a+b&theme=dark", [True, False, True]),
        ("#drift=yes&q=nothing", [True, True, True]),
        ("#q=gdpr+hi&tag=a", [False, True, False]),
        ("#s3-1", [False, False, False]),
    ],
)
def test_a_browser_filters_by_the_address_and_fetches_nothing(
    browser: Browser, report: str, state: str, expected: list[bool]
) -> None:
    document, logged = browser.open(report, state)
    assert hidden(document) == expected
    assert logged == ""
    assert browser.asked == ["/page"]
    assert "<title>failed · arena run</title>" in document
    assert f">{3 - sum(expected)} / 3</output>" in document
    opened = re.findall(r'<details class="fold[^>]*>', document)
    assert (' open=""' in opened[2]) == (state == "#s3-1")


@pytest.mark.real_program
def test_a_browser_runs_nothing_but_the_pages_own_script(browser: Browser, report: str) -> None:
    added = (
        '<script>document.title = "owned"</script><img src="/x" onerror="document.title = 2">'
        '<p style="color: red">x</p><script src="/y.js"></script><base href="/z/">'
    )
    document, logged = browser.open(report.replace("</main>", f"{added}</main>"))
    assert "<title>failed · arena run</title>" in document
    assert browser.asked == ["/page"]
    assert logged.count("Content Security Policy") >= 5


@pytest.mark.real_program
@pytest.mark.parametrize("width", [360, 1280])
def test_a_browser_never_scrolls_sideways(browser: Browser, report: str, width: int) -> None:
    """Not on a phone either, with everything unfolded; a window cannot be as narrow as a frame."""
    framed = escaping.escape(re.sub(r"<meta http-equiv[^>]*>", "", report))
    document, _ = browser.open(
        f"""<iframe width={width} height=900 srcdoc="{framed}"></iframe><script>
        addEventListener("load", () => {{
            const page = document.querySelector("iframe").contentDocument;
            for (const one of page.querySelectorAll("details")) one.open = true;
            const all = page.documentElement;
            const cells = [...page.querySelectorAll(".talk td")].map((one) => one.offsetLeft);
            document.title = `${{all.scrollWidth - all.clientWidth}} ${{new Set(cells).size}}`;
        }})</script>"""
    )
    lanes = 1 if width == 360 else 4  # and what stands across them
    assert f"<title>0 {lanes}</title>" in document


def test_approvals_pauses_and_a_supervisor_are_rows_of_their_own(tmp_path: Path) -> None:
    program = Program(tmp_path)
    asks = {"action": "deploy", "detail": "make deploy", "diff": "-2.3\n+<b>2.4</b>\n"}
    program.agent("dev", {"say": "It is live.", "request": asks, "asked": "Lin decides."})
    brief = {
        "should_reply": ["dev"],
        "reason": "it is <i>green</i>",
        "briefs": {"dev": "Be short."},
    }
    lead = {"when": {"turn": 1}, "say": json.dumps(brief)}
    program.agent("lead", lead, {"say": '{"done": true}'}, member=False)
    config = {"mode": "supervisor", "supervisor": "lead", "budget": {"tokens": {"session": 90_000}}}
    people = [{"id": "lin", "name": "Lin"}]
    team = {"team": "crew", "members": ["dev"], "humans": people, "config": config}
    program.file("agents/teams/crew.yaml", json.dumps(team))
    program.file("arena.yaml", "team: crew\n")
    assert program.run("send", "-s", "s", "-q", "Release").code == 4
    page = read(program.run("show", "s", "--html").stdout)
    assert [one.text for one in page.all("div", "is-paused")] == [
        "paused, an approval is needed: request 1 of dev: deploy"
    ]
    assert page.all("b", "is-paused")  # the badge of the chain
    (waits,) = page.all("li", "is-open")
    assert "make deploy" in waits.text
    program.run("approve", "s", "1", "--by", "lin", "--because", "it is <u>tested</u>").check()
    program.run("resume", "s", "-q").check()
    page = read(program.run("show", "s", "--html").stdout)
    (supervised, *_) = page.all("div", "is-supervised")
    assert supervised.text == "lead calls dev: it is <i>green</i>"
    details = [one.text for one in page.all("div", "details")]
    assert details == ["brief for dev: Be short.", "| -2.3 | +<b>2.4</b>"]
    (asked,) = page.all("div", "is-asked")
    assert asked.text == "? request 1: dev asks for deploy: make deploy"
    (decided,) = page.all("div", "is-approved")
    assert decided.text == "✓ request 1 approved by lin: it is <u>tested</u>"
    (row,) = page.all("li", "is-approved")
    assert "approved by lin: it is <u>tested</u>" in row.text
    (meter,) = page.all("meter")
    assert 0 <= int(meter.attributes["value"]) <= 100


def test_an_agent_that_is_kept_out_of_a_turn_stands_in_its_first_phase(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.agent("dev", {"say": "hi"}).agent("ops", {"say": "hi"}).team(selection="none")
    program.run("send", "-s", "s", "-q", "@dev first").check()
    program.run("pause", "s", "--agent", "ops").check()
    program.run("send", "-s", "s", "-q", "@dev @ops second").check()
    page = read(program.run("show", "s", "--html").stdout)
    assert [one.text.strip() for one in page.all("div", "why")] == ["ops passed over: paused"]
    assert not page.all("tr", "phase-B")
    assert "passed over: ops (paused)" in program.run("show", "s").stdout
