"""`arena promote`: a session that somebody had becomes a scenario with its recording."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from past_sessions import cut_short, ends, events, loaded, talk
from product import (
    Attachment,
    Message,
    MessageEvent,
    Planted,
    Promoted,
    Promotion,
    RecordingStore,
    ReplyFinished,
    ReplyStarted,
    Runner,
    ScenarioResult,
    Session,
    Usage,
    UsageError,
    Wanted,
    find,
    path_for,
)
from program import Program
from stage import Stage, printed

ATTACHED = Attachment(type="file", name="a.txt", data="附件")
GDPR = "@架构师 @合规 请帮我拆解这个需求：做一个用户管理系统，需要符合 GDPR"


def cast(stage: Stage) -> Stage:
    """The team of the worked example (docs/concepts/turn-rules.md)."""
    said = "需求拆解如下：1. 用户认证 2. 权限管理 3. 数据加密 @全栈开发 请按此方案实现"
    stage.agent(
        "architect", said, {"say": "再拆一次"}, name="架构师", response=_keys("架构", "拆解")
    )
    said = "GDPR 要求：用户同意、数据可删除 @测试工程师 请准备测试用例"
    stage.agent("compliance", said, {"say": "没有了"}, name="合规", response=_keys("合规", "GDPR"))
    said = "收到，先做认证模块 @测试工程师 完成后请做冒烟测试"
    keys = _keys("认证", "方案", "实现")
    stage.agent("developer", said, {"say": "在做"}, name="全栈开发", response=keys)
    keys = {**_keys("测试"), "threshold": 0.8}
    stage.agent(
        "tester", "好的，准备三组用例", {"say": "@user 好了"}, name="测试工程师", response=keys
    )
    return stage.team(humans=["maya"])


def _keys(*words: str) -> dict[str, Any]:
    return {"keywords": list(words)}


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return cast(Stage(tmp_path))


def promotion(stage: Stage, name: str = "s", until: int | None = None, **how: Any) -> Promotion:
    now = loaded(stage)
    path = path_for(find(now.root, name), how.pop("to", None), now.root, stage.folder)
    return Promotion(find(now.root, name), until, path, now, force=how.pop("force", False))


def promoted(stage: Stage, name: str = "s", until: int | None = None, **how: Any) -> Promoted:
    return asyncio.run(promotion(stage, name, until, **how).make(stage.place()))


def written(stage: Stage, name: str = "s") -> dict[str, Any]:
    """The data of a scenario's file."""
    path = stage.folder / "scenarios" / f"{name}.yaml"
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def replayed(
    stage: Stage, name: str = "s", wanted: Wanted = "replay", **how: Any
) -> ScenarioResult:
    """What comes of `arena run --replay`, or another mode."""
    scenarios = stage.load_files(stage.folder / "scenarios" / f"{name}.yaml")
    told: list[ScenarioResult] = []
    shelf = RecordingStore(scenarios, wanted)
    asyncio.run(Runner(scenarios, stage.place(), told.append, shelf=shelf, **how).run())
    return told[0]


def refused(stage: Stage, name: str = "s", until: int | None = None, **how: Any) -> str:
    with pytest.raises(UsageError) as raised:
        promotion(stage, name, until, **how)
    return str(raised.value)


def changed(stage: Stage, kind: str, **fields: Any) -> None:
    """Give the first event of that type other values."""
    path = stage.folder / "sessions" / "s" / "transcript.jsonl"
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    next(one for one in lines if one["type"] == kind).update(fields)
    path.write_text("".join(f"{json.dumps(one)}\n" for one in lines), encoding="utf-8")


def test_a_session_becomes_a_scenario_that_a_person_would_have_written(stage: Stage) -> None:
    talk(stage, GDPR)
    talk(stage, "@测试工程师 怎么样了？", author="maya")
    made = promoted(stage)
    assert (made.scenario, made.recording, made.name, made.parting) == (
        "scenarios/s.yaml",
        "scenarios/recordings/s.jsonl",
        "s",
        None,
    )
    assert (
        (stage.folder / made.scenario).read_text(encoding="utf-8")
        == f"""\
# Made of the session s by `arena promote`.
scenario: s
team: crew
steps:
  - send: '{GDPR}'
    expect:
      replied: [architect, compliance, developer, tester]
      must:
        - [architect, compliance]
        - [tester]
      asked: [developer]
      turns: 2
      end: quiet
  - send: '@测试工程师 怎么样了？'
    from: maya
    expect:
      replied: [tester]
      must:
        - [tester]
      asked: []
      turns: 1
      end: awaiting_human
      awaits: [maya]
"""
    )
    result = replayed(stage)
    assert (result.status, result.drift) == ("passed", []), printed(result)


def test_agents_are_shown_what_the_session_showed_them(stage: Stage) -> None:
    then = talk(stage, GDPR, "@架构师 继续")
    promoted(stage)
    again = events(stage, replayed(stage, keep="all").sessions[0])

    def shown(found: list[Any]) -> list[tuple[str, str]]:
        return [(e.agent, e.input_hash) for e in found if isinstance(e, ReplyStarted)]

    assert shown(again) == shown(then)


@pytest.mark.parametrize("all_may_be_called", [False, True])
def test_the_recording_is_what_would_have_been_recorded(
    tmp_path: Path, all_may_be_called: bool
) -> None:
    stage = Stage(tmp_path)
    part = {"type": "image", "name": "a.png", "data": "iVBORw0KGgo="}
    usage = {"input_tokens": 10, "output_tokens": 5, "cost_usd": 0.01}
    said = {"say": "@all 请看 @d", "next_mentions": ["maya", "ghost"], "attachments": [part]}
    stage.agent("a", said, {"say": "又来", "usage": usage}, name="甲")
    # A transcript has whom `@all` called, not that it was `@all`.
    added = ["a"] if all_may_be_called else ["@all"]
    stage.agent("b", {"say": "好 @nobody", "next_mentions": added}, name="乙")
    stage.agent("c", {"decline": True}).agent("d", {"say": "D"}, may_mention=[])
    stage.team(
        humans=["maya"], agents_may_mention_all=all_may_be_called, selection="ask", max_responders=2
    )
    talk(stage, "@甲 @乙 @c 开始", "@a 再来")
    made = promoted(stage)
    recording = stage.folder / made.recording
    own = recording.read_bytes()
    recording.unlink()
    assert replayed(stage, wanted="record").status == "passed"
    assert recording.read_bytes() == own


def test_no_agent_is_called(stage: Stage) -> None:
    talk(stage, GDPR)
    for agent in ("architect", "compliance", "developer", "tester"):
        path = stage.folder / "agents" / f"{agent}.yaml"
        profile = json.loads(path.read_text(encoding="utf-8"))
        profile["adapter"] = {"type": "cli", "command": ["no-such-program"]}
        path.write_text(json.dumps(profile), encoding="utf-8")
    assert promoted(stage).result.status == "passed"
    result = replayed(stage)
    assert (result.status, result.drift) == ("passed", []), printed(result)


@pytest.mark.parametrize(
    ("agent", "change", "field"),
    [
        ("tester", {"response": {"keywords": ["测试"], "threshold": 0.3}}, "asked"),
        ("developer", {"response": {"keywords": []}}, "asked"),
        ("tester", {"name": "检验员"}, "must"),
        ("compliance", {"may_mention": []}, "turns"),
    ],
)
def test_a_rule_that_was_changed_fails_it(
    stage: Stage, agent: str, change: dict[str, Any], field: str
) -> None:
    talk(stage, GDPR)
    promoted(stage)
    path = stage.folder / "agents" / f"{agent}.yaml"
    profile = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**profile, **change}, ensure_ascii=False), encoding="utf-8")
    result = replayed(stage)
    assert result.status in ("failed", "error")
    assert result.drift
    if field != "turns":
        assert field in [
            check.field for check in result.steps[0].checks if check.status == "failed"
        ]


def test_what_todays_files_do_otherwise_is_told_and_the_files_are_kept(stage: Stage) -> None:
    talk(stage, GDPR, "@架构师 继续")
    stage.agent("developer", {"say": "x"}, name="全栈开发").team(humans=["maya"])
    made = promoted(stage)
    assert made.result.status == "error" or made.result.status == "failed"
    assert made.parting is not None
    told = made.parting
    assert (told.step, told.turn, told.matter, told.before, told.after) == (
        1,
        1,
        "asked",
        "developer",
        "",
    )
    assert written(stage)["steps"][0]["expect"]["asked"] == ["developer"]
    cast(stage)  # as it was when the session was had
    result = replayed(stage)
    assert [step.status for step in result.steps] == ["passed", "passed"], printed(result)


@pytest.mark.parametrize(
    ("text", "before", "after", "told"),
    [
        ("@a hi", {"chain_depth_limit": 1}, {"chain_depth_limit": 0}, ("turns", None, "2", "1")),
        (
            "@a @b hi",
            {"chain_depth_limit": 0, "re_invoke_already_replied": True},
            {"chain_depth_limit": 0},
            ("end", None, "chain_limit", "quiet"),
        ),
    ],
)
def test_a_limit_that_is_another_is_told(
    tmp_path: Path, text: str, before: dict[str, Any], after: dict[str, Any], told: tuple[Any, ...]
) -> None:
    stage = Stage(tmp_path).agent("a", {"say": "@b go"}).agent("b", {"say": "ok"})
    stage.team(selection="none", **before)
    talk(stage, text)
    stage.team(selection="none", **after)
    made = promoted(stage)
    assert made.parting is not None
    assert made.parting[2:] == told


def test_a_human_who_has_another_name_is_told(tmp_path: Path) -> None:
    stage = Stage(tmp_path).agent("a", {"say": "@玛雅 好了"}).team()
    path = stage.folder / "agents" / "teams" / "crew.yaml"
    team = json.loads(path.read_text(encoding="utf-8"))
    for name in ("玛雅", "小玛"):
        path.write_text(json.dumps({**team, "humans": [{"id": "maya", "name": name}]}))
        if name == "玛雅":
            talk(stage, "go")
    made = promoted(stage)
    assert made.parting is not None
    assert made.parting[2:] == ("mentions", "a", "maya", "")


def test_what_it_was_is_kept_where_it_is_not_that_any_more(tmp_path: Path) -> None:
    stage = Stage(tmp_path).agent("a", {"say": "A"})
    stage.agent("b", {"say": "B"}, response=_keys("测试", "用例", "方案")).team()
    talk(stage, "@a 测试 用例 方案")
    stage.team(selection="none")
    made = promoted(stage)
    assert made.parting is not None
    assert made.parting[2:] == ("asked", None, "b", "")
    stage.team()  # as it was when the session was had
    assert [step.status for step in replayed(stage).steps] == ["passed"]


def test_names_are_those_of_today(stage: Stage) -> None:
    talk(stage, "@tester 请测", "@tester 再来")
    path = stage.folder / "agents" / "tester.yaml"
    profile = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**profile, "name": "检验员"}), encoding="utf-8")
    assert promoted(stage).parting is None
    result = replayed(stage)
    assert (result.status, result.drift) == ("passed", []), printed(result)


def test_another_role_prompt_is_no_difference(stage: Stage) -> None:
    talk(stage, GDPR)
    path = stage.folder / "agents" / "tester.yaml"
    profile = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**profile, "role_prompt": "Be brief."}), encoding="utf-8")
    assert promoted(stage).parting is None
    result = replayed(stage)
    assert (result.status, result.drift) == ("passed", []), printed(result)


def test_what_came_with_messages_and_answers_comes_again(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    plan = {
        "say": "两步。\n\n```py\nx = 1\n```\n- 审计  \n\n请看 @maya",
        "next_mentions": ["tester", "ghost"],
        "structured": [{"type": "task_list", "data": {"tasks": [{"title": "登录"}]}}],
        "attachments": [
            {"type": "json", "name": "计划.json", "data": {"days": 5}},
            {"type": "image", "name": "a.png", "data": "iVBORw0KGgo="},
        ],
        "usage": {"input_tokens": 10, "output_tokens": 5, "cost_usd": 0.01},
    }
    stage.agent("architect", plan, name="架构师").agent("tester", {"decline": True})
    stage.team(humans=["maya"])
    (tmp_path / "图.png").write_bytes(b"\x89PNG\r\n\x1a\n\xff")
    (tmp_path / "notes.txt").write_text("每页五十行\n", encoding="utf-8")
    other = tmp_path / "other" / "notes.txt"
    other.parent.mkdir()
    other.write_text("另一份", encoding="utf-8")
    files = [tmp_path / "图.png", tmp_path / "notes.txt", other]
    then = talk(stage, "@架构师 花费 ${x} 和 $${y}\n> @tester\n", author="maya", files=files)
    promoted(stage)
    step = written(stage)["steps"][0]
    assert step["attach"] == [
        "fixtures/s/图.png",
        "fixtures/s/notes.txt",
        "fixtures/s/m2/notes.txt",
    ]
    assert step["expect"]["unresolved"] == ["ghost"]
    assert step["expect"]["outcome"] == {"tester": "declined"}
    assert step["expect"]["awaits"] == ["maya"]
    result = replayed(stage, keep="all")
    assert (result.status, result.drift) == ("passed", []), printed(result)

    def carried(found: list[Any]) -> list[Any]:
        return [
            (
                m.content,
                m.mentions,
                m.structured,
                [(p.type, p.name, p.sha256) for p in m.attachments],
            )
            for m in (getattr(event, "message", None) for event in found)
            if isinstance(m, Message)
        ]

    again = events(stage, result.sessions[0])
    assert carried(again) == carried(then)
    usages = [[e.usage for e in found if e.type == "reply_finished"] for found in (then, again)]  # type: ignore[attr-defined]  # they are replies
    assert usages[0] == usages[1]


def test_failures_are_expected_as_they_were(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.agent("a", {"when": {"turn": 1}, "fail": "timeout"}, {"say": "late"}, on_failure="retry")
    stage.agent("b", {"say": "@a @c again"}).agent("c", {"fail": "error"})
    stage.team(selection="none", re_invoke_already_replied=True, retries=0)
    talk(stage, "@a @b @c go")
    promoted(stage)
    expected = written(stage)["steps"][0]["expect"]
    assert expected["outcome"] == {"c": "error"}
    assert expected["timeline"] == [{"turn": 1, "agent": "a", "status": "timeout"}]
    result = replayed(stage)
    assert (result.status, result.drift) == ("passed", []), printed(result)


def test_a_chain_in_which_all_failed_is_expected_to(tmp_path: Path) -> None:
    stage = Stage(tmp_path).agent("a", {"fail": "refused"}).team()
    talk(stage, "go")
    assert promoted(stage).result.status == "passed"
    assert written(stage)["steps"][0]["expect"]["end"] == "failed"
    assert replayed(stage).status == "passed"


def test_of_a_failure_what_came_is_kept_and_not_what_was_asked(tmp_path: Path) -> None:
    stage = Stage(tmp_path).agent("a", {"fail": "error"}).team()
    talk(stage, "go")
    error = "a: it broke; asked: /home/me/bot --x; came: [1, 2"
    used = Usage(input_tokens=7, output_tokens=2)
    usage = used.model_dump()
    changed(stage, "reply_finished", error=error, usage=usage, metadata={"partial": "half of"})
    promoted(stage)
    result = replayed(stage, keep="all")
    assert (result.status, result.drift) == ("passed", []), printed(result)
    found = events(stage, result.sessions[0])
    (done,) = [event for event in found if isinstance(event, ReplyFinished)]
    assert (done.error, done.metadata["partial"]) == ("a: it broke; came: [1, 2", "half of")
    assert done.usage == used


def test_a_call_that_was_cancelled_and_made_again_is_one(stage: Stage) -> None:
    talk(stage, "@测试工程师 请测")
    cut_short(stage, after="reply_started")
    path = stage.folder / "sessions" / "s" / "transcript.jsonl"
    begun = json.loads(path.read_bytes().splitlines()[-1])
    kept = ("ts", "reply", "turn", "phase", "agent")
    done = {"seq": begun["seq"] + 1, "type": "reply_finished", "status": "cancelled"}
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps({**done, **{name: begun[name] for name in kept}}) + "\n")
    now = loaded(stage)
    with Session(stage.place(), "s", now.team("crew")) as session:
        asyncio.run(session.last(session.resume()))
    assert promoted(stage).parting is None
    recording = (stage.folder / "scenarios/recordings/s.jsonl").read_text(encoding="utf-8")
    assert recording.count('"output":') == 1
    result = replayed(stage)
    assert (result.status, result.drift) == ("passed", []), printed(result)


@pytest.mark.parametrize(
    ("text", "sent"),
    [
        ("请看 @架构师", "@tester @developer 请看 @架构师"),
        ("> quoted", "@tester @developer\n> quoted"),
        ("@所有人 请看", "@tester @developer @所有人 请看"),
        ("```\n@nobody\n```", "@tester @developer\n```\n@nobody\n```"),
        ("@全栈开发 请看", "@tester @全栈开发 请看"),
        ("@测试工程师 请看", "@tester @developer @测试工程师 请看"),
    ],
)
def test_whom_to_called_is_named_in_the_text(stage: Stage, text: str, sent: str) -> None:
    talk(stage, text, to=["tester", "developer"])
    one = promotion(stage)
    called = sent.removesuffix(text).strip()
    assert one.notes == [f"step 1 begins with {called}, who got it by `--to`"]
    made = asyncio.run(one.make(stage.place()))
    assert made.parting is None
    assert written(stage)["steps"][0]["send"] == sent


def test_a_name_that_nobody_has_any_more_is_not_put_right(stage: Stage) -> None:
    talk(stage, "@合规 请看")
    stage.agent("compliance", {"say": "没有了"}, name="法务").team(humans=["maya"])
    made = promoted(stage)
    assert written(stage)["steps"][0]["send"] == "@合规 请看"
    assert made.parting is not None
    assert (made.parting.matter, made.parting.before, made.parting.after) == (
        "must",
        "compliance",
        "",
    )


def in_another_order(stage: Stage) -> None:
    path = stage.folder / "agents" / "teams" / "crew.yaml"
    team = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**team, "members": team["members"][::-1]}), encoding="utf-8")


def test_another_order_of_the_team_is_not_put_right(stage: Stage) -> None:
    talk(stage, "@所有人 请看", to=["tester"])
    talk(stage, "@所有人 请看")
    in_another_order(stage)
    one = promotion(stage)
    asyncio.run(one.make(stage.place()))
    assert one.notes == []
    assert [step["send"] for step in written(stage)["steps"]] == ["@所有人 请看"] * 2


@pytest.mark.parametrize("reordered", [False, True])
def test_a_name_that_is_anothers_by_now_is_not_put_right(stage: Stage, reordered: bool) -> None:
    talk(stage, "@合规 请看")
    stage.agent("compliance", {"say": "没有了"}, name="法务")
    stage.agent("developer", {"say": "在做"}, name="合规").team(humans=["maya"])
    if reordered:
        in_another_order(stage)
    one = promotion(stage)
    made = asyncio.run(one.make(stage.place()))
    assert one.notes == []
    assert written(stage)["steps"][0]["send"] == "@合规 请看"
    assert made.parting is not None
    assert (made.parting.before, made.parting.after) == ("compliance", "developer")


@pytest.mark.parametrize("may_mention", [None, ["c"]])
def test_whom_all_names_in_vain_may_be_called_beside_it(
    tmp_path: Path, may_mention: list[str] | None
) -> None:
    stage = Stage(tmp_path)
    stage.agent("a", {"say": "@all 请看", "next_mentions": ["b", "c"]}, may_mention=may_mention)
    stage.agent("b", "B").agent("c", "C").agent("d", "D").team(selection="none")
    found = talk(stage, "@a go")
    (done,) = [e for e in found if isinstance(e, ReplyFinished) and e.agent == "a"]
    assert set(done.refused) == ({"d"} if may_mention is None else {"b", "d"})
    assert promoted(stage).parting is None
    result = replayed(stage)
    assert (result.status, result.drift) == ("passed", []), printed(result)


def test_until_takes_the_chain_to_its_end(stage: Stage) -> None:
    found = talk(stage, GDPR, "@架构师 继续", "@合规 继续")
    first, second, _ = ends(found)
    for until in (second, second - 2):
        one = promotion(stage, until=until, force=True)
        asyncio.run(one.make(stage.place()))
        assert len(written(stage)["steps"]) == 2
        told = [
            f"event {until} is within a chain: the chain is included to its end, event {second}"
        ]
        assert one.notes == ([] if until == second else told)
    promoted(stage, until=first, force=True)
    assert len(written(stage)["steps"]) == 1
    assert replayed(stage).status == "passed"


def test_a_torn_line_after_until_is_not_looked_at(stage: Stage) -> None:
    found = talk(stage, "@测试工程师 请测", "@架构师 继续")
    path = stage.folder / "sessions" / "s" / "transcript.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    end = ends(found)[0]
    path.write_bytes(b"".join([*lines[:end], b"{torn\n", *lines[end:]]))
    assert refused(stage).startswith(f"session s: transcript.jsonl:{end + 1} cannot be read")
    promoted(stage, until=end)
    assert replayed(stage).status == "passed"


def test_an_until_that_there_is_not(stage: Stage) -> None:
    found = talk(stage, GDPR)
    last = found[-1].seq
    assert refused(stage, until=99).startswith(f"session s: it has no event 99: its last is {last}")
    told = "session s: there is no answer up to event 1\n  its first chain goes from event 2 to "
    assert refused(stage, until=1) == f"{told}{last}"


def test_an_open_chain_is_left_out(stage: Stage) -> None:
    talk(stage, GDPR, "@架构师 继续")
    cut_short(stage, after="turn_started")
    one = promotion(stage)
    assert one.notes == [
        "its last chain is still open, and left out; `arena resume s` continues it"
    ]
    asyncio.run(one.make(stage.place()))
    assert len(written(stage)["steps"]) == 1
    told = "is in a chain that is still open\n  `arena resume s` continues it"
    assert refused(stage, until=events(stage)[-1].seq, force=True).endswith(told)


def test_a_session_of_an_open_chain_alone_is_refused(stage: Stage) -> None:
    talk(stage, GDPR)
    cut_short(stage, after="turn_started")
    assert (
        refused(stage) == "session s: its only chain is still open\n  `arena resume s` continues it"
    )


def test_an_interrupted_chain_is_past(stage: Stage) -> None:
    talk(stage, GDPR)
    cut_short(stage, after="turn_started")
    found = talk(stage, "@测试工程师 请测", "@架构师 继续")
    one = promotion(stage)
    cut = ends(found)[0]
    assert one.notes == [
        f"what was said up to event {cut} is the scenario's past: its last chain was interrupted, "
        "which no scenario can play"
    ]
    made = asyncio.run(one.make(stage.place()))
    assert made.parting is None
    data = written(stage)
    told = [author for said in data["given"]["messages"] for author in said]
    assert told == ["user", "architect", "compliance", "developer"]
    assert [step["send"] for step in data["steps"]] == ["@测试工程师 请测", "@架构师 继续"]
    result = replayed(stage)
    assert (result.status, result.drift) == ("passed", []), printed(result)
    assert refused(stage, until=cut, force=True).startswith(
        "session s: no part of it can be replayed: its last chain was interrupted"
    )


def test_what_was_said_by_other_rules_is_past(stage: Stage) -> None:
    talk(stage, GDPR, *["@架构师 继续"] * 6, author="maya")
    stage.team(humans=["maya"], max_responders=1)
    (stage.folder / "a.txt").write_text("附件")
    talk(stage, "@架构师 @合规 再看", files=[stage.folder / "a.txt"])
    then = talk(stage, "@架构师 继续")
    one = promotion(stage)
    assert "then the team, or its rules, became what they were in the rest" in one.notes[0]
    made = asyncio.run(one.make(stage.place()))
    assert made.parting is None, printed(made.result)
    data = written(stage)
    assert data["given"] == {"transcript": "fixtures/s/past.jsonl"}
    assert len(data["steps"]) == 2
    shutil.rmtree(stage.folder / "sessions")
    result = replayed(stage, keep="all")
    assert (result.status, result.drift) == ("passed", []), printed(result)

    def shown(found: list[Any], turns: int) -> list[tuple[str, str]]:
        started = [e for e in found if isinstance(e, ReplyStarted)]
        return [(e.agent, e.input_hash) for e in started if e.turn > started[-1].turn - turns]

    assert shown(events(stage, result.sessions[0]), 3) == shown(then, 3)


def test_a_long_past_keeps_what_was_attached(stage: Stage) -> None:
    (stage.folder / "a.txt").write_text("附件")
    talk(stage, "@架构师 看", files=[stage.folder / "a.txt"])
    stage.team(humans=["maya"], max_responders=2)
    talk(stage, "@架构师 继续")
    promoted(stage)
    folder = stage.folder / "scenarios" / "fixtures" / "s"
    assert [path.name for path in folder.rglob("*.txt")] == ["a.txt"]
    told = b'"metadata":{"scripted"'
    assert told in (stage.folder / "sessions/s/transcript.jsonl").read_bytes()
    assert told not in (folder / "past.jsonl").read_bytes()  # nobody is shown it
    shutil.rmtree(stage.folder / "sessions")
    result = replayed(stage)
    assert (result.status, result.drift) == ("passed", []), printed(result)


@pytest.mark.parametrize(
    "more",
    [
        {"kind": "task"},
        {"structured": [{"type": "diff", "data": {"diff": "+ a"}}]},
        {"mentions": ["tester"]},
        {"author_name": "前架构师"},
    ],
)
def test_a_short_past_that_is_not_plain_is_kept_as_it_was(
    stage: Stage, more: dict[str, Any]
) -> None:
    talk(stage, "@架构师 看")
    path = stage.folder / "sessions" / "s" / "transcript.jsonl"
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    said = next(one["message"] for one in lines if one["type"] == "reply_finished")
    said.update(more)
    path.write_text("".join(f"{json.dumps(one)}\n" for one in lines), encoding="utf-8")
    stage.team(humans=["maya"], max_responders=2)
    talk(stage, "@架构师 继续")
    assert promoted(stage).parting is None
    assert written(stage)["given"] == {"transcript": "fixtures/s/past.jsonl"}
    result = replayed(stage, keep="all")
    assert (result.status, result.drift) == ("passed", []), printed(result)
    again = [e.message for e in events(stage, result.sessions[0]) if isinstance(e, MessageEvent)]
    assert again[1].model_dump(mode="json").items() >= more.items()


def test_a_session_of_a_scenario_is_taken_with_what_it_planted(stage: Stage) -> None:
    text = """scenario: with a past
given: {messages: [{maya: 早}, {architect: "导出用 CSV"}]}
steps:
  - say: {agent: developer, text: "@tester 做好了"}
  - send: "@测试工程师 请测"
  - system: 九点更新
  - say: {agent: architect, text: "知道了 ${vars.x}"}
  - send: "@架构师 继续"
vars: {x: 1}
"""
    (result,) = stage.play_all(text, keep="all")
    name = result.sessions[0]
    one = promotion(stage, name)
    assert one.notes[-1].startswith("it was played by the scenario `with a past`")
    made = asyncio.run(one.make(stage.place()))
    assert made.parting is None
    data = written(stage, name)
    assert data["scenario"] == "@测试工程师 请测"
    assert [next(iter(said)) for said in data["given"]["messages"]] == [
        "maya",
        "architect",
        "developer",
    ]
    assert [next(iter(step)) for step in data["steps"]] == ["send", "system", "say", "send"]
    again = replayed(stage, name)
    assert (again.status, again.drift) == ("passed", []), printed(again)


@pytest.mark.parametrize("carries", [False, True])
def test_a_planted_message_that_no_step_plants_is_past(stage: Stage, carries: bool) -> None:
    talk(stage, "@测试工程师 请测")
    one = Planted("tester", "测试工程师", "agent", "见附件", attachments=(ATTACHED,))
    one = one if carries else Planted("maya", "Maya", "human", "早")
    now = loaded(stage)
    with Session(stage.place(), "s", now.team("crew")) as session:
        session.plant(one)
    talk(stage, "@架构师 继续")
    (note,) = promotion(stage).notes
    assert note.endswith("is the scenario's past: a message was planted that no step can plant")
    assert promoted(stage).parting is None
    result = replayed(stage)
    assert (result.status, result.drift) == ("passed", []), printed(result)


def test_who_spoke_in_a_step_must_be_there(stage: Stage) -> None:
    talk(stage, "@测试工程师 请测")
    now = loaded(stage)
    with Session(stage.place(), "s", now.team("crew")) as session:
        session.plant(Planted("compliance", "合规", "agent", "好"))
    talk(stage, "@测试工程师 再来")
    (stage.folder / "agents" / "compliance.yaml").unlink()
    stage.team(humans=["maya"])
    assert refused(stage).startswith(
        "session s has agents that are no longer in the team: compliance\n"
    )


def test_a_chain_that_its_limit_stopped(tmp_path: Path) -> None:
    stage = Stage(tmp_path).agent("a", {"say": "@b go"}).agent("b", {"say": "@a go"})
    stage.team(chain_depth_limit=1, selection="none")
    talk(stage, "@a start", "@b start")
    assert promoted(stage).parting is None
    assert [step["expect"]["end"] for step in written(stage)["steps"]] == ["chain_limit"] * 2
    assert replayed(stage).status == "passed"


def test_a_session_without_a_team(tmp_path: Path) -> None:
    stage = Stage(tmp_path).agent("a", {"say": "A"}).agent("b", {"say": "B"})
    talk(stage, "@a go")
    promoted(stage)
    assert "team" not in written(stage)
    stage.agent("c", {"say": "C"}).team()  # from now on there is one
    made = promoted(stage, force=True)
    assert written(stage)["agents"] == ["a", "b"]
    assert made.parting is None
    assert replayed(stage).status == "passed"


def test_a_human_who_is_gone_is_given_back(stage: Stage) -> None:
    talk(stage, "@架构师 看", author="maya")
    stage.team(humans=["ben"])
    assert promoted(stage).parting is None
    assert written(stage)["humans"] == [
        {"id": "ben", "name": "Ben"},
        {"id": "maya", "name": "Maya"},
    ]
    assert replayed(stage).status == "passed"


def test_a_human_who_is_only_awaited_and_gone_is_given_back(tmp_path: Path) -> None:
    stage = Stage(tmp_path).agent("a", {"say": "@maya 好了"}).team(humans=["maya"])
    talk(stage, "go")
    stage.team(humans=["ben"])
    assert promoted(stage).parting is None
    assert written(stage)["humans"] == [{"id": "ben", "name": "Ben"}, {"id": "maya"}]
    assert replayed(stage).status == "passed"


def test_a_human_who_is_an_agent_by_now_is_told(stage: Stage) -> None:
    talk(stage, "@架构师 看", author="maya")
    stage.agent("maya", {"say": "M"}).team()
    assert refused(stage).startswith("session s has humans that are agents of the team now: maya\n")
    assert not (stage.folder / "scenarios").exists()


def test_agents_or_a_team_that_are_gone_are_told(stage: Stage) -> None:
    talk(stage, GDPR)
    (stage.folder / "agents" / "tester.yaml").unlink()
    stage.team(humans=["maya"])
    assert refused(stage).startswith(
        "session s has agents that are no longer in the team: tester\n"
    )
    (stage.folder / "agents" / "teams" / "crew.yaml").unlink()
    (stage.folder / "arena.yaml").unlink()
    assert refused(stage).startswith("the session's team is gone: there is no team `crew`")
    assert not (stage.folder / "scenarios").exists()


def test_a_session_in_which_nobody_said_anything(stage: Stage) -> None:
    talk(stage, GDPR)
    cut_short(stage, after="session")
    assert refused(stage) == "session s: it has no message that was sent: there is nothing to play"


def test_an_attachment_that_is_gone_is_told(stage: Stage) -> None:
    (stage.folder / "a.txt").write_text("附件")
    talk(stage, "@架构师 看", files=[stage.folder / "a.txt"])
    shutil.rmtree(stage.folder / "sessions" / "s" / "attachments")
    assert refused(stage).startswith("what was attached to m2 as a.txt is gone\n")


def test_what_an_answer_attached_and_is_gone_is_told(tmp_path: Path) -> None:
    part = {"type": "json", "name": "计划.json", "data": {"days": 5}}
    stage = Stage(tmp_path).agent("a", {"say": "x", "attachments": [part]}).team()
    talk(stage, "go")
    shutil.rmtree(tmp_path / "sessions" / "s" / "attachments")
    with pytest.raises(UsageError, match=r"what a attached to m\d+ as 计划.json is gone"):
        promoted(stage)
    assert not (tmp_path / "scenarios").exists()


def test_what_is_gone_of_the_past_is_told_of_as_gone(stage: Stage) -> None:
    (stage.folder / "a.txt").write_text("附件")
    talk(stage, "@架构师 看", files=[stage.folder / "a.txt"])
    stage.team(humans=["maya"], max_responders=2)
    talk(stage, "@架构师 继续")
    shutil.rmtree(stage.folder / "sessions" / "s" / "attachments")
    promoted(stage)
    assert not list((stage.folder / "scenarios").rglob("*.txt"))
    result = replayed(stage)
    assert (result.status, result.drift) == ("passed", []), printed(result)


@pytest.mark.skipif(sys.platform == "win32", reason="no file has such a name")
def test_a_file_has_a_name_that_every_platform_takes(stage: Stage) -> None:
    (stage.folder / "a:b.txt").write_text("附件")
    talk(stage, "@架构师 看", files=[stage.folder / "a:b.txt"])
    promoted(stage)
    assert written(stage)["steps"][0]["attach"] == ["fixtures/s/a_b.txt"]
    assert replayed(stage).status == "passed"


def test_a_file_of_the_workspace_is_not_taken_for_it(stage: Stage) -> None:
    (stage.folder / "a.txt").write_text("附件")
    talk(stage, "@架构师 看", files=[stage.folder / "a.txt"])
    other = stage.folder / "fixtures" / "s" / "a.txt"
    other.parent.mkdir(parents=True)
    other.write_text("另一份")
    promoted(stage)
    result = replayed(stage, keep="all")
    (message, *_) = [
        e.message for e in events(stage, result.sessions[0]) if isinstance(e, MessageEvent)
    ]
    assert (stage.folder / str(message.attachments[0].path)).read_text() == "附件"


def test_a_line_that_cannot_be_read_is_told(stage: Stage) -> None:
    talk(stage, GDPR, "@架构师 继续")
    path = stage.folder / "sessions" / "s" / "transcript.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:5], b"{torn\n", *lines[6:]]))
    assert refused(stage).startswith("session s: transcript.jsonl:6 cannot be read: not JSON\n")


@pytest.mark.parametrize(
    "gone", [["reply_finished"], ["reply_started"], ["turn_started", "turn_finished"]]
)
def test_events_that_are_missing_are_told(stage: Stage, gone: list[str]) -> None:
    talk(stage, "@测试工程师 请测")
    path = stage.folder / "sessions" / "s" / "transcript.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(line for line in lines if json.loads(line)["type"] not in gone))
    assert refused(stage) == "session s: events are missing in it\n  `arena doctor s` shows which"


def test_a_chain_whose_end_is_missing_is_past(stage: Stage) -> None:
    talk(stage, "@测试工程师 请测", "@架构师 继续")
    path = stage.folder / "sessions" / "s" / "transcript.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    at = next(n for n, line in enumerate(lines) if b'"chain_finished"' in line)
    path.write_bytes(b"".join([*lines[:at], *lines[at + 1 :]]))
    promoted(stage)
    assert [step["send"] for step in written(stage)["steps"]] == ["@架构师 继续"]


def test_nothing_is_written_over_without_being_told(stage: Stage) -> None:
    talk(stage, GDPR)
    path = stage.scenario("mine", "s")
    assert (
        refused(stage) == "scenarios/s.yaml already exists\n"
        "  overwrite it with `--force`, or write elsewhere with `--to FILE`"
    )
    assert path.read_text() == "mine"
    path.rename(stage.folder / "recordings.jsonl")
    (path.parent / "recordings").mkdir()
    (stage.folder / "recordings.jsonl").rename(path.parent / "recordings" / "s.jsonl")
    assert refused(stage).startswith("scenarios/recordings/s.jsonl already exists\n")
    promoted(stage, to=Path("scenarios/deep/other.yaml"))
    assert refused(stage, to=Path("scenarios/OTHER.yaml")).startswith(
        "OTHER is the name of scenarios/deep/other.yaml too\n"
    )
    promoted(stage, force=True)
    assert replayed(stage).status == "passed"


def test_promoting_again_gives_the_same_bytes(stage: Stage) -> None:
    talk(stage, GDPR, "@架构师 继续")
    promoted(stage)
    folder = stage.folder / "scenarios"
    first = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    promoted(stage, force=True)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == first


@pytest.mark.parametrize("to", ["x.yml", "x", ".yaml", "x.jsonl"])
def test_a_file_that_is_no_scenario(stage: Stage, to: str) -> None:
    talk(stage, GDPR)
    assert "a scenario's file ends in .yaml" in refused(stage, to=Path(to))


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        ("登录 v1.2 & $(x)", "登录-v1.2-x"),
        ("हिन्दी", "हिन्दी"),
        ("(con)", "_con"),
        ("🎉", "🎉"),
        ("''", "session"),
    ],
)
def test_a_name_becomes_one_that_shells_and_platforms_take(
    stage: Stage, name: str, stem: str
) -> None:
    talk(stage, GDPR, name=name)
    assert promoted(stage, name).scenario == f"scenarios/{stem}.yaml"


@pytest.mark.parametrize(
    ("to", "command"),
    [
        ("scenarios/登录 1.yaml", "arena run '登录 1' --replay"),
        ("scenarios/-x.yaml", "arena run scenarios/-x.yaml --replay"),
        ("other/登录.yaml", "arena run other/登录.yaml --replay"),
    ],
)
def test_the_command_is_one_that_can_be_pasted(tmp_path: Path, to: str, command: str) -> None:
    program = Program(tmp_path)
    cast(program)
    talk(program, "@测试工程师 请测")
    assert program.run("promote", "s", "--to", to).stdout.endswith(f"play them: {command}\n")


@pytest.mark.parametrize("to", ["agents/x.yaml", "agents/teams/x.yaml"])
def test_a_scenario_is_no_agent(stage: Stage, to: str) -> None:
    talk(stage, GDPR)
    told = f"--to {to}: a file in agents/ is an agent or a team\n  such as scenarios/x.yaml"
    assert refused(stage, to=Path(to)) == told


def test_elsewhere_a_file_may_have_any_name(stage: Stage) -> None:
    talk(stage, GDPR)
    promoted(stage)
    assert promoted(stage, to=Path("other/s.yaml")).scenario == "other/s.yaml"


def test_what_became_a_secret_later_is_not_written(stage: Stage) -> None:
    (stage.folder / "a.txt").write_text("口令 hunter2-x")
    talk(stage, "@架构师 口令 hunter2-x")
    talk(stage, "@架构师 看", name="t", files=[stage.folder / "a.txt"])
    place = replace(stage.place(), redact=[r"hunter2-\w+"])
    for name, file in (("s", "recordings/s.jsonl"), ("t", "fixtures/t/a.txt")):
        told = f"scenarios/{file} would contain a secret: session {name} is older than"
        with pytest.raises(UsageError, match=told):
            asyncio.run(promotion(stage, name).make(place))
    assert not (stage.folder / "scenarios").exists()


def test_the_command_tells_both_files_and_how_to_play_them(tmp_path: Path) -> None:
    program = Program(tmp_path)
    cast(program)
    program.run("send", "-q", "--session", "s", GDPR).check()
    line = (
        "wrote scenarios/s.yaml and scenarios/recordings/s.jsonl; play them: arena run s --replay\n"
    )
    program.run("promote", "s").check(stdout=line)
    done = program.run("run", "s", "--replay")
    assert done.normal(done.stdout).splitlines()[-1] == "1 passed in N s · 1 replayed"
    assert done.code == 0
    program.run("promote", "s").check(
        code=2,
        stdout="",
        stderr="arena: scenarios/s.yaml already exists (and 1 more)\n"
        "  overwrite it with `--force`, or write elsewhere with `--to FILE`\n",
    )
    program.team(humans=["maya"], max_responders=1)
    done = program.run("promote", "s", "--force")
    assert done.code == 1
    *_, told, rule, last = done.stdout.splitlines()
    assert (
        told == "differs from the session: step 1, turn 1: must reply: architect, compliance "
        "→ architect"
    )
    assert rule == "the team has a different config.max_responders: 5 → 1"
    assert f"{last}\n" == line


def test_a_session_that_is_not_there(tmp_path: Path) -> None:
    program = Program(tmp_path)
    cast(program)
    program.run("promote", "x").check(
        code=2,
        stdout="",
        stderr="arena: there is no session 'x'\n  `arena sessions` lists all sessions.\n",
    )


def test_no_secret_and_no_folder_of_this_machine_is_in_its_files(tmp_path: Path) -> None:
    program = Program(tmp_path, env={"SPEAK_API_KEY": "very-secret-value"})
    env = {"env": {"SPEAK_API_KEY": "inherit"}}
    program.agent("a", adapter={"type": "cli", "command": ["no-such-program", "x"], **env})
    program.run("send", "-q", "--session", "s", "my key is very-secret-value")
    program.run("promote", "s").check(stdout=None)
    files = [path for path in (tmp_path / "scenarios").rglob("*") if path.is_file()]
    told = "".join(path.read_text(encoding="utf-8") for path in files)
    assert len(files) == 2
    assert not re.search(f"very-secret-value|{re.escape(str(tmp_path))}", told)
    assert program.run("run", "s", "--replay").code == 0


def summarising(program: Program, interval: int) -> None:
    """A team that talks at length, and beside it an agent that could summarise it."""
    program.agent("dev", {"say": f"Noted: {'the gateway has twelve workers ' * 12}"})
    program.team(auto_summary_interval=interval)
    said = "# Core goal\n- A gateway\n# Important facts\n- Twelve workers\n# Next steps\n- Test"
    program.agent("scribe", {"say": said}, member=False)


def summarised_by(program: Program, memory: dict[str, str]) -> None:
    program.file("arena.yaml", json.dumps({"team": "crew", "memory": memory}))


def test_a_past_that_an_agent_summarised_begins_with_its_summary(tmp_path: Path) -> None:
    program = Program(tmp_path)
    summarising(program, 6)
    summarised_by(program, {"summarizer": "scribe"})
    for count in range(8):
        program.run("send", "-q", "--session", "s", f"number {count}").check()
    made = [one for one in program.records("s") if one["type"] == "compacted"]
    assert [one["by"] for one in made] == ["scribe", "scribe"]
    assert program.run("promote", "s").code == 0
    done = program.run("run", "s", "--replay", "--keep", "all")
    assert done.code == 0, done.stdout
    (again,) = {path.name for path in (tmp_path / "sessions").iterdir() if path.is_dir()} - {"s"}
    (given,) = (one for one in program.records(again) if one["type"] == "compacted")
    assert (given["by"], given["summary"], given["messages"]) == (
        *("given (scribe)", made[-1]["summary"]),
        made[-1]["messages"],
    )
    shown = program.run("show", again, "--agent", "dev", "--context").check().stdout
    assert "Twelve workers" in shown
    assert "number 1" not in shown
    usage = json.loads(program.run("usage", again, "--json").stdout)
    assert [row["name"] for row in usage["rows"]] == ["dev"]


def test_answers_that_are_missing_for_its_memory_are_told(tmp_path: Path) -> None:
    program = Program(tmp_path)
    summarising(program, 4)
    for count in range(6):
        program.run("send", "-q", "--session", "s", f"number {count}").check()
    summarised_by(program, {"summarizer": "scribe"})
    done = program.run("promote", "s")
    assert done.code == 1
    assert "differs from the session: there are calls without a recorded answer\n" in done.stdout


def test_what_a_library_summarised_is_summarised_again(tmp_path: Path) -> None:
    program = Program(tmp_path)
    summarising(program, 6)
    for count in range(8):
        program.run("send", "-q", "--session", "s", f"number {count}").check()
    assert any(one["type"] == "compacted" for one in program.records("s"))
    program.run("promote", "s").check()
    assert "given" not in (tmp_path / "scenarios" / "s.yaml").read_text("utf-8")
    program.run("run", "s", "--replay").check()


ADD = 'def add(a: int) -> int:\n    open("calls", "a").write("x")\n    return a + 1\n'


def acting_program(folder: Path, **profile: Any) -> Program:
    """A session in which `fixer` called functions, and was not allowed one call."""
    program = Program(folder)
    program.file("calc.py", ADD)
    calls = [
        {"tool": "add", "arguments": {"a": 1}},
        [{"tool": "add", "arguments": {"a": 2}}, {"tool": "add", "arguments": {"b": 2}}],
        *profile.pop("last", []),
    ]
    program.agent(
        "fixer",
        adapter={"type": "scripted", "replies": [{"calls": calls, "say": "It is ${result}"}]},
        tools=["python:calc.py:add", "list_members"],
        **profile,
    )
    program.team([])
    assert program.run("send", "-s", "s", "--quiet", "@fixer go").code == 0
    return program


def test_calls_of_tools_are_promoted_with_their_results(tmp_path: Path) -> None:
    program = acting_program(tmp_path)
    called = (tmp_path / "calls").read_text()
    done = program.run("promote", "s")
    assert done.code == 0, done.stdout + done.stderr
    data = yaml.safe_load((tmp_path / "scenarios" / "s.yaml").read_text("utf-8"))
    (step,) = data["steps"]
    row = {"agent": "fixer", "name": "add"}
    assert (step["expect"]["tool"], step["expect"]["ended"]) == ([row, row], {"fixer": "goal"})
    done = program.run("run", "s", "--replay", "--json", "--keep", "all")
    told = json.loads(done.stdout)
    assert (done.code, told["drift"]) == (0, []), done.stdout
    assert (tmp_path / "calls").read_text() == called
    (played,) = (tmp_path / "sessions").glob("2*/transcript.jsonl")
    results = [
        [
            event["result"]
            for event in map(json.loads, path.read_text("utf-8").splitlines())
            if event["type"] == "tool_finished"
        ]
        for path in (tmp_path / "sessions" / "s" / "transcript.jsonl", played)
    ]
    assert sorted(results[0]) == sorted(results[1])
    assert len(results[0]) == 3


def test_reactions_replies_and_kinds_are_promoted(tmp_path: Path) -> None:
    """Those of people as steps, those of agents with their answers; a replay shows the same."""
    program = reacting(tmp_path)
    program.run("react", "s", last_id(program, "dev"), "👍", "--from", "maya").check()
    answered = ("--reply-to", last_id(program, "ops"), "--kind", "task")
    program.run("send", "-s", "s", "--from", "maya", *answered, "@dev what is plan B?").check()
    program.run("send", "-s", "s", "@dev and then?").check()
    done = program.run("promote", "s")
    assert done.code == 0, done.stdout
    path = tmp_path / "scenarios" / "s.yaml"
    _, reaction, plan, _ = yaml.safe_load(path.read_text("utf-8"))["steps"]
    assert reaction == {"react": {"agent": "dev", "emoji": "👍"}, "from": "maya"}
    assert (plan["reply_to"], plan["kind"]) == ("ops", "task")
    assert plan["expect"]["reactions"] == [{"by": "dev", "reaction": "🎉", "to": "ops"}]
    assert program.run("run", "s", "--replay").code == 0


def test_a_reaction_to_an_older_message_is_past(tmp_path: Path) -> None:
    program = reacting(tmp_path)
    first = last_id(program, "dev")
    program.run("send", "-s", "s", "@dev and then?").check()
    program.run("react", "s", first, "👍").check()
    program.run("send", "-s", "s", "@dev what is plan B?").check()
    told = program.run("promote", "s")
    reason = "a person answered a message that is not the last of its author"
    assert reason in " ".join(told.stderr.split())
    steps = yaml.safe_load((tmp_path / "scenarios" / "s.yaml").read_text("utf-8"))["steps"]
    assert [step["send"] for step in steps] == ["@dev what is plan B?"]


def reacting(folder: Path) -> Program:
    """A session `s` of agents that react and answer each other."""
    program = Program(folder)
    cheers = [{"type": "reaction", "data": {"reaction": "🎉", "to": "@ops"}}]
    program.agent(
        "dev",
        {"when": {"contains": "plan B"}, "say": "Release 811.", "structured": cheers},
        {
            "when": {"contains": "and then"},
            "output": {"content": "A break.", "kind": "task", "reply_to": "@ops"},
        },
        {"say": "It is deployed."},
    )
    program.agent("ops", {"say": "I watch.", "structured": [{"type": "reaction", "data": "✅"}]})
    program.team(humans=["maya"], selection="none")
    program.run("send", "-s", "s", "--from", "maya", "@dev @ops deploy it").check()
    return program


def last_id(program: Program, author: str) -> str:
    """The id of the last message of somebody in session `s`."""
    messages = [record["message"] for record in program.records() if record.get("message")]
    return [str(one["id"]) for one in messages if one["author_id"] == author][-1]


def test_an_output_that_was_handed_in_is_promoted(tmp_path: Path) -> None:
    last = [{"tool": "complete_task", "arguments": {"report": {"sum": 3}}}]
    output = {"name": "report", "schema": {"type": "object", "required": ["sum"]}}
    program = acting_program(tmp_path, last=last, output=output)
    assert program.run("promote", "s").code == 0
    done = program.run("run", "s", "--replay", "--json")
    assert (done.code, json.loads(done.stdout)["drift"]) == (0, []), done.stdout
