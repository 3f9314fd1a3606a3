"""What must not pass: expectations that cannot fail, files that nobody plays, agents in CI."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from product import FileFaults, select
from program import Done, Program
from stage import Stage, broken

HELD = "scenario: Held\nsteps: [{send: '@dev hi', expect: {replied: [dev]}}]\n"
FAULTY = "scenario: Faulty\ntags: [slow]\nsteps:\n  - snd: hi\n"


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    told = {"say": "done", "structured": [{"type": "note", "data": "a"}]}
    return Stage(tmp_path).agent("dev", told).team()


@pytest.fixture
def program(tmp_path: Path) -> Program:
    program = Program(tmp_path)
    program.agent("dev", {"say": "done"}).team()
    return program


def faults(stage: Stage, text: str) -> str:
    with pytest.raises(FileFaults) as raised:
        stage.load(text)
    return str(raised.value)


def warned(stage: Stage, text: str) -> list[str]:
    return [str(one).partition("\n")[0] for one in stage.load(text)[0].warnings]


def result(done: Done) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(done.stdout)
    return document


@pytest.mark.parametrize(
    ("expect", "what"),
    [
        ("{replies: {dev: [{regex: '.*'}]}}", "it matches the empty text"),
        (r"{replies: {dev: [{regex: '[^$]*'}]}}", "it matches the empty text"),
        ("{replies: {dev: [{not: {regex: 'x?'}}]}}", "it matches the empty text"),
        ("{timeline: [{agent: dev, regex: '(?s).*'}]}", "it matches the empty text"),
        ("{turns: {min: 0}}", "cannot fail"),
        ("{tokens: {min: 0}}", "cannot fail"),
        ("{cost_usd: {min: 0, unknown: pass}}", "cannot fail"),
        ("{notes: {decision: {min: 0}}}", "cannot fail"),
        (
            "{end: [failed, chain_limit, awaiting_human, no_reply, quiet, interrupted, cancelled]}",
            "it lists all ends",
        ),
        ("{awaits: [user, user]}", "appears twice"),
        ("{silent: [dev, dev]}", "appears twice"),
        ("{timeline: [{mentions: [dev, dev]}]}", "appears twice"),
        (
            "{replies: {dev: [{json: {schema: {requird: [a]}}}]}}",
            'no keyword "requird"\n',
        ),
        ("{replies: {dev: [{json: {schema: {items: {typ: string}}}}]}}", "did you mean `type`"),
    ],
)
def test_what_cannot_fail_is_a_fault(stage: Stage, expect: str, what: str) -> None:
    told = faults(stage, f"scenario: x\nsteps:\n  - send: hi\n    expect: {expect}\n")
    assert told.startswith("scenarios/s0.yaml:4: steps[0].expect.")
    assert what in told


@pytest.mark.parametrize("pattern", [".", ".+", r"\S+", r"(?s).+", r"[^\n]+"])
def test_an_ignore_that_leaves_nothing_is_a_fault(stage: Stage, pattern: str) -> None:
    told = faults(stage, f"{HELD}ignore: [{{regex: '{pattern}'}}]\n")
    assert "ignore[0].regex: it matches every text" in told


def test_a_check_of_nothing_is_a_fault(stage: Stage) -> None:
    told = faults(stage, "scenario: x\nsteps: [{send: hi}, {check: {}}]")
    assert "steps[1].check: it expects nothing" in told


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("scenario: x\nsteps: [{send: hi}]", ":1: scenario: it expects nothing"),
        (
            "scenario: x\nsteps:\n- {send: hi, expect: {turns: 1}}\n- {send: ho}",
            ":4: steps[1]: nothing is expected of this step",
        ),
        (
            "scenario: x\nsteps: [{check: {turns: 0}}, {send: hi}, {check: {turns: 1}}]",
            "no step comes",
        ),
        (f"{HELD}expect: {{replies: {{dev: [{{regex: '^\\s*$'}}]}}}}", "may match every text"),
        (f"{HELD}ignore: [{{regex: '[一-龥。]+'}}]", "matches whole sentences"),
        (
            f"{HELD}expect: {{replies: {{dev: [{{json: {{schema: {{nullable: true}}}}}}]}}}}",
            'no keyword "nullable"',
        ),
    ],
)
def test_what_is_suspicious_is_a_warning(stage: Stage, text: str, what: str) -> None:
    (told,) = warned(stage, text)
    assert told.startswith("scenarios/s0.yaml:")
    assert what in told


@pytest.mark.parametrize(
    "text",
    [
        HELD,
        "scenario: x\nsteps: [{send: hi}]\nexpect: {turns: 1}",
        "scenario: x\nsteps: [{send: hi}, {send: ho}, {check: {turns: 2}}]",
        "scenario: x\nsteps: [{send: hi, save: {a: {from: dev}}}]",
        f"{HELD}ignore: [{{regex: '\\d{{4}}-\\d\\d-\\d\\d'}}]",
        f"{HELD}expect: {{replies: {{dev: [{{regex: '^(?!.*secret)'}}]}}}}",
        f"{HELD}expect: {{replies: {{dev: [{{json: {{schema: {{x-a: 1, $defs: {{}}}}}}}}]}}}}",
        f"{HELD}expect: {{tokens: {{min: 1}}, turns: {{min: 0, max: 3}}}}",
    ],
)
def test_what_can_fail_is_no_warning(stage: Stage, text: str) -> None:
    assert warned(stage, text) == []


def test_a_recording_is_an_expectation(stage: Stage) -> None:
    text = "scenario: x\nsteps: [{send: hi}]"
    path = stage.folder / "scenarios" / "recordings" / "s0.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text("", encoding="utf-8")
    assert warned(stage, text) == []


@pytest.mark.parametrize(
    ("expect", "status"),
    [
        ("timeline: [{agent: dev, mentions: []}]", "passed"),
        ("structured: [note]", "passed"),
        ("structured: [note, note]", "failed"),
        ("structured: [{type: note, contains: a}, {type: note, contains: a}]", "failed"),
        ("structured: [note, {type: note, contains: a}]", "passed"),
        ("replied: [dev, dev]", "failed"),
        ("replied: {include: [dev, dev], any_order: true}", "failed"),
    ],
)
def test_what_stands_twice_wants_two(stage: Stage, expect: str, status: str) -> None:
    told = stage.play(f"scenario: x\nsteps: [{{send: '@dev hi', expect: {{{expect}}}}}]")
    assert told.status == status


def test_mentions_of_nobody_fail_where_somebody_is_mentioned(stage: Stage) -> None:
    stage.agent("qa", "see @dev").team()
    told = stage.play(
        "scenario: x\nsteps: [{send: '@qa hi', expect: {timeline: [{agent: qa, mentions: []}]}}]"
    )
    (check,) = broken(told)
    assert "mentions dev" in check.actual


@pytest.mark.parametrize(
    "reply", ['{"a": 1, "a": 1}', '```json\n{"b": [{"a": 1, "a": 2}]}\n```\n```json\n{"b": 1}\n```']
)
def test_a_key_twice_in_json_fails_the_check(stage: Stage, reply: str) -> None:
    stage.agent("dev", reply).team()
    told = stage.play(
        "scenario: x\nsteps: [{send: '@dev hi', expect: {replies: {dev: [{json: {}}]}}}]"
    )
    assert told.status == "failed"
    (check,) = broken(told)
    assert 'the key "a" appears twice' in check.actual


def test_a_faulty_file_is_an_error_of_its_own_and_the_others_are_played(program: Program) -> None:
    program.scenario(HELD, "held")
    program.scenario(FAULTY, "faulty")
    done = program.run("run", "--json", "--junit", "j.xml", "--html", "h.html", "--github")
    assert done.code == 3
    told = result(done)
    assert (told["passed"], told["error"], told["exit_code"]) == (1, 1, 3)
    (wrong,) = [one for one in told["scenarios"] if one["status"] == "error"]
    assert (wrong["scenario"], wrong["file"], wrong["line"]) == (
        "Faulty",
        "scenarios/faulty.yaml",
        4,
    )
    (fault,) = wrong["faults"]
    assert (fault["line"], fault["field"]) == (4, "steps[0].snd")
    assert "::error file=scenarios/faulty.yaml,line=4,title=Faulty::" in done.stderr
    for name in ("j.xml", "h.html"):
        text = (program.folder / name).read_text(encoding="utf-8")
        assert "scenarios/faulty.yaml:4" in text
        assert "did you mean `send`?" in text
    shown = program.run("run")
    assert shown.code == 3
    assert "ERROR   Faulty · scenarios/faulty.yaml" in shown.stdout
    assert "scenarios/faulty.yaml:4: steps[0].snd: unknown key" in shown.stdout
    assert "1 passed, 1 error" in shown.stdout


def test_an_expectation_that_failed_counts_more_than_a_faulty_file(program: Program) -> None:
    program.scenario(HELD.replace("[dev]", "[]"), "held")
    program.scenario(FAULTY, "faulty")
    assert program.run("run").code == 1


@pytest.mark.parametrize("args", [("faulty",), ("--strict",), ("-k", "Faulty"), ("-t", "slow")])
def test_with_nothing_to_play_or_strict_a_fault_is_exit_2(
    program: Program, args: tuple[str, ...]
) -> None:
    program.scenario(HELD, "held")
    program.scenario(FAULTY, "faulty")
    done = program.run("run", "--junit", "j.xml", *args)
    assert (done.code, done.stdout) == (2, "")
    assert done.stderr.startswith("arena: scenarios/faulty.yaml:4: steps[0].snd: unknown key")
    assert "scenarios/faulty.yaml:4" in (program.folder / "j.xml").read_text(encoding="utf-8")


def test_a_faulty_file_that_is_not_meant_is_not_told(program: Program) -> None:
    program.scenario(HELD, "held")
    program.scenario(FAULTY, "faulty")
    program.run("run", "-k", "Held").check()
    assert program.run("run", "-k", "Hedl").code == 2
    program.scenario(FAULTY + "cases: [{id: us}, {id: eu}]\n", "faulty")
    assert program.run("run", "-k", "eu and not us").code == 2
    assert program.run("run", "-t", "slwo").code == 2


def test_warnings_stand_in_every_report_and_are_errors_with_strict(program: Program) -> None:
    program.scenario("scenario: x\nsteps: [{send: '@dev hi'}]\n", "bare")
    done = program.run("run", "--json", "--junit", "j.xml", "--html", "h.html", "--github")
    assert done.code == 0
    (warning,) = result(done)["warnings"]
    assert (warning["file"], warning["line"]) == ("scenarios/bare.yaml", 1)
    assert done.stderr.startswith("warning: scenarios/bare.yaml:1: scenario: it expects nothing")
    assert "::warning file=scenarios/bare.yaml,line=1," in done.stderr
    for name in ("j.xml", "h.html"):
        assert "it expects nothing" in (program.folder / name).read_text(encoding="utf-8")
    strict = program.run("run", "--strict")
    assert (strict.code, strict.stdout) == (2, "")
    assert "it expects nothing" in strict.stderr
    assert "it expects nothing" in program.run("agents", "check").stderr


def test_recordings_of_no_scenario_are_told(program: Program) -> None:
    program.scenario(f"{HELD}cases: [{{id: a}}, {{id: b}}]\n", "held")
    program.scenario(HELD, "other")
    program.run("run", "--record").check()
    program.scenario(f"{HELD}cases: [{{id: a}}]\n", "held")
    (program.folder / "scenarios/other.yaml").unlink()
    done = program.run("run")
    assert done.code == 0
    assert "warning: scenarios/recordings/other.jsonl: belongs to no scenario" in done.stderr
    assert "scenarios/recordings/held.jsonl:" in done.stderr
    assert "the case `b` belongs to no scenario" in done.stderr
    assert program.run("run", "--strict").code == 2
    assert "recordings" not in program.run("run", "--update").stdout
    assert "other.jsonl" not in program.run("run", "held").check().stderr


def test_in_ci_no_live_agent_is_called_without_a_recording(program: Program) -> None:
    program.file(
        "agent.py", "def answer(input):\n    open('called', 'w').close()\n    return 'x'\n"
    )
    live = "profiles: {dev: {adapter: {type: python, target: 'agent.py:answer'}}}\n"
    program.scenario(HELD, "scripted")
    program.scenario(f"{HELD}{live}", "live")
    excused = HELD.replace("replied: [dev]", "outcome: {dev: error}")
    program.scenario(f"{excused}{live}xfail: never\n", "excused")
    program.env["CI"] = "true"
    done = program.run("run", "--json")
    assert done.code == 3
    told = {one["file"]: one for one in result(done)["scenarios"]}
    assert told["scenarios/scripted.yaml"]["status"] == "passed"
    assert told["scenarios/excused.yaml"]["status"] == "error"
    (step,) = told["scenarios/live.yaml"]["steps"]
    assert "arena run --live live" in step["error"]
    assert "arena run --record live" in step["error"]
    assert not (program.folder / "called").exists()
    assert program.run("run", "live", "--live").code == 0
    assert (program.folder / "called").exists()


def test_a_live_agent_that_is_not_called_needs_no_recording(program: Program) -> None:
    program.agent("qa", adapter={"type": "python", "target": "agent.py:answer"}).team(
        selection="none"
    )
    program.file("agent.py", "def answer(input):\n    return 'x'\n")
    program.scenario(HELD, "held")
    program.env["CI"] = "true"
    program.run("run").check()


@pytest.mark.parametrize("name", ["Two.YAML", "two.yml", "two.YML", "sub/two.yaml"])
def test_any_spelling_of_the_ending_is_played(program: Program, name: str) -> None:
    program.file(f"scenarios/{name}", HELD)
    assert result(program.run("run", "--json"))["passed"] == 1
    stem = Path(name).stem
    assert result(program.run("run", stem, "--json"))["passed"] == 1


def link(path: Path, target: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        path.symlink_to(target, target_is_directory=target.is_dir())
    except OSError:
        pytest.skip("no links here")


def test_linked_folders_are_played_once_and_loops_end(program: Program) -> None:
    program.file("shared/deep/linked.yaml", HELD)
    program.scenario(HELD, "held")
    link(program.folder / "scenarios/a", program.folder / "shared")
    link(program.folder / "scenarios/b", program.folder / "shared")
    link(program.folder / "scenarios/loop", program.folder / "scenarios")
    link(program.folder / "scenarios/up", program.folder)
    paths = select.everything(program.folder.resolve()).paths
    assert sorted(path.name for path in paths) == ["held.yaml", "linked.yaml"]


def test_a_link_that_leads_out_of_the_workspace_is_told(tmp_path: Path) -> None:
    program = Program(tmp_path / "inside")
    program.agent("dev", {"say": "done"}).team()
    program.scenario(HELD, "held")
    (tmp_path / "out").mkdir()
    (tmp_path / "out/x.yaml").write_text(HELD, encoding="utf-8")
    link(program.folder / "scenarios/out", tmp_path / "out")
    link(program.folder / "scenarios/y.yaml", tmp_path / "out/x.yaml")
    done = program.run("run", "--json")
    assert result(done)["passed"] == 1
    assert [one["file"] for one in result(done)["warnings"]] == [
        "scenarios/out",
        "scenarios/y.yaml",
    ]
    assert program.run("run", "--strict").code == 2


def test_a_named_folder_without_scenarios_is_wrong_use(program: Program) -> None:
    program.scenario(HELD, "held")
    (program.folder / "empty").mkdir()
    done = program.run("run", "scenarios", "empty")
    assert done.code == 2
    assert "no *.yaml in empty" in done.stderr
