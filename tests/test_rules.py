"""Rules on what agents say and do, and the circuit breaker of agents that break them."""

from __future__ import annotations

import asyncio
import json
import shutil
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from product import (
    AgentOutput,
    FileFaults,
    RecordingStore,
    Runner,
    ScenarioResult,
    StructuredContent,
    Usage,
    base,
    list_contacts,
    user_function,
    workspace,
)
from stage import Stage, broken
from support import CountingClock, Puppets, Talk, member, puppet, team

KEY = "sk-abcdefghijklmnop0123456789"


def one_rule(tmp_path: Path, rule: Any, *replies: str, **config: Any) -> Talk:
    """A team of one agent, which gives these replies, one a call, under one rule."""
    entries = [{"when": {"call": n}, "say": reply} for n, reply in enumerate(replies, 1)]
    return Talk(tmp_path, team(member("dev", entries), rules=[rule], **config))


@pytest.mark.parametrize(
    ("rule", "wrong", "right"),
    [
        ("no_secrets", f"use {KEY}", "use the key of the vault"),
        ("no_mass_mention", "@all look", "look"),
        ({"max_chars": 5}, "too long", "short"),
        ({"language": "zh"}, "안녕하세요", "你好"),
        ({"json_schema": {"type": "object"}}, "[1]", "{}"),
        ({"id": "own", "require": {"contains": "because"}}, "no", "no, because"),
        ({"id": "own", "forbid": {"regex": "TODO|FIXME"}}, "x # TODO", "x"),
        ({"id": "own", "forbid": {"any_of": [{"contains": "a"}, {"equals": "b"}]}}, "b", "c"),
    ],
)
def test_a_broken_rule_goes_back_to_its_agent_once(
    tmp_path: Path, rule: Any, wrong: str, right: str
) -> None:
    talk = one_rule(tmp_path, rule, wrong, right)
    talk.send("go")
    (done,) = talk.of("reply_finished")
    assert (done.status, done.message.content, done.attempts) == ("success", right, 2)
    (rule_broken,) = talk.of("rule_broken")
    assert (rule_broken.agent, rule_broken.corrected) == ("dev", True)
    assert [event.allowed for event in talk.of("decision")] == [False, True]
    assert {name for event in talk.of("decision") for name in event.rules} == {rule_broken.rule}


def test_all_errors_go_back_in_a_frame_and_a_second_break_fails(tmp_path: Path) -> None:
    agents = Puppets(
        {"dev": lambda _: AgentOutput(content="TODO\n> agent: ok", usage=Usage(output_tokens=7))}
    )
    rules = [
        {"id": "late", "forbid": {"contains": "TODO"}, "error": "write no TODO", "priority": 20},
        {"max_chars": 3, "error": "too long"},
    ]
    talk = Talk(tmp_path, team(puppet("dev"), rules=rules), adapter_type=agents)
    end = talk.send("go")
    first, second = agents.inputs["dev"]
    assert [message.content for message in first.messages] == ["go"]
    told = second.messages[-1]
    assert told.author_type == "system"
    assert told.content.splitlines()[1:3] == ["- max_chars: too long", "- late: write no TODO"]
    assert "| TODO\n| > agent: ok" in told.content
    assert second.call == first.call + 1
    (done,) = talk.of("reply_finished")
    assert (done.status, done.error_code, done.usage.output_tokens) == ("error", "rule", 14)
    assert done.error.startswith("dev: refused by rule max_chars: too long; refused by rule late")
    assert end.end == "failed"
    assert [event.corrected for event in talk.of("rule_broken")] == [False] * 2


@pytest.mark.parametrize(("corrections", "calls"), [(0, 1), (2, 3)])
def test_corrections_can_be_set(tmp_path: Path, corrections: int, calls: int) -> None:
    agents = Puppets({"dev": lambda _: "long"})
    config = team(puppet("dev"), rules=[{"max_chars": 1}], corrections=corrections)
    talk = Talk(tmp_path, config, adapter_type=agents)
    talk.send("go")
    assert len(agents.inputs["dev"]) == calls


def test_a_crash_between_the_attempts_begins_the_reply_again(tmp_path: Path) -> None:
    talk = one_rule(tmp_path, {"max_chars": 5}, "too long", "also too long", "short")

    def crash(event: Any) -> None:
        if event.type == "reply_started" and event.attempt == 2:
            raise OSError("killed")

    talk.on_event = crash
    with pytest.raises(OSError, match="killed"):
        talk.send("go")
    assert talk.of("rule_broken") == []
    talk.on_event = lambda _: None
    end = talk.resume()
    assert end is not None
    assert (end.end, end.replies) == ("quiet", 1)
    assert talk.last("reply_finished").message.content == "short"
    assert [event.allowed for event in talk.of("decision")] == [False, True]


def test_an_exceeded_deadline_ends_a_correction(tmp_path: Path) -> None:
    async def answer(input: Any) -> str:
        if input.messages[-1].author_type == "system":
            await asyncio.sleep(60)
        return "too long"

    agents = Puppets({"dev": answer})
    crew = team(puppet("dev"), rules=[{"max_chars": 5}], turn_timeout_s=0.2)
    talk = Talk(tmp_path, crew, adapter_type=agents)
    talk.send("go")
    (done,) = talk.of("reply_finished")
    assert (done.status, done.attempts) == ("timeout", 2)
    (rule_broken,) = talk.of("rule_broken")
    assert not rule_broken.corrected


def test_the_verdict_of_a_judge_is_no_reply_of_the_team(tmp_path: Path) -> None:
    verdict = json.dumps({"verdict": "pass", "reason": "it is a greeting, as asked"})
    stage = Stage(tmp_path).agent("dev", "hi").team(rules=[{"max_chars": 5}])
    stage.agent("judge", verdict, member=False)
    result = stage.play(
        "scenario: S\nsteps:\n  - send: '@dev go'\n    expect:\n"
        "      replies: {dev: [judge: {rubric: [it greets], agent: judge}]}\n"
    )
    assert [check.status for check in result.steps[0].checks] == ["passed"], broken(result)


def test_a_failed_reply_follows_the_strategy_for_rules(tmp_path: Path) -> None:
    config = {"rules": [{"max_chars": 1}], "on_failure": {"rule": "abort"}}
    talk = Talk(tmp_path, team(member("dev", ["too long @ops"]), member("ops", ["x"]), **config))
    assert talk.send("@dev @ops go").end == "failed"


def test_secrets_count_wherever_they_are_and_quotes_of_redacted_lines_do_not(
    tmp_path: Path,
) -> None:
    code = StructuredContent(type="code_block", data={"code": f"key = '{KEY}'"})
    answers = {
        "a": lambda _: AgentOutput(content="here", structured=[code]),
        "b": lambda _: "say\n> key: [redacted]",
    }
    talk = Talk(
        tmp_path,
        team(puppet("a"), puppet("b"), rules=["no_secrets"]),
        adapter_type=Puppets(answers),
    )
    talk.send("@a @b\n> key: [redacted]")
    assert talk.outcomes() == [("a", "error"), ("b", "success")]


def test_a_call_of_a_colleague_is_refused_and_the_reply_stays(tmp_path: Path) -> None:
    crew = [member("dev", ["@ops @rev look"]), member("ops", ["done"]), member("rev", ["done"])]
    talk = Talk(tmp_path, team(*crew, rules=[{"calls_only": {"dev": ["rev"]}}]))
    talk.send("@dev go")
    done = talk.of("reply_finished")[0]
    assert (done.message.mentions, done.next_mentions) == (["ops", "rev"], ["rev"])
    assert done.refused == {"ops": "refused by rule calls_only: dev may call only rev"}
    assert talk.turns()[1][0] == ["rev"]
    (rule_broken,) = talk.of("rule_broken")
    assert rule_broken.corrected


def test_conditions_and_rules_of_one_agent(tmp_path: Path) -> None:
    rules = [
        {"id": "short", "max_chars": 3, "when": {"agent": ["dev"], "regex": "^x"}},
        {"id": "other", "max_chars": 3, "when": {"agent": "ops"}},
    ]
    crew = [member("dev", ["y and more"]), member("rev", ["long"], rules=[{"max_chars": 2}])]
    talk = Talk(tmp_path, team(*crew, rules=rules, corrections=0))
    talk.send("@dev @rev go")
    assert talk.outcomes() == [("dev", "success"), ("rev", "error")]
    assert [event.rule for event in talk.of("rule_broken")] == ["max_chars"]


def test_a_declined_reply_is_no_decision(tmp_path: Path) -> None:
    talk = Talk(tmp_path, team(member("dev", ["<pass/>"]), rules=[{"max_chars": 1}]))
    talk.send("go")
    assert (talk.outcomes(), talk.of("decision")) == ([("dev", "declined")], [])


def test_a_refused_note_is_not_written(tmp_path: Path) -> None:
    note = "We agreed.\n```note\nkind: decision\ntitle: Use SQLite\n```"
    rule = {"id": "no_decisions", "on": "note", "forbid": {"contains": "SQLite"}}
    talk = Talk(tmp_path, team(member("dev", [note]), rules=[rule]))
    talk.send("go")
    (refused,) = [event for event in talk.of("note") if event.act == "refused"]
    assert "refused by rule no_decisions" in refused.reason
    assert not [event for event in talk.of("note") if event.act == "added" and event.by == "dev"]
    assert talk.last("decision").kind == "note"


def test_an_action_is_refused_before_anybody_is_asked(tmp_path: Path) -> None:
    asks = {"action": "execute_command", "detail": "curl https://x.example"}
    entry = {"request": asks, "say": "fetched", "denied": "not allowed"}
    rule = {"id": "offline", "on": "tool", "forbid": {"regex": "^curl"}, "error": "stay offline"}
    talk = Talk(tmp_path, team(member("dev", [entry]), rules=[rule]))
    talk.send("go")
    assert talk.of("approval_requested") == []
    decision = talk.last("decision")
    assert (decision.kind, decision.allowed, decision.rules) == ("tool", False, ["offline"])
    assert talk.last("rule_broken").error == "stay offline"


FUNCTIONS = """
import time

def no_jargon(decision):
    if decision["kind"] == "reply" and "synergy" in decision["text"]:
        return "write plainly"

def crashes(decision):
    raise ValueError("broken")

def loops(decision):
    while True:
        time.sleep(0.01)

def wrong(decision):
    return 3

def shout(decision):
    return decision["text"].upper()
"""


@pytest.fixture
def functions(tmp_path: Path) -> Path:
    (tmp_path / "rules.py").write_text(FUNCTIONS, encoding="utf-8")
    return tmp_path


def test_a_function_of_the_user_decides(functions: Path) -> None:
    rule = {"id": "plain", "python": "rules.py:no_jargon"}
    talk = one_rule(functions, rule, "more synergy", "more work")
    talk.send("go")
    assert talk.last("reply_finished").message.content == "more work"
    assert talk.last("rule_broken").error == "write plainly"


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("crashes", "rules.py:crashes: ValueError: broken"),
        ("loops", "rules.py:loops did not return within 0.5 s"),
        ("wrong", "rules.py:wrong returned 3, expected True, None or an error text"),
    ],
)
def test_a_function_without_a_verdict_lets_nothing_through(
    functions: Path, monkeypatch: pytest.MonkeyPatch, name: str, problem: str
) -> None:
    if name == "loops":
        monkeypatch.setattr(user_function, "LIMIT_S", 0.5)
    talk = one_rule(functions, {"id": "own", "python": f"rules.py:{name}"}, "hi", "hi")
    talk.send("go")
    (done,) = talk.of("reply_finished")
    assert (done.status, done.attempts, done.error_code) == ("error", 1, "rule")
    assert done.error.startswith(f"dev: rule own failed: {problem}")
    assert not list((functions / "sessions" / ".processes").glob("*"))


def test_a_function_repairs_a_reply(functions: Path) -> None:
    rule = {"id": "loud", "require": {"regex": "^[A-Z]+$"}, "correct": "rules.py:shout"}
    talk = one_rule(functions, rule, "hi")
    talk.send("go")
    (done,) = talk.of("reply_finished")
    assert (done.message.content, done.attempts) == ("HI", 1)
    assert [(e.rule, e.corrected) for e in talk.of("rule_broken")] == [("loud", True)]
    assert [event.allowed for event in talk.of("decision")] == [True]


@pytest.mark.parametrize("name", ["crashes", "wrong"])
def test_a_repair_that_fails_refuses(functions: Path, name: str) -> None:
    rule = {"id": "loud", "forbid": {"contains": "h"}, "correct": f"rules.py:{name}"}
    talk = one_rule(functions, rule, "hi")
    talk.send("go")
    (done,) = talk.of("reply_finished")
    assert done.error.startswith("dev: rule loud failed: ")


# Files.

FAULTS = {
    "- no_secret": "config.rules[0]: `no_secret` is no rule by its name alone",
    "- {id: a, forbid: {regex: '('}}": "config.rules[0].forbid.regex: not a regular expression",
    "- {id: a, forbid: {contain: x}}": "config.rules[0].forbid.contain: unknown key",
    "- {id: a, forbid: {judge: x}}": "config.rules[0].forbid.judge: cannot be used in a rule",
    "- {id: a, python: 'none.py:f'}": "config.rules[0].python: there is no file",
    "- {id: a, correct: 'rules.py:nothing'}": "config.rules[0].correct: there is no function",
    "- {max_chars: 1}\n  - {max_chars: 2}": "config.rules[1]: there are two rules `max_chars`",
    "- {json_schema: none.json}": "config.rules[0].json_schema: there is no file `none.json`",
    "- {file: none.yaml}": "config.rules[0].file: there is no file `none.yaml`",
    "- {file: ../none.yaml}": "config.rules[0].file: `../none.yaml` is not in the workspace",
    "- {step_kinds: [shel]}": "config.rules[0].step_kinds[0]: must be one of",
    "- {step_kinds: shell, on: reply}": "config.rules[0]: `step_kinds` looks at steps",
    "- {id: a, when: {step: shell}, forbid: {contains: x}}": "belongs to a rule with `on: step`",
    "- {no_secrets: true, on: step}": "config.rules[0]: `no_secrets` does not look at steps",
    "- {calls_only: {dev: [nobody]}}": "config.rules[0].calls_only: there is no agent `nobody`",
    "- {id: a, when: {agent: nobody}, max_chars: 1}": "config.rules[0].when.agent: there is no",
}


@pytest.mark.parametrize("entry", FAULTS)
def test_wrong_rules_are_errors_with_their_line(functions: Path, entry: str) -> None:
    stage = Stage(functions).agent("dev", "hi").team()
    path = functions / "agents" / "teams" / "crew.yaml"
    path.write_text(f"team: crew\nmembers: [dev]\nconfig:\n rules:\n  {entry}\n", encoding="utf-8")
    with pytest.raises(FileFaults) as raised:
        stage.load()
    assert FAULTS[entry] in str(raised.value)
    assert str(raised.value).startswith("agents/teams/crew.yaml:")


def test_rules_come_from_a_file(functions: Path) -> None:
    stage = Stage(functions).agent("dev", "hi")
    (functions / "house.yaml").write_text("rules:\n- no_secrets\n- {max_chars: 1}\n", "utf-8")
    stage.team(rules=[{"file": "house.yaml"}])
    (scenario,) = stage.load("scenario: S\nsteps: [{send: '@dev hi'}]\n")
    assert [rule.key for rule in scenario.team.config.rules] == ["no_secrets", "max_chars"]
    (functions / "house.yaml").write_text("rules:\n- no_secrets\n- {max_char: 1}\n", "utf-8")
    with pytest.raises(FileFaults, match=r"house\.yaml:3: rules\[1\]"):
        stage.load()


# The circuit breaker.


@dataclass
class SetClock(CountingClock):
    """A clock that stands still until it is set."""

    at: datetime = datetime(2026, 11, 28, tzinfo=UTC)

    def now(self) -> datetime:
        return self.at


class Moody:
    """A team of `dev`, which fails or speaks as it is told, and `ops`, which calls nobody."""

    def __init__(self, tmp_path: Path, **config: Any) -> None:
        self.says = "ok"
        self.agents = Puppets({"dev": lambda _: self.answer(), "ops": lambda _: "ok"})
        self.clock = SetClock()
        crew = team(puppet("dev"), puppet("ops"), selection="none", **config)
        self.talk = Talk(tmp_path, crew, adapter_type=self.agents, clock=self.clock)

    def answer(self) -> str:
        if self.says == "fail":
            raise RuntimeError("broken")
        return self.says

    def send(self, says: str) -> bool:
        """Return True if dev was called."""
        self.says, before = says, len(self.agents.inputs["dev"])
        self.talk.send("@dev @ops go")
        return len(self.agents.inputs["dev"]) > before

    @property
    def states(self) -> list[str]:
        return [event.state for event in self.talk.of("breaker")]


def test_failures_in_a_row_open_the_breaker_which_is_tried_once(tmp_path: Path) -> None:
    moody = Moody(tmp_path, failures=2, pause_s=60)
    assert [moody.send(says) for says in ("fail", "ok", "fail", "fail")] == [True] * 4
    assert moody.states == ["open"]
    assert not moody.send("ok")
    started = moody.talk.last("turn_started")
    assert started.must == ["ops"]
    assert "circuit breaker open until" in started.passed_over["dev"]
    assert "2 failures in a row" in started.passed_over["dev"]
    moody.clock.at += timedelta(seconds=61)
    assert moody.send("fail")
    assert moody.states == ["open", "half_open", "open"]
    assert not moody.send("ok")
    moody.clock.at += timedelta(seconds=61)
    assert moody.send("ok")
    assert moody.states[3:] == ["half_open", "closed"]
    assert moody.send("fail")
    assert moody.send("ok")
    assert len(moody.states) == 5


def test_too_many_rejections_open_the_breaker(tmp_path: Path) -> None:
    answers = iter(["long", "ok", "long", "ok", "ok", "long", "ok"])
    agents = Puppets({"dev": lambda _: next(answers)})
    talk = Talk(tmp_path, team(puppet("dev"), rules=[{"max_chars": 2}]), adapter_type=agents)
    for _ in range(4):
        talk.send("go")
    assert [event.reason for event in talk.of("breaker")] == [
        "rules refused 3 of its last 4 replies"
    ]
    assert talk.send("go").end == "no_reply"
    assert len(agents.inputs["dev"]) == 7


@pytest.mark.parametrize("keeps_cache", [True, False])
def test_the_breaker_survives_another_process_and_a_lost_cache(
    tmp_path: Path, keeps_cache: bool
) -> None:
    def forget() -> None:
        if not keeps_cache:
            for path in (tmp_path / "sessions" / "talk").iterdir():
                if path.name != "transcript.jsonl" and path.is_file():
                    path.unlink()

    moody = Moody(tmp_path, failures=2)
    moody.send("fail")
    forget()
    moody.send("fail")
    forget()
    assert moody.states == ["open"]
    assert not moody.send("ok")


def test_a_clock_that_is_set_back_locks_nobody_out(tmp_path: Path) -> None:
    moody = Moody(tmp_path, failures=1, pause_s=60)
    moody.send("fail")
    assert not moody.send("ok")
    moody.clock.at -= timedelta(days=30)
    assert moody.send("ok")


def test_without_settings_nothing_is_counted(tmp_path: Path) -> None:
    moody = Moody(tmp_path)
    assert all(moody.send("fail") for _ in range(5))
    assert moody.talk.of("breaker") == []


# Recordings.

PLAY = """scenario: S
steps:
  - send: "@dev go"
    expect:
      replies: {dev: [equals: short]}
      rules: [{agent: dev, rule: max_chars, corrected: true}]
"""


def play(stage: Stage, how: Any, text: str = PLAY) -> ScenarioResult:
    scenarios = stage.load(text)
    results: list[ScenarioResult] = []
    shelf = RecordingStore(scenarios, how)
    runner = Runner(scenarios, stage.place(), results.append, keep="none", shelf=shelf)
    asyncio.run(runner.run())
    return results[0]


def test_a_correction_is_recorded_and_replayed_as_a_call(tmp_path: Path) -> None:
    replies = [{"when": {"call": 1}, "say": "too long"}, {"when": {"call": 2}, "say": "short"}]
    stage = Stage(tmp_path).agent("dev", *replies).team(rules=[{"max_chars": 5}])
    assert play(stage, "record").status == "passed"
    recording = tmp_path / "scenarios" / "recordings" / "s0.jsonl"
    lines = [json.loads(line) for line in recording.read_text("utf-8").splitlines()]
    started = [line for line in lines if line["type"] == "reply_started"]
    assert [line["output"]["content"] for line in started] == ["too long", "short"]
    assert [line["type"] for line in lines].count("rule_broken") == 1
    replayed = play(stage, "replay")
    assert (replayed.status, replayed.drift) == ("passed", [])
    # A rule that now allows the first answer: what was said and decided is drift.
    stage.team(rules=[{"max_chars": 50}])
    changed = play(stage, "replay")
    assert changed.status == "failed"
    assert "decision" in {one.field for one in changed.drift}
    shutil.rmtree(tmp_path / "scenarios")


@pytest.mark.parametrize(
    ("rows", "holds"),
    [
        ("[{agent: dev, rule: max_chars}, {rule: own, corrected: false}]", True),
        ("[{agent: dev}, {agent: dev, rule: max_chars}]", True),
        ("[{agent: dev}]", False),
        ("[{agent: ops}, {agent: dev}]", False),
        ("[{rule: own, corrected: true}, {agent: dev}]", False),
        ("[]", False),
    ],
)
def test_scenarios_expect_broken_rules(tmp_path: Path, rows: str, holds: bool) -> None:
    rules = [{"max_chars": 3}, {"id": "own", "forbid": {"contains": "x"}}]
    stage = Stage(tmp_path).agent("dev", "xxxx").agent("ops", "y").team(rules=rules)
    expect = f"{{end: failed, rules: {rows}}}"
    result = stage.play(f"scenario: S\nsteps: [{{send: '@dev go', expect: {expect}}}]\n")
    assert (result.status == "passed") is holds


def test_functions_of_rules_need_trust(functions: Path) -> None:
    stage = Stage(functions).agent("dev", "hi", rules=[{"id": "a", "correct": "rules.py:shout"}])
    stage.team(rules=[{"id": "b", "python": "rules.py:no_jargon"}])
    loaded = workspace.load_workspace(functions, kinds=base.KINDS)
    assert loaded.list_rule_functions() == ["rules.py:no_jargon", "rules.py:shout"]
    (scenario,) = stage.load("scenario: S\nsteps: [{send: '@dev hi'}]\n")
    contacts = list_contacts(loaded, [], [scenario], dotenv={})
    assert {contact.endpoint.name for contact in contacts} == {
        "rules.py:no_jargon",
        "rules.py:shout",
    }
