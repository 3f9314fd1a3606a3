"""A supervisor decides who replies: what it says is used as far as it can be, and limits hold."""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from product import (
    AgentInput,
    AgentOutput,
    ControlRequest,
    Supervision,
    Team,
    canonicalize,
    context_render,
    mentions,
    reader,
    supervisor_read_answer,
)
from product import outgoing_outgoing as outgoing
from program import Program
from support import Puppets, Talk, member, puppet, team


def decision(*agents: str, **keys: Any) -> dict[str, Any]:
    """A scripted decision; `when` is its condition."""
    when = {"when": keys.pop("when")} if "when" in keys else {}
    return {**when, "say": json.dumps({"should_reply": list(agents), **keys})}


def supervised(*members: Any, says: list[Any], mode: str = "supervisor", **config: Any) -> Team:
    """A team with a supervisor `chief` that gives these answers."""
    made = team(*members, mode=mode, supervisor="chief", **{"selection": "none", **config})
    object.__setattr__(made, "supervisor", member("chief", says, member=False))
    return made


DONE = {"say": '{"done": true}'}


def crew() -> list[Any]:
    return [
        member("dev", [{"say": "built: ${message}"}], name="Dana"),
        member("qa", [{"say": "tested: ${message}"}], aliases=["tester"]),
        member("ops", [{"say": "@qa deployed"}]),
    ]


def test_it_names_who_replies_until_it_is_done(tmp_path: Path) -> None:
    says = [
        decision("@Dana", when={"invocation": "supervise", "turn": 1}),
        decision("tester", when={"turn": 2}),
        DONE,
    ]
    talk = Talk(tmp_path, supervised(*crew(), says=says))
    end = talk.send("@ops please")
    assert talk.turns() == [(["dev"], []), (["qa"], [])]
    assert (end.end, end.turns) == ("quiet", 2)
    assert [event.turn for event in talk.of("supervised")] == [1, 2, 3]
    assert talk.last("supervised").done
    decisions = [(one.decision, one.kind, one.by, one.allowed) for one in talk.of("decision")]
    assert decisions == [(number, "route", "chief", True) for number in (1, 2, 3)]
    assert talk.of("turn_started")[0].mentioned_by == {"dev": ["chief"]}
    assert end.usage.input_tokens > sum(
        event.usage.input_tokens for event in talk.of("reply_finished")
    )


def test_an_empty_list_ends_the_chain_and_people_may_be_awaited(tmp_path: Path) -> None:
    asks = member("dev", ["@user which one?"])
    says = [decision("dev", when={"turn": 1}), decision()]
    end = Talk(tmp_path / "a", supervised(asks, says=says)).send("go")
    assert (end.end, end.awaits) == ("awaiting_human", ["user"])
    end = Talk(tmp_path / "b", supervised(asks, says=[decision()])).send("@dev go")
    assert (end.end, end.turns) == ("no_reply", 0)


def test_in_a_sequence_each_is_shown_the_replies_before_its_own(tmp_path: Path) -> None:
    says = [decision("qa", "dev", order="sequence", when={"turn": 1}), DONE]
    talk = Talk(tmp_path, supervised(*crew(), says=says))
    talk.send("go")
    texts = [event.message.content for event in talk.of("reply_finished")]
    assert texts == ["tested: go", "built: go\ntested: go"]
    assert talk.last("reply_finished").message.reply_to == talk.of("reply_finished")[0].message.id
    kinds = [event.type for event in talk.events if event.type.startswith("reply_")]
    assert kinds == ["reply_started", "reply_finished"] * 2
    in_order = [one["type"] for one in canonicalize(talk.events) if "reply_" in one["type"]]
    assert in_order == kinds


def test_a_brief_is_shown_to_its_agent_alone(tmp_path: Path) -> None:
    says = [decision("dev", "qa", briefs={"Dana": "only\n> the login", "ops": "x"}), DONE]
    puppets = Puppets(
        {"dev": lambda _: "d", "qa": lambda _: "q", "chief": lambda _: says.pop(0)["say"]}
    )
    made = team(
        puppet("dev", name="Dana"),
        puppet("qa"),
        puppet("ops"),
        mode="supervisor",
        supervisor="chief",
    )
    object.__setattr__(made, "supervisor", puppet("chief", member=False))
    talk = Talk(tmp_path, made, adapter_type=puppets)
    talk.send("go")
    (dev,), (qa,) = puppets.inputs["dev"], puppets.inputs["qa"]
    assert (dev.brief, qa.brief) == ("only\n> the login", "")
    assert "brief" not in qa.model_dump()
    prompt = context_render.render(dev)[1]
    assert "For this reply, you are told, and you alone:\n> only\n> > the login\n" in prompt
    assert context_render.render(qa)[1].count("> ") == 1
    event = talk.of("supervised")[0]
    assert event.briefs == {"dev": "only\n> the login"}
    assert event.ignored == ["the brief for `ops`"]


def test_it_is_told_the_state_of_each_member(tmp_path: Path) -> None:
    told: list[AgentInput] = []

    def chief(input: AgentInput) -> str:
        told.append(input)
        names = [["dev", "qa", "ops"], []][len(told) - 1]
        return json.dumps({"should_reply": names})

    def fails(_: AgentInput) -> str:
        raise RuntimeError("broken")

    answers = {"dev": lambda _: "done", "qa": lambda _: "<pass/>", "ops": fails, "chief": chief}
    made = team(
        puppet("dev", skills=["login"]),
        puppet("qa"),
        puppet("ops"),
        mode="supervisor",
        supervisor="chief",
    )
    object.__setattr__(made, "supervisor", puppet("chief", member=False))
    Talk(tmp_path, made, adapter_type=Puppets(answers)).send("the login breaks")
    first, second = told
    assert (first.invocation, first.turn, first.call) == ("supervise", 1, 1)
    assert (second.turn, second.call) == (2, 2)
    assert first.supervision
    assert second.supervision
    assert [(one.id, one.state, one.relevance) for one in first.supervision.members] == [
        ("dev", "not_called", 0.4),
        ("qa", "not_called", 0),
        ("ops", "not_called", 0),
    ]
    assert [(one.state, one.reason) for one in second.supervision.members] == [
        ("called", ""),
        ("declined", ""),
        ("failed", "protocol"),
    ]
    assert [message.content for message in second.messages] == ["the login breaks", "done"]


BAD = [
    ("I think dev should do it.", "holds no decision"),
    ('{"should_reply": "nobody"}', "names no agent"),
    ('{"should_reply": ["chief", "user", "bob"]}', "`user` is no agent"),
    ('{"should_reply": null}', "no list"),
    ('{"should_reply": [1, {}]}', "no list"),
    ('{"reason": "none", "done": "maybe"}', "no list"),
    ("{" * 2000, "holds no decision"),
]


@pytest.mark.parametrize(("says", "reason"), BAD)
def test_an_answer_that_cannot_be_used_leaves_it_to_the_free_rules(
    tmp_path: Path, says: str, reason: str
) -> None:
    talk = Talk(tmp_path, supervised(*crew(), says=[{"say": says.replace("${", "$${")}]))
    end = talk.send("@dev go")
    assert talk.turns() == [(["dev"], [])]
    assert end.end == "quiet"
    assert reason in talk.of("supervised")[0].fallback
    assert not talk.of("decision")[0].allowed


@pytest.mark.parametrize("failure", ["timeout", "error", "refused"])
def test_a_call_that_fails_leaves_it_to_the_free_rules(tmp_path: Path, failure: str) -> None:
    talk = Talk(tmp_path, supervised(*crew(), says=[{"fail": failure}]))
    talk.send("@dev go")
    assert talk.turns() == [(["dev"], [])]
    assert "as scripted" in talk.of("supervised")[0].fallback


def test_its_call_is_retried(tmp_path: Path) -> None:
    says = [{"when": {"call": 1}, "fail": "error"}, decision("dev", when={"turn": 1}), DONE]
    talk = Talk(tmp_path, supervised(*crew(), says=says, on_failure="retry", retry_delay_s=0.01))
    talk.send("go")
    assert [event.attempts for event in talk.of("supervised")] == [2, 1]
    assert talk.turns() == [(["dev"], [])]


GOOD = [
    ('Sure:\n```json\n{"should_reply": ["dev"]}\n```\nas asked', ["dev"], []),
    ('first {"should_reply": ["qa"]}, no: {"should_reply": ["dev"]}', ["dev"], []),
    ('{"should_reply": "dev", "order": 3}', ["dev"], ["`order` is neither parallel nor sequence"]),
    ('{"should_reply": ["bob", "dev", 3]}', ["dev"], None),
    ('{"should_reply": ["@all"], "briefs": []}', ["dev", "qa", "ops"], ["`briefs` is no mapping"]),
]


@pytest.mark.parametrize(("text", "agents", "ignored"), GOOD)
def test_what_can_be_used_is_used(text: str, agents: list[str], ignored: list[str] | None) -> None:
    made = supervised(*crew(), says=[])
    answer = supervisor_read_answer(text, made, mentions.build_roster(made), {})
    assert (answer.should_reply, answer.problem) == (agents, "")
    assert ignored is None or list(answer.ignored) == ignored


def test_limits_hold(tmp_path: Path) -> None:
    says = [decision("@all", when={"turn": 1}), decision("dev")]
    made = supervised(*crew(), says=says, max_responders=2, chain_depth_limit=2)
    talk = Talk(tmp_path, made)
    end = talk.send("go")
    assert talk.turns() == [(["dev", "qa"], []), (["ops", "dev"], []), (["dev"], [])]
    assert end.end == "chain_limit"
    assert talk.last("message").message.content.endswith("Still due: Dana.")


def test_mixed_asks_only_where_nobody_is_mentioned(tmp_path: Path) -> None:
    says = [decision("ops", when={"turn": 1}), decision("dev", when={"turn": 3}), DONE]
    dev, _, ops = crew()
    talk = Talk(tmp_path, supervised(dev, member("qa", ["ok"]), ops, says=says, mode="mixed"))
    talk.send("go")
    assert talk.turns() == [(["ops"], []), (["qa"], []), (["dev"], [])]
    assert [event.turn for event in talk.of("supervised")] == [1, 3, 4]
    talk.send("@dev go")
    assert [event.turn for event in talk.of("supervised")][3:] == [5]


def test_a_failure_may_ask_for_another_plan(tmp_path: Path) -> None:
    told: list[Supervision | None] = []

    def chief(input: AgentInput) -> str:
        told.append(input.supervision)
        return '{"should_reply": ["dev"]}' if len(told) < 6 else '{"done": true}'

    def fails(_: AgentInput) -> AgentOutput:
        raise RuntimeError("broken")

    made = team(puppet("dev", on_failure="replan"), mode="supervisor", supervisor="chief")
    object.__setattr__(made, "supervisor", puppet("chief", member=False))
    puppets = Puppets({"dev": fails, "chief": chief})
    talk = Talk(tmp_path, made, adapter_type=puppets)
    end = talk.send("go")
    assert end.end == "failed"
    assert [event.replan for event in talk.of("supervised")] == [False, True, True] + [False] * 3
    assert [one.problems if one else None for one in told][:4] == [
        [],
        ["dev failed: protocol"],
        ["dev failed: protocol"],
        [],
    ]


def test_without_a_supervisor_the_default_responders_are_asked_for_another_way(
    tmp_path: Path,
) -> None:
    lead = member(
        "lead", [{"when": {"contains": "another way"}, "say": "then by hand"}, {"say": "x"}]
    )
    made = team(
        lead,
        member("dev", [{"fail": "error"}], on_failure={"protocol": "replan"}),
        default_responders=["lead"],
        selection="none",
    )
    talk = Talk(tmp_path, made)
    end = talk.send("@dev go")
    assert talk.turns() == [(["dev"], []), (["lead"], [])]
    assert talk.last("reply_finished").message.content == "then by hand"
    (notice,) = [one.message for one in talk.of("message") if one.message.author_type == "system"]
    assert "- dev failed: protocol\n" in notice.content
    assert end.end == "quiet"


def test_it_is_planned_again_at_most_so_often(tmp_path: Path) -> None:
    made = team(member("dev", [{"fail": "error"}]), on_failure="replan", replans=3)
    talk = Talk(tmp_path, made)
    assert talk.send("@dev go").end == "failed"
    assert len(talk.turns()) == 4


def scripted_chain() -> Team:
    says = [
        decision("ops", "dev", "qa", order="sequence", briefs={"qa": "b"}, when={"turn": 1}),
        {"when": {"turn": 2}, "say": "prose"},
        DONE,
    ]
    return supervised(*crew(), says=says, on_failure="replan")


def test_killed_after_any_event_it_continues_to_the_same_end(tmp_path: Path) -> None:
    whole = Talk(tmp_path / "whole", scripted_chain())
    whole.send("go")
    lines = whole.transcript.read_bytes().splitlines(keepends=True)
    assert {b"supervised", b"decision"} <= {
        word for line in lines for word in (b"supervised", b"decision") if word in line
    }
    for count in range(2, len(lines)):
        talk = Talk(tmp_path / str(count), scripted_chain())
        talk.transcript.parent.mkdir(parents=True)
        talk.transcript.write_bytes(b"".join(lines[:count]))
        talk.resume()
        events = [
            [event for line in reader.read_lines(one.transcript) for event in line.events]
            for one in (talk, whole)
        ]
        assert canonicalize(events[0]) == canonicalize(events[1]), count


NAMES = st.sampled_from(["dev", "qa", "@all", "chief", "user", "bob", "", "Dana"])
ANSWERS = st.one_of(
    st.fixed_dictionaries(
        {},
        optional={
            "should_reply": st.one_of(st.lists(NAMES, max_size=4), NAMES, st.none(), st.integers()),
            "order": st.sampled_from(["sequence", "parallel", "", 3]),
            "briefs": st.one_of(st.dictionaries(NAMES, st.text(max_size=5), max_size=2), st.none()),
            "reason": st.one_of(st.text(max_size=5), st.integers()),
            "done": st.sampled_from([True, False, "no", None, 7]),
        },
    ).map(json.dumps),
    st.text(max_size=20),
)


@settings(max_examples=60, deadline=None)
@given(
    answers=st.lists(ANSWERS, min_size=1, max_size=6),
    mode=st.sampled_from(["supervisor", "mixed"]),
    places=st.integers(1, 3),
    depth=st.integers(0, 3),
)
def test_no_answer_breaks_a_chain_or_its_limits(
    answers: list[str], mode: str, places: int, depth: int
) -> None:
    remaining = iter([*answers, *['{"done": true}'] * 9])
    puppets = Puppets(
        {"dev": lambda _: "@qa", "qa": lambda _: "ok", "chief": lambda _: next(remaining)}
    )
    made = team(
        puppet("dev", name="Dana"),
        puppet("qa"),
        mode=mode,
        supervisor="chief",
        max_responders=places,
        chain_depth_limit=depth,
    )
    object.__setattr__(made, "supervisor", puppet("chief", member=False))
    with tempfile.TemporaryDirectory() as folder:
        talk = Talk(Path(folder), made, adapter_type=puppets)
        end = talk.send("go")
        started = talk.of("turn_started")
        assert len(started) <= depth + 1
        assert all(len(event.must) <= places for event in started)
        assert {agent for event in started for agent in event.must} <= {"dev", "qa"}
        assert {event.agent for event in talk.of("reply_finished")} <= {"dev", "qa"}
        assert (
            len(talk.of("supervised")) == len(talk.of("decision")) == len(puppets.inputs["chief"])
        )
        assert end.end in ("quiet", "no_reply", "chain_limit")


CHIEF_PROGRAM = """\
import json, sys
turn = json.load(sys.stdin)["turn"]
says = {"should_reply": ["dev", "qa"], "order": "sequence", "briefs": {"qa": "WORD"}}
print(json.dumps({"content": json.dumps(says if turn == 1 else {"done": True})}))
"""

SCENARIO = """\
scenario: A build
steps:
  - send: "build it"
    expect: {replied: [dev, qa]}
"""


@pytest.fixture
def arena(tmp_path: Path) -> Program:
    program = Program(tmp_path)
    program.program("dev", "say", "built")
    program.program("qa", "say", "tested")
    program.team(mode="supervisor", supervisor="chief", selection="none")
    return program


def write_chief(arena: Program, word: str = "the login") -> None:
    (arena.folder / "chief.py").write_text(CHIEF_PROGRAM.replace("WORD", word), encoding="utf-8")


def add_chief(arena: Program, word: str = "the login") -> None:
    write_chief(arena, word)
    adapter = {
        "type": "cli",
        "command": [sys.executable, "chief.py"],
        "prompt": "json",
        "output": "json",
    }
    profile = {"agent_id": "chief", "member": False, "adapter": adapter}
    arena.file("agents/chief.yaml", json.dumps(profile))


def test_its_calls_are_recorded_replayed_and_drift(arena: Program) -> None:
    add_chief(arena)
    arena.scenario(SCENARIO, "build")
    assert arena.run("run", "build", "--record").code == 0
    recording = arena.folder / "scenarios" / "recordings" / "build.jsonl"
    lines = [json.loads(row) for row in recording.read_text(encoding="utf-8").splitlines()]
    kinds = [one["type"] for one in lines if one["type"] in ("supervise", "supervised")]
    assert kinds == ["supervise", "supervised"] * 2
    (qa,) = [one for one in lines if one["type"] == "reply_started" and one["agent"] == "qa"]
    assert (qa["input"]["brief"], qa["input"]["messages"]) == ("the login", ["m1-m2"])
    (arena.folder / "chief.py").unlink()
    replayed = arena.run("run", "build", "--replay", "--json")
    assert json.loads(replayed.stdout)["drift"][0]["field"] == "file chief.py"
    write_chief(arena)
    replayed = arena.run("run", "build", "--replay", "--json")
    assert (replayed.code, json.loads(replayed.stdout)["drift"]) == (0, [])
    arena.team(mode="supervisor", supervisor="chief", selection="none", max_responders=1)
    drifted = arena.run("run", "build", "--replay", "--json")
    assert drifted.code == 1
    fields = [one["field"] for one in json.loads(drifted.stdout)["drift"]]
    assert "config.max_responders" in fields


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ("{mode: supervisor}", "config.mode: `supervisor` needs an agent that supervises"),
        ("{supervisor: a}", "config.supervisor: `a` is never asked: the mode is free"),
        ("{mode: mixed, supervisor: chef}", "config.supervisor: there is no agent `chef`"),
        ("{mode: mixed, supervisor: [a, b]}", "config.supervisor: must be"),
        ("{mode: boss}", "config.mode: must be one of free, supervisor, mixed"),
    ],
)
def test_a_wrong_setting_is_an_error_with_its_line(
    tmp_path: Path, config: str, problem: str
) -> None:
    arena = Program(tmp_path)
    arena.file("agents/a.yaml", "agent_id: a\nadapter: {type: scripted, replies: [x]}\n")
    arena.file("agents/teams/t.yaml", f"team: t\nmembers: [a]\nconfig: {config}\n")
    done = arena.run("agents", "check")
    assert done.code == 2
    assert f"agents/teams/t.yaml:3: {problem}" in done.stderr


def test_an_ignored_blocker_asks_for_another_plan(tmp_path: Path) -> None:
    says = [
        *("Blocker: the payment keys are missing.", "I deploy the payment keys."),
        "The payment keys are missing, so I wait.",
    ]
    program = Program(tmp_path)
    program.agent("dev", *says).team()
    program.run("send", "@dev a", "-s", "s", "--quiet").check()
    program.run("send", "@dev b", "-s", "s", "--quiet").check()
    records = program.records()
    assert [one["level"] for one in records if one["type"] == "deviation"] == ["replan_required"]
    notices = [one["message"] for one in records if one["type"] == "message"]
    assert "dev ignored the note blocker-" in notices[-1]["content"]
    assert notices[-1]["author_type"] == "system"
    replies = [one["message"]["content"] for one in records if one["type"] == "reply_finished"]
    assert replies == says


def test_a_call_beyond_the_budget_pauses_the_chain(tmp_path: Path) -> None:
    talk = Talk(tmp_path, supervised(*crew(), says=[decision("dev", when={"turn": 1}), DONE]))
    talk.send("go")
    spent = talk.last("supervised").usage.input_tokens
    budget = {"tokens": {"chain": 5 * spent}}
    says = [decision("dev")]
    made = supervised(member("dev", [{"say": "x"}]), says=says, budget=budget, chain_depth_limit=9)
    talk = Talk(tmp_path / "bounded", made)
    paused = talk.send("go")
    assert paused.type == "chain_paused"
    assert talk.of("supervised")
    used = [event.usage for event in talk.events if event.type in ("supervised", "reply_finished")]
    assert sum(usage.input_tokens + usage.output_tokens for usage in used) <= 5 * spent


def test_a_person_that_steers_is_heard_by_the_supervisor(tmp_path: Path) -> None:
    told: list[AgentInput] = []

    def chief(input: AgentInput) -> str:
        told.append(input)
        if len(told) == 1:
            session.carry_out(ControlRequest(act="steer", text="hurry up"))
        return json.dumps({"should_reply": ["dev"] if len(told) < 3 else []})

    made = team(puppet("dev"), mode="supervisor", supervisor="chief")
    object.__setattr__(made, "supervisor", puppet("chief", member=False))
    talk = Talk(tmp_path, made, adapter_type=Puppets({"dev": lambda _: "ok", "chief": chief}))
    with talk.open() as session:
        asyncio.run(session.last(session.send(outgoing(made, "go"))))
    assert [event.turn for event in talk.of("supervised")] == [1, 1, 2]
    assert told[1].messages[-1].content == "hurry up"
    assert talk.turns() == [(["dev"], [])]


def test_a_supervisor_that_names_no_agent_ends_the_chain_and_the_timeline_says_so(
    tmp_path: Path,
) -> None:
    arena = Program(tmp_path)
    arena.agent("dev", "built")
    arena.agent("chief", '{"should_reply": []}', member=False)
    arena.team(mode="supervisor", supervisor="chief", selection="none")
    done = arena.run("send", "@dev go")
    assert "  chief ends the chain\n" in done.stdout
    assert "══ no_reply" in done.stdout
    assert "not asked" not in done.stdout  # neither relevance nor a mention decided it
