"""The scenario format beside its expectations: steps, cases, vars, includes, saved values."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from product import (
    FileFaults,
    ScenarioResult,
    UsageError,
    check_kinds,
    select,
    variables,
    wrap_data,
)
from product import scenarios_loader as loader
from stage import Stage, broken, printed


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return (
        Stage(tmp_path)
        .agent("dev", {"say": "heard: ${message}"}, name="开发")
        .agent("plan", {"say": "the plan is PLAN-42, 好的"}, name="规划")
        .agent("oncall", {"fail": "timeout"})
        .team(humans=["maya"], selection="none")
    )


def events(stage: Stage, session: str) -> list[dict[str, Any]]:
    path = stage.folder / "sessions" / session / "transcript.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def faults(stage: Stage, *texts: str) -> list[str]:
    with pytest.raises(FileFaults) as raised:
        stage.load(*texts)
    return [f"{f.file}:{f.line}: {f.field}: {f.what}" for f in raised.value.faults]


def passes(told: ScenarioResult) -> bool:
    assert told.status == "passed", printed(told)
    return True


def test_vars_are_filled_in_everywhere_and_keep_their_type(stage: Stage) -> None:
    text = """scenario: "${vars.title} of ${vars.n}"
vars: {title: 标题, n: 1, who: dev, deep: {replied: [dev]}}
tags: ["${vars.who}"]
config: {max_responders: "${vars.n}"}
profiles: {dev: {adapter: {type: scripted, replies: ["${vars.title} ${turn} $${x}"]}}}
steps:
  - send: "@${vars.who} 做 ${vars.n} $${vars.n}"
    step: "${vars.n}"
    expect:
      turns: "${vars.n}"
      replied: ["${vars.who}"]
      replies: {dev: [{equals: "标题 1 $${x}"}]}
expect: "${vars.deep}"
"""
    (scenario,) = stage.load(text)
    assert (scenario.title, scenario.file.tags) == ("标题 of 1", ["dev"])
    assert scenario.team.config.max_responders == 1
    assert scenario.sent[0].content == "@dev 做 1 ${vars.n}"  # type: ignore[union-attr] # a send
    assert passes(stage.play(text))


NUMBERS = ("01234", "1.10", "1e3", "+7", "0x1F", "0o17", "-0", "1_0", "12345678901234567890.10")


@pytest.mark.parametrize("number", NUMBERS)
def test_a_number_in_vars_keeps_its_text(stage: Stage, number: str) -> None:
    stage.scenario(f"vars: {{included: {number}}}\n", "common/numbers")
    text = f"""scenario: x
include: common/numbers.yaml
vars: {{own: {number}, of_case: 5, alias: &a {number}, other: *a, deep: [contains: {number}]}}
cases: [{{id: a, vars: {{of_case: {number}}}}}]
steps:
  - send: "@dev ${{vars.included}}, ${{vars.own}}, ${{vars.of_case}}, ${{vars.other}}"
    expect: {{replies: {{dev: "${{vars.deep}}"}}}}
  - send: "${{vars.own}}"
  - say: {{agent: dev, text: "${{vars.of_case}}"}}
"""
    (scenario,) = stage.load(text)
    first, second, third = scenario.file.steps
    assert first.send == f"@dev {number}, {number}, {number}, {number}"
    assert first.expect.replies["dev"][0].contains == [number]
    assert second.send == number
    assert third.say is not None
    assert third.say.text == number


def test_a_number_of_a_nearer_file_is_not_replaced_by_a_var(stage: Stage) -> None:
    stage.scenario("vars: {title: 01}\nscenario: '${vars.title}'\n", "common/title")
    text = "include: common/title.yaml\nscenario: 5\nsteps: [{send: '@dev'}]\n"
    assert faults(stage, text) == [
        "scenarios/s0.yaml:2: scenario: must be a text, not the number 5"
    ]


def test_what_a_var_holds_is_text_not_a_template(stage: Stage) -> None:
    text = """scenario: x
vars: {evil: "${message} ${saved.a} $${b"}
profiles: {dev: {adapter: {type: scripted, replies: ["say ${vars.evil}"]}}}
steps:
  - send: "@dev ${vars.evil}"
    expect: {replies: {dev: [{contains: "say $${message} $${saved.a} $$${b"}]}}
"""
    assert passes(stage.play(text))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("vars: {a: 1}\nsteps: [{send: '${vars.b}'}]", "2: steps[0].send: there is no `${vars.b}`"),
        ("steps: [{send: '${vars.b}'}]", "1: steps[0].send: there is no `${vars.b}`"),
        ("steps: [{send: '${x}'}]", "1: steps[0].send: unknown `${x}`"),
        ("steps: [{send: '${message}'}]", "1: steps[0].send: unknown `${message}`"),
        ("steps: [{send: '${saved.x}'}]", "1: steps[0].send: nothing is saved as `x` before this"),
        (
            "steps: [{send: '@dev ${saved.x}', save: {x: {from: dev}}}]",
            "1: steps[0].send: nothing is saved as `x` before this",
        ),
        (
            "steps: [{send: hi}]\nprofiles: {dev: {role_prompt: '${saved.x}'}}",
            "2: profiles.dev.role_prompt: `${saved.x}` cannot be used in a profile",
        ),
        (
            "steps: [{send: hi, save: {x: {from: dve}}}]",
            "1: steps[0].save.x.from: no member of this team has the id `dve`",
        ),
    ],
)
def test_a_placeholder_that_nothing_stands_for_is_a_fault(
    stage: Stage, text: str, told: str
) -> None:
    (fault,) = faults(stage, f"{text}\nscenario: s")
    assert fault.startswith(f"scenarios/s0.yaml:{told}")


def test_saved_values_go_into_later_messages_and_expectations(stage: Stage) -> None:
    text = """scenario: x
steps:
  - send: "@plan go"
    save: {number: {from: plan, regex: 'PLAN-(\\d+)'}, whole: {from: plan}}
    expect: {replies: {plan: [{contains: "PLAN-${saved.number}"}]}}
  - {say: {agent: plan, text: "as I said: ${saved.whole}"}}
  - {system: "number ${saved.number}"}
  - send: "@dev ${saved.number} 1+1"
    save: {sum: {from: dev, regex: '1\\+1'}}
    expect: {replies: {dev: [{equals: "heard: @dev 42 1+1"}, {regex: "${saved.sum}$"}]}}
  - check: {system: [{equals: "number ${saved.number}"}]}
expect: {replies: {"*": {any: [{contains: "${saved.sum}"}]}}}
"""
    told = stage.play_all(text, keep="all")[0]
    assert passes(told)
    said = [e["message"]["content"] for e in events(stage, told.sessions[0]) if "planted" in e]
    assert "as I said: the plan is PLAN-42, 好的" in said


def test_what_is_not_there_cannot_be_saved(stage: Stage) -> None:
    told = stage.play(
        """scenario: x
steps:
  - {send: "@plan go", on_fail: continue, save: {n: {from: plan, regex: 'NO-(.)'}}}
  - {send: "@dev ${saved.n}"}
"""
    )
    assert [step.status for step in told.steps] == ["failed", "error"]
    (check,) = broken(told)
    assert (check.line, check.field) == (3, "save.n")
    assert "nothing was saved as `n`" in str(told.steps[1].error)
    assert told.status == "failed"


def test_each_case_is_a_scenario_of_its_own(stage: Stage) -> None:
    text = """scenario: in ${vars.region}
vars: {region: nowhere, extra: "1"}
skip: "${vars.region} is not built"
cases:
  - {id: eu, vars: {region: eu}}
  - {id: 中国, vars: {region: cn, extra: "2"}}
  - {id: us, skip: later}
  - {id: mars, xfail: "#412"}
steps: [{send: "@dev ${vars.region}${vars.extra}", expect: {replies: {dev: [{contains: cn2}]}}}]
"""
    told = stage.play_all(text)
    assert [(one.title, one.status, one.reason) for one in told] == [
        ("in eu [eu]", "skipped", "eu is not built"),
        ("in cn [中国]", "skipped", "cn is not built"),
        ("in nowhere [us]", "skipped", "later"),
        ("in nowhere [mars]", "skipped", "nowhere is not built"),
    ]
    text = text.replace('skip: "${vars.region} is not built"\n', "")
    told = stage.play_all(text)
    assert [one.status for one in told] == ["failed", "passed", "skipped", "xfailed"]
    assert len(stage.sessions()) == 1


def test_a_check_that_crashed_never_satisfies_xfail(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = """scenario: x
xfail: "#1"
steps: [{send: "@dev hi", on_fail: continue, expect: {turns: 9}}]
expect: {replies: {dev: [{contains: hi}]}}
"""
    assert stage.play(text).status == "xfailed"

    def crash(*_: Any, **__: Any) -> None:
        raise RuntimeError("boom")

    monkeypatch.setitem(check_kinds.KINDS, "contains", check_kinds.Kind(crash, crash))
    assert stage.play(text).status == "error"
    assert stage.play(text.replace('xfail: "#1"\n', "")).status == "failed"


def test_what_is_skipped_is_not_played(stage: Stage) -> None:
    text = "scenario: x\nskip: needs a sandbox\nsteps: [{send: '@dev hi'}]\n"
    (told,) = stage.play_all(text, keep="all")
    assert (told.status, told.steps, stage.sessions()) == ("skipped", [], [])


@pytest.mark.parametrize("key", ["skip", "xfail"])
@pytest.mark.parametrize("value", ["no", "''", "Off", "'true'"])
def test_a_reason_is_no_switch(stage: Stage, key: str, value: str) -> None:
    for where in (f"{key}: {value}\n", f"cases: [{{id: a, {key}: {value}}}]\n"):
        (told,) = faults(stage, f"scenario: x\nsteps: [{{send: hi}}]\n{where}")
        assert "write why, in words, or leave the key out" in told


def test_ten_thousand_cases_share_one_team(stage: Stage) -> None:
    cases = "\n".join(f"  - {{id: c{n}, vars: {{n: {n}}}}}" for n in range(10_000))
    text = f"scenario: x\nvars: {{n: 0}}\ncases:\n{cases}\nsteps: [{{send: '@dev ${{vars.n}}'}}]\n"
    loaded = stage.load(text)
    assert len(loaded) == 10_000
    assert len({id(one.team) for one in loaded}) == 1
    assert loaded[-1].sent[0].content == "@dev 9999"  # type: ignore[union-attr] # a send


def test_two_cases_of_one_id_are_a_fault(stage: Stage) -> None:
    text = "scenario: x\ncases:\n- {id: a}\n- {id: a}\nsteps: [{send: hi}]\n"
    assert faults(stage, text) == ["scenarios/s0.yaml:4: cases[1].id: `a` appears twice"]


@pytest.mark.parametrize(
    ("keys", "status"),
    [
        ("xfail: '#1'", "failed"),
        ("xfail: '#1'\nexpect: {turns: 7}", "xfailed"),
        ("xfail: '#1'\nprofiles: {dev: {adapter: {type: scripted, replies: []}}}", "error"),
        ("skip: needs the vendor's sandbox", "skipped"),
    ],
)
def test_skip_and_xfail(stage: Stage, keys: str, status: str) -> None:
    told = stage.play(f"scenario: x\nsteps: [{{send: '@dev hi'}}]\n{keys}\n")
    assert told.status == status
    assert (stage.sessions() == []) is (status in ("skipped", "xfailed"))


def test_an_included_file_stands_below_the_one_that_includes_it(stage: Stage) -> None:
    stage.scenario(
        "vars: {a: base, b: base}\n"
        "tags: [base]\n"
        "expect: {turns: 1, replies: {'*': [{not_contains: secret}]}}\n"
        "include: deep.yaml\n",
        "common/base",
    )
    stage.scenario("config: {max_responders: 2, retries: 1}\nvars: {c: deep}\n", "common/deep")
    text = """scenario: x
include: common/base.yaml
vars: {a: own}
tags: [own]
config: {retries: 0}
steps: [{send: "@dev ${vars.a} ${vars.b} ${vars.c} secret"}]
expect: {turns: {max: 3}}
"""
    (scenario,) = stage.load(text)
    assert scenario.file.tags == ["own"]
    assert (scenario.team.config.max_responders, scenario.team.config.retries) == (2, 0)
    told = stage.play(text)
    (check,) = broken(told)
    assert (check.file, check.line) == ("scenarios/common/base.yaml", 3)
    assert "own base deep" in check.actual


def test_a_fault_in_an_included_file_is_told_there_and_once(stage: Stage) -> None:
    stage.scenario("expect: {turnz: 1}\n", "base")
    text = "scenario: x\ninclude: base.yaml\nsteps: [{send: hi}]\n"
    assert faults(stage, text, text) == ["scenarios/base.yaml:1: expect.turnz: unknown key"]


def test_an_include_that_includes_itself_is_a_fault(stage: Stage) -> None:
    stage.scenario("include: s0.yaml\n", "base")
    told = faults(stage, "scenario: x\ninclude: base.yaml\nsteps: [{send: hi}]\n")
    assert told == [
        "scenarios/base.yaml:1: include: includes itself: "
        "scenarios/s0.yaml → scenarios/base.yaml → scenarios/s0.yaml"
    ]
    assert (
        "includes itself"
        in faults(stage, "scenario: x\ninclude: s0.yaml\nsteps: [{send: hi}]\n")[0]
    )


def test_a_file_that_is_only_included_is_not_played(stage: Stage) -> None:
    base = stage.scenario("tags: [base]\n", "base")
    own = stage.scenario("scenario: x\ninclude: base.yaml\nsteps: [{send: hi}]\n", "own")
    root = stage.folder.resolve()
    selected = select.select(root, [], root)
    assert selected.paths == (base.resolve(), own.resolve())
    assert [one.shown for one in stage.load_selected(selected)] == ["scenarios/own.yaml"]
    with pytest.raises(FileFaults, match=r"base.yaml.*: scenario: is missing"):
        stage.load_selected(select.select(root, ["base"], root))


def test_two_scenarios_of_one_stem_are_a_fault(stage: Stage) -> None:
    text = "scenario: x\nsteps: [{send: hi}]\n"
    paths = [stage.scenario(text, name) for name in ("a/One", "b/one")]
    with pytest.raises(FileFaults) as raised:
        stage.load_files(*paths)
    (fault,) = raised.value.faults
    assert fault.file == "scenarios/b/one.yaml"
    assert "scenarios/a/One.yaml" in fault.what


@pytest.mark.parametrize(
    ("step", "what"),
    [
        ("{step: x}", "a step needs one of send, say, system, check"),
        ("{send: hi, system: ho}", "`send` and `system` are two steps"),
        (
            "{system: ho, expect: {turns: 1}}",
            "`expect` goes with a step that runs a chain, not with `system`",
        ),
        ("{say: {agent: dev, text: x}, from: maya}", "`from` goes with a step that runs a chain"),
        ("{react: {emoji: 👍}}", "`react` needs one of message and agent"),
        ("{react: {agent: dev, message: m2, emoji: 👍}}", "`react` needs one of message and agent"),
        ("{react: {agent: dev, emoji: 🦄}}", "emoji"),
        ("{react: {agent: nobody, emoji: 👍}}", "nobody"),
        ("{react: {agent: dev, emoji: 👍}, expect: {turns: 1}}", "`expect` goes with a step"),
        ("{system: x, reply_to: dev}", "`reply_to` goes with `send` only, not with `system`"),
        ("{say: {agent: dev, text: x}, kind: task}", "`kind` goes with `send` only"),
        ("{resume: true, attach: [a.png]}", "`attach` goes with `send` only, not with `resume`"),
        ("{say: {agent: dve, text: x}}", "no member of this team has the id `dve`"),
        ("{send: hi, from: mia}", "this team has no human called 'mia'"),
        ("{send: {file: nope.md}}", "there is no file `nope.md`"),
        ("{send: hi, attach: [nope.png]}", "there is no file `nope.png`"),
        ("{check: {replied: [dve]}}", "no member of this team has the id `dve`"),
        ("{send: hi, session: 'a b'}", "a name is made of letters, digits"),
        ("{check: {turns: 0}, session: second}", "no step is played in the session `second`"),
    ],
)
def test_a_step_that_cannot_be_played_is_a_fault(stage: Stage, step: str, what: str) -> None:
    (told,) = faults(stage, f"scenario: x\nsteps:\n  - {step}\n")
    assert told.startswith("scenarios/s0.yaml:3: steps[0]")
    assert what in told


def test_a_message_from_a_file_with_attachments(stage: Stage) -> None:
    (stage.folder / "fixtures").mkdir()
    (stage.folder / "fixtures" / "ask.md").write_text("@dev ${as it is}\n", encoding="utf-8")
    (stage.folder / "scenarios").mkdir()
    (stage.folder / "scenarios" / "图.txt").write_text("内容", encoding="utf-8")
    told = stage.play_all(
        """scenario: x
steps:
  - send: {file: fixtures/ask.md}
    attach: [图.txt]
    from: maya
    expect: {replies: {dev: [{equals: "heard: @dev $${as it is}"}]}}
""",
        keep="all",
    )[0]
    assert passes(told)
    (message,) = [e["message"] for e in events(stage, told.sessions[0]) if e["type"] == "message"]
    assert (message["author_id"], message["attachments"][0]["name"]) == ("maya", "图.txt")


def test_planted_messages_call_nobody_and_are_seen(stage: Stage) -> None:
    told = stage.play_all(
        """scenario: x
given: {messages: [{user: "day 1: @dev"}, {plan: "noted"}, {system: "night"}], fill: {messages: 4}}
steps:
  - {say: {agent: plan, text: "@dev please @nobody"}}
  - {system: "15 minutes without an answer"}
  - check: {replied: [], turns: 0, system: [{contains: 15 minutes}], unresolved: [nobody]}
  - {send: "@dev go", expect: {replies: {dev: [{equals: "heard: @dev go"}]}}}
""",
        keep="all",
    )[0]
    assert passes(told)
    planted = [e for e in events(stage, told.sessions[0]) if e.get("planted")]
    assert all(event["chain"] is None for event in planted)
    assert [event["message"]["author_id"] for event in planted] == [
        *("user", "dev", "oncall", "plan"),
        *("user", "plan", "system"),
        *("plan", "system"),
    ]
    assert planted[6]["message"]["kind"] == "system"


def test_one_seed_fills_one_past(stage: Stage) -> None:
    def past(seed: int) -> list[str]:
        text = f"scenario: x\ngiven: {{fill: {{messages: 9, seed: {seed}}}}}\nsteps: [{{send: hi}}]"
        told = stage.play_all(text, keep="all")[0]
        return [
            e["message"]["content"] for e in events(stage, told.sessions[0]) if e.get("planted")
        ]

    assert past(7) == past(7) != past(8)


def test_a_second_session_knows_nothing_of_the_first(stage: Stage) -> None:
    told = stage.play_all(
        """scenario: x
profiles:
  dev:
    adapter: {type: scripted, strict: true, replies: ["first", {when: {call: 2}, say: second}]}
steps:
  - {send: "@dev a", expect: {replies: {dev: [{equals: first}]}}}
  - {send: "@dev b", session: other, expect: {replies: {dev: [{equals: first}]}, turns: 1}}
  - {send: "@dev c", expect: {replies: {dev: [{equals: second}]}, turns: 1}}
  - {system: note, session: other}
  - {check: {replied: [dev], system: [{equals: note}]}, session: other}
  - {check: {replied: [dev, dev, dev], turns: 3}}
""",
        keep="all",
    )[0]
    assert passes(told)
    first, other = told.sessions
    said = [e["message"]["content"] for e in events(stage, other) if e["type"] == "message"]
    assert said == ["@dev b", "note"]
    assert len(events(stage, first)) > len(events(stage, other))


def test_a_strict_script_must_be_used_up(stage: Stage) -> None:
    text = """scenario: x
profiles:
  dev:
    adapter:
      type: scripted
      strict: true
      replies:
        - {when: {contains: never}, say: never}
        - used
        - {when: {turn: 9}, decline: true}
steps: [{send: "@dev go"}]
"""
    told = stage.play(text)
    assert told.status == "failed"
    assert [(check.line, check.field) for check in broken(told)] == [
        (8, "profiles.dev.adapter.replies[0]"),
        (10, "profiles.dev.adapter.replies[2]"),
    ]
    retried = text.replace("steps:", "config: {on_failure: retry}\nsteps:").replace(
        "- {when: {contains: never}, say: never}", "- {when: {call: 1}, fail: overloaded}"
    )
    told = stage.play(retried.replace("- {when: {turn: 9}, decline: true}", ""))
    assert passes(told)


def test_humans_of_a_scenario_replace_the_teams(stage: Stage) -> None:
    text = """scenario: x
humans: [{id: li, name: 李雷}]
profiles: {dev: {adapter: {type: scripted, replies: ["@李雷 请确认"]}}}
steps: [{send: "@dev go", from: li, expect: {end: awaiting_human, awaits: [li]}}]
"""
    assert passes(stage.play(text))
    assert "no human called 'maya'" in faults(stage, text.replace("from: li", "from: maya"))[0]


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ("profiles: {dve: {adapter: {type: scripted, replies: []}}}", "did you mean `dev`?"),
        ("profiles: {qa: {adapter: {type: scripted, replies: []}}}", "if `agents:` names it"),
        ("humans: [{id: dev}]", "`dev` is also the id of a member"),
        ("humans: [{id: system}]", "`system` is the author of arena's own messages"),
        ("humans: [{id: a}, {id: a}]", "`a` appears twice among the humans"),
        ("humans: [{id: a, name: 开发}]", '"开发" is a name of both'),
        ("agents: [开发]", "write the id: `dev`"),
        ("vars: {a: 1, b: '${vars.a}'}\ntags: ['${vars.b}']", "contains another variable"),
        ("expect: {replies: {'${vars.a}': []}}", "variables are not allowed in a key"),
        ("expect: {turns: '${vars.a}', replied: '${vars.a}'}", "there is no `${vars.a}`"),
    ],
)
def test_what_nobody_means_is_a_fault(stage: Stage, keys: str, told: str) -> None:
    with pytest.raises(FileFaults) as raised:
        stage.load(f"scenario: x\nsteps: [{{send: hi}}]\n{keys}\n")
    assert any(told in f"{fault.what} {fault.mend}" for fault in raised.value.faults)
    assert {fault.file for fault in raised.value.faults} == {"scenarios/s0.yaml"}


def test_a_fault_of_some_cases_names_them(stage: Stage) -> None:
    cases = "[{id: a}, {id: b, vars: {n: many}}, {id: c, vars: {n: 3}}, {id: d, vars: {n: few}}]"
    text = f"scenario: x\nvars: {{n: 1}}\ncases: {cases}\nsteps: [{{send: '@dev'}}]\n"
    told = faults(stage, text + "expect: {turns: '${vars.n}'}\n")
    assert sorted(fault.rpartition(" (")[2] for fault in told) == ["in case `b`)", "in case `d`)"]


def test_cases_are_known_where_the_workspace_is_wrong(stage: Stage) -> None:
    stage.scenario("scenario: x\ncases: [{id: a, vars: {n: 1}}]\nsteps: [{send: '${vars.n}'}]\n")
    selected = select.everything(stage.folder.resolve())
    assert loader.shape_faults(selected, stage.folder.resolve()) == []


def test_a_part_that_nobody_includes_says_so(stage: Stage) -> None:
    stage.scenario("tags: [base]\n", "base")
    root = stage.folder.resolve()
    with pytest.raises(FileFaults, match="no file includes it"):
        stage.load_selected(select.select(root, [], root))
    stage.scenario("scenario: x\ninclude: ../base.yaml\nsteps: [{send: hi}]\n", "deep/own")
    assert len(stage.load_selected(select.select(root, [], root))) == 1


@pytest.mark.parametrize("regex", ["nomatch(.*)", "the plan is PLAN-42, 好的(.*)", "z*"])
def test_what_the_whole_waits_for_and_nobody_saved_stops_nothing_else(
    stage: Stage, regex: str
) -> None:
    text = f"""scenario: x
steps: [{{send: "@plan go", on_fail: continue, save: {{x: {{from: plan, regex: '{regex}'}}}}}}]
expect: {{replies: {{plan: [{{contains: "${{saved.x}}"}}]}}}}
"""
    told = stage.play_all(text, "scenario: y\nsteps: [{send: '@dev hi'}]\n")
    assert [one.status for one in told] == ["failed", "passed"]
    assert told[0].error
    xfailed = stage.play_all(f"xfail: '#1'\n{text}")
    assert [one.status for one in xfailed] == ["error"]


def test_a_group_that_has_no_part_in_the_match_saves_nothing(stage: Stage) -> None:
    told = stage.play(
        "scenario: x\nsteps: [{send: '@plan go', save: {x: {from: plan, regex: 'the|(b)'}}}]\n"
    )
    assert told.status == "failed"
    assert "nothing is matched" in broken(told)[0].actual


@pytest.mark.parametrize("jobs", [1, 3, 50])
@pytest.mark.parametrize("fail_fast", [False, True])
def test_what_is_told_is_the_same_at_any_number_of_jobs(
    stage: Stage, jobs: int, fail_fast: bool
) -> None:
    stage.agent("slow", {"say": "late", "delay_s": 0.05}).team(humans=["maya"], selection="none")
    texts = [
        f"scenario: s{n}\nsteps: [{{send: '@{'slow' if n % 3 == 0 else 'dev'} hi'}}]\n"
        + ("expect: {turns: 9}\n" if n in (4, 7) else "")
        for n in range(12)
    ]
    told = stage.play_all(*texts, jobs=jobs, fail_fast=fail_fast)
    wanted = ["failed" if n in (4, 7) else "passed" for n in range(12)]
    assert [one.status for one in told] == (wanted[:5] if fail_fast else wanted)
    assert stage.sessions() == sorted(one.sessions[0] for one in told if one.sessions)


@pytest.mark.parametrize("keep", ["failed", "all", "none"])
def test_keep_says_which_sessions_stay(stage: Stage, keep: str) -> None:
    told = stage.play_all(
        "scenario: a\nsteps: [{send: '@dev hi'}]",
        "scenario: b\nsteps: [{send: '@dev hi'}]\nexpect: {turns: 2}",
        keep=keep,
    )
    assert len(stage.sessions()) == {"failed": 1, "all": 2, "none": 0}[keep]
    assert stage.sessions() == sorted(name for one in told for name in one.sessions)


@pytest.mark.parametrize(
    ("words", "title", "holds"),
    [
        ("login", "The LOGIN page", True),
        ("not login", "The login page", False),
        ("login and not page", "The login page", False),
        ("nothing or login", "The login page", True),
        ("login and page or nothing", "登录 login", False),
        ("登录", "登录 login", True),
        ("login page", "the Login page", True),
        ("not not login", "login", True),
    ],
)
def test_words_choose_scenarios(words: str, title: str, holds: bool) -> None:
    assert select.by_words(words)(title) is holds


@pytest.mark.parametrize("words", ["", "and", "x and", "or x", "not", "a not b", "a and or b"])
def test_words_that_cannot_be_read_are_wrong_use(words: str) -> None:
    with pytest.raises(UsageError, match="-k: cannot read"):
        select.by_words(words)


@given(st.text(max_size=30).filter(lambda text: "${vars." not in text))
def test_any_text_survives_as_a_var(text: str) -> None:
    document = wrap_data({"a": "<${vars.x}>", "profiles": {"b": "<${vars.x}>"}}, "x.yaml")
    filled = variables.FilledFiles([document], {"x": text})
    assert not filled.faults
    assert filled.data["a"] == f"<{text}>"
    assert filled.data["profiles"]["b"] == f"<{text.replace('${', '$${')}>"


@given(st.text(max_size=30), st.text(max_size=30))
def test_any_text_survives_as_a_saved_value(var: str, saved: str) -> None:
    document = wrap_data({"steps": [{"send": "$${ ${vars.v}|${saved.s}"}]}, "x.yaml")
    filled = variables.FilledFiles([document], {"v": var})
    (step,) = variables.with_saved(filled.data["steps"], {"s": saved})
    assert step["send"] == f"${{ {var}|{saved}"
