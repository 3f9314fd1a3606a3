"""Stepping into the past: checkpoints, forks, rewinds, corrections, reassigned tasks."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from product import (
    AgentInput,
    ControlRequest,
    Fold,
    History,
    Message,
    Redactor,
    Session,
    SessionConfig,
    Team,
    UsageError,
    cache_path,
    find,
    past,
    reader,
    window,
)
from program import Program, until
from support import Puppets, Talk, puppet, team

GATED = """\
import pathlib, sys, time
said = sys.stdin.read()
pathlib.Path("slow.started").write_text("")
while not pathlib.Path("slow.go").exists():
    time.sleep(0.02)
print("done @next")
"""


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """A workspace with `dev` and `qa`, and one session `s` with two messages."""
    made = Program(tmp_path)
    made.agent("dev", "answer 1", "answer 2", "answer 3", "answer 4", name="Dev")
    made.agent("qa", "check 1", "check 2")
    made.team(humans=["maya"], selection="none")
    made.run("send", "--session", "s", "@dev the first").check()
    return made


@pytest.fixture
def gated(tmp_path: Path) -> Program:
    """`slow` answers when it may, and calls `next`."""
    made = Program(tmp_path)
    made.file("gated.py", GATED)
    made.agent("slow", adapter={"type": "cli", "command": [sys.executable, "gated.py"]})
    made.agent("next", {"say": "I am next"}, {"say": "again"})
    made.team(humans=["maya"], selection="none")
    return made


def start(program: Program, message: str = "@slow go") -> subprocess.Popen[bytes]:
    running = program.start("send", "--session", "s", message)
    until((program.folder / "slow.started").exists)
    return running


def let_go(program: Program) -> None:
    program.file("slow.go", "")


def shown(program: Program, agent: str = "dev", session: str = "s") -> list[str]:
    """The texts of the messages in the agent's last input."""
    done = program.run("show", session, "--context", "--agent", agent, "--json")
    return [message["content"] for message in json.loads(done.stdout)["messages"]]


def last(program: Program, kind: str, session: str = "s") -> dict[str, Any]:
    return next(one for one in reversed(program.records(session)) if one["type"] == kind)


def seq_of(program: Program, kind: str) -> int:
    return int(last(program, kind)["seq"])


# Checkpoints


def test_a_checkpoint_names_a_state_and_its_size(program: Program) -> None:
    size = len(program.raw())
    at = len(program.records())
    done = program.run("checkpoint", "s", "--label", "good", "--by", "maya")
    done.check(stdout=f"checkpoint good at event {at}\n")
    (listed,) = json.loads(program.run("checkpoints", "s", "--json").stdout)
    listed.pop("ts")
    known = {"session": "s", "label": "good", "at": at, "bytes": size, "by": "maya"}
    assert listed == {**known, "skipped": False}
    table = program.run("checkpoints").stdout
    assert table.startswith(f"good · event {at} · ")
    assert table.endswith(f" · {size:,} bytes · maya\n")


def test_a_checkpoint_is_made_while_a_chain_runs(gated: Program) -> None:
    running = start(gated)
    done = gated.run("checkpoint", "s", "--label", "mid").check()
    assert done.stdout == (
        "checkpoint mid at event 4, within turn 1: a fork or rewind goes back to before that turn\n"
    )
    let_go(gated)
    assert gated.finish(running).code == 0
    assert gated.finished() == [("slow", "success"), ("next", "success")]


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        (("checkpoint", "s", "--label", "good"), "'good' exists already, at event 8"),
        (("checkpoint", "s", "--label", "12"), "it is a number"),
        (("checkpoint", "s", "--label", " "), "it is empty"),
        (("checkpoint", "s", "--label", "a\nb"), "cannot be printed"),
        (("checkpoint", "s"), "the label is missing"),
        (("checkpoint", "none", "--label", "x"), "no session 'none'"),
        (("fork", "s", "--at", "bad"), "no checkpoint 'bad'"),
        (("fork", "s", "--at", "99"), "session s has no event 99"),
        (("fork", "s", "--at", "0"), "session s has no event 0"),
        (("fork", "s", "--at", "good", "--name", "S"), "there is a session s already"),
        (("fork", "s", "--at", "good", "--name", "a/b"), "path separator"),
        (("rewind", "s", "--at", "bad"), "no checkpoint 'bad'"),
        (("rewind", "s", "--at", "99"), "session s has no event 99"),
        (("rewind", "s", "--at", "9"), "event 9 is the last of session s"),
        (("rewind", "s", "--at", "good", "--by", "eve"), "no human called 'eve'"),
        (("edit", "s", "m99", "text"), "session s has no message m99"),
        (("edit", "s", "m2", "  "), "the new text is empty"),
        (("edit", "s", "m2", "@dev the first"), "m2 has that text already"),
        (("edit", "s", "m5", "text"), "m5 is a message of dev: only messages of people"),
        (("reassign", "s", "nothing", "dev"), "session s has no task nothing"),
        (("reassign", "s", "nothing", "eve"), "no member of this team has the id 'eve'"),
    ],
)
def test_what_cannot_be_done_is_one_message(
    program: Program, args: tuple[str, ...], problem: str
) -> None:
    program.run("checkpoint", "s", "--label", "good").check()
    before = program.raw()
    done = program.run(*args)
    assert done.code == 2
    assert problem in done.stderr
    assert program.raw() == before
    assert sorted(path.name for path in (program.folder / "sessions").glob("[!.]*")) == ["s"]


def test_a_session_without_an_event_has_no_state(program: Program) -> None:
    program.file("sessions/empty/transcript.jsonl", "")
    done = program.run("checkpoint", "empty", "--label", "x")
    assert (done.code, "has no event yet" in done.stderr) == (2, True)
    assert program.raw("empty") == b""


# Forks


def test_a_fork_shares_the_past_byte_for_byte_and_continues_by_itself(program: Program) -> None:
    program.run("checkpoint", "s", "--label", "good").check()
    program.run("send", "--session", "s", "@dev the second").check()
    done = program.run("fork", "s", "--at", "good", "--name", "f").check()
    assert done.stdout == "session f continues s after event 8\n"
    old, new = program.raw("s").splitlines(), program.raw("f").splitlines()
    assert new[0] == old[0].replace(b'"session":"s"', b'"session":"f"')
    assert new[1:8] == old[1:8]
    assert json.loads(new[8]) | {"ts": ""} == {
        "seq": 9,
        "ts": "",
        "type": "forked",
        "session": "s",
        "at": 8,
    }
    assert len(new) == 9
    program.run("send", "--session", "f", "@dev a third").check()
    assert shown(program, session="f") == ["@dev the first", "answer 1", "@dev a third"]
    usage = last(program, "chain_finished", "f")
    assert usage["session_usage"] == usage["usage"]  # the past was paid for in the other session
    assert re.search(r"^total +1 ", program.run("usage", "f").stdout, re.MULTILINE)
    assert last(program, "reply_finished", "f")["message"]["content"] == "answer 2"
    program.run("send", "--session", "s", "@dev a fourth").check()
    assert "@dev a third" not in shown(program)
    assert "forked from session s at event 8" in program.run("show", "f").stdout


def test_a_fork_within_a_turn_continues_after_the_last_whole_turn(gated: Program) -> None:
    let_go(gated)
    gated.run("send", "--session", "s", "@slow go").check()
    within = seq_of(gated, "turn_started") + 1  # of the second turn
    done = gated.run("fork", "s", "--at", str(within), "--name", "f").check()
    assert done.stdout == (
        f"session f continues s after event {within - 2}\n"
        f"event {within} is within turn 2: this turn is left out\n"
        "chain 1 is closed there as interrupted\n"
    )
    kinds = [record["type"] for record in gated.records("f")]
    assert kinds[-3:] == ["turn_finished", "forked", "chain_finished"]
    assert last(gated, "chain_finished", "f")["end"] == "interrupted"
    assert "nothing to resume" in gated.run("resume", "f").stderr


def test_a_fork_reads_a_session_that_another_process_runs(gated: Program) -> None:
    running = start(gated)
    gated.run("fork", "s", "--at", "2", "--name", "f").check()
    assert [record["type"] for record in gated.records("f")][1:] == [
        "message",
        "forked",
        "chain_finished",
    ]
    let_go(gated)
    assert gated.finish(running).code == 0


def test_an_archived_session_can_be_forked(program: Program) -> None:
    program.run("sessions", "archive", "s").check()
    program.run("fork", "s", "--at", "8", "--name", "f").check()
    assert [record["type"] for record in program.records("f")][-1] == "forked"
    again = program.run("fork", "f", "--at", "8", "--name", "s")
    assert again.code == 2
    assert "archived session s" in again.stderr


def test_a_fork_has_the_attachments_and_notes_of_that_time(program: Program) -> None:
    plan = program.file("plan.txt", "the plan")
    program.run("send", "--session", "s", "@dev read it", "--attach", str(plan)).check()
    program.run("knowledge", "add", "--session", "s", "--kind", "task", "Draw it").check()
    program.run("knowledge", "add", "--session", "s", "--kind", "task", "Sell it").check()
    at = len(program.records())
    program.run("knowledge", "archive", "--session", "s", "task-draw-it").check()
    program.run("knowledge", "add", "--session", "s", "--kind", "task", "Burn it").check()
    program.run("reassign", "s", "Sell", "qa").check()
    program.run("send", "--session", "s", "@dev and this", "--attach", str(plan)).check()
    done = program.run("fork", "s", "--at", str(at), "--name", "f").check()
    assert "notes made later, left out: 1\n" in done.stdout
    assert "notes with a later text than then: task-sell-it\n" in done.stdout
    home = program.folder / "sessions" / "f"
    (attached,) = home.glob("attachments/*/*")
    assert attached.read_text() == "the plan"
    assert sorted(path.name for path in home.glob("knowledge/*")) == [
        "task-draw-it.md",
        "task-sell-it.md",
    ]
    assert "status: draft" in (home / "knowledge" / "task-draw-it.md").read_text()
    assert not (home / "transcript.index.json").exists()
    program.run("doctor", "f").check()


def test_both_sessions_do_not_continue_one_session_of_an_agent() -> None:
    with tempfile.TemporaryDirectory() as folder:
        talk = Talk(Path(folder), team(puppet("a")), adapter_type=Puppets({"a": lambda _: "said"}))
        talk.send("@a one")
        lines = talk.transcript.read_text().splitlines()
        own = {"id": "x", "upto_seq": 2, "from_seq": 2, "head": "h", "shown": "s"}
        records = [json.loads(line) for line in lines]
        for record in records:
            if record["type"] == "reply_finished":
                record["agent_session"] = own
        text = "".join(json.dumps(record, separators=(",", ":")) + "\n" for record in records)
        talk.transcript.write_text(text)
        assert fold_of(talk).agent_sessions == {"a": own}
        past.fork(config(talk), "talk", "8", "copy")
        assert fold_of(Talk(Path(folder), talk.team, "copy")).agent_sessions == {}
        assert fold_of(talk).agent_sessions == {"a": own}
        # A correction of what it was shown ends it, one of a later message does not.
        edit(talk, "m2", "@a two")
        assert fold_of(talk).agent_sessions == {}


# Rewinds


def test_after_a_rewind_agents_see_the_state_of_then(program: Program) -> None:
    program.run("checkpoint", "s", "--label", "good").check()
    program.run("send", "--session", "s", "@dev the second").check()
    spent = last(program, "chain_finished")["session_usage"]["input_tokens"]
    before = program.raw()
    done = program.run("rewind", "s", "--at", "good", "--by", "maya").check()
    assert done.stdout == "session s continues after event 8: events 9 to 16 are skipped\n"
    assert program.raw().startswith(before)
    rewound = last(program, "rewound")
    assert (rewound["to"], rewound["from"], rewound["by"]) == (8, 16, "maya")
    program.run("send", "--session", "s", "@dev the third").check()
    assert shown(program) == ["@dev the first", "answer 1", "@dev the third"]
    finished = last(program, "reply_finished")
    assert (finished["reply"], finished["turn"]) == (3, 3)
    assert finished["message"]["content"] == "answer 2"  # its script goes back, too
    usage = last(program, "chain_finished")
    assert usage["session_usage"]["input_tokens"] == spent + usage["usage"]["input_tokens"]
    program.run("doctor", "s").check()
    program.run("rewind", "s", "--at", "8").check()
    assert "dev  idle" in program.run("status", "s").stdout


def test_a_skipped_part_is_marked_for_readers(program: Program) -> None:
    program.run("send", "--session", "s", "@dev the second").check()
    program.run("rewind", "s", "--at", "8").check()
    text = program.run("show", "s").stdout
    assert "\n┊   @dev the second\n" in text
    assert "\n  @dev the first\n" in text
    assert "↶ user went back to event 8: agents do not see events 9 to 15\n" in text
    assert len(program.run("show", "s", "--json").stdout.splitlines()) == 16
    page = program.run("show", "s", "--html", "-").stdout
    skipped = [row for row in page.split("<tr ")[1:] if 'skipped"' in row.partition(">")[0]]
    assert any("the second" in row for row in skipped)
    assert not any("the first" in row for row in skipped)
    assert json.loads(program.run("sessions", "--json").stdout)[0]["end"] == "quiet"
    assert "the second" not in program.run("export", "s").stdout
    audit = json.loads(program.run("export", "s", "--audit", "--format", "json").stdout)
    assert "the second" in json.dumps(audit)
    assert "rewound" in [entry["entry"] for entry in audit["entries"]]


def test_a_rewind_may_go_back_over_a_rewind_but_not_into_what_it_skips(program: Program) -> None:
    program.run("send", "--session", "s", "@dev the second").check()
    program.run("rewind", "s", "--at", "8").check()
    into = program.run("rewind", "s", "--at", "15")
    assert into.code == 2
    assert "event 15 of session s was skipped by the rewind at event 16" in into.stderr
    program.run("send", "--session", "s", "@dev the third").check()
    program.run("rewind", "s", "--at", "1").check()
    program.run("send", "--session", "s", "@dev the fourth").check()
    assert shown(program) == ["@dev the fourth"]
    done = program.run("fork", "s", "--at", "15", "--name", "f").check()
    assert done.stdout.startswith("session f continues s after event 15\n")
    program.run("send", "--session", "f", "@dev go on").check()
    told = ["@dev the first", "answer 1", "@dev the second", "answer 2", "@dev go on"]
    assert shown(program, session="f") == told


def test_a_rewind_into_a_chain_closes_it_as_interrupted(gated: Program) -> None:
    let_go(gated)
    gated.run("send", "--session", "s", "@slow go").check()
    within = seq_of(gated, "turn_started") + 1
    end = len(gated.records())
    done = gated.run("rewind", "s", "--at", str(within)).check()
    assert done.stdout == (
        f"session s continues after event {within - 2}: events {within - 1} to {end} are skipped\n"
        f"event {within} is within turn 2: this turn is left out\n"
        "chain 1 is closed as interrupted\n"
    )
    assert [record["type"] for record in gated.records()][-2:] == ["rewound", "chain_finished"]
    assert last(gated, "chain_finished")["end"] == "interrupted"
    gated.run("send", "--session", "s", "@next now").check()
    assert shown(gated, "next") == ["@slow go", "done @next", "@next now"]


def test_a_running_chain_is_paused_first(gated: Program) -> None:
    running = start(gated)
    done = gated.run("rewind", "s", "--at", "1")
    assert done.code == 5
    assert "`arena pause s` or `arena cancel s`" in done.stderr
    gated.run("pause", "s").check()
    let_go(gated)
    assert gated.finish(running).code == 4
    done = gated.run("rewind", "s", "--at", "1").check()
    assert "chain 1 is closed as interrupted\n" in done.stdout
    assert "nothing to resume" in gated.run("resume", "s").stderr
    gated.run("send", "--session", "s", "@next hello").check()
    assert shown(gated, "next") == ["@next hello"]


def test_notes_of_the_skipped_part_are_archived_unless_a_person_approved_them(
    program: Program,
) -> None:
    program.run("knowledge", "add", "--session", "s", "--kind", "task", "Old").check()
    at = len(program.records())
    for title in ("New", "Good"):
        program.run("knowledge", "add", "--session", "s", "--kind", "task", title).check()
    program.run("knowledge", "approve", "--session", "s", "task-good").check()
    program.run("reassign", "s", "task-old", "qa").check()
    done = program.run("rewind", "s", "--at", str(at)).check()
    assert done.stdout.splitlines()[1:] == [
        "notes of the skipped part, archived: task-new",
        "approved notes of the skipped part, kept: task-good",
        "older notes that were changed in the skipped part, kept as they are: task-old",
    ]
    act = last(program, "note")
    assert (act["note"], act["act"], act["reason"]) == (
        "task-new",
        "archived",
        f"rewound to event {at}",
    )


def test_a_rewind_keeps_what_people_decided_about_agents(program: Program) -> None:
    program.run("terminate", "s", "--agent", "qa").check()
    program.run("rewind", "s", "--at", "8").check()
    program.run("send", "--session", "s", "@qa hello").check()
    assert last(program, "turn_started")["passed_over"] == {"qa": "terminated"}


# Corrections


def test_a_correction_is_shown_in_place_and_told_to_those_that_read_it(program: Program) -> None:
    done = program.run("edit", "s", "m2", "@qa the very first", "--by", "maya").check()
    assert done.stdout == "m2 is corrected; told at their next call: dev\n"
    program.run("send", "--session", "s", "@dev the second").check()
    first, answer, notice, second = shown(program)
    assert (first, answer, second) == ("@qa the very first", "answer 1", "@dev the second")
    assert notice.startswith('Maya corrected the message m2, which began "@dev the first".')
    assert program.finished() == [("dev", "success")] * 2  # the new text calls nobody
    prompt = program.run("show", "s", "--context", "--agent", "dev").stdout
    assert 'human "user" (@user), corrected\n> @qa the very first\n' in prompt
    timeline = program.run("show", "s").stdout
    assert "  @dev the first\n" in timeline
    assert "maya corrected m2: @qa the very first\n" in timeline
    again = program.run("edit", "s", "m2", "@qa the very first")
    assert (again.code, "has that text already" in again.stderr) == (2, True)
    told = next(one for one in program.records() if one["seq"] == seq_of(program, "edited") + 1)
    refused = program.run("edit", "s", told["message"]["id"], "x")
    assert (refused.code, "is a message of the system" in refused.stderr) == (2, True)


def test_a_correction_that_no_agent_has_read_needs_no_message(program: Program) -> None:
    program.run("send", "--session", "s", "hello @nobody", "--to", "qa").check()
    program.run("rewind", "s", "--at", "9").check()
    done = program.run("edit", "s", "m9", "changed").check()
    assert done.stdout == "m9 is corrected; no agent has read it yet\n"


def test_notes_made_from_the_original_are_listed(program: Program) -> None:
    add = ("knowledge", "add", "--session", "s", "--kind", "task", "--source", "m2", "Be first")
    program.run(*add).check()
    done = program.run("edit", "s", "m2", "changed").check()
    assert done.stdout.endswith("; notes made from the original stay: task-be-first\n")


def test_a_skipped_call_is_rebuilt_as_it_was(program: Program) -> None:
    program.run("send", "--session", "s", "@dev the second").check()
    program.run("rewind", "s", "--at", "8").check()
    program.run("send", "--session", "s", "@dev the third").check()
    program.run("edit", "s", "m2", "the corrected first").check()
    told = {
        "2": ["@dev the first", "answer 1", "@dev the second"],
        "3": ["@dev the first", "answer 1", "@dev the third"],
    }
    for turn, texts in told.items():
        done = program.run("show", "s", "--context", "--agent", "dev", "--turn", turn, "--json")
        done.check()  # a changed input would be reported on stderr
        assert [one["content"] for one in json.loads(done.stdout)["messages"]] == texts


def test_secrets_are_taken_out_of_a_correction(program: Program) -> None:
    program.file("arena.yaml", "team: crew\nredact: ['sk-[a-z]+']\n")
    program.run("edit", "s", "m2", "the key is sk-abcdef").check()
    assert b"sk-abcdef" not in program.raw()


def test_a_correction_while_the_agent_works_is_told_at_its_next_call(gated: Program) -> None:
    running = start(gated)
    done = gated.run("edit", "s", "m2", "go slowly").check()
    assert done.stdout == "m2 is corrected; told at their next call: slow\n"
    let_go(gated)
    assert gated.finish(running).code == 0
    assert shown(gated, "next")[0] == "go slowly"
    assert any("corrected the message m2" in text for text in shown(gated, "next"))


# Tasks


def test_a_task_is_given_to_another_agent(gated: Program) -> None:
    gated.run("send", "--session", "s", "@next hello").check()
    gated.run("knowledge", "add", "--session", "s", "--kind", "task", "Draw the map").check()
    gated.run("knowledge", "add", "--session", "s", "--kind", "task", "Draw the plan").check()
    gated.run("knowledge", "approve", "--session", "s", "task-draw-the-map").check()
    running = start(gated)
    done = gated.run("reassign", "s", "draw the m", "slow", "--by", "maya").check()
    assert done.stdout == "Draw the map: now for slow, before for no agent\n"
    let_go(gated)
    gated.finish(running)
    acts = [one for one in gated.records() if one["type"] == "note" and one["by"] == "maya"]
    assert [act["act"] for act in acts[-2:]] == ["edited", "approved"]
    told = shown(gated, "next")
    assert 'The task "Draw the map" is now for slow (before: -).' in told
    listed = json.loads(gated.run("knowledge", "list", "--session", "s", "--json").stdout)
    (note,) = (one for one in listed if one["title"] == "Draw the map")
    assert (note["owner"], note["status"]) == ("slow", "approved")

    def refuse(task: str, agent: str) -> str:
        refused = gated.run("reassign", "s", task, agent)
        assert refused.code == 2
        return refused.stderr

    assert "is a task of slow already" in refuse("task-draw-the-map", "slow")
    assert "draw is ambiguous: task-draw-the-map, task-draw-the-plan" in refuse("draw", "slow")
    gated.run("knowledge", "archive", "--session", "s", "task-draw-the-plan").check()
    assert "task-draw-the-plan is archived" in refuse("draw the plan", "slow")
    gated.run("terminate", "s", "--agent", "next").check()
    assert "next is terminated in this session" in refuse("draw the map", "next")


# Everything together, against a small model


WIDE, TINY = 100_000, 900
TOKEN = re.compile(r"w\d{4}")


def config(talk: Talk) -> SessionConfig:
    return SessionConfig(workspace=talk.workspace, durability="flush", clock=talk.clock, wait_s=0)


def fold_of(talk: Talk, messages: list[str] | None = None) -> Fold:
    heard = [] if messages is None else messages
    return reader.load_fold(
        talk.transcript,
        on_message=lambda message: heard.append(f"{message.id} {message.content}"),
        weigh=window.weigh,
        budget=10**9,
    )


def edit(talk: Talk, message: str, text: str) -> None:
    with talk.open() as session:
        session.carry_out(ControlRequest(act="edit", target=message, text=text))


def state_of(talk: Talk) -> dict[str, Any]:
    """The fold and its messages, as plain data."""
    messages: list[str] = []
    fold = fold_of(talk, messages)
    control, revisions = fold.control, fold.revisions
    return {
        "numbers": (fold.seq, fold.chain, fold.turn, fold.reply, fold.messages),
        "calls": fold.calls,
        "summary": fold.summary,
        "tried": fold.tried,
        "levels": fold.levels,
        "noted": fold.noted,
        "usage": fold.usage,
        "counts": fold.counts.record(),
        "sessions": fold.agent_sessions,
        "control": control.record() if control else None,
        "spans": list(revisions.spans) if revisions else [],
        "corrections": list(revisions.corrections) if revisions else [],
        "messages": messages,
    }


def visible(talk: Talk) -> dict[str, str]:
    """The reference: what agents are shown, by message id, from the plain lines of the file."""
    kept: list[dict[str, Any]] = []
    for record in talk.records():
        if record["type"] == "rewound":
            kept = [one for one in kept if one["seq"] <= record["to"]]
        else:
            kept.append(record)
    texts: dict[str, str] = {}
    for record in kept:
        if record["type"] == "message" or record.get("status") == "success":
            texts[record["message"]["id"]] = record["message"]["content"]
    for record in kept:
        if record["type"] == "edited":
            texts[record["message"]] = record["content"]
    return texts


steps = st.one_of(
    st.tuples(st.just("send"), st.integers(1, 60)),
    st.tuples(st.just("send"), st.integers(1, 60)),
    st.tuples(st.just("checkpoint"), st.just(0)),
    st.tuples(st.just("rewind"), st.integers(0, 99)),
    st.tuples(st.just("edit"), st.integers(0, 99)),
    st.tuples(st.just("fork"), st.integers(0, 99)),
    st.tuples(st.just("uncached"), st.just(0)),
)


class Past:
    """One run of steps: sends, checkpoints, rewinds, forks and corrections of a session."""

    def __init__(self, folder: Path, room: int) -> None:
        self.count = 0
        context = {"window_tokens": room, "reserved_output_tokens": 0}
        people: Team = team(
            puppet("a", context=context), puppet("b", context=context), selection="none"
        )
        self.puppets = Puppets({"a": self.answer, "b": self.answer})
        self.talks = [Talk(folder, people, adapter_type=self.puppets)]

    @property
    def talk(self) -> Talk:
        return self.talks[-1]

    def token(self) -> str:
        self.count += 1
        return f"w{self.count:04}."

    def answer(self, _: AgentInput) -> str:
        return f"answer {self.token()}" + (" @b" if self.count % 5 == 0 else "")

    def take(self, step: str, number: int) -> None:
        if step == "uncached":
            cache_path(self.talk.transcript).unlink(missing_ok=True)
            return
        if step == "send" or not self.talk.transcript.exists():
            self.send(number)
            return
        seq = 1 + number * len(self.talk.records()) // 100
        try:
            self.change(step, number, str(seq))
        except UsageError:
            return

    def send(self, words: int) -> None:
        """Each agent is shown what the model has, nothing else, and the message is new."""
        text = f"@a {self.token()} " + "word " * words
        self.talk.send(text)
        was_shown = self.puppets.inputs["a"][-1]
        expected = list(visible(self.talk).values())
        texts = [message.content for message in was_shown.messages]
        expected = expected[: len(expected) - expected[::-1].index(text)]
        memory = was_shown.memory_context or ""
        if self.talk.team.members[0].profile.context.window_tokens == WIDE:
            assert texts == expected
        assert texts[-1] == text
        assert texts == [one for one in expected if one in texts]
        known = " ".join(record["message"]["content"] for record in self.kept())
        assert set(TOKEN.findall(memory)) <= set(TOKEN.findall(known))

    def kept(self) -> list[dict[str, Any]]:
        """The records with messages that no rewind skips: a summary may hold an original."""
        ids = visible(self.talk)
        said = [record for record in self.talk.records() if isinstance(record.get("message"), dict)]
        return [record for record in said if record["message"]["id"] in ids]

    def change(self, step: str, number: int, seq: str) -> None:
        talk = self.talk
        place, stored = config(talk), find(talk.workspace, str(talk.name))
        if step == "checkpoint":
            with talk.open() as session:
                session.carry_out(ControlRequest(act="checkpoint", text=f"at {self.token()}"))
        elif step == "rewind":
            past.rewind(place, stored, seq, "user", redactor=Redactor(set(), ()))
        elif step == "edit":
            ids = list(visible(talk)) or ["m2"]
            edit(talk, ids[number * len(ids) // 100], f"corrected {self.token()}")
        else:
            made = past.fork(place, str(talk.name), seq, f"fork-{len(self.talks)}")
            self.talks.append(Talk(talk.workspace, talk.team, made.name, adapter_type=self.puppets))

    def check(self) -> None:
        """The fold is the same with the cache and without, and has what the model has."""
        for talk in self.talks if self.talk.transcript.exists() else ():
            cached = state_of(talk)
            cache_path(talk.transcript).unlink(missing_ok=True)
            assert state_of(talk) == cached
            assert state_of(talk) == cached  # from the cache that the one before wrote
            expected = [f"{name} {text}" for name, text in visible(talk).items()]
            assert cached["messages"] == expected
            assert cached["numbers"][0] == len(talk.records())


GROWING: Sequence[tuple[str, int]] = [("send", 60)] * 8


@settings(suppress_health_check=list(HealthCheck))
@given(st.lists(steps, max_size=14), st.sampled_from([WIDE, TINY]))
@example([*GROWING, ("rewind", 40), *GROWING, ("edit", 10), ("rewind", 20), *GROWING], TINY)
@example([*GROWING, ("fork", 60), ("edit", 0), ("rewind", 50), ("send", 3), ("fork", 90)], TINY)
def test_agents_are_shown_what_is_visible(taken: list[tuple[str, int]], room: int) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader, "WORTH_BYTES", 0)
        run = Past(Path(folder), room)
        for step, number in taken:
            run.take(step, number)
            run.check()


def test_a_rewind_past_a_summary_restores_the_one_before(tmp_path: Path) -> None:
    run = Past(tmp_path, TINY)
    while run.count < 200 and "compacted" not in {one.type for one in run.talk.events}:
        run.send(60)
    first, at = fold_of(run.talk).summary, len(run.talk.records())
    assert first is not None
    while fold_of(run.talk).summary == first:
        run.send(60)
    run.change("rewind", 0, str(at))
    assert fold_of(run.talk).summary == first
    run.change("rewind", 0, "1")
    assert fold_of(run.talk).summary is None
    run.send(1)
    assert run.puppets.inputs["a"][-1].memory_context is None


@given(st.lists(st.integers(0, 40), min_size=1, max_size=30), st.data())
def test_a_corrected_history_is_as_one_that_was_always_so(sizes: list[int], data: Any) -> None:
    def made(sizes: Sequence[int]) -> tuple[History, list[Message]]:
        messages = [said(number, size) for number, size in enumerate(sizes, 2)]
        history = History()
        for message in messages:
            history.append(message)
        return history, messages

    history, _ = made(sizes)
    changed = data.draw(st.integers(0, len(sizes) - 1))
    for budget in (10, 200):
        history.select("a", budget, ())
    new = [*sizes[:changed], data.draw(st.integers(0, 40)), *sizes[changed + 1 :]]
    expected, messages = made(new)
    history.replace(messages[changed])
    for seq in range(len(sizes) + 2):
        assert history.tokens_after(seq) == expected.tokens_after(seq)
    for budget in (0, 10, 50, 200, 10_000):
        assert history.select("a", budget, ("m2",)) == expected.select("a", budget, ("m2",))


def said(number: int, size: int) -> Message:
    return Message(
        id=f"m{number}",
        author_id="user",
        author_name="user",
        author_type="human",
        content="word " * size,
        timestamp="",
    )


def test_a_session_that_stays_open_sees_a_correction_as_a_reopened_one(tmp_path: Path) -> None:
    import asyncio

    run = Past(tmp_path, WIDE)
    run.send(3)
    talk = run.talk

    async def continue_open(session: Session) -> None:
        session.carry_out(ControlRequest(act="edit", target="m2", text="another text"))
        await session.send(outgoing(talk))
        await session.stop()

    with talk.open() as session:
        asyncio.run(continue_open(session))
    texts = [message.content for message in run.puppets.inputs["a"][-1].messages]
    assert texts == list(visible(talk).values())[: len(texts)]
    assert texts[0] == "another text"
    shutil.rmtree(tmp_path / "sessions")


def outgoing(talk: Talk) -> Any:
    from product import outgoing_outgoing

    return outgoing_outgoing(talk.team, "@a and now")
