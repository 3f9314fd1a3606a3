"""What is drift of a replay and what is not: files, variables, defaults, steps, and the reasons."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from past_sessions import loaded
from product import (
    Causes,
    FileFaults,
    RecordingStore,
    Runner,
    RunResult,
    ScenarioResult,
    StepMessage,
    Wanted,
    Words,
    common,
    encode_recording,
    of_run,
)
from product import steps as steps_module
from stage import Stage

ECHO = "import sys\nsys.stdin.read()\nprint('ok')\n"
HI = 'scenario: S\nsteps:\n  - send: "@dev hi"\n'


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    made = Stage(tmp_path).agent("ops", {"say": "yes"})
    words = {"hi": "first", "then": "second", "last": "third"}
    replies = [{"when": {"contains": one}, "say": said} for one, said in words.items()]
    return made.agent("dev", *replies, {"say": "ok"}).team(selection="none")


def play(stage: Stage, how: Wanted, text: str = HI, **environ: str) -> ScenarioResult:
    """Play a scenario with just these environment variables."""
    scenarios = stage.load(text)
    place = replace(common.make_config(loaded(stage), wait_s=0, connects=True), environ=environ)
    results: list[ScenarioResult] = []
    shelf = RecordingStore(scenarios, how)
    asyncio.run(Runner(scenarios, place, results.append, keep="none", shelf=shelf).run())
    return results[0]


def record(stage: Stage, text: str = HI, **environ: str) -> list[dict[str, Any]]:
    result = play(stage, "record", text, **environ)
    assert result.unkept == "", result
    return lines(stage)


def lines(stage: Stage) -> list[dict[str, Any]]:
    return [json.loads(line) for line in recording(stage).read_text("utf-8").splitlines()]


def recording(stage: Stage) -> Path:
    return stage.folder / "scenarios" / "recordings" / "s0.jsonl"


def agent_line(stage: Stage, agent: str = "dev") -> dict[str, Any]:
    return next(one for one in lines(stage) if one["type"] == "agent" and one["agent"] == agent)


def roots(result: ScenarioResult) -> list[tuple[str, str]]:
    return [(one.field, one.changed) for one in result.drift if not one.follows]


def change(stage: Stage, path: str, **keys: Any) -> None:
    file = stage.folder / path
    data = yaml.safe_load(file.read_text("utf-8")) or {}
    file.write_text(json.dumps({**data, **keys}, ensure_ascii=False), encoding="utf-8")


def write(stage: Stage, path: str, content: str | bytes) -> None:
    file = stage.folder / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content.encode() if isinstance(content, str) else content)


def whole(result: ScenarioResult) -> RunResult:
    return of_run([result], selected=1, seconds=0)


def drawn(result: ScenarioResult) -> str:
    return "\n".join(line.text for line in Causes(whole(result), Words()).lines())


# The files that an agent is made of.


def made_of(stage: Stage, **profile: Any) -> None:
    """`dev` is a program in the workspace."""
    write(stage, "bots/echo.py", ECHO)
    write(stage, "bots/rules.txt", "one\ntwo\n")
    adapter = {"type": "cli", "command": [sys.executable, "bots/echo.py", "--rules=bots/rules.txt"]}
    stage.agent("dev", **{"adapter": adapter, **profile}).team()


@pytest.mark.parametrize("file", ["bots/echo.py", "bots/rules.txt"])
def test_a_file_that_the_command_names_is_drift_by_its_name(stage: Stage, file: str) -> None:
    made_of(stage)
    record(stage)
    assert [*agent_line(stage)["files"]] == ["bots/echo.py", "bots/rules.txt"]
    path = stage.folder / file
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert play(stage, "replay").drift == []
    path.write_bytes(path.read_bytes() + b"# more\n")
    result = play(stage, "replay")
    assert roots(result) == [(f"file {file}", file)]
    assert f"dev has a different file {file}: sha256 " in drawn(result)
    assert play(stage, "update").written
    assert play(stage, "replay").drift == []


@pytest.mark.parametrize(
    ("target", "file"),
    [("bots/fn.py:answer", "bots/fn.py"), ("bots.fn:answer", "bots/fn.py")],
)
def test_the_function_of_a_python_agent_is_drift_by_its_file(
    stage: Stage, target: str, file: str
) -> None:
    write(stage, file, "def answer(input):\n    return 'one'\n")
    stage.agent("dev", adapter={"type": "python", "target": target}).team()
    record(stage)
    write(stage, file, "def answer(input):\n    return 'two'\n")
    assert roots(play(stage, "replay")) == [(f"file {file}", file)]
    (stage.folder / file).unlink()
    assert roots(play(stage, "replay")) == [(f"file {file}", file)]


@pytest.mark.parametrize("word", ["bots/run", "./bots/run", "-m"])
def test_a_module_and_a_program_by_its_path_are_files_of_the_agent(stage: Stage, word: str) -> None:
    command = [sys.executable, "-m", "bots.echo"] if word == "-m" else [word]
    file = "bots/echo.py" if word == "-m" else "bots/run"
    write(stage, file, ECHO if word == "-m" else f"#!{sys.executable}\n{ECHO}")
    (stage.folder / file).chmod(0o755)
    if sys.platform == "win32" and word != "-m":
        pytest.skip("no program there")
    stage.agent("dev", adapter={"type": "cli", "command": command}).team()
    record(stage)
    assert [*agent_line(stage)["files"]] == [file]


def test_watched_files_are_drift_when_they_change_come_or_go(stage: Stage) -> None:
    made_of(stage, watch=["data/**/*.md", "!data/log.md"])
    write(stage, "data/a.md", "a")
    write(stage, "data/deep/b.md", "b")
    write(stage, "data/log.md", "log")
    record(stage)
    assert [*agent_line(stage)["watched"]] == ["data/a.md", "data/deep/b.md"]
    write(stage, "data/log.md", "more")
    assert play(stage, "replay").drift == []
    write(stage, "data/deep/b.md", "c")
    write(stage, "data/new.md", "n")
    (stage.folder / "data/a.md").unlink()
    fields = [field for field, _ in roots(play(stage, "replay"))]
    assert fields == ["file data/a.md", "file data/deep/b.md", "file data/new.md"]


def test_what_agents_write_and_what_is_secret_is_not_hashed(stage: Stage) -> None:
    write(stage, "bots/echo.py", f"{ECHO}open('state.json', 'a').write('x')\n")
    write(stage, ".env", "TOKEN=abcdefgh1\n")
    write(stage, "server.pem", "key")
    words = [sys.executable, "bots/echo.py", "state.json", ".env", "--key=server.pem"]
    stage.agent("dev", adapter={"type": "cli", "command": words}, watch=["**"]).team()
    record(stage)
    line = agent_line(stage)
    assert line["files"]["state.json"] == ""
    names = {*line["files"], *line["watched"]}
    assert "agents/dev.yaml" in names
    assert not {name for name in names if ".env" in name or "pem" in name or "sessions" in name}
    assert play(stage, "replay").drift == []
    (stage.folder / "state.json").unlink()
    assert play(stage, "replay").drift == []
    play(stage, "update")
    assert play(stage, "replay").drift == []


def test_a_recording_without_hashes_is_no_drift_by_that(stage: Stage) -> None:
    made_of(stage)
    record(stage)
    path = recording(stage)
    for one in (line := agent_line(stage))["files"]:
        assert one in path.read_text("utf-8")
    old = {key: value for key, value in line.items() if key != "files"}
    texts = [one for one in lines(stage)[:-1] if one["type"] != "agent"]
    texts[1] = {"type": "case", "case": None}
    texts.insert(2, old)

    path.write_bytes(encode_recording("S", [texts[1:]]))
    write(stage, "bots/echo.py", "print('changed')\n")
    assert play(stage, "replay").drift == []


@pytest.mark.parametrize("glob", ["../x", "/etc/passwd", "a\\b", ""])
def test_what_is_watched_lies_in_the_workspace(stage: Stage, glob: str) -> None:
    stage.agent("dev", {"say": "ok"}, watch=[glob])
    with pytest.raises(FileFaults, match="must be a path from the workspace"):
        loaded(stage)


# Variables of the environment.

FAILS = (
    'scenario: S\nsteps:\n  - send: "@dev hi"\n    expect: {outcome: {dev: error}}\n'  # no server
)


def filled(stage: Stage, **adapter: Any) -> None:
    settings = {"type": "openai", "base_url": "http://127.0.0.1:9/v1", "model": "m", **adapter}
    stage.agent("dev", adapter=settings, on_failure="skip").team()


def test_what_a_variable_fills_is_recorded_and_drift_where_it_is_another(stage: Stage) -> None:
    filled(stage, model="${env:MODEL}", base_url="http://127.0.0.1:${env:PORT}/v1")
    record(stage, FAILS, MODEL="one", PORT="9")
    assert agent_line(stage)["filled"] == {"model": "one", "base_url": "http://127.0.0.1:9/v1"}
    assert play(stage, "replay", FAILS, MODEL="one", PORT="9").drift == []
    assert play(stage, "replay", FAILS).drift == []
    result = play(stage, "replay", FAILS, MODEL="two")
    assert [(one.field, one.before, one.after) for one in result.drift] == [
        ("adapter.model", "one", "two")
    ]
    assert result.drift[0].changed.startswith("agents/dev.yaml:")
    filled(stage, model="one", base_url="http://127.0.0.1:9/v1")
    assert play(stage, "replay", FAILS).drift == []
    filled(stage, model="${env:MODEL}", base_url="http://127.0.0.1:${env:PORT}/v1", temperature=1)
    assert [one.field for one in play(stage, "replay", FAILS).drift] == ["adapter.temperature"]


SECRET = "sk-0123456789abcdef"


@pytest.mark.parametrize(
    ("adapter", "environ"),
    [
        ({"api_key": "${env:ANY}"}, {"ANY": SECRET}),
        ({"model": "${env:MODEL_TOKEN}"}, {"MODEL_TOKEN": SECRET}),
        ({"model": "m-${env:COPY}", "api_key": "${env:ANY}"}, {"ANY": SECRET, "COPY": SECRET}),
        ({"base_url": "${env:URL}"}, {"URL": f"http://user:{SECRET}@127.0.0.1:9/v1"}),
        ({"base_url": "${env:URL}"}, {"URL": f"http://127.0.0.1:9/v1?api-key={SECRET}"}),
    ],
)
def test_a_secret_stays_a_placeholder(
    stage: Stage, adapter: dict[str, str], environ: dict[str, str]
) -> None:
    filled(stage, **adapter)
    record(stage, FAILS, **environ)
    assert SECRET not in recording(stage).read_text("utf-8")
    assert "filled" not in agent_line(stage)
    assert play(stage, "replay", FAILS).drift == []
    assert play(stage, "replay", FAILS, **dict.fromkeys(environ, "another-one")).drift == []


# What makes no difference.

QUIET: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("threshold", {}, {"response": {"threshold": 0.6, "auto_respond": True, "keywords": []}}),
    (
        "sets",
        {"skills": ["a", "b"], "aliases": ["x", "y"]},
        {"skills": ["b", "a"], "aliases": ["y", "x"]},
    ),
    ("keywords", {"response": {"keywords": ["a", "b"]}}, {"response": {"keywords": ["b", "a"]}}),
    ("may_mention", {"may_mention": ["dev", "ops"]}, {"may_mention": ["ops", "dev"]}),
    ("team's rules", {}, {"on_failure": "skip", "retries": 3, "timeout_s": 120}),
    ("context", {}, {"context": {"window_tokens": 32000, "max_output_tokens": 2000}}),
    ("prompt", {"role_prompt": "Be brief."}, {"role_prompt": "Be brief.\n"}),
    ("prompt's end", {"role_prompt": "Be brief.\n"}, {"role_prompt": "Be brief.\n\n"}),
    ("name", {}, {"name": "dev", "avatar": "D", "member": True}),
]


@pytest.mark.parametrize(
    ("before", "after"), [one[1:] for one in QUIET], ids=[one[0] for one in QUIET]
)
def test_a_profile_that_says_the_same_is_no_drift(
    stage: Stage, before: dict[str, Any], after: dict[str, Any]
) -> None:
    for first, second in ((before, after), (after, before)):
        stage.agent("dev", {"say": "ok"}, **first)
        record(stage)
        stage.agent("dev", {"say": "ok"}, **second)
        assert play(stage, "replay").drift == []


SERVER = {"type": "openai", "model": "m", "base_url": "http://127.0.0.1:9/v1"}


@pytest.mark.parametrize(
    ("adapter", "more"),
    [
        (
            {"type": "cli", "command": [sys.executable, "-c", ECHO]},
            {"prompt": "stdin", "args": [], "cwd": "."},
        ),
        ({"type": "scripted", "replies": [{"say": "ok"}]}, {"strict": False}),
        (SERVER, {"temperature": None, "stream": True}),
    ],
)
def test_a_default_of_an_adapter_that_is_written_out_is_no_drift(
    stage: Stage, adapter: dict[str, Any], more: dict[str, Any]
) -> None:
    text = FAILS if adapter["type"] == "openai" else HI
    stage.agent("dev", adapter=adapter, on_failure="skip").team()
    record(stage, text)
    stage.agent("dev", adapter={**adapter, **more}, on_failure="skip")
    assert play(stage, "replay", text).drift == []


def test_defaults_of_the_team_and_another_title_are_no_drift(stage: Stage) -> None:
    record(stage)
    stage.team(max_responders=5, memory={"shown": 6}, selection="none")
    text = HI.replace("S\n", "Another title\nconfig: {retries: 3}\ntags: [new]\n")
    assert play(stage, "replay", text).drift == []


def test_a_recording_of_which_no_step_is_sent_is_that_of_another_file(stage: Stage) -> None:
    record(stage)
    text = HI.replace("S\n", "Another\n").replace("@dev hi", "@dev something else")
    with pytest.raises(FileFaults, match="is the recording of `S`, not of `Another`"):
        play(stage, "replay", text)


# Steps.

STEPS = {
    "a": 'send: "@dev hi"',
    "b": 'send: "@dev and then"',
    "c": 'send: "@dev at last"',
    "check": "check: {turns: {max: 99}}",
    "nobody": 'send: "a note to nobody"',
    "planted": 'system: "five minutes later"',
}


def steps(*names: str) -> str:
    return "scenario: S\nsteps:\n" + "".join(f"  - {STEPS[name]}\n" for name in names)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a b", "check a b"),
        ("a b", "a check b check"),
        ("check a b", "a check b"),
        ("a check b", "a b"),
        ("a b", "a b nobody"),
        ("a b", "a b planted"),
        ("a b nobody", "a b"),
        ("a nobody planted", "a planted nobody"),
    ],
)
def test_a_step_that_calls_nobody_shifts_no_answer(stage: Stage, before: str, after: str) -> None:
    record(stage, steps(*before.split()))
    result = play(stage, "replay", steps(*after.split()))
    assert (result.drift, result.status) == ([], "passed")


@pytest.mark.parametrize("silent", ["nobody", "planted"])
@pytest.mark.parametrize(("before", "after"), [("a b c", "a X b c"), ("a X b c", "a b c")])
def test_others_see_a_new_message_and_answer_what_they_answered(
    stage: Stage, silent: str, before: str, after: str
) -> None:
    record(stage, steps(*before.replace("X", silent).split()))
    result = play(stage, "replay", steps(*after.replace("X", silent).split()))
    assert {one.kind for one in result.drift} == {"input"}
    events = [event for step in result.steps for event in step.events]
    replies = [one.message.content for one in events if one.type == "reply_finished"]
    assert replies == ["first", "second", "third"]
    assert any(STEPS[silent].split('"')[1] in one.before + one.after for one in result.drift)


def test_steps_are_matched_by_what_they_send() -> None:
    def sends(*texts: str | None) -> list[StepMessage]:
        return [StepMessage(None, None if text is None else "user", text) for text in texts]

    match = steps_module.match
    assert match(sends("a", "b"), sends("a", "b")) == {0: 0, 1: 1}
    assert match(sends("a", "b"), sends(None, "a", "x", "b")) == {0: 1, 1: 3}
    assert match(sends("a", None, "b"), sends("b", "c")) == {2: 0}
    assert match(sends("hello dev"), sends("hello devs")) == {0: 0}
    assert match(sends(None), sends("a")) == {}
    assert match(sends("@dev 1", "@dev 2", "@dev 3"), sends("@dev 2", "@dev 3", "@dev 4")) == {
        1: 0,
        2: 1,
    }


# What is declared to vary.


def test_a_pattern_that_is_added_later_counts_for_both_sides(stage: Stage) -> None:
    stage.agent("dev", {"say": "ok"}, role_prompt="It is 10:00:01Z.")
    text = HI.replace("hi", "at 09:00:00Z")
    record(stage, text)
    stage.agent("dev", {"say": "ok"}, role_prompt="It is 10:07:33Z.")
    assert play(stage, "replay", text).status == "failed"
    later = text.replace("09:00:00Z", "09:30:00Z") + "ignore: [{regex: '\\d\\d:\\d\\d:\\d\\dZ'}]\n"
    assert play(stage, "replay", later).drift == []


def test_a_pattern_that_is_taken_out_is_named(stage: Stage) -> None:
    stage.agent("dev", {"say": "ok"}, role_prompt="It is 10:00:01Z.")
    text = HI + "ignore:\n  - {regex: '\\d\\d:\\d\\d:\\d\\dZ'}\n"
    record(stage, text)
    stage.agent("dev", {"say": "ok"}, role_prompt="It is 10:07:33Z.")
    assert ("ignore[0]", "scenarios/s0.yaml:1") in roots(play(stage, "replay", HI))


# Reasons.


TEAM_FILE, PROFILE = "agents/teams/crew.yaml", "agents/dev.yaml"
CHANGED = [
    (TEAM_FILE, {"config": {"selection": "none", "memory": {"shown": 2}}}, "config.memory.shown"),
    ("arena.yaml", {"defaults": {"config": {"retries": 1}}}, "config.retries"),
    (PROFILE, {"response": {"threshold": 0.9}}, "response.threshold"),
    (PROFILE, {"role_prompt": "New."}, "role_prompt"),
    ("prompts/ops.md", {}, "role_prompt"),
]


@pytest.mark.parametrize(("file", "keys", "field"), CHANGED)
def test_the_reason_names_the_setting_and_its_place(
    stage: Stage, file: str, keys: dict[str, Any], field: str
) -> None:
    write(stage, "prompts/ops.md", "You run it.\nOld.\n")
    stage.agent("ops", {"say": "yes"}, role_prompt={"file": "prompts/ops.md"})
    text = HI.replace("@dev", "@dev @ops")
    record(stage, text)
    if keys:
        change(stage, file, **keys)
    else:
        write(stage, file, "You run it.\nNew.\n")
    place = f"{file}:1" if keys else f"{file}:2"
    result = play(stage, "replay", text)
    assert roots(result) == [(field, place)]
    assert f"changed in {place}" in drawn(result)


def test_a_model_of_arena_yaml_is_named(stage: Stage) -> None:
    stage.agent("dev", adapter=SERVER, on_failure="skip")
    words = "word " * 300
    long = FAILS + "".join(
        f'  - send: "@dev {number} {words}"\n    expect: {{outcome: {{dev: error}}}}\n'
        for number in range(3)
    )
    change(stage, "arena.yaml", models={"m": {"window_tokens": 30_000}})
    record(stage, long)
    change(stage, "arena.yaml", models={"m": {"window_tokens": 30_000}, "gpt-4.1": {}})
    assert play(stage, "replay", long).drift == []
    change(stage, "arena.yaml", models={"m": {"window_tokens": 1_500}})
    assert roots(play(stage, "replay", long))[0] == ("models.m.window_tokens", "arena.yaml:1")


def test_a_rubric_is_drift_of_its_judge(stage: Stage) -> None:
    stage.agent("judge", {"say": '{"verdict": "pass"}'}, member=False).team()
    stage.folder.joinpath("agents/teams/crew.yaml").write_text("team: crew\nmembers: [dev, ops]\n")
    text = (
        "scenario: S\n"
        "steps:\n"
        '  - send: "@dev hi"\n'
        "    expect:\n"
        "      replies:\n"
        "        dev:\n"
        "          - judge: {rubric: it is short, agent: judge}\n"
    )
    record(stage, text)
    result = play(stage, "replay", text.replace("short", "long"))
    [cause] = [one for one in result.drift if not one.follows]
    assert (cause.agent, cause.field, cause.changed) == ("judge", "rubric", "scenarios/s0.yaml:7")
    assert "the judge judge uses a different rubric: 1. it is short → 1. it is long" in drawn(
        result
    )


# Advice.


def advised(result: ScenarioResult) -> Wanted | None:
    """The option of the command that the causes of drift advise."""
    text = drawn(result)
    if "`arena run --record=missing" in text:
        return "missing"
    for how in ("record", "update"):
        if f"`arena run --{how}" in text:
            return how  # type: ignore[return-value]
    return None


@pytest.mark.parametrize("first", ["replay", "update", "missing"])
@pytest.mark.parametrize(
    "after", ["a b c", "a c b", "c", "b a", "a nobody b", "a check b c nobody"]
)
def test_advice_leads_to_green_and_never_back(stage: Stage, first: Wanted, after: str) -> None:
    stage.agent("dev", *[{"say": "ok"}] * 9)
    record(stage, steps("a", "b"))
    stage.agent("dev", *[{"say": "ok"}] * 9, role_prompt="New.")
    text = steps(*after.split())
    seen: list[Wanted] = [first]
    while option := advised(play(stage, seen[-1], text)):
        assert option not in seen, seen
        seen.append(option)
    assert play(stage, "replay", text).drift == [], seen


def test_one_message_that_agents_are_shown_at_other_numbers_is_one_cause(stage: Stage) -> None:
    """A long past is shown to each call from another message on: numbers differ, not the change."""
    text = (
        "scenario: S\n"
        "given: {fill: {messages: 40, seed: 1}}\n"
        "steps:\n"
        '  - send: "@dev first of all"\n'
        '  - send: "@ops later, 你好"\n'
        '  - send: "@dev then"\n'
    )
    for agent in ("dev", "ops"):
        path = stage.folder / f"agents/{agent}.yaml"
        profile = yaml.safe_load(path.read_text("utf-8"))
        profile["context"] = {"window_tokens": 3000}
        path.write_text(yaml.safe_dump(profile, allow_unicode=True), encoding="utf-8")
    record(stage, text)
    result = play(stage, "replay", text.replace("first of all", "first of everything"))
    causes = of_run([result], selected=1, seconds=0).drift
    assert [(cause.before, cause.after) for cause in causes] == [
        ("user: @dev first of all\n→ dev", "user: @dev first of everything\n→ dev")
    ]
    by_agent = [drift.agent for drift in result.drift if not drift.follows]
    assert sorted(by_agent, key=str) == ["dev", "ops"]


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_changed_message_that_equals_others_is_one_cause(stage: Stage, number: int) -> None:
    stage.agent("dev", {"decline": True})  # nothing stands between the equal messages
    text = "scenario: S\nsteps:\n" + '  - send: "@dev hi"\n' * 3
    record(stage, text)
    parts = text.split("@dev hi")
    changed = "@dev hi".join(parts[:number]) + "@dev oh hi" + "@dev hi".join(parts[number:])
    result = play(stage, "replay", changed)
    causes = of_run([result], selected=1, seconds=0).drift
    assert [(cause.before, cause.after) for cause in causes] == [
        ("user: @dev hi\n→ dev", "user: @dev oh hi\n→ dev")
    ]
