"""Memory in recordings: notes are replayed as they were; one that changed is the drift's cause."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from past_sessions import loaded, talk
from product import (
    Compacted,
    Deviation,
    Event,
    NoteEvent,
    RecordingStore,
    ReplyFinished,
    ReplyStarted,
    Runner,
    ScenarioResult,
    Wanted,
    Words,
    causes,
    common,
    describe_drift,
    drift,
    extractive,
    file,
    find,
    promoted_file,
    reader,
    summary,
)
from product import transcript_compare as compare
from stage import Stage, printed

NOTE = """\
---
title: Auth by OIDC
kind: decision
status: approved
---

Log in by OIDC only.
"""
SCENARIO = """\
scenario: memory
given: {notes: [notes/decision-auth.md]}
steps:
  - send: "@architect how do people log in, by OIDC?"
  - send: "@dev is it OIDC?"
"""


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    made = Stage(tmp_path)
    made.agent("architect", "Decision: we keep the index in SQLite. @dev build it", {"say": "fine"})
    made.agent("dev", {"say": "ok"})
    made.team()
    (tmp_path / "scenarios" / "notes").mkdir(parents=True)
    note(made, NOTE)
    return made


def note(stage: Stage, text: str) -> None:
    path = stage.folder / "scenarios" / "notes" / "decision-auth.md"
    path.write_text(text, encoding="utf-8")


def play(stage: Stage, how: Wanted, text: str = SCENARIO) -> ScenarioResult:
    scenarios = stage.load(text)
    place = common.make_config(loaded(stage), wait_s=0, connects=True)
    told: list[ScenarioResult] = []
    shelf = RecordingStore(scenarios, how, drift="fail")
    asyncio.run(Runner(scenarios, place, told.append, shelf=shelf).run())
    return told[0]


def lines(stage: Stage) -> list[dict[str, Any]]:
    path = stage.folder / "scenarios" / "recordings" / "s0.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_what_was_remembered_is_recorded_and_replayed(stage: Stage) -> None:
    assert play(stage, "record").status == "passed"
    recorded = lines(stage)
    (noted,) = [one for one in recorded if one["type"] == "note"]
    assert (noted["message"], noted["by"], noted["kind"]) == ("m2", "rules", "decision")
    shown = [one for one in recorded if one["type"] == "reply_started" and "notes" in one]
    assert "Log in by OIDC only" in shown[0]["input"]["memory_context"]
    result = play(stage, "replay")
    assert (result.status, result.drift) == ("passed", []), printed(result)
    assert play(stage, "update").written is False


def test_a_note_that_changed_is_named_as_the_cause_once(stage: Stage) -> None:
    play(stage, "record")
    note(stage, NOTE.replace("only.", "and SAML."))
    result = play(stage, "replay")
    assert result.status == "failed"
    assert [(one.kind, one.agent, one.field, one.follows) for one in result.drift] == [
        ("input", "architect", "note decision-auth", False),
        ("input", "dev", "note decision-auth", False),
    ]
    assert "OIDC only." in result.drift[0].before
    assert "OIDC and SAML." in result.drift[0].after
    (cause,) = causes([result])
    assert (cause.agents, len(cause.touches)) == (["architect", "dev"], 2)
    assert play(stage, "update").written
    assert play(stage, "replay").status == "passed"


def test_a_note_that_is_gone_is_named_too(stage: Stage) -> None:
    play(stage, "record")
    result = play(stage, "replay", SCENARIO.replace("[notes/decision-auth.md]", "[]"))
    assert {(one.field, one.after) for one in result.drift} == {("note decision-auth", "")}


def test_a_note_that_follows_from_another_message_is_not_the_cause(stage: Stage) -> None:
    text = SCENARIO.replace("by OIDC?", "by OIDC? Decision: passwords are hashed with argon2.")
    play(stage, "record", text)
    result = play(stage, "replay", text.replace("argon2", "bcrypt"))
    roots = [one for one in result.drift if not one.follows]
    assert roots
    assert all(not one.field.startswith("note ") for one in roots)
    assert any("argon2" in one.before and "bcrypt" in one.after for one in roots)


def test_a_note_that_nobody_is_shown_and_that_is_no_longer_taken_is_told(stage: Stage) -> None:
    play(stage, "record")
    path = stage.folder / "scenarios" / "recordings" / "s0.jsonl"
    old = path.read_text(encoding="utf-8").splitlines()
    config = "config: {memory: {rules: false}}\n"
    result = play(stage, "replay", config + SCENARIO)
    assert result.status == "failed"
    told = {(one.kind, one.field): one.follows for one in result.drift}
    assert told == {("settings", "config.memory.rules"): False, ("routing", "note"): True}
    # A recording from before notes were taken stays good.
    bare = [line for line in old[:-1] if not line.startswith('{"type":"note"')]
    records = [json.loads(line) for line in bare[1:]]
    path.write_bytes(file.encode_recording("memory", [records]))
    assert play(stage, "replay").status == "passed"


def summarised(stage: Stage) -> str:
    """A scenario in which an agent that is no member summarises what was said."""
    stage.agent("scribe", {"say": "# Key decisions\n\n- Log in by OIDC."}, member=False)
    data = {"team": "crew", "memory": {"summarizer": "scribe"}}
    (stage.folder / "arena.yaml").write_text(json.dumps(data), encoding="utf-8")
    rounds = "".join(f'  - send: "@dev number {count}: {"word " * 60}"\n' for count in range(8))
    return f"scenario: long\nconfig: {{auto_summary_interval: 4}}\nsteps:\n{rounds}"


def test_what_an_agent_does_for_the_memory_is_recorded_and_replayed(stage: Stage) -> None:
    text = summarised(stage)
    stage.team()
    text = summarised(stage)
    live = play(stage, "record", text)
    assert live.status == "passed", printed(live)
    recorded = lines(stage)
    asked = [at for at, one in enumerate(recorded) if one["type"] == "memory"]
    assert asked
    for at in asked:
        assert recorded[at]["agent"] == "scribe"
        assert "Log in by OIDC" in recorded[at]["output"]["content"]
        after = recorded[at + 1]
        if after["type"] != "memory":  # it is asked once more about a summary without a goal
            assert (after["type"], after["by"]) == ("compacted", "scribe")
    assert {one["agent"] for one in recorded if one["type"] == "agent"} >= {"scribe"}
    # Nobody is called now: the scribe's script would fail.
    stage.agent("scribe", "x", member=False)
    profile = stage.folder / "agents" / "scribe.yaml"
    profile.write_text(
        json.dumps(
            {
                "agent_id": "scribe",
                "member": False,
                "adapter": {"type": "scripted", "replies": [{"fail": "error"}]},
            }
        ),
        encoding="utf-8",
    )
    result = play(stage, "replay", text)
    fields = {(one.kind, one.agent) for one in result.drift}
    assert fields == {("settings", "scribe")}, printed(result)
    path = stage.folder / "sessions"
    kept = [(one["by"], one["summary"]) for one in recorded if one["type"] == "compacted"]
    (session,) = result.sessions
    again = reader.read_lines(path / session / "transcript.jsonl")
    told = [event for line in again for event in line.events if isinstance(event, Compacted)]
    assert [(one.by, one.summary) for one in told] == kept


def test_a_summary_without_an_agent_replays_from_a_recording_of_an_earlier_version(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = summarised(stage)
    (stage.folder / "arena.yaml").write_text('{"team": "crew"}', encoding="utf-8")
    with monkeypatch.context() as earlier:
        earlier.setattr(extractive, "BY", "extractive (networkx LexRank)")
        assert play(stage, "record", text).status == "passed"
    assert any(line.get("by") == "extractive (networkx LexRank)" for line in lines(stage))
    replayed = play(stage, "replay", text)
    assert (replayed.status, replayed.drift) == ("passed", []), printed(replayed)


def test_a_summary_that_is_cut_elsewhere_now_is_reported_as_a_change_of_rules(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = summarised(stage)
    (stage.folder / "arena.yaml").write_text('{"team": "crew"}', encoding="utf-8")
    with monkeypatch.context() as earlier:
        old_part = summary.old_part
        earlier.setattr(summary, "old_part", lambda messages, turn: old_part(messages, turn)[:-1])
        assert play(stage, "record", text).status == "passed"
    result = play(stage, "replay", text)
    first = next(one for one in result.drift if not one.follows)
    lines_shown = [describe_drift(first, Words(language)) for language in ("en", "zh")]
    assert lines_shown[0].startswith("the summary differs: the rules for summaries have changed")
    assert lines_shown[1].startswith("摘要不同：摘要的规则已改变")


def test_the_work_for_the_memory_that_changed_takes_the_next_answer_and_is_drift(
    stage: Stage,
) -> None:
    stage.team()
    text = summarised(stage)
    assert play(stage, "record", text).status == "passed"
    result = play(stage, "replay", text.replace("number 0", "number zero"))
    assert result.status == "failed"
    assert not [one for one in result.drift if one.kind == "miss"]
    roots = [one for one in result.drift if not one.follows]
    assert any("number zero" in one.after for one in roots)
    assert {(one.agent, one.field) for one in roots} == {("dev", "messages[0]")}
    assert any(one.field == "summary" for one in result.drift)
    assert any(one.agent == "scribe" and one.follows for one in result.drift)


def test_the_pieces_of_a_memory_are_told_apart_whatever_a_summary_says() -> None:
    before = "Of the 3 messages:\n- [task-b] x\n\n- [task-a] A\n  one\n- [task-b] B\n  two"
    after = "Of the 4 messages:\n- [task-b] x\n\n- [task-a] A\n  one\n- [task-b] B\n  three"
    ids = ["task-a", "task-b"]
    assert list(drift.differences(before, after, ids, ids)) == [
        ("summary", "Of the 3 messages:\n- [task-b] x", "Of the 4 messages:\n- [task-b] x"),
        ("note task-b", "- [task-b] B\n  two", "- [task-b] B\n  three"),
    ]
    assert list(drift.differences(None, "- [task-a] A", (), ["task-a"])) == [
        ("note task-a", "", "- [task-a] A")
    ]
    swapped = "- [task-b] B\n- [task-a] A"
    assert list(drift.differences("- [task-a] A\n- [task-b] B", swapped, ids, ids[::-1])) == [
        ("memory_context", "- [task-a] A\n- [task-b] B", swapped)
    ]


def test_two_sessions_that_noted_the_same_have_one_canonical_form() -> None:
    def events(start: int, swap: bool) -> list[Event]:
        def started(seq: int, reply: int) -> ReplyStarted:
            return ReplyStarted(
                seq=seq,
                ts=str(seq),
                reply=reply,
                turn=1,
                phase="A",
                agent=f"a{reply}",
                adapter="x",
                invocation="must_reply",
                attempt=1,
                input_hash="h",
                input_tokens=1,
            )

        def finished(seq: int, reply: int) -> ReplyFinished:
            message = {
                "id": f"m{seq}",
                "author_id": f"a{reply}",
                "author_name": "",
                "author_type": "agent",
                "content": f"from {reply}",
                "timestamp": "",
            }
            return ReplyFinished.model_validate(
                {
                    "seq": seq,
                    "ts": "",
                    "reply": reply,
                    "turn": 1,
                    "phase": "A",
                    "agent": f"a{reply}",
                    "status": "success",
                    "message": message,
                }
            )

        def deviation(seq: int, reply: int) -> Deviation:
            return Deviation(
                seq=seq,
                ts="",
                reply=reply,
                agent=f"a{reply}",
                note="blocker-x",
                kind="blocker",
                level="warning",
                reason="",
            )

        order = [2, 1] if swap else [1, 2]
        ends = [finished(start + 2 + at, reply) for at, reply in enumerate(order)]
        source = next(one for one in ends if one.reply == 1)
        noted = NoteEvent(
            seq=start + 6,
            ts="",
            note="decision-x",
            act="added",
            by="a1",
            kind="decision",
            title="x",
            status="draft",
            message=f"m{source.seq}",
        )
        first = [started(start, 1), started(start + 1, 2)]
        return [*first, ends[0], deviation(start + 4, order[0]), ends[1],
                deviation(start + 5, order[1]), noted]  # fmt: skip

    one, other = (
        compare.canonicalize(events(1, swap=False)),
        compare.canonicalize(events(20, swap=True)),
    )
    assert one == other
    assert one[-1]["message"] == "m1"


def test_a_promoted_session_says_which_notes_it_lacks(stage: Stage) -> None:
    talk(stage, "@architect where is the index?", "@dev the index in SQLite, is it built?")
    found = promoted_file.select_part(find(stage.folder, "s"), None)
    assert found.notes == []
    knowledge = stage.folder / "sessions" / "s" / "knowledge" / "decision-auth.md"
    knowledge.write_text(NOTE, encoding="utf-8")
    talk(stage, "@dev how do we log in by OIDC?")
    found = promoted_file.select_part(find(stage.folder, "s"), None)
    assert found.notes == [
        "notes that were there before are left out (decision-auth): "
        "`given: {notes: [FILE]}` gives them to the scenario"
    ]
