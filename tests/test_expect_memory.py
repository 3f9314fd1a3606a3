"""What scenarios expect of memory: what agents were shown, what was noted, what not heeded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from product import (
    CheckContext,
    Compacted,
    Deviation,
    Expect,
    FileFaults,
    NoteEvent,
    Verdict,
    evaluate,
    read_conversation,
)
from program import Program
from stage import Stage, broken, printed

NOTE = """\
---
title: Auth by OIDC
kind: decision
status: approved
source: m4
---

Log in by OIDC only; no passwords in the database.
"""
DECIDES = "Decision: we keep the index in SQLite. @dev build it"


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    made = Stage(tmp_path).agent("architect", DECIDES, {"say": "fine"}).agent("dev", {"say": "ok"})
    (tmp_path / "scenarios" / "notes").mkdir(parents=True)
    note(made, "decision-auth.md")
    return made.team()


def note(stage: Stage, name: str, text: str = NOTE) -> Path:
    path = stage.folder / "scenarios" / "notes" / name
    path.write_bytes(text.encode())
    return path


def scenario(expect: str, given: str = "[notes/decision-auth.md]") -> str:
    return f"""\
scenario: memory
given: {{notes: {given}}}
steps:
  - send: "@architect how do people log in, by OIDC?"
    expect: {expect}
"""


@pytest.mark.parametrize(
    "expect",
    [
        "{shown: {architect: [{contains: OIDC only}, {not_contains: SQLite}]}}",
        "{shown: {architect: {last: [{contains: auth}]}, dev: {any: [{contains: SQLite}]}}}",
        "{shown: {'*': [{contains: one of a team}]}}",
        "{shown_notes: {architect: [decision-auth]}}",
        "{shown_notes: {architect: {include: ['DECISION-*'], exclude: ['task-*']}}}",
        "{shown_notes: {architect: {exactly: ['*auth']}, dev: {exclude: [blocker-x]}}}",
        "{notes: [decision, {kind: decision, by: rules, status: draft, title: SQLite}]}",
        "{notes: {exactly: [{note: 'decision-*', contains: we keep the index}]}}",
        "{notes: {decision: 1, task: 0, blocker: {max: 2}}}",
        "{deviations: 0, compactions: {max: 0}}",
        "{deviations: []}",
    ],
)
def test_what_holds_passes(stage: Stage, expect: str) -> None:
    result = stage.play(scenario(expect))
    assert result.status == "passed", printed(result)


@pytest.mark.parametrize(
    ("expect", "field", "actual"),
    [
        ("{shown: {architect: [{contains: MD5}]}}", "shown.architect[0].contains", "architect in"),
        ("{shown: {dev: {first: [{contains: OIDC only}]}}}", "shown.dev.first[0].contains", "dev"),
        ("{shown_notes: {architect: [task-x]}}", "shown_notes.architect", "decision-auth"),
        ("{shown_notes: {architect: []}}", "shown_notes.architect", "decision-auth"),
        (
            "{shown_notes: {architect: {exclude: ['*-auth']}}}",
            "shown_notes.architect",
            "decision-auth",
        ),
        ("{notes: [{kind: decision, by: dev}]}", "notes[0]", "(by rules)"),
        ("{notes: [{status: approved}]}", "notes[0]", "(status is draft)"),
        ("{notes: [{contains: PostgreSQL}]}", "notes[0]", "PostgreSQL"),
        ("{notes: [task]}", "notes[0]", "(kind is decision)"),
        ("{notes: []}", "notes", "decision · decision-"),
        ("{notes: {exactly: [decision, decision]}}", "notes.exactly[1]", "(none is decision)"),
        ("{notes: {exactly: []}}", "notes.exactly", "(not expected: decision-"),
        ("{notes: {decision: 2}}", "notes.decision", "1 note of the kind decision"),
        ("{deviations: 1}", "deviations", "0"),
        ("{deviations: [{agent: dev}]}", "deviations[0]", "none"),
        ("{compactions: {min: 1}}", "compactions", "0"),
    ],
)
def test_what_does_not_hold_fails_and_says_what_was_there(
    stage: Stage, expect: str, field: str, actual: str
) -> None:
    found = broken(stage.play(scenario(expect)))
    assert [(one.field, one.status) for one in found] == [(field, "failed")]
    assert actual in found[0].actual
    assert found[0].line == 5


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ("{kind: decisoin}", "notes[0].kind: must be one of decision, "),
        ("{status: aproved}", "notes[0].status: must be one of draft, "),
    ],
)
def test_a_wrong_word_in_a_row_of_notes_is_one_fault(tmp_path: Path, row: str, told: str) -> None:
    program = Program(tmp_path).agent("dev")
    steps = f"[{{send: hi, expect: {{notes: [{row}]}}}}]"
    program.file("scenarios/s.yaml", f"scenario: s\nsteps: {steps}\n")
    done = program.run("run")
    assert done.code == 2
    assert done.stderr.count("scenarios/s.yaml:2: ") == 1
    assert told in done.stderr


def test_an_agent_that_was_not_called_was_shown_nothing_and_fails(stage: Stage) -> None:
    stage.agent("tester", {"say": "ok"}).team()
    found = broken(
        stage.play(
            scenario(
                "{shown: {tester: [{not_contains: x}]}, shown_notes: {tester: {exclude: [a]}}}"
            )
        )
    )
    assert [one.actual for one in found] == ["no call of tester: passed_over"] * 2


def test_every_call_of_the_agent_must_pass_and_the_step_is_what_counts(stage: Stage) -> None:
    text = (
        scenario("{shown: {dev: [{not_contains: 'SECOND'}]}}")
        + """\
  - send: "@dev the SECOND question"
    expect: {shown: {dev: {last: [{contains: SECOND}], all: [{contains: SQLite}]}}, notes: []}
expect:
  shown: {dev: [{contains: SECOND}]}
  notes: {decision: 1}
"""
    )
    result = stage.play(text)
    assert [(one.field, one.actual[:14]) for one in broken(result)] == [
        ("shown.dev[0].contains", "dev in turn 2:")
    ]


def test_a_note_that_an_agent_writes_itself_is_its_own(stage: Stage) -> None:
    block = "```note\nkind: blocker\ntitle: 密钥缺失\n\nNo key in CI.\n```"
    stage.agent("dev", {"say": block})
    result = stage.play(
        scenario("{notes: [{kind: blocker, by: dev, title: 密钥, contains: No key in CI}]}")
    )
    assert result.status == "passed", printed(result)


def test_what_the_session_is_given_is_a_copy_without_its_source(stage: Stage) -> None:
    (session,) = stage.play_all(scenario("{notes: []}", "[notes/decision-auth.md]"))[0].sessions
    copy = stage.folder / "sessions" / session / "knowledge" / "decision-auth.md"
    assert "source: null" in copy.read_text(encoding="utf-8")
    assert "Log in by OIDC only" in copy.read_text(encoding="utf-8")
    assert (stage.folder / "scenarios" / "notes" / "decision-auth.md").read_text() == NOTE
    stage.play_all(scenario("{}"), keep="none")
    assert stage.sessions() == [session]


def test_the_shared_notes_of_the_workspace_are_neither_read_nor_written(stage: Stage) -> None:
    shared = stage.folder / "sessions" / "knowledge" / "decisions" / "oidc.md"
    shared.parent.mkdir(parents=True)
    shared.write_text(NOTE.replace("Auth", "Shared auth"), encoding="utf-8")
    result = stage.play(scenario("{shown_notes: {architect: []}}", "[]"))
    assert result.status == "passed", printed(result)
    names = [path.name for path in (stage.folder / "sessions").rglob("*.md")]
    assert names == ["oidc.md"]


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        (
            "[notes/gone.md]",
            "scenarios/s0.yaml:2: given.notes[0]: there is no file `notes/gone.md`",
        ),
        (
            "[notes/broken.md]",
            "scenarios/notes/broken.md:3: kind: must be one of decision, requirement",
        ),
        (
            "[notes/open.md]",
            "scenarios/notes/open.md:1: the front matter that begins here is never closed",
        ),
        (
            "[notes/decision-auth.md, scenarios/notes/decision-auth.md]",
            "scenarios/s0.yaml:2: given.notes[1]: two notes are named `decision-auth.md`",
        ),
        (
            "[agents/dev.yaml]",
            "scenarios/s0.yaml:2: given.notes[0]: `dev.yaml` is not the name of a note",
        ),
        ("[notes/latin.md]", "scenarios/notes/latin.md:1: is not UTF-8"),
    ],
)
def test_a_note_that_cannot_be_given_is_told_when_it_is_loaded(
    stage: Stage, given: str, fault: str
) -> None:
    note(stage, "broken.md", "---\ntitle: x\nkind: wish\n---\n")
    note(stage, "open.md", "---\ntitle: x\n")
    note(stage, "latin.md").write_bytes(b"caf\xe9")
    with pytest.raises(FileFaults) as raised:
        stage.load(scenario("{}", given))
    assert str(raised.value).startswith(fault)


@pytest.mark.parametrize(
    ("expect", "what"),
    [
        ("{shown: {ghost: [{contains: x}]}}", "no member of this team has the id `ghost`"),
        ("{shown_notes: {ghost: [a]}}", "no member of this team has the id `ghost`"),
        ("{deviations: [{agent: ghost}]}", "no member of this team has the id `ghost`"),
        ("{notes: {}}", "notes: needs one of exactly, decision, "),
        ("{notes: [{}]}", "a note needs its id"),
        ("{shown_notes: {dev: {exactly: [a], include: [b]}}}", "`exactly` lists all"),
        ("{deviations: [{}]}", "needs one of agent, note, kind, level, severity"),
        ("{notes: [decisions]}", "decision"),
    ],
)
def test_what_means_nothing_is_a_fault(stage: Stage, expect: str, what: str) -> None:
    with pytest.raises(FileFaults) as raised:
        stage.load(scenario(expect))
    assert what in str(raised.value)


def judged(expect: dict[str, Any], told: CheckContext) -> list[Verdict]:
    checks = evaluate.checks_of(Expect.model_validate(expect))
    return [check.judge(told) for check in checks]


def test_deviations_and_compactions_are_counted_and_named(tmp_path: Path) -> None:
    ignored = Deviation(
        seq=9,
        ts="",
        reply=1,
        agent="dev",
        note="blocker-key",
        kind="blocker",
        level="replan_required",
        reason="it says nothing of the key",
    )
    summary = Compacted(
        seq=10,
        ts="",
        by="extractive (x)",
        upto="m2",
        messages=2,
        summary="s",
        tokens_before=9,
        tokens_after=3,
    )
    undone = summary.model_copy(update={"seq": 11, "rolled_back": "it is no shorter"})
    told = CheckContext(tmp_path, read_conversation([ignored, summary, undone]))
    holds = {
        "deviations": [
            {"agent": "dev", "note": "blocker-*", "level": "replan_required", "kind": "blocker"},
            {"severity": "high"},
        ],
        "compactions": 1,
    }
    assert all(verdict.holds for verdict in judged(holds, told))
    for row in (
        {"level": "warning"},
        {"severity": "low"},
        {"note": "task-*"},
        {"kind": "next_action"},
    ):
        (verdict,) = judged({"deviations": [row]}, told)
        assert not verdict.holds
        assert "dev · blocker-key · blocker · replan_required" in verdict.actual
    (verdict,) = judged({"deviations": 0}, told)
    assert (verdict.holds, verdict.actual) == (
        False,
        '1: dev · blocker-key · blocker · replan_required · high · "it says nothing of the key"',
    )
    assert not judged({"deviations": []}, told)[0].holds
    assert judged({"deviations": {"min": 1, "max": 1}}, told)[0].holds


def test_exactly_gives_each_note_to_one_row(tmp_path: Path) -> None:
    told = CheckContext(tmp_path)

    def event(seq: int, name: str, title: str) -> NoteEvent:
        return NoteEvent(
            seq=seq,
            ts="",
            note=name,
            act="added",
            by="dev",
            kind="task",
            title=title,
            status="draft",
        )

    refused = event(3, "", "").model_copy(update={"act": "refused", "reason": "no title"})
    told.noted = [event(1, "task-a", "a and b"), event(2, "task-b", "b"), refused]
    # The first row takes the note that the second needs, and has to give it back.
    assert judged({"notes": {"exactly": [{"title": "b"}, {"title": "a"}]}}, told)[0].holds
    assert judged({"notes": {"exactly": ["task", {"title": "a"}]}}, told)[0].holds
    assert not judged({"notes": {"exactly": [{"title": "a"}, {"title": "a"}]}}, told)[0].holds
    told.noted.append(event(3, "task-a", "x").model_copy(update={"status": "approved"}))
    assert judged({"notes": [{"note": "task-a", "status": "approved"}]}, told)[0].holds
    assert judged({"notes": {"task": 2}}, told)[0].holds
    (verdict,) = judged({"notes": {"task": 3}}, told)
    assert (verdict.holds, len(verdict.actual.splitlines())) == (False, 1)
    assert verdict.actual.startswith("2 notes of the kind task: task · task-a · approved")


def test_no_secret_of_what_was_shown_stands_in_a_report(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.agent("dev", {"say": "ok"}, role_prompt="tok-4711 opens the door.").team()
    program.file("arena.yaml", "team: crew\nredact: ['tok-[0-9]+']\n")
    expect = "{shown: {dev: [{contains: opens the door}, {contains: nobody}]}}"
    program.file("scenarios/s.yaml", f"scenario: s\nsteps: [{{send: '@dev hi', expect: {expect}}}]")
    done = program.run("run", "s", "--html", "page.html", "--json", "--keep", "none")
    assert done.code == 1
    told = done.stdout + (tmp_path / "page.html").read_text("utf-8")
    assert "opens the door" in told
    assert "tok-4711" not in told
