"""A planner decides how a chain works: a plan is read, checked, shown, and carried out as tasks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from product import (
    AgentOutput,
    ModelFacts,
    PersonAnswer,
    Team,
    Usage,
    canonicalize,
    decide_mode,
    estimate_complexity,
    find_circle,
    mentions,
    read_plan,
    reader,
)
from program import Program
from support import Puppets, Talk, member, puppet, team


def step(name: str, agent: str, *needs: str, task: str = "") -> dict[str, Any]:
    """A step as a planner writes it."""
    made = {"id": name, "agent": agent, "task": task or f"do {name}"}
    return {**made, "needs": list(needs)} if needs else made


def plan(mode: str, *phases: list[dict[str, Any]], **keys: Any) -> str:
    """The answer of a planner; `phases` are lists of steps."""
    body = {"phases": [{"name": f"p{n}", "steps": steps} for n, steps in enumerate(phases, 1)]}
    body |= {"checkpoints": keys.pop("checkpoints")} if "checkpoints" in keys else {}
    return json.dumps({"mode": mode, "confidence": 0.8, **keys, "plan": body})


def planned(*members: Any, says: list[Any], **config: Any) -> Team:
    """A team with a planner `planner` that gives these answers."""
    made = team(
        *members, **{"mode": "planner", "planner": "planner", "selection": "none", **config}
    )
    object.__setattr__(made, "planner", member("planner", says, member=False))
    return made


def crew() -> list[Any]:
    return [
        member("arch", [{"say": "designed"}], name="Ada"),
        member("dev", [{"say": "coded"}]),
        member("qa", [{"say": "tested"}], aliases=["tester"]),
    ]


def read(answer: str, least: float = 0.5, **config: Any) -> Any:
    made = planned(*crew(), says=[], **config)
    return read_plan(answer, made, mentions.build_roster(made), {"gone": "paused"}, least)


def needs_of(draft: Any) -> dict[str, list[str]]:
    return {one.id: one.needs for one in draft.steps}


def test_a_plan_is_read_from_prose_a_fence_and_other_spellings() -> None:
    answer = plan("D", [step("s1", "@Ada")], [step("s2", "tester")], estimatedSteps=2, risks="time")
    draft = read(f"Here it is:\n```json\n{answer}\n```\nGood luck.")
    assert (draft.problem, draft.mode, draft.confidence) == ("", "layered", 0.8)
    assert [(one.id, one.agent) for one in draft.steps] == [("s1", "arch"), ("s2", "qa")]
    assert (draft.estimated_steps, list(draft.risks)) == (2, ["time"])
    assert needs_of(draft) == {"s1": [], "s2": ["s1"]}


def test_each_layer_needs_the_layer_above() -> None:
    layers = [[step("a", "arch")], [step("b", "dev"), step("c", "qa")], [step("d", "arch", "b")]]
    assert needs_of(read(plan("layered", *layers))) == {
        "a": [],
        "b": ["a"],
        "c": ["a"],
        "d": ["b", "c"],
    }


def test_results_side_by_side_are_joined_by_the_leader() -> None:
    draft = read(plan("parallel", [step("a", "dev"), step("b", "qa")]), fallback_agent="arch")
    assert (draft.steps[-1].id, draft.steps[-1].agent) == ("join", "arch")
    assert needs_of(draft)["join"] == ["a", "b"]
    joined = read(plan("parallel", [step("a", "dev"), step("b", "qa")], [step("c", "arch")]))
    assert needs_of(joined) == {"a": [], "b": [], "c": ["a", "b"]}


def test_the_leader_needs_its_specialists() -> None:
    steps = [step("lead", "arch"), step("code", "dev"), step("test", "qa", "code")]
    draft = read(plan("orchestrator", steps, lead="Ada"))
    assert needs_of(draft) == {"lead": ["code", "test"], "code": [], "test": ["code"]}
    after = [step("code", "arch")], [step("review", "dev"), step("test", "qa")]
    draft = read(plan("orchestrator", *after))
    assert [(one.id, one.agent) for one in draft.steps][-1] == ("join", "arch")
    assert needs_of(draft)["join"] == ["review", "test"]


PROBLEMS = {
    "no json": ("Sure, I plan it.", "its answer holds no plan in JSON"),
    "a circle": (
        plan("layered", [step("a", "arch", "b"), step("b", "dev", "a")]),
        "steps need each other: a → b → a",
    ),
    "a need that comes later": (
        plan("layered", [step("a", "arch", "b")], [step("b", "dev")]),
        "steps need each other: a → b → a",
    ),
    "strangers": (
        plan("parallel", [step("a", "bob"), step("b", "user")]),
        "step `a`: `bob` is no member of the team; step `b`: `user` is no agent",
    ),
    "500 steps": (
        plan("parallel", [step(f"s{n}", "dev") for n in range(500)]),
        "it has 500 steps, at most 50 are allowed",
    ),
    "no phases": ('{"mode": "single", "confidence": 1, "plan": {}}', "it has no phases"),
    "empty phases": (plan("single", []), "it has no steps"),
    "a mode of its own": (
        plan("swarm", [step("a", "dev")]),
        "`swarm` is none of its modes: single, orchestrator, parallel, layered",
    ),
    "duplicate ids": (
        plan("parallel", [step("a", "dev"), step("a", "qa")]),
        "two steps have the id `a`",
    ),
    "unknown needs": (
        plan("parallel", [step("a", "dev", "z")]),
        "step `a` needs `z`, which is no step",
    ),
    "no confidence": (
        plan("single", [step("a", "dev")], confidence="high"),
        "its confidence is not a number",
    ),
    "too sure": (
        plan("single", [step("a", "dev")], confidence=85),
        "its confidence is not from 0 to 1",
    ),
    "unsure": (
        plan("single", [step("a", "dev")], confidence=0.4),
        "its confidence 0.4 is below 0.5",
    ),
    "several agents alone": (
        plan("single", [step("a", "dev"), step("b", "qa")]),
        "the mode is single, and it names 2 agents",
    ),
    "no task": (
        json.dumps({"mode": "single", "confidence": 1, "phases": [{"steps": [{"agent": "dev"}]}]}),
        "step `s1` has no task",
    ),
}


@pytest.mark.parametrize(("answer", "problem"), PROBLEMS.values(), ids=PROBLEMS)
def test_what_is_no_plan_says_why(answer: str, problem: str) -> None:
    assert read(answer).problem == problem


def test_all_problems_are_reported_at_once() -> None:
    problem = read(plan("swarm", [step("a", "bob")], confidence=None)).problem
    assert problem.count(";") == 2


VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(max_size=6),
        st.sampled_from(["dev", "@qa", "single", "parallel", "a", "b"]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(
            st.sampled_from(["mode", "plan", "phases", "steps", "id", "agent", "task", "needs"]),
            inner,
            max_size=5,
        ),
    ),
    max_leaves=30,
)
STEPS = st.fixed_dictionaries(
    {},
    optional={
        "id": st.one_of(st.sampled_from("abcd"), VALUES),
        "agent": st.one_of(st.sampled_from(["dev", "qa", "arch", "bob"]), VALUES),
        "task": st.one_of(st.just("work"), VALUES),
        "needs": st.one_of(st.lists(st.sampled_from("abcd"), max_size=3), VALUES),
    },
)
PLANS = st.fixed_dictionaries(
    {
        "mode": st.one_of(
            st.sampled_from(["single", "orchestrator", "parallel", "layered"]), VALUES
        ),
        "confidence": st.one_of(st.floats(0.5, 1), VALUES),
        "phases": st.one_of(
            st.lists(
                st.fixed_dictionaries({"steps": st.one_of(st.lists(STEPS, max_size=4), VALUES)}),
                max_size=3,
            ),
            VALUES,
        ),
    },
    optional={"checkpoints": VALUES, "risks": VALUES, "estimated_steps": VALUES, "lead": VALUES},
)


@settings(max_examples=400, deadline=None)
@given(st.one_of(PLANS, VALUES))
def test_no_answer_raises_and_a_plan_without_problem_can_be_carried_out(value: Any) -> None:
    draft = read(json.dumps(value))
    if draft.problem:
        return
    needs = needs_of(draft)
    assert 0 < len(needs) <= 52
    assert not find_circle(needs)
    assert {name for names in needs.values() for name in names} <= needs.keys()
    assert {one.agent for one in draft.steps} <= {"arch", "dev", "qa"}
    if draft.mode == "parallel":
        used = {name for names in needs.values() for name in names}
        assert len(needs.keys() - used) == 1


@pytest.mark.parametrize(
    ("lines", "modules", "architecture", "mode"),
    [
        (299, True, True, "single"),
        (300, False, False, "orchestrator"),
        (1_999, True, True, "parallel"),
        (2_000, True, False, "layered"),
        (1_000, False, False, "orchestrator"),
        (1_001, False, False, "layered"),
        (400, False, True, "layered"),
    ],
)
def test_the_first_rule_that_holds_decides_the_mode(
    lines: int, modules: bool, architecture: bool, mode: str
) -> None:
    assert decide_mode(lines, has_modules=modules, needs_architecture=architecture) == mode


@pytest.mark.parametrize(
    ("text", "lines", "level"),
    [
        ("a script of about 120 lines", 120, "simple"),
        ("大约 1,500 行的系统", 1_500, "complex"),
        ("An API with 12 endpoints and a database", 520, "medium"),
        ("a site with 3 pages", 280, "simple"),
    ],
)
def test_an_estimate_says_on_what_it_rests(text: str, lines: int, level: str) -> None:
    estimate = estimate_complexity(text)
    assert (estimate.lines, estimate.level) == (lines, level)
    assert "rule of thumb" in estimate.rests_on or "that it names" in estimate.rests_on
    assert ("database" in estimate.dependencies) == ("database" in text)


@pytest.fixture
def arena(tmp_path: Path) -> Program:
    program = Program(tmp_path)
    program.agent("planner", {"say": PLAN}, member=False)
    program.agent("arch", {"say": "designed"}, skills=["design"])
    program.agent("dev", {"say": "coded"})
    program.team(mode="planner", planner="planner", fallback_agent="dev", selection="none")
    return program


PLAN = plan(
    "layered",
    [step("s1", "arch", task="design the API")],
    [step("s2", "dev", task="write the API")],
    checkpoints=["design agreed"],
    reasoning="two layers",
    risks=["time"],
    estimated_steps=2,
)


def test_a_plan_is_shown_and_nothing_is_done(arena: Program) -> None:
    shown = arena.run("plan", "build an API")
    assert shown.code == 0
    assert shown.out.decode().splitlines() == [
        "  planner plans: layered, 2 steps, confidence 0.8: two layers",
        "    phase p1",
        "      s1 · arch · design the API",
        "    phase p2",
        "      s2 · dev · write the API · needs s1",
        "    checkpoints: design agreed",
        "    estimated: 2 steps",
        "    risk: time",
    ]
    assert not (arena.folder / "sessions").exists()
    document = json.loads(arena.run("plan", "--json", "build an API").out)
    assert (document["mode"], document["confidence"]) == ("layered", 0.8)
    assert [one["name"] for one in document["phases"]] == ["p1", "p2"]
    assert document["usage"]["input_tokens"] > 0


def test_an_answer_that_is_no_plan_exits_with_1(arena: Program) -> None:
    arena.agent("planner", "no plan at all", member=False)
    shown = arena.run("plan", "build an API")
    assert shown.code == 1
    assert (
        "no plan of planner, dev does it alone: its answer holds no plan in JSON"
        in shown.out.decode()
    )


def test_a_team_without_a_planner_says_so(arena: Program) -> None:
    arena.team(selection="none")
    for words in (["plan", "x"], ["send", "--plan", "x"]):
        done = arena.run(*words)
        assert done.code == 2
        assert "has no planner" in done.problems.decode()


def test_settings_of_a_planner_are_checked(arena: Program) -> None:
    for config, problem in (
        ({"mode": "planner"}, "`planner` needs an agent that plans"),
        ({"planner": "nobody"}, "there is no agent `nobody`"),
        ({"planner": "planner", "fallback_agent": "nobody"}, "is not an agent"),
        ({"planner": "planner", "min_confidence": 2}, "min_confidence"),
    ):
        arena.team(**config)
        done = arena.run("plan", "x")
        assert done.code == 2
        assert problem in done.problems.decode()


def test_the_planner_is_shown_who_can_do_what_and_the_numbers(tmp_path: Path) -> None:
    asked: list[str] = []
    puppets = Puppets({"planner": lambda one: asked.append(one.messages[-1].content) or "no"})
    made = planned(puppet("dev", skills=["python"]), says=[])
    object.__setattr__(made, "planner", puppet("planner", member=False))
    puppets.answers["dev"] = lambda _: "done"
    puppets.inputs["dev"] = []
    talk = Talk(tmp_path, made, adapter_type=puppets)
    talk.send("an API with 12 endpoints")
    (text,) = asked
    for words in ("dev [python]", "above 1000", '"lines": 520', "12 endpoints"):
        assert words in text


def test_a_planner_of_a_workspace_that_nobody_trusts_is_not_called(arena: Program) -> None:
    arena.program("planner", "touch", "called", member=False)
    arena.env["ARENA_TRUST"] = ""
    done = arena.run("plan", "build it")
    assert done.code == 2
    assert "trust" in done.problems.decode()
    assert not (arena.folder / "called").exists()


# Carried out.

LAYERS = plan(
    "layered",
    [step("s1", "arch", task="design the API")],
    [step("s2", "dev", task="write the API"), step("s3", "qa", task="write the tests")],
    checkpoints=["design agreed", "built"],
)


def tasks_of(talk: Talk) -> dict[str, tuple[str, str]]:
    """The tasks by id: their agent, and how they ended."""
    found: dict[str, tuple[str, str]] = {}
    for event in talk.of("task"):
        agent = event.to or found.get(event.task, ("", ""))[0]
        found[event.task] = (agent, event.action)
    return found


def test_a_layered_plan_is_carried_out_layer_by_layer(tmp_path: Path) -> None:
    talk = Talk(tmp_path, planned(*crew(), says=[LAYERS]))
    end = talk.send("build an API")
    assert end.end == "quiet"
    assert talk.turns() == [(["arch"], []), (["dev", "qa"], [])]
    assert tasks_of(talk) == {
        "t1": ("arch", "complete"),
        "t2": ("dev", "complete"),
        "t3": ("qa", "complete"),
    }
    (made,) = talk.of("planned")
    assert (made.mode, made.agent, made.fallback) == ("layered", "planner", "")
    assert [event.label for event in talk.of("checkpoint")] == ["design agreed", "built"]
    assert end.usage.input_tokens > made.usage.input_tokens > 0


def test_an_escape_in_a_plan_hides_no_secret(tmp_path: Path) -> None:
    answer = plan("single", [step("s1", "dev", task="call with secret-7")])
    answer = answer.replace("secret-7", "s\\u0065cret-7")
    talk = Talk(tmp_path, planned(*crew(), says=[answer]), redact=("secret-7",))
    talk.send("build an API")
    (made,) = talk.of("planned")
    assert [one.task for _, one in made.steps] == ["call with [redacted]"]
    assert b"secret-7" not in talk.transcript.read_bytes()


def test_what_is_no_plan_costs_its_own_call_only(tmp_path: Path) -> None:
    talk = Talk(tmp_path, planned(*crew(), says=["let me think"], fallback_agent="qa"))
    assert talk.send("build an API").end == "quiet"
    (made,) = talk.of("planned")
    assert (made.mode, made.agents) == ("single", ["qa"])
    assert made.fallback == "its answer holds no plan in JSON"
    assert talk.turns() == [(["qa"], [])]
    assert talk.outcomes() == [("qa", "success")]


def test_without_a_fallback_agent_a_default_responder_does_it(tmp_path: Path) -> None:
    talk = Talk(tmp_path, planned(*crew(), says=["?"], default_responders=["dev"]))
    talk.send("build an API")
    assert talk.turns() == [(["dev"], [])]
    bare = Talk(tmp_path / "b", planned(*crew(), says=["?"]))
    bare.send("build an API")
    assert bare.turns() == [(["arch"], [])]


@pytest.mark.parametrize(
    ("says", "reason"),
    [
        ([{"fail": "error"}], "an error, as scripted"),
        ([{"delay_s": 30, "say": LAYERS}], "no answer within 0.1 s"),
        ([plan("single", [step("a", "dev")], confidence=0.2)], "its confidence 0.2 is below 0.5"),
    ],
    ids=["fails", "late", "unsure"],
)
def test_a_planner_that_gives_nothing_to_use_is_replaced(
    tmp_path: Path, says: list[Any], reason: str
) -> None:
    made = planned(*crew(), says=says, fallback_agent="dev", plan_timeout_s=0.1)
    talk = Talk(tmp_path, made)
    talk.send("build an API")
    assert reason in talk.last("planned").fallback
    assert talk.turns() == [(["dev"], [])]


def test_a_message_that_names_somebody_is_for_them(tmp_path: Path) -> None:
    talk = Talk(tmp_path, planned(*crew(), says=[LAYERS]))
    talk.send("@dev hello")
    assert not talk.of("planned")
    assert talk.turns() == [(["dev"], [])]


def test_rules_on_plans_send_it_back_once(tmp_path: Path) -> None:
    rule = {"id": "no_qa", "on": "plan", "when": {"mentions": "qa"}, "forbid": {"contains": "qa"}}
    alone = plan("single", [step("a", "dev")])
    talk = Talk(tmp_path, planned(*crew(), says=[LAYERS, alone], rules=[rule]))
    talk.send("build an API")
    first, second = talk.of("planned")
    assert "refused by rule no_qa" in first.refused
    assert (second.refused, second.mode, second.replan) == ("", "single", 0)
    assert [(one.kind, one.allowed) for one in talk.of("decision")] == [("plan", False)]
    assert [one.rule for one in talk.of("rule_broken")] == ["no_qa"]
    assert talk.turns() == [(["dev"], [])]
    stubborn = planned(*crew(), says=[LAYERS, LAYERS], rules=[rule], fallback_agent="arch")
    talk = Talk(tmp_path / "b", stubborn)
    talk.send("build an API")
    assert "no_qa" in talk.last("planned").fallback
    assert talk.turns() == [(["arch"], [])]


def test_a_plan_that_the_budget_cannot_pay_is_not_begun(tmp_path: Path) -> None:
    many = plan("parallel", [step(f"s{n}", "dev") for n in range(40)])
    made = planned(*crew(), says=[many], budget={"tokens": {"chain": 4_000}}, fallback_agent="qa")
    talk = Talk(tmp_path, made)
    talk.send("build an API")
    assert "the budget is 4000" in talk.last("planned").fallback
    assert talk.turns() == [(["qa"], [])]


def test_a_planner_whose_call_exceeds_the_budget_is_not_called(tmp_path: Path) -> None:
    made = planned(*crew(), says=[LAYERS], budget={"usd": {"chain": 0.0001}}, fallback_agent="arch")
    adapter = {"type": "anthropic", "model": "toy"}
    object.__setattr__(made, "planner", puppet("planner", member=False, adapter=adapter))
    asked: list[str] = []

    def answer(agent: str) -> Any:
        return lambda _: asked.append(agent) or AgentOutput(content="done", usage=Usage())

    puppets = Puppets({name: answer(name) for name in ("planner", "arch", "dev", "qa")})
    facts = {"toy": ModelFacts(input_per_m=100, output_per_m=100)}
    talk = Talk(tmp_path, made, adapter_type=puppets, models=facts)
    talk.send("build an API")
    assert "planner" not in asked
    assert "budget" in talk.last("planned").fallback


def test_the_dollars_that_steps_may_cost_are_an_estimate(tmp_path: Path) -> None:
    spent = Usage(input_tokens=100, output_tokens=10, cost_usd=0.1)
    many = plan("parallel", [step(f"s{n}", "dev") for n in range(8)])
    puppets = Puppets(
        {
            "planner": lambda _: AgentOutput(content=many, usage=Usage(cost_usd=0.0)),
            "dev": lambda _: AgentOutput(content="done", usage=spent),
        }
    )
    adapter = {"type": "anthropic", "model": "toy"}
    budget = {"usd": {"session": 0.55}}
    made = planned(puppet("dev", adapter=adapter), says=[], budget=budget, fallback_agent="dev")
    object.__setattr__(made, "planner", puppet("planner", member=False, adapter=adapter))
    facts = {"toy": ModelFacts(input_per_m=1, output_per_m=1)}
    talk = Talk(tmp_path, made, adapter_type=puppets, models=facts)
    talk.send("@dev hello")
    talk.send("build an API")
    assert talk.last("planned").fallback == (
        "its 9 steps cost about $0.90, an estimate: a reply has cost $0.10 so far; "
        "the budget of the session has $0.45 left"
    )
    assert [agents for agents, _ in talk.turns()][-1] == ["dev"]


def test_a_failed_task_asks_for_another_plan(tmp_path: Path) -> None:
    members = [member("arch", [{"fail": "error"}]), member("dev", ["did it"]), member("qa", ["ok"])]
    again = plan("single", [step("x", "dev", task="the other way")])
    says = [{"when": {"contains": "given up, since"}, "say": again}, {"say": LAYERS}]
    talk = Talk(tmp_path, planned(*members, says=says, task_retries=0))
    talk.send("build an API")
    first, second = talk.of("planned")
    assert (first.replan, second.replan) == (0, 1)
    assert "t1 design the API" in second.failed[0]
    ends = tasks_of(talk)
    assert {name: action for name, (_, action) in ends.items()} == {
        "t1": "fail",
        "t2": "cancel",
        "t3": "cancel",
        "t4": "complete",
    }


def test_it_is_planned_again_at_most_so_often(tmp_path: Path) -> None:
    members = [member("arch", [{"fail": "error"}]), member("dev", ["x"]), member("qa", ["x"])]
    talk = Talk(tmp_path, planned(*members, says=[{"say": LAYERS}], task_retries=0, replans=1))
    talk.send("build an API")
    assert [made.replan for made in talk.of("planned")] == [0, 1]


def orders(talk: Talk) -> list[tuple[str, str]]:
    return [(one.decision, one.by) for one in talk.of("approval_decided")]


def test_a_person_approves_a_plan_before_anything_is_done(arena: Program) -> None:
    arena.team(mode="planner", planner="planner", approve_plan=True, selection="none")
    paused = arena.run("send", "-s", "s", "build it")
    assert paused.code == 4
    assert not arena.finished()
    listed = arena.run("approvals", "s").out.decode()
    assert "planner" in listed
    assert "design the API" in listed
    status = arena.run("status", "s").out.decode()
    assert "planner plans: layered, 2 steps" in status
    document = json.loads(arena.run("status", "s", "--json").out)
    assert document["sessions"][0]["plan"]["mode"] == "layered"
    assert arena.run("approve", "s", "1").code == 0
    done = arena.run("resume", "s")
    assert done.code == 0
    assert arena.finished() == [("arch", "success"), ("dev", "success")]


@pytest.mark.parametrize("decision", ["approved", "rejected"])
def test_a_terminal_asks_about_the_plan_at_once(tmp_path: Path, decision: Any) -> None:
    asked: list[str] = []

    async def answer(question: Any) -> PersonAnswer:
        asked.append(question.asked.detail)
        return PersonAnswer(decision)

    made = planned(*crew(), says=[{"say": LAYERS}], approve_plan=True, replans=0)
    talk = Talk(tmp_path, made, ask_person=answer)
    end = talk.send("build an API")
    assert asked == ["layered: 3 steps"]
    assert end.end == ("quiet" if decision == "approved" else "cancelled")
    assert len(talk.outcomes()) == (3 if decision == "approved" else 0)


def test_a_chinese_workspace_asks_in_chinese(tmp_path: Path) -> None:
    asked: list[str] = []

    def answer(given: Any) -> str:
        asked.append(given.messages[-1].content)
        return plan("single", [step("a", "dev")])

    puppets = Puppets({"planner": answer, "dev": lambda _: "好的"})
    made = planned(puppet("dev"), says=[])
    object.__setattr__(made, "planner", puppet("planner", member=False))
    talk = Talk(tmp_path, made, adapter_type=puppets, language="zh")
    talk.send("做一个接口")
    assert asked[0].startswith("你为一个智能体团队制定计划")
    assert "Answer with" not in asked[0]


def test_a_chinese_workspace_delivers_in_chinese(tmp_path: Path) -> None:
    talk = Talk(tmp_path, planned(*crew(), says=[LAYERS]))
    talk.language = "zh"
    talk.send("写一个接口")
    text = (talk.transcript.parent / "delivery" / "README.md").read_text("utf-8")
    assert "## 计划：layered（分层）\n" in text
    assert "completed（已完成） · @arch\n" in text
    assert "- p1：" in text


def test_a_rejected_plan_is_made_again_with_the_reason(arena: Program) -> None:
    again = plan("single", [step("x", "dev", task="write it at once")])
    adapter = {
        "type": "scripted",
        "replies": [{"when": {"contains": "too many layers"}, "say": again}, {"say": PLAN}],
    }
    arena.agent("planner", adapter=adapter, member=False)
    config = {"mode": "planner", "planner": "planner", "approve_plan": True, "replans": 1}
    arena.team(**config, selection="none")
    assert arena.run("send", "-s", "s", "build it").code == 4
    assert arena.run("reject", "s", "1", "--because", "too many layers").code == 0
    assert arena.run("resume", "s").code == 4
    made = [one for one in arena.records() if one["type"] == "planned"]
    assert [one.get("replan", 0) for one in made] == [0, 1]
    assert "too many layers" in made[1]["failed"][0]
    assert arena.run("reject", "s", "2").code == 0
    arena.run("resume", "s")
    assert arena.records()[-1]["end"] == "cancelled"
    assert not arena.finished()


def test_the_results_are_delivered(arena: Program) -> None:
    done = arena.run("send", "-s", "s", "build an API")
    folder = arena.folder / "sessions" / "s" / "delivery"
    text = (folder / "README.md").read_text("utf-8")
    for words in ("> build an API", "layered", "t1 · design the API", "designed", "coded"):
        assert words in text
    assert "delivered in sessions/s/delivery: README.md" in done.out.decode()
    shown = arena.run("show", "s", "--html").out.decode()
    assert "sessions/s/delivery" in shown


def test_files_that_tools_made_are_in_the_delivery(arena: Program) -> None:
    for agent, workdir in (("arch", "design"), ("dev", "app")):
        (arena.folder / workdir).mkdir()
        calls = [
            {"tool": "write_file", "arguments": {"path": path, "content": f"by = {agent!r}\n"}}
            for path in ("lib/api.py", f"notes of {agent}.md")
        ]
        adapter = {"type": "scripted", "replies": [{"calls": calls, "say": "written"}]}
        arena.agent(agent, adapter=adapter, workdir=workdir, tools=["write_file"])
    arena.team(
        mode="planner",
        planner="planner",
        selection="none",
        approvals={"modify_file": "allow"},
    )
    arena.run("send", "-s", "s", "build an API")
    folder = arena.folder / "sessions" / "s" / "delivery"
    paths = {path for path in (folder / "files").rglob("*") if path.is_file()}
    contents = {path.relative_to(folder / "files").as_posix(): path.read_text() for path in paths}
    assert contents == {
        "lib/api.py": "by = 'arch'\n",
        "notes of arch.md": "by = 'arch'\n",
        "dev/lib/api.py": "by = 'dev'\n",
        "notes of dev.md": "by = 'dev'\n",
    }
    text = (folder / "README.md").read_text("utf-8")
    assert all(f"(<files/{name}>)" in text for name in contents)


def test_a_label_is_a_place_to_fork_at(arena: Program) -> None:
    arena.run("send", "-s", "s", "build an API")
    assert "design agreed" in arena.run("checkpoints", "s").out.decode()
    forked = arena.run("fork", "s", "--at", "design agreed", "--name", "other")
    assert forked.code == 0


def split(*titles: str) -> dict[str, Any]:
    """A reply that adds tasks."""
    tasks = [{"title": title, "assigned_to": "qa"} for title in titles]
    return {"say": f"split\n```task_list\n{json.dumps(tasks)}\n```"}


def test_killed_after_any_event_it_continues_to_the_same_end(tmp_path: Path) -> None:
    def make(folder: Path) -> Talk:
        rule = {"id": "short", "on": "plan", "forbid": {"contains": "zzz"}}
        members = [
            member("arch", [{"fail": "error"}]),
            member("dev", [split("Check it")]),
            member("qa", [{"say": "tested"}]),
        ]
        again = plan("parallel", [step("x", "dev"), step("y", "qa")], checkpoints=["both"])
        says = [{"when": {"contains": "given up, since"}, "say": again}, {"say": LAYERS}]
        made = planned(*members, says=says, task_retries=0, rules=[rule], fallback_agent="dev")
        return Talk(folder, made)

    whole = make(tmp_path / "whole")
    whole.send("build an API")
    lines = whole.transcript.read_bytes().splitlines(keepends=True)
    kinds = [json.loads(line)["type"] for line in lines]
    assert {"planned", "decision", "task", "work_started", "checkpoint", "delivered"} <= {*kinds}
    for count in range(2, len(lines)):
        talk = make(tmp_path / str(count))
        talk.transcript.parent.mkdir(parents=True)
        talk.transcript.write_bytes(b"".join(lines[:count]))
        talk.resume()
        events = [
            [event for line in reader.read_lines(one.transcript) for event in line.events]
            for one in (talk, whole)
        ]
        assert canonicalize(events[0]) == canonicalize(events[1]), (count, kinds[count])


def test_tasks_that_agents_add_to_a_plan_are_done_and_delivered(tmp_path: Path) -> None:
    """They were left without a word: only those of the plan were worked on."""
    members = [member("arch", [split("Check the format", "Check the names")]), *crew()[1:]]
    members[2] = member("qa", ["tested", "formats fit", "names fit"])
    talk = Talk(tmp_path, planned(*members, says=[LAYERS]))
    assert talk.send("build an API").end == "quiet"
    assert [action for _, action in tasks_of(talk).values()] == ["complete"] * 5
    assert [tasks_of(talk)[name][0] for name in ("t4", "t5")] == ["qa", "qa"]
    text = (talk.transcript.parent / "delivery" / "README.md").read_text("utf-8")
    assert "### t5 · Check the names" in text
    assert "names fit" in text


def test_tasks_that_were_added_to_a_plan_are_cancelled_with_it(tmp_path: Path) -> None:
    again = plan("single", [step("x", "dev")])
    says = [{"when": {"contains": "given up, since"}, "say": again}, {"say": LAYERS}]
    members = [
        member("arch", [split("Check the format", "Check the names")]),
        member("dev", [{"when": {"call": 1}, "fail": "error"}, {"say": "coded"}]),
        member("qa", [{"say": "tested"}]),
    ]
    talk = Talk(tmp_path, planned(*members, says=says, task_retries=0))
    assert talk.send("build an API").end == "quiet"
    ends = {name: action for name, (_, action) in tasks_of(talk).items()}
    assert (ends["t2"], ends["t5"], ends["t6"]) == ("fail", "cancel", "complete")


RECORDED = """\
scenario: a plan
steps:
  - send: "build an API"
    expect:
      plan: {mode: layered, agents: [arch, dev], confidence: {min: 0.6}}
      replied: [arch, dev]
"""


def test_its_recording_replays_without_drift(arena: Program) -> None:
    arena.scenario(RECORDED, "plan")
    assert arena.run("run", "plan", "--record").code == 0
    assert arena.run("run", "plan", "--replay").code == 0
    arena.scenario(RECORDED.replace("min: 0.6", "min: 0.9"), "plan")
    failed = arena.run("run", "plan")
    assert failed.code == 1
    assert "plan.confidence" in failed.out.decode()


def test_what_is_expected_of_a_plan_is_checked(arena: Program) -> None:
    for wrong in ("{mode: single}", "{agents: [dev]}", "{fallback: true}", "{replans: 1}"):
        arena.scenario(f"scenario: x\nsteps: [{{send: 'go', expect: {{plan: {wrong}}}}}]", "x")
        done = arena.run("run", "x")
        assert done.code == 1
        assert "expect" in done.out.decode()
    arena.scenario("scenario: x\nsteps: [{send: '@dev hi', expect: {plan: {mode: single}}}]", "x")
    assert "no plan" in arena.run("run", "x").out.decode()


APPROVED = """\
scenario: a person approves the plan
config: {approve_plan: true}
steps:
  - send: "build an API"
    expect: {paused: approval}
  - approve: {agent: planner}
    expect:
      replied: [arch, dev]
      approvals: [{agent: planner, action: plan, decision: approved}]
"""


def test_a_scenario_approves_a_plan(arena: Program) -> None:
    arena.scenario(APPROVED, "approved")
    assert arena.run("run", "approved", "--record").code == 0
    assert arena.run("run", "approved", "--replay").code == 0
    arena.scenario("scenario: x\nsteps: [{send: go, expect: {plan: {agents: [bob]}}}]", "x")
    assert "no member of this team has the id `bob`" in arena.run("run", "x").problems.decode()


def test_a_long_task_has_a_short_title(tmp_path: Path) -> None:
    long = plan("single", [step("a", "dev", task="word " * 700)])
    talk = Talk(tmp_path, planned(*crew(), says=[long]))
    talk.send("build an API")
    facts = talk.of("task")[0].facts
    assert len(facts.title) <= 200 < len(facts.description)


def test_similar_work_and_what_it_wrote_is_shown(arena: Program) -> None:
    code = "done:\n```python\n" + "x = 1\n" * 150 + "```"
    arena.agent("dev", {"say": code})
    arena.team(mode="planner", planner="planner", selection="none", fallback_agent="dev")
    arena.run("send", "-s", "first", "@dev build an order API with a database")
    arena.agent("planner", adapter={"type": "scripted", "replies": SHOWING}, member=False)
    done = arena.run("plan", "--json", "build an order API with a cache and a database")
    assert json.loads(done.out)["reasoning"] == "seen"


def test_the_most_similar_earlier_work_comes_first(arena: Program) -> None:
    arena.agent("dev", {"say": "done"}, {"say": "done"})
    arena.team(mode="planner", planner="planner", selection="none", fallback_agent="dev")
    arena.run("send", "-s", "same", "@dev build an order API with a cache")
    arena.run("send", "-s", "near", "@dev build an order API in a day or two, for everybody")
    in_order = {"when": {"regex": r"(?s)same #1 .*near #1 "}}
    ordered = {**in_order, "say": plan("single", [step("a", "dev")], reasoning="in order")}
    adapter = {"type": "scripted", "replies": [ordered, {"say": "in another order"}]}
    arena.agent("planner", adapter=adapter, member=False)
    done = arena.run("plan", "--json", "build an order API with a cache")
    assert json.loads(done.out)["reasoning"] == "in order"


SHOWING = [
    {
        "when": {"regex": r"first #1 \(0\.\d+; quiet; 150 lines"},
        "say": plan("single", [step("a", "dev")], reasoning="seen"),
    },
    {"say": "not shown"},
]


def test_a_session_with_a_plan_is_not_promoted(arena: Program) -> None:
    arena.run("send", "-s", "s", "build an API")
    done = arena.run("promote", "s")
    assert done.code == 2
    assert "a planner was called" in done.problems.decode()


def test_one_message_is_planned_in_a_free_team(arena: Program) -> None:
    arena.team(planner="planner", selection="none", default_responders=["dev"])
    arena.run("send", "-s", "s", "hello")
    arena.run("send", "-s", "s", "--plan", "build an API")
    assert arena.finished() == [("dev", "success"), ("arch", "success"), ("dev", "success")]
    preview = arena.run("send", "--plan", "--dry-run", "build an API").out.decode()
    assert "asked first, and plans the work:" in preview


def test_the_call_of_a_planner_is_no_work_for_the_memory(arena: Program) -> None:
    arena.run("send", "build an API").check()
    used = arena.run("usage").check().stdout
    assert "planner" in used
    assert "(memory)" not in used


def test_a_detached_chain_is_planned_too(arena: Program) -> None:
    arena.team(planner="planner", selection="none", default_responders=["dev"])
    arena.run("send", "-s", "s", "--plan", "--detach", "build an API")
    assert arena.run("wait", "s", "--timeout", "60").code == 0
    assert arena.finished() == [("arch", "success"), ("dev", "success")]


def test_a_team_without_a_planner_imports_nothing_of_it(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.agent("dev", "hi")
    imported = program.list_imported("send", "-q", "@dev hello")
    assert not [name for name in imported if "plan" in name and name != "arena_cli.engine.plan"]
