"""`arena export`: a session's conversation and its audit, as md, csv and json, at any length."""

from __future__ import annotations

import asyncio
import csv
import hashlib
import io
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from product import (
    AgentInput,
    AuditRecord,
    ChainFinished,
    Compacted,
    Deviation,
    Event,
    Extracted,
    MemberInfo,
    Message,
    MessageEvent,
    NoteEvent,
    ReplyFinished,
    ReplyStarted,
    SessionEvent,
    TurnStarted,
    Usage,
    escape_text,
    estimate,
    events,
    reports_audit,
    write_json,
)
from program import Program
from scripted_api import Answer, ScriptedApi
from support import Puppets, Talk, puppet, team

TS = "2026-11-28T10:00:00.000Z"
HOSTILE = "=1+1\n```\n</div><script>alert(1)</script>\n# SYSTEM\n\x1b[31m::error::x\n````\n~~~"


@pytest.fixture
def arena(tmp_path: Path) -> Program:
    return Program(tmp_path)


def said(seq: int, who: str, text: str, *mentions: str, kind: str = "human") -> Message:
    return Message(
        id=f"m{seq}",
        author_id=who,
        author_name=who.title(),
        author_type=kind,  # type: ignore[arg-type]  # a test's own word
        content=text,
        mentions=list(mentions),
        timestamp=TS,
    )


def started(seq: int, reply: int, agent: str, phase: str = "A", **more: Any) -> ReplyStarted:
    given: dict[str, Any] = {
        "seq": seq,
        "ts": TS,
        "reply": reply,
        "turn": 1,
        "phase": phase,
        "agent": agent,
        "adapter": "openai",
        "invocation": "must_reply" if phase == "A" else "may_reply",
        "attempt": 1,
        "input_hash": f"hash{reply}",
        "input_tokens": 100 + reply,
    }
    return ReplyStarted(**{**given, **more})


def finished(seq: int, reply: int, agent: str, text: str | None, **more: Any) -> ReplyFinished:
    given: dict[str, Any] = {
        "seq": seq,
        "ts": TS,
        "reply": reply,
        "turn": 1,
        "phase": "A",
        "agent": agent,
        "status": "success" if text is not None else "error",
        "message": None if text is None else said(seq, agent, text, kind="agent"),
        "latency_ms": 250,
    }
    return ReplyFinished(**{**given, **more})


def a_session(text: str = "I looked.") -> list[Event]:
    """A turn in which two must reply, one of them fails, and a third may; and what is noted."""
    spent = Usage(input_tokens=90, output_tokens=7, cache_read_tokens=64, cost_usd=0.25)
    members = [MemberInfo(id=one, name=one.title()) for one in ("architect", "legal", "dev")]
    none = Usage()
    return [
        SessionEvent(seq=1, ts=TS, session="s", team="crew", members=members),
        MessageEvent(
            seq=2, ts=TS, chain=1, message=said(2, "user", "@architect @legal look", "architect")
        ),
        TurnStarted(
            seq=3,
            ts=TS,
            chain=1,
            turn=1,
            depth=0,
            trigger=["m2"],
            must=["architect", "legal"],
            mentioned_by={"architect": ["user"]},
        ),
        started(4, 1, "architect", notes=["decision-auth"]),
        started(5, 2, "legal"),
        finished(6, 2, "legal", None, error="it is down", metadata={"partial": "I was ab"}),
        finished(7, 1, "architect", text, next_mentions=["dev"], usage=spent, attempts=2),
        started(8, 3, "dev", "B"),
        finished(9, 3, "dev", "fine", phase="B"),
        NoteEvent(
            seq=10,
            ts=TS,
            note="decision-db",
            act="added",
            by="architect",
            kind="decision",
            title="Use SQLite",
            status="draft",
            message="m7",
        ),
        Deviation(
            seq=11,
            ts=TS,
            reply=1,
            agent="architect",
            note="decision-auth",
            kind="blocker",
            level="replan_required",
            reason="it says MD5",
        ),
        Compacted(
            seq=12,
            ts=TS,
            by="scribe",
            upto="m2",
            messages=1,
            summary="They looked.",
            tokens_before=900,
            tokens_after=90,
            usage=Usage(input_tokens=900, output_tokens=90),
        ),
        Extracted(seq=13, ts=TS, by="scribe", upto="m7", error="no answer"),
        ChainFinished(
            seq=14, ts=TS, chain=1, end="quiet", turns=1, replies=2, usage=none, session_usage=none
        ),
    ]


def record(found: list[Event], *, audit: bool = True) -> AuditRecord:
    opening = next((one for one in found if isinstance(one, SessionEvent)), None)
    return AuditRecord("s", opening, iter(found), audit=audit)


def as_json(found: list[Event], *, audit: bool = True) -> dict[str, Any]:
    told: dict[str, Any] = json.loads("".join(write_json(record(found, audit=audit))))
    return told


def as_csv(found: list[Event], *, audit: bool = True) -> list[dict[str, str]]:
    text = "".join(reports_audit.write_table(record(found, audit=audit)))
    assert text.startswith(reports_audit.BOM)
    return list(csv.DictReader(io.StringIO(text[1:], newline=""), strict=True))


def written(arena: Program, found: list[Event], name: str = "s") -> None:
    arena.file(f"sessions/{name}/transcript.jsonl", b"".join(map(events.encode_line, found)))
    arena.file("agents/architect.yaml", "agent_id: architect\nadapter: {type: scripted}\n")


def test_the_audit_tells_of_every_call_who_was_asked_what_and_what_came() -> None:
    told = as_json(a_session())
    calls = {one["agent"]: one for one in told["entries"] if one["entry"] == "call"}
    assert list(calls) == ["legal", "architect", "dev"]
    assert calls["architect"] == {
        "entry": "call",
        "seq": 7,
        "time": TS,
        "chain": 1,
        "turn": 1,
        "phase": "A",
        "reply": 1,
        "agent": "architect",
        "adapter": "openai",
        "invocation": "must_reply",
        "attempts": 2,
        "input_hash": "hash1",
        "input_tokens_estimated": 101,
        "trigger": ["m2"],
        "mentioned_by": ["user"],
        "notes_shown": ["decision-auth"],
        "status": "success",
        "input_tokens": 90,
        "output_tokens": 7,
        "cache_read_tokens": 64,
        "cache_write_tokens": 0,
        "tokens_estimated": False,
        "cost_usd": 0.25,
        "latency_ms": 250,
        "error": None,
        "message_id": "m7",
        "to": ["dev"],
        "text": "I looked.",
        "text_sha256": hashlib.sha256(b"I looked.").hexdigest(),
        "attachments": [],
    }
    assert calls["legal"]["status"] == "error"
    assert (calls["legal"]["error"], calls["legal"]["partial"]) == ("it is down", "I was ab")
    assert "text" not in calls["legal"]
    assert calls["dev"]["trigger"] == ["m2", "m7"]
    assert calls["dev"]["mentioned_by"] == []


def test_the_audit_tells_of_each_call_what_the_agent_was_told_that_is_new(tmp_path: Path) -> None:
    says = {"a": "@d @e", "b": "@f", "c": "@g", "d": "@e go on", "e": "@g too"}

    async def answer(shown: AgentInput) -> str:
        for _ in range(20 if shown.agent_id == "b" else 0):  # the first who must is the last done
            await asyncio.sleep(0)
        return says.pop(shown.agent_id, "fine")

    puppets = Puppets(dict.fromkeys("abcdefgh", answer))
    rules = {"max_responders": 3, "selection": "ask", "re_invoke_already_replied": True}
    crew = team(*map(puppet, "abcdefgh"), **rules)
    talk = Talk(tmp_path, crew, adapter_type=puppets)
    talk.send("@a @b @c @d begin")
    talk.send("@b @a and now?")
    record = AuditRecord("talk", None, talk.events, audit=True)
    told: dict[str, list[list[str]]] = {}
    for call in record.entries():
        if call["entry"] == "call":
            told.setdefault(call["agent"], []).append(call["trigger"])
    shown = {agent: [one.trigger for one in inputs] for agent, inputs in puppets.inputs.items()}
    assert told == shown
    assert [event.deferred for event in talk.of("turn_started")][:2] == [["d"], ["g"]]
    assert [event.agent for event in talk.of("reply_started") if event.phase == "B"] == ["h", "c"]


def test_a_cost_that_is_not_known_is_said_to_be_unknown_and_never_free() -> None:
    told = as_json(a_session())
    assert next(one for one in told["entries"] if one.get("agent") == "dev")["cost_usd"] is None
    assert told["agents"]["architect"]["cost_usd"] == 0.25
    assert told["agents"]["dev"] == {
        "calls": 1,
        "success": 1,
        "input_tokens": 0,
        "output_tokens": 0,
        "cache_read_tokens": 0,
        "cache_write_tokens": 0,
        "latency_ms": 250,
        "cost_usd": None,
        "cost_unknown": 1,
    }
    assert (told["total"]["calls"], told["total"]["error"], told["total"]["cost_unknown"]) == (
        3,
        1,
        4,  # legal, dev, and what the scribe did twice
    )
    assert told["total"]["cost_usd"] == 0.25
    assert told["agents"]["scribe"]["input_tokens"] == 900
    rows = {one["agent"]: one for one in as_csv(a_session()) if one["entry"] == "call"}
    assert (rows["dev"]["cost_usd"], rows["architect"]["cost_usd"]) == ("unknown", "0.25")
    text = "".join(reports_audit.write_markdown(record(a_session())))
    assert text.count("- cost_usd: unknown") == 4
    assert "- dev: calls 1, success 1" in text
    assert "cost_unknown 1, cost_usd unknown" in text


def test_what_a_script_answered_costs_nothing_as_in_arena_usage() -> None:
    found = a_session()
    found[8] = finished(9, 3, "dev", "fine", phase="B", usage=Usage(input_tokens=5, estimated=True))
    found[7] = started(8, 3, "dev", "B", adapter="scripted")
    found[12] = Extracted(seq=13, ts=TS, by="scribe", upto="m7", metadata={"adapter": "scripted"})
    told = as_json(found)
    assert told["agents"]["dev"]["cost_usd"] == 0
    assert told["agents"]["dev"]["cost_unknown"] == 0
    assert told["agents"]["scribe"]["cost_unknown"] == 1  # its summary was no script's
    (dev,) = (one for one in told["entries"] if one.get("agent") == "dev")
    assert (dev["cost_usd"], dev["input_tokens"], dev["tokens_estimated"]) == (0, 5, True)


def test_what_the_team_noted_and_ignored_stands_in_the_audit() -> None:
    told = as_json(a_session())["entries"]
    by_kind = {one["entry"]: one for one in told}
    assert by_kind["note"]["title"] == "Use SQLite"
    assert (by_kind["deviation"]["note"], by_kind["deviation"]["level"]) == (
        "decision-auth",
        "replan_required",
    )
    assert by_kind["compacted"]["summary"] == "They looked."
    assert by_kind["compacted"]["input_tokens"] == 900
    assert by_kind["extracted"]["error"] == "no answer"
    assert by_kind["chain_finished"]["end"] == "quiet"
    details = {one["entry"]: one["detail"] for one in as_csv(a_session()) if one["detail"]}
    assert json.loads(details["note"])["note"] == "decision-db"
    assert json.loads(details["deviation"])["reason"] == "it says MD5"
    text = "".join(reports_audit.write_markdown(record(a_session())))
    assert "- note: decision-auth\n- kind: blocker\n- level: replan_required" in text
    assert "summary:\n```text\nThey looked.\n```" in text


def test_a_call_that_was_cut_off_is_told_as_unfinished() -> None:
    cut = as_json(a_session()[:5])["entries"]
    assert [(one["agent"], one["status"]) for one in cut if one["entry"] == "call"] == [
        ("architect", "unfinished"),
        ("legal", "unfinished"),
    ]
    assert as_json(a_session()[:5])["agents"]["legal"]["unfinished"] == 1
    interrupted = [*a_session()[:5], a_session()[-1]]
    assert [one["entry"] for one in as_json(interrupted)["entries"]][-3:] == [
        "call",
        "call",
        "chain_finished",
    ]


def test_without_audit_it_is_what_was_said() -> None:
    told = as_json(a_session(), audit=False)
    assert [(one["author_id"], one["text"]) for one in told["entries"]] == [
        ("user", "@architect @legal look"),
        ("architect", "I looked."),
        ("dev", "fine"),
    ]
    assert "agents" not in told
    rows = as_csv(a_session(), audit=False)
    assert [(one["author_id"], one["to"], one["text"]) for one in rows] == [
        ("user", "architect", "'@architect @legal look"),
        ("architect", "", "I looked."),
        ("dev", "", "fine"),
    ]
    assert (
        "".join(reports_audit.write_markdown(record(a_session(), audit=False)))
        == f"""\
# Conversation of session s

- team: crew
- member: architect (Architect)
- member: legal (Legal)
- member: dev (Dev)

## User (user) to architect · {TS}

- message_id: m2

text:
```text
@architect @legal look
```

## Architect (architect) · {TS}

- message_id: m7

text:
```text
I looked.
```

## Dev (dev) · {TS}

- message_id: m9

text:
```text
fine
```

"""
    )


@given(st.text(max_size=60) | st.text("`~#<>&=*_-[]()!\n\t @a", max_size=60) | st.just(HOSTILE))
def test_no_text_leaves_its_place_in_any_format(text: str) -> None:
    found = a_session(text.encode("utf-8", "replace").decode())
    text = found[6].message.content  # type: ignore[attr-defined]  # the architect's reply
    told = as_json(found)
    assert next(one for one in told["entries"] if one.get("agent") == "architect")["text"] == text
    rows = as_csv(found)
    assert [one["entry"] for one in rows] == [one["entry"] for one in told["entries"]]
    cell = next(one for one in rows if one["agent"] == "architect")["text"]
    assert cell.removeprefix("'") == escape_text(text).removeprefix("'")
    assert not cell.lstrip().startswith(("=", "+", "-", "@", "\t"))
    md = "".join(reports_audit.write_markdown(record(found)))
    tokens = MarkdownIt("commonmark").parse(md)
    fences = [token.content for token in tokens if token.type == "fence"]
    if text:
        assert f"{escape_text(text)}\n" in fences
    kinds = {one.type for token in tokens for one in (token, *(token.children or ()))}
    assert kinds.isdisjoint({"html_block", "html_inline", "image", "link_open", "code_block"})
    assert sum(token.type == "heading_open" for token in tokens) == 2 + len(rows)


def test_names_and_errors_are_no_markup() -> None:
    nasty = "<b>*x* [y](z) `w` | _q_\n## y"
    found = [
        SessionEvent(
            seq=1, ts=TS, session="s", team=nasty, members=[MemberInfo(id="a", name=nasty)]
        ),
        MessageEvent(seq=2, ts=TS, message=said(2, nasty, "hi", nasty)),
        finished(3, 1, nasty, None, error=nasty),
    ]
    for audit in (True, False):
        tokens = MarkdownIt("commonmark").parse(
            "".join(reports_audit.write_markdown(record(found, audit=audit)))
        )
        kinds = {one.type for token in tokens for one in (token, *(token.children or ()))}
        wrong = {"html_inline", "html_block", "em_open", "strong_open", "code_inline", "link_open"}
        assert not kinds & wrong


@pytest.mark.parametrize(
    "write", [write_json, reports_audit.write_table, reports_audit.write_markdown]
)
def test_it_is_written_as_it_is_read_however_long_it_is(write: Any) -> None:
    read: list[int] = []

    def endless() -> Iterator[Event]:
        yield from a_session()[:1]
        for seq in range(2, 10**9):
            read.append(seq)
            yield MessageEvent(seq=seq, ts=TS, message=said(seq, "user", "x"))

    pieces = write(AuditRecord("s", None, endless(), audit=True))
    for _ in range(50):
        next(pieces)
    assert len(read) < 60


def test_an_audit_for_an_agent_keeps_the_newest_whole_calls_within_its_size() -> None:
    found = a_session()[:2]
    for seq in range(3, 200):
        found.append(finished(seq, seq, "dev", f"answer {seq} " + "字" * 50))
    most = 10_000
    text = reports_audit.write_newest(record(found), most, 10**6)
    assert most * 0.9 < len(text.encode()) <= most
    assert "answer 199 " in text
    assert "answer 3 " not in text
    headings = text.count("\n## call ")
    assert f"the {len(found) - headings} oldest entries of this record" in text
    assert "- all: calls 197, success 197" in text
    whole = reports_audit.write_newest(record(found), 10**6, 10**6)
    assert "Left out" not in whole
    assert whole == "".join(reports_audit.write_markdown(record(found)))
    fewer = reports_audit.write_newest(record(found), 10**6, 2_000)
    assert 1_800 < estimate(fewer) <= 2_000
    alone = record([*a_session()[:2], finished(3, 1, "dev", "ab" * 50_000)])
    huge = reports_audit.write_newest(alone, most, 10**6)
    assert len(huge.encode()) <= most
    assert "(cut: the first 625 of 100000 characters)" in huge
    hashed = hashlib.sha256(b"ab" * 50_000).hexdigest()
    assert hashed in huge


def test_the_command_writes_to_stdout_or_a_file_in_the_format_of_its_ending(
    arena: Program,
) -> None:
    written(arena, a_session(HOSTILE))
    out = arena.run("export", "s", "--audit", "--format", "json").check()
    assert out.stdout == "".join(write_json(record(a_session(HOSTILE))))
    assert "\x1b" not in out.stdout
    for name, written_by in (
        ("out/a.csv", reports_audit.write_table),
        ("a.JSON", write_json),
        ("a.md", reports_audit.write_markdown),
        ("审计", reports_audit.write_markdown),
    ):
        arena.run("export", "--audit", "-p", "-o", name).check(stdout="")
        text = (arena.folder / name).read_bytes().decode()
        assert text == "".join(written_by(record(a_session(HOSTILE))))
    out = arena.run("export", "--format", "csv", "-o", "-").check()
    assert out.out.decode() == "".join(
        reports_audit.write_table(record(a_session(HOSTILE), audit=False))
    )


def test_a_missing_folder_is_not_made_without_a_question(arena: Program) -> None:
    written(arena, a_session())
    arena.run("export", "s", "-o", "审计/2026/a.md").check(
        code=2,
        stdout="",
        stderr="arena: --output: there is no folder 审计/2026; nothing was written\n"
        "  Create it, or add --parents (-p).\n",
    )
    assert not (arena.folder / "审计").exists()
    arena.run("export", "s", "--parents", "-o", "审计/2026/a.md").check(stdout="")
    assert (arena.folder / "审计" / "2026" / "a.md").is_file()


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
@pytest.mark.parametrize(("answer", "code"), [("y", 0), ("", 2)])
def test_on_a_terminal_it_asks_before_it_makes_a_folder(
    arena: Program, answer: str, code: int
) -> None:
    import pty

    written(arena, a_session())
    ours, theirs = pty.openpty()
    with arena.start("export", "s", "-o", "out/a.md", stdin=theirs, stderr=theirs) as running:
        os.close(theirs)
        os.write(ours, f"{answer}\n".encode())
        running.wait(timeout=60)
        asked = os.read(ours, 4096).decode()
    os.close(ours)
    assert "There is no folder out. Create it? [y/N]" in asked
    assert (running.returncode, (arena.folder / "out" / "a.md").exists()) == (code, code == 0)


def test_what_cannot_be_written_or_read_is_an_error_that_says_so(arena: Program) -> None:
    written(arena, a_session())
    raw = arena.raw()
    arena.run("export", "s", "-o", "sessions/s/transcript.jsonl").check(
        code=2,
        stderr="arena: --output: sessions/s/transcript.jsonl is the transcript itself\n"
        "  Name another file; nothing was written.\n",
    )
    assert arena.raw() == raw
    arena.run("export", "s", "-o", "agents").check(
        code=2, stderr="arena: --output: agents is a folder\n  Name a file in it.\n"
    )
    assert arena.run("export", "s", "--format", "JSON").stdout.startswith("{")
    refused = arena.run("export", "s", "--format", "xls")
    assert (refused.code, refused.stdout) == (2, "")
    assert "'xls' is not one of 'md', 'csv', 'json'" in refused.stderr
    arena.run("export", "t").check(
        code=2,
        stderr="arena: there is no session 't'\n  `arena sessions` lists all sessions.\n",
    )
    arena.file("blocked", "")
    refused = arena.run("export", "s", "-o", "blocked/a.md")
    assert (refused.code, "could not write" in refused.stderr) == (5, True)


def test_a_line_that_cannot_be_read_is_told_and_counted(arena: Program) -> None:
    lines = [events.encode_line(one) for one in a_session()]
    arena.file("agents/architect.yaml", "agent_id: architect\nadapter: {type: scripted}\n")
    arena.file("sessions/s/transcript.jsonl", b"".join([*lines[:6], b"{broken\n", *lines[7:]]))
    done = arena.run("export", "s", "--audit", "--format", "json")
    told = json.loads(done.stdout)
    assert told["unreadable_lines"] == 1
    assert "transcript.jsonl:7: not JSON" in done.stderr
    assert [one["agent"] for one in told["entries"] if one["entry"] == "call"] == [
        "legal",
        "dev",
        "architect",  # what is left of it: that it began
    ]
    assert "- unreadable_lines: 1" in arena.run("export", "s").stdout


READS_THE_AUDIT = """
import hashlib, json, sys
given = json.load(sys.stdin)
part = given["messages"][-1]["attachments"][-1]
text = open(part["path"], "rb").read()
same = hashlib.sha256(text).hexdigest() == part["sha256"]
calls = text.decode().count("## call ")
print(json.dumps({"content": f"{part['name']}: {calls} calls, same: {same}"}))
"""


def test_attach_audit_gives_an_agent_the_real_record(arena: Program) -> None:
    command = [sys.executable, str(arena.file("audit.py", READS_THE_AUDIT))]
    arena.agent(
        "legal", adapter={"type": "cli", "command": command, "prompt": "json", "output": "json"}
    )
    arena.agent("dev", {"say": "done"})
    assert arena.run("send", "@dev do it", "-s", "工作").code == 0
    assert arena.run("send", "@legal report", "-c", "--attach-audit").code == 0
    assert arena.run("send", "@legal again", "-s", "other", "--attach-audit=工作").code == 0
    said = [
        one["message"]["content"]
        for name in ("工作", "other")
        for one in arena.records(name)
        if one["type"] == "reply_finished" and one["agent"] == "legal"
    ]
    assert said == ["audit-工作.md: 1 calls, same: True", "audit-工作.md: 2 calls, same: True"]


def test_attach_audit_is_sent_to_an_api_agent_as_text(arena: Program) -> None:
    reply = json.dumps({"choices": [{"message": {"content": "ok"}, "finish_reason": "stop"}]})
    with ScriptedApi(Answer(reply.encode())).running() as api:
        arena.agent(
            "legal", adapter={"type": "openai", "model": "m", "base_url": api.url, "stream": False}
        )
        arena.agent("dev", {"say": "done"})
        assert arena.run("send", "@dev do it", "-s", "s").code == 0
        assert arena.run("send", "@legal report", "-s", "s", "--attach-audit").code == 0
    asked = json.dumps(api.sent[-1].body, ensure_ascii=False)
    assert "# Audit of session s" in asked
    assert "## call · dev · turn 1 A · success" in asked


def test_attach_audit_leaves_room_for_the_talk(arena: Program) -> None:
    context = {"window_tokens": 5_000, "reserved_output_tokens": 1_000}
    arena.agent("legal", {"say": "read"}, context=context).agent("dev", {"say": "a word " * 2_000})
    for _ in range(4):
        assert arena.run("send", "@dev do it", "-s", "s").code == 0
    texts = {}
    for agent, *asked in (("legal", "@legal report"), ("dev", "report", "--to", "dev")):
        assert arena.run("send", *asked, "-s", "s", "--attach-audit").code == 0
        said = [one for one in arena.records() if one["type"] == "message"][-1]["message"]
        texts[agent] = (arena.folder / said["attachments"][0]["path"]).read_text("utf-8")
    assert 1_000 < estimate(texts["legal"]) <= 2_000
    assert 5_000 < estimate(texts["dev"]) <= 15_000
    assert "Left out for its size" in texts["legal"]
    assert "sums at its end are" in texts["legal"]


def test_attach_audit_needs_a_session_that_is_there(arena: Program) -> None:
    arena.agent("dev", {"say": "done"})
    for args in ((), ("-s", "new")):
        arena.run("send", "report", "--attach-audit", *args).check(
            code=2,
            stderr="arena: --attach-audit: a new session has nothing to report yet\n"
            "  Continue one (`-c`, `--session NAME`), or name one: `--attach-audit=NAME`.\n",
        )
    assert arena.run("send", "report", "--attach-audit=nowhere").code == 2
    assert not (arena.folder / "sessions").exists()
    assert arena.run("send", "-s", "s", "--", "--attach-audit").code == 0
    assert arena.records()[1]["message"]["content"] == "--attach-audit"
    done = arena.run("send", "report", "-s", "s", "--attach-audit", "--dry-run", "--json")
    parts = json.loads(done.stdout)["message"]["attachments"]
    assert [one["name"] for one in parts] == ["audit-s.md"]
    assert not (arena.folder / "sessions" / "s" / "attachments").exists()


def test_a_pipe_that_is_closed_early_is_no_error(arena: Program) -> None:
    written(arena, a_session("x" * 300_000))
    running = arena.start("export", "s", "--audit")
    assert running.stdout is not None
    os.read(running.stdout.fileno(), 10)
    running.stdout.close()
    assert running.stderr is not None
    assert running.stderr.read() == b""
    running.stderr.close()
    assert running.wait(60) == 0


def spoken(arena: Program, *names: str) -> None:
    arena.program("dev", "say", "done, 完成")
    for name in names:
        arena.run("send", f"@dev hello {name}", "--session", name).check(stdout=None, stderr=ANY)


def test_several_sessions_are_one_document_each_with_its_name(arena: Program) -> None:
    spoken(arena, "monday", "星期二")
    named = json.loads(arena.run("export", "星期二", "monday", "--format", "json").check().stdout)
    assert [one["session"] for one in named["sessions"]] == ["星期二", "monday"]
    assert [one["entries"][0]["text"] for one in named["sessions"]] == [
        "@dev hello 星期二",
        "@dev hello monday",
    ]
    every = json.loads(arena.run("export", "--all", "--audit", "--format", "json").check().stdout)
    assert [one["session"] for one in every["sessions"]] == ["monday", "星期二"]
    assert [one["total"]["calls"] for one in every["sessions"]] == [1, 1]


def test_several_sessions_are_one_table_with_a_column_for_the_session(arena: Program) -> None:
    spoken(arena, "monday", "friday")
    told = arena.run("export", "--all", "--format", "csv").check().stdout
    rows = list(csv.DictReader(io.StringIO(told.removeprefix(reports_audit.BOM), newline="")))
    assert [(one["session"], one["author_id"], one["text"]) for one in rows] == [
        ("monday", "user", "'@dev hello monday"),
        ("monday", "dev", "done, 完成"),
        ("friday", "user", "'@dev hello friday"),
        ("friday", "dev", "done, 完成"),
    ]
    text = arena.run("export", "monday", "friday").check().stdout
    heads = [line for line in text.split("\n") if line.startswith("# ")]
    assert heads == ["# Conversation of session monday", "# Conversation of session friday"]


def test_all_with_one_session_has_the_form_of_several(arena: Program) -> None:
    spoken(arena, "monday")
    told = json.loads(arena.run("export", "--all", "--format", "json").check().stdout)
    assert [one["session"] for one in told["sessions"]] == ["monday"]
    same = json.loads(arena.run("export", "monday", "monday", "--format", "json").check().stdout)
    assert same["session"] == "monday"


def test_all_is_refused_with_a_name_and_without_sessions(arena: Program) -> None:
    arena.program("dev", "say", "done")
    arena.run("export", "--all").check(
        code=2,
        stdout="",
        stderr="arena: there is no session to export\n  Start one: `arena send MESSAGE`.\n",
    )
    spoken(arena, "monday")
    assert (
        "--all was given with monday"
        in arena.run("export", "monday", "--all").check(code=2, stdout="", stderr=ANY).stderr
    )
    path = "sessions/monday/transcript.jsonl"
    assert (
        "is the transcript itself"
        in arena.run("export", "--all", "--output", path)
        .check(code=2, stdout="", stderr=ANY)
        .stderr
    )
