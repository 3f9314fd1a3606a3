"""Scenario files: which are meant, and what is wrong with them, before anything runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from product import FileFaults, UsageError, select
from product import scenarios_loader as loader
from stage import Stage

# Every key that the format has and that is not built yet, where it stands.
NOT_BUILT = {
    "": "repeat pass_rate matrix workdir errors limits exclude max_repeat reflect inputs baseline "
    "max_reflections until_sure alpha beta max_usd max_minutes mcp",
    "step": "simulate id needs when agent python shell http sql each repeat container "
    "on_failure retries timeout_s parallel group inputs output until max "
    "feedback reflect priority",
    "expect": "files changed unchanged command learned conflict",
    "config": "lanes workdir",
    "memory": "limit_per_type expiration_days",
}
PLACES = {
    "": ("{key}: 1\nscenario: x\nsteps: [{{send: hi}}]", 1, "{key}"),
    "step": ("scenario: x\nsteps:\n  - {key}: 1", 3, "steps[0].{key}"),
    "given": ("scenario: x\nsteps: [{{send: hi}}]\ngiven:\n  {key}: 1", 4, "given.{key}"),
    "expect": (
        "scenario: x\nsteps:\n  - send: hi\n    expect:\n      {key}: 1",
        5,
        "steps[0].expect.{key}",
    ),
    "config": ("scenario: x\nsteps: [{{send: hi}}]\nconfig:\n  {key}: 1", 4, "config.{key}"),
    "memory": (
        "scenario: x\nsteps: [{{send: hi}}]\nconfig:\n  memory:\n    {key}: 1",
        5,
        "config.memory.{key}",
    ),
}


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path).agent("dev", {"say": "ok"}, name="开发").team(humans=["maya"])


def faults(stage: Stage, *texts: str) -> list[str]:
    with pytest.raises(FileFaults) as raised:
        stage.load(*texts)
    return [f"{f.file}:{f.line}: {f.field}: {f.what}" for f in raised.value.faults]


@pytest.mark.parametrize(
    ("place", "key"), [(place, key) for place, keys in NOT_BUILT.items() for key in keys.split()]
)
def test_a_key_that_is_not_built_says_so(stage: Stage, place: str, key: str) -> None:
    text, line, field = PLACES[place]
    wanted = f"scenarios/s0.yaml:{line}: {field.format(key=key)}: is not implemented yet"
    assert faults(stage, text.format(key=key)) == [wanted]


def test_all_faults_of_all_files_are_told_at_once(stage: Stage) -> None:
    first = """scenario: x
team: crue
steps:
  - send: hi
    expect: {turn: 1}
"""
    second = """scenario: y
config: {max_responder: 2}
profiles: {dev: {adapter: {replys: []}}}
steps:
  - send: ""
    from: mia
    expect:
      replied: [开发, qa]
      replies:
        "*": [{regex: 'a(b'}]
        dev: [{contains: ""}, {contains: a, regex: b}, {ignore_case: true}]
      awaits: [mya]
"""
    assert [fault.split(":")[:3] for fault in faults(stage, first, second)] == [
        ["scenarios/s0.yaml", "2", " team"],
        ["scenarios/s0.yaml", "5", " steps[0].expect.turn"],
        ["scenarios/s1.yaml", "2", " config.max_responder"],
        ["scenarios/s1.yaml", "3", " profiles.dev.adapter.replys"],
        ["scenarios/s1.yaml", "10", " steps[0].expect.replies.*[0].regex"],
        ["scenarios/s1.yaml", "11", " steps[0].expect.replies.dev[0].contains"],
        ["scenarios/s1.yaml", "11", " steps[0].expect.replies.dev[1]"],
        ["scenarios/s1.yaml", "11", " steps[0].expect.replies.dev[2]"],
    ]


def test_who_is_not_in_the_team_is_told_with_the_nearest_id(stage: Stage) -> None:
    text = """scenario: y
steps:
  - send: ""
  - send: hi
    from: mia
    expect:
      replied: [开发]
      asked: [dve]
      outcome: {qa: not_called}
      must: [[dev], [qa]]
      replies: {qa: []}
      awaits: [mya]
expect:
  replied: {include: [dve], exclude: [qa]}
"""
    with pytest.raises(FileFaults) as raised:
        stage.load(text)
    told = {(fault.line, fault.field): fault.mend for fault in raised.value.faults}
    assert [line for line, _ in told] == [3, 5, 7, 8, 9, 10, 11, 12, 14, 14]
    assert told[7, "steps[1].expect.replied[0]"] == "write the id: `dev`"
    assert told[8, "steps[1].expect.asked[0]"] == "did you mean `dev`?"
    assert told[12, "steps[1].expect.awaits[0]"] == "did you mean `maya`?"


@pytest.mark.parametrize(
    ("keys", "what"),
    [
        ("agents: []", "a team needs a member"),
        ("agents: [dev, dev]", "appears twice"),
        ("agents: [nobody]", "there is no agent `nobody`"),
        ("team: crew\nagents: [dev]", "are both given"),
        ("steps: []", "needs at least 1"),
        ("profiles: {dev: {agent_id: other}}", "`other`"),
        ("expect:", "the value is empty"),
    ],
)
def test_what_cannot_be_played_is_a_fault(stage: Stage, keys: str, what: str) -> None:
    steps = "" if keys.startswith("steps") else "steps: [{send: hi}]\n"
    (told,) = faults(stage, f"scenario: x\n{steps}{keys}\n")
    assert what in told


def test_free_keys_and_literal_placeholders_are_read(stage: Stage) -> None:
    text = "x-note: {any: thing}\nscenario: x\nsteps: [{send: 'a $${b}', x-why: 1}]"
    (scenario,) = stage.load(text)
    assert scenario.sent[0].content == "a ${b}"


def test_the_scenario_changes_rules_and_profiles_for_itself_only(stage: Stage) -> None:
    text = """scenario: x
config: {max_responders: 2}
profiles: {dev: {response: {threshold: 0.1}, name: Dev}}
steps: [{send: hi}]
"""
    changed, plain = stage.load(text, "scenario: y\nsteps: [{send: hi}]")
    assert changed.team.config.max_responders == 2
    assert changed.team.members[0].profile.response.threshold == 0.1
    assert changed.team.members[0].name == "Dev"
    assert plain.team.config.max_responders == 5
    assert plain.team.members[0].name == "开发"


def test_agents_and_new_profiles_make_a_team(stage: Stage) -> None:
    text = """scenario: x
agents: [qa, dev]
profiles: {qa: {adapter: {type: scripted, replies: [ok]}}}
steps: [{send: hi}]
"""
    assert [member.id for member in stage.load(text)[0].team.members] == ["qa", "dev"]


def test_select_takes_all_or_what_is_named(stage: Stage) -> None:
    paths = [stage.scenario("scenario: x", name) for name in ("b", "a")]
    (stage.folder / "scenarios" / "deep").mkdir()
    paths.append(stage.scenario("scenario: x", "deep/c"))
    b, a, c = (path.resolve() for path in paths)
    root = stage.folder.resolve()
    assert select.select(root, [], root).paths == (a, b, c)
    assert select.select(root, ["b", "scenarios/a.yaml", "b.yaml"], root).paths == (b, a)
    assert select.select(root, ["deep"], root).paths == (c,)
    assert select.select(root, ["."], root / "scenarios" / "deep").paths == (c,)
    with pytest.raises(UsageError, match="no scenario `bb`"):
        select.select(root, ["bb"], root)


def test_nothing_selected_is_wrong_use(stage: Stage) -> None:
    with pytest.raises(UsageError, match="no scenario is selected"):
        select.select(stage.folder, [], stage.folder)


def test_the_schema_accepts_what_the_loader_accepts(stage: Stage) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    validator = jsonschema.Draft202012Validator(loader.schema())
    step = {
        "send": "hi",
        "from": "maya",
        "x-note": 1,
        "expect": {
            "end": ["quiet"],
            "turns": {"min": 1},
            "replies": {"*": {"last": [{"contains": "a", "ignore_case": True}]}},
        },
    }
    good = {"scenario": "x", "config": {"max_responders": 1}, "steps": [step]}
    assert validator.is_valid(good)
    assert not validator.is_valid({**good, "tgas": []})
    assert not validator.is_valid({**good, "config": {"max_responders": "1"}})
    assert not validator.is_valid({**good, "steps": [{"from": "maya"}]})
