"""`arena context`: what an agent would be shown now, layer by layer, and why."""

from __future__ import annotations

import json
from pathlib import Path

from program import Program

LONG = "And so the work goes on, as it has gone on before, and will go on after this. " * 6


def worked(folder: Path) -> Program:
    program = Program(folder)
    program.agent(
        "dev",
        {"say": LONG},
        name="小开",
        context={"window_tokens": 1500, "reserved_output_tokens": 100},
    )
    program.team(memory={"warn_at": 0.5, "saturated_at": 0.6}, selection="none")
    return program


def filled(folder: Path) -> Program:
    program = worked(folder)
    sent = ["@dev Decision: we use PostgreSQL 16 and nothing else.",
            "@dev Blocker: the staging certificate is expired."]  # fmt: skip
    for text in [*sent, *(f"@dev go on with part {n}" for n in range(14))]:
        program.run("send", "-q", "-s", "talk", text)
    program.run("send", "-q", "-s", "talk", "@dev what of the staging certificate?")
    return program


def test_each_layer_is_shown_with_tokens_and_a_reason(tmp_path: Path) -> None:
    done = filled(tmp_path).run("context", "talk", "--agent", "dev")
    assert (done.code, done.stderr) == (0, "")
    text = done.stdout
    first, *_ = text.splitlines()
    assert first.startswith("小开 would be shown ~")
    assert "of 1,400 tokens (window 1,500, 100 reserved for the answer)" in first
    assert "summary · ~" in text
    assert "by extractive (" in text
    assert "1 pinned by notes: 1 in addition to the newest, 0 by title only" in text
    assert "+ decision-we-use-postgresql-16-and-nothing-else · m2 is its source" in text
    assert "blocker-the-staging-certificate-is-expired" in text
    before, _, after = text.partition("── prompt")
    assert "── system" in before
    assert after.index("What was before") < after.index("Decision: we use PostgreSQL 16")
    assert after.index("Decision: we use PostgreSQL 16") < after.index("What the team noted")


def test_it_is_one_json_document_and_is_what_the_next_call_is_shown(tmp_path: Path) -> None:
    program = filled(tmp_path)
    told = json.loads(program.run("context", "talk", "--agent", "dev", "--json").stdout)
    assert told["agent"] == "dev"
    assert told["summary"]["shown"] is True
    assert told["messages"]["ids"] == [one["id"] for one in told["input"]["messages"]]
    assert told["messages"]["of"] > told["messages"]["shown"]
    assert [one["note"] for one in told["notes"]] == ["blocker-the-staging-certificate-is-expired"]
    before = set(told["messages"]["ids"])
    program.run("send", "-q", "-s", "talk", "@dev and the certificate of staging?")
    shown = json.loads(program.run("show", "talk", "--agent", "dev", "--context", "--json").stdout)
    assert before & {one["id"] for one in shown["messages"]}
    assert shown["memory_context"].startswith("Of the ")


def test_what_was_shown_is_made_again_from_the_transcript(tmp_path: Path) -> None:
    program = filled(tmp_path)
    done = program.run("show", "talk", "--agent", "dev", "--context")
    assert (done.code, done.stderr) == (0, "")
    assert "What was before" in done.stdout
    assert "the staging certificate is expired" in done.stdout


def test_notes_written_since_change_nothing_of_what_was_shown(tmp_path: Path) -> None:
    program = worked(tmp_path)
    for kind in ("decision", "pit"):
        program.run("knowledge", "add", f"A {kind} on the ledger", "--kind", kind, "--shared")
    program.run("send", "-q", "-s", "talk", "@dev how is the ledger kept?")
    asked = ("show", "talk", "--agent", "dev", "--context")
    before = program.run(*asked)
    assert "A pit on the ledger" in before.stdout
    program.run("knowledge", "add", "How the ledger is kept", "--kind", "pattern", "--shared")
    after = program.run(*asked)
    assert (after.code, after.stdout, after.stderr) == (0, before.stdout, "")


def test_wrong_use_says_what_is_wrong(tmp_path: Path) -> None:
    program = worked(tmp_path)
    program.run("send", "-q", "-s", "talk", "@dev hello")
    unknown = program.run("context", "talk", "--agent", "devv")
    assert unknown.code == 2
    assert "dev" in unknown.stderr
    assert program.run("context", "talkk", "--agent", "dev").code == 2
    assert program.run("context", "--agent", "dev").code == 0
    assert program.run("context", "talk").code == 2


def test_a_role_that_is_longer_than_the_window_is_told(tmp_path: Path) -> None:
    program = Program(tmp_path)
    small = {"window_tokens": 500, "reserved_output_tokens": 100}
    program.agent("dev", {"say": "ok"}, role_prompt="你是一个助手。" * 200, context=small)
    program.agent("peer", {"say": "ok"}, role_prompt="你是一个助手。")
    checked = program.run("agents", "check")
    assert checked.code == 0
    assert "warning: dev: its `role_prompt` takes ~" in checked.stderr
    assert "room for 400" in checked.stderr
    assert "peer" not in checked.stderr
    program.run("send", "-q", "-s", "talk", "@dev hello").check()
    shown = program.run("context", "talk", "--agent", "dev").check().stdout
    assert "always, even though it alone exceeds the room" in shown
    assert "hello" in shown
    assert "though it alone" not in program.run("context", "talk", "--agent", "peer").stdout


def test_of_a_window_that_is_no_larger_than_its_reserve_half_is_kept(tmp_path: Path) -> None:
    program = Program(tmp_path)
    none = {"window_tokens": 1_000, "reserved_output_tokens": 1_000}
    program.agent("dev", {"say": "ok"}, role_prompt="你是一个助手。" * 120, context=none)
    assert "room for 500," in program.run("agents", "check").stderr
    program.agent("dev", {"say": "ok"}, {"say": "fine"}, context=none)
    for text in ("hello", "again"):
        program.run("send", "-q", "-s", "talk", f"@dev {text}").check()
    told = program.run("context", "talk", "--agent", "dev").check().stdout
    assert "of 500 tokens (window 1,000, 500 reserved for the answer)" in told
    assert "4 of 4 in full" in told
