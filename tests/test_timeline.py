"""The timeline as text: every kind of event, told from a transcript."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from product import (
    FALSE_WORDS,
    TRUE_WORDS,
    Event,
    StructuredContent,
    Timeline,
    Words,
    escape_text,
    events,
)

TS = "2026-11-28T09:30:05.125Z"
HOSTILE = "a\x1b[31m\n::stop-commands::t\n##[error]x"
KINDS = get_args(StructuredContent.model_fields["type"].annotation)
STATES = {*TRUE_WORDS, *FALSE_WORDS, "done", "complete", "completed", "finished", "closed"}
MEMBERS = [
    {"id": "architect", "name": "架构师", "role": ""},
    {"id": "dev", "name": "dev", "role": ""},
    {"id": "ops", "name": "Ops", "role": ""},
]


def told(*records: dict[str, Any], timeline: Timeline | None = None) -> str:
    """What a timeline says of these events, one after the other."""
    timeline = timeline or Timeline()
    lines = [line.text for record in records for line in timeline.drawn(made(record))]
    return "".join(f"{line}\n" for line in lines)


def made(record: dict[str, Any]) -> Event:
    event = events.parse({"seq": 1, "ts": TS, **record})
    assert event is not None
    return event


def session(**more: Any) -> dict[str, Any]:
    return {"type": "session", "session": "s", "team": "crew", "members": MEMBERS, **more}


def message(content: str = "", **more: Any) -> dict[str, Any]:
    return {
        "id": "m1",
        "author_id": "user",
        "author_name": "user",
        "author_type": "human",
        "content": content,
        "timestamp": TS,
        **more,
    }


def sent(content: str = "hello", **more: Any) -> dict[str, Any]:
    said = message(content, **more.pop("message", {}))
    return {"type": "message", "chain": 1, "message": said, **more}


def turn(*must: str, **more: Any) -> dict[str, Any]:
    base = {"chain": 1, "turn": 1, "depth": 0, "trigger": ["m1"], "must": list(must)}
    return {"type": "turn_started", **base, **more}


def started(agent: str, attempt: int = 1, **more: Any) -> dict[str, Any]:
    base = {"reply": 1, "turn": 1, "phase": "A", "adapter": "cli", "invocation": "must_reply"}
    shown = {"input_hash": "", "input_tokens": 1}
    return {"type": "reply_started", **base, **shown, "agent": agent, "attempt": attempt, **more}


def finished(agent: str, content: str | None = None, **more: Any) -> dict[str, Any]:
    said = None if content is None else message(content, author_id=agent, author_type="agent")
    base = {"reply": 1, "turn": 1, "phase": "A", "status": "success", "latency_ms": 1250}
    return {"type": "reply_finished", "agent": agent, "message": said, **base, **more}


def ended(end: str = "quiet", **more: Any) -> dict[str, Any]:
    usage = {"input_tokens": 70, "output_tokens": 7}
    base = {"chain": 1, "turns": 1, "replies": 1, "usage": usage, "session_usage": usage}
    return {"type": "chain_finished", "end": end, **base, **more}


def over(**more: Any) -> dict[str, Any]:
    return {"type": "turn_finished", "turn": 1, "called": [], "replied": [], **more}


def test_a_whole_chain() -> None:
    usage = {"input_tokens": 40, "cache_read_tokens": 2, "output_tokens": 9, "cost_usd": 0.01234}
    text = told(
        session(),
        sent("@架构师 @dev @ops\n\n请看", unresolved=["bob"]),
        turn("architect", "dev", deferred=["ops"]),
        started("architect"),
        started("dev", reply=2),
        {"type": "status", "reply": 1, "agent": "dev", "status": "generating", "detail": "busy"},
        finished("architect", "好\n@dev", next_mentions=["dev"], usage=usage),
        started("dev", 2, reply=2),
        finished("dev", status="timeout", reply=2, attempts=2, error="dev: no answer within 9 s"),
        {"type": "candidates", "turn": 1, "asked": []},
        over(next=["ops", "dev"]),
        turn("ops", turn=2, depth=1, mentioned_by={"ops": ["user", "architect"]}),
        started("ops", reply=3, turn=2),
        finished(
            "ops",
            "@all @amy",
            reply=3,
            turn=2,
            unresolved=["amy"],
            refused={"dev": "not in may_mention"},
            usage={**usage, "estimated": True},
        ),
        {
            "type": "candidates",
            "turn": 2,
            "asked": ["dev"],
            "passed_over": {
                "architect": {"relevance": 0.4, "threshold": 0.6},
                "ops": {"relevance": 0.784, "reason": "no place left"},
            },
        },
        started("dev", reply=4, turn=2, phase="B"),
        finished("dev", status="declined", reply=4, turn=2, phase="B"),
        over(turn=2),
        ended(turns=2, replies=2),
    )
    assert (
        text == "session s · team crew\n"
        "\n"
        "09:30:05  user\n"
        "  @架构师 @dev @ops\n"
        "\n"
        "  请看\n"
        "  no member is called @bob\n"
        "\n"
        "── turn 1 · must reply: 架构师, dev\n"
        "  deferred to the next turn: Ops\n"
        "09:30:05  架构师 (architect) · turn 1 A · 1.2 s · 42 → 9 tokens · $0.0123\n"
        "  好\n"
        "  @dev\n"
        "  → dev (is called in this turn, again only if it declines: "
        "re_invoke_already_replied is false)\n"
        "  dev: attempt 2\n"
        "09:30:05  dev · turn 1 A · 1.2 s · timeout · 2 attempts\n"
        "  dev: no answer within 9 s\n"
        "\n"
        "── turn 2 · must reply: Ops (mentioned by user, 架构师)\n"
        "09:30:05  Ops (ops) · turn 2 A · 1.2 s · ~42 → ~9 tokens · $0.0123\n"
        "  @all @amy\n"
        "  may not call dev: not in may_mention\n"
        "  no member is called @amy\n"
        "  passed over: 架构师 (relevance 0.4 < 0.6), Ops (relevance 0.784, no place left)\n"
        "\n"
        "── turn 2 · may reply: dev\n"
        "09:30:05  dev · turn 2 B · 1.2 s · declined\n"
        "\n"
        "══ quiet · 2 replies in 2 turns · 70 → 7 tokens · $0.0247 + unknown\n"
        "\n"
    )


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (ended("failed"), "══ failed · 1 reply in 1 turn · 70 → 7 tokens"),
        (ended("chain_limit"), "══ chain_limit · 1 reply in 1 turn · 70 → 7 tokens"),
        (
            ended("awaiting_human", awaits=["user", "maya"]),
            "══ awaiting_human: user, maya · 1 reply in 1 turn · 70 → 7 tokens",
        ),
        (ended("interrupted", turns=0), "══ interrupted · 1 reply in 0 turns · 70 → 7 tokens"),
        ({"type": "resumed", "chain": 3, "after_seq": 12}, "resumed chain 3 after event 12"),
        (
            {"type": "recovered", "what": "the last line was torn", "bytes": 9, "kept_in": "t-1"},
            "recovered: the last line was torn (9 bytes set aside, kept in t-1)",
        ),
        (
            {"type": "recovered", "what": "the last line had no newline", "bytes": 0},
            "recovered: the last line had no newline (0 bytes set aside)",
        ),
        (session(team=None), "session s · every agent"),
        (sent(planted=True, chain=None), "09:30:05  user · planted"),
        (sent(ts="whenever"), "--:--:--  user"),
        (turn(), "── turn 1 · must reply: none"),
    ],
)
def test_single_events(event: dict[str, Any], line: str) -> None:
    assert told(event).splitlines()[0] == line


def test_no_reply_tells_why_of_each_member_in_this_chain() -> None:
    earlier = [
        session(),
        sent(),
        turn("dev"),
        started("dev"),
        finished("dev", status="error", error="dev: broke"),
        over(),
        ended("failed", replies=0),
    ]
    timeline = Timeline()
    told(*earlier, timeline=timeline)
    text = told(
        sent(chain=2),
        turn(turn=2, chain=2),
        {
            "type": "candidates",
            "turn": 2,
            "asked": ["architect"],
            "passed_over": {"ops": {"relevance": 0.4, "threshold": 0.8}},
        },
        started("architect", reply=2, turn=2, phase="B"),
        finished("architect", status="declined", reply=2, turn=2, phase="B"),
        over(turn=2),
        ended("no_reply", chain=2, replies=0),
        timeline=timeline,
    )
    assert (
        text.split("══ ")[1] == "no_reply · 0 replies in 1 turn · 70 → 7 tokens\n"
        "  架构师 (architect): declined\n"
        "  dev: not asked (it answers only when it is named)\n"
        "  Ops (ops): relevance 0.4 < 0.8\n"
        "  To call an agent, mention it in the message: @architect\n"
        "\n"
    )
    nobody = told(session(config={"selection": "none"}), sent(), turn(), over(), ended("no_reply"))
    assert nobody.count("not asked (selection: none)") == 3


def test_a_session_that_goes_on_names_its_members_and_counts_its_turns() -> None:
    timeline = Timeline()
    shown = timeline.goes_on(made(session()), 2)  # type: ignore[arg-type] # it is a SessionEvent
    assert [line.text for line in shown] == ["session s · team crew", ""]
    again = told(
        {"type": "resumed", "chain": 1, "after_seq": 12},
        started("architect", 2, turn=7),
        finished("architect", "好", turn=7, attempts=2),
        timeline=timeline,
    )
    assert (
        again == "resumed chain 1 after event 12\n"
        "\n"
        "09:30:05  架构师 (architect) · turn 2 A · 1.2 s · 2 attempts\n"
        "  好\n"
    )


def hostile_events() -> Iterable[dict[str, Any]]:
    """Each place where text of an agent, a model or a file comes in."""
    part = {"type": "file", "name": HOSTILE, "path": HOSTILE, "size": 3}
    data = {"type": "task_list", "data": {HOSTILE: HOSTILE}}
    yield session(session=HOSTILE, team=HOSTILE)
    yield session(members=[{"id": "dev", "name": HOSTILE}])
    yield sent(HOSTILE, unresolved=[HOSTILE], message={"author_name": HOSTILE})
    yield sent(message={"attachments": [part], "structured": [data]})
    yield sent(message={"structured": [{"type": "code_block", "data": HOSTILE}]})
    yield turn(HOSTILE, deferred=[HOSTILE], depth=1, mentioned_by={HOSTILE: [HOSTILE]})
    yield started(HOSTILE, 2)
    yield finished(HOSTILE, HOSTILE, next_mentions=[HOSTILE], refused={HOSTILE: HOSTILE})
    yield finished(HOSTILE, status="error", error=HOSTILE, unresolved=[HOSTILE])
    passed = {HOSTILE: {"relevance": 0, "reason": HOSTILE}}
    yield {"type": "candidates", "turn": 1, "asked": [HOSTILE], "passed_over": passed}
    yield ended("awaiting_human", awaits=[HOSTILE])
    yield {"type": "recovered", "what": HOSTILE, "bytes": 1, "kept_in": HOSTILE}
    note = {"kind": HOSTILE, "title": HOSTILE, "status": HOSTILE, "reason": HOSTILE}
    yield {"type": "note", "note": HOSTILE, "act": "added", "by": HOSTILE, **note}
    ignored = {"reply": 1, "agent": HOSTILE, "kind": HOSTILE, "level": "warning", "reason": HOSTILE}
    yield {"type": "deviation", "note": HOSTILE, **ignored, "sentence": HOSTILE}
    yield {"type": "deviation", "note": HOSTILE, **ignored, "sentence": f"no quote {HOSTILE}"}
    yield {"type": "heed_judged", "by": HOSTILE, "reply": 1, "notes": 1, "error": HOSTILE}
    full = {"level": "saturated", "usage_ratio": 0.95, "tokens": 95, "budget": 100}
    yield {"type": "context_usage", "agent": HOSTILE, **full}
    counts = {"messages": 9, "tokens_before": 900, "tokens_after": 90}
    why = {"summary": HOSTILE, "rolled_back": HOSTILE}
    yield {"type": "compacted", "by": HOSTILE, "upto": HOSTILE, **counts, **why}
    yield from hostile_control_events()
    yield from hostile_acting_events()
    yield from hostile_flow_events()
    yield from hostile_task_events()
    yield from hostile_plan_events()


def hostile_plan_events() -> Iterable[dict[str, Any]]:
    """The same of plans: all that a planner writes, and why it is not carried out."""
    step = {"id": HOSTILE, "agent": HOSTILE, "task": HOSTILE, "needs": [HOSTILE]}
    plan = {"type": "planned", "chain": 1, "agent": HOSTILE, "mode": "single", "reasoning": HOSTILE}
    phases = [{"name": HOSTILE, "steps": [step]}]
    yield {**plan, "phases": phases, "checkpoints": [HOSTILE], "risks": [HOSTILE]}
    yield {**plan, "fallback": HOSTILE, "ignored": [HOSTILE], "estimated_duration": HOSTILE}
    yield {**plan, "refused": HOSTILE, "rules": [HOSTILE], "broken": {HOSTILE: HOSTILE}}
    yield {**plan, "replan": 1, "failed": [HOSTILE]}
    yield {"type": "delivered", "chain": 1, "folder": HOSTILE, "files": [HOSTILE]}


def hostile_task_events() -> Iterable[dict[str, Any]]:
    """The same of tasks: titles, results, errors, and what agents write in their lists."""
    task = {"type": "task", "task": HOSTILE, "by": HOSTILE, "to": HOSTILE}
    facts = {"title": HOSTILE, "description": HOSTILE, "needs": [HOSTILE], "phase": HOSTILE}
    yield {**task, "action": "add", "facts": facts}
    for action in ("assign", "start", "help", "pass", "complete", "block", "fail", "retry"):
        yield {**task, "action": action, "text": HOSTILE}
    yield {"type": "work_started", "chain": 1, "by": HOSTILE, "tasks": [HOSTILE]}
    change = {"action": HOSTILE, "id": HOSTILE, "text": HOSTILE}
    part = {"type": "task_list", "data": {"actions": [change], "tasks": [HOSTILE]}}
    yield sent(message={"structured": [part]})


def hostile_flow_events() -> Iterable[dict[str, Any]]:
    """The same of a flow: its name, its steps, their errors, and what an agent says of it."""
    step = {"step": HOSTILE, "kind": HOSTILE}
    yield {"type": "flow_started", "flow": HOSTILE, "file": HOSTILE}
    yield {"type": "flow_started", "flow": HOSTILE, "file": HOSTILE, "resumed": True}
    yield {"type": "step_started", **step, "attempt": 2}
    yield {"type": "step_finished", **step, "status": "success", "output": HOSTILE}
    yield {"type": "step_finished", **step, "status": "failed", "error": HOSTILE}
    yield {"type": "reflected", "by": HOSTILE, "assessment": HOSTILE}
    yield {"type": "reflected", "by": HOSTILE, "assessment": HOSTILE, "should_retry": True}
    yield {"type": "reflected", "by": HOSTILE, "error": HOSTILE}
    yield {"type": "flow_finished", "status": "failed", "failed": [HOSTILE]}
    yield {"type": "flow_finished", "status": "paused", "waits": [HOSTILE]}


def hostile_acting_events() -> Iterable[dict[str, Any]]:
    """The same of a reply with tools."""
    part = {"type": "file", "name": HOSTILE, "path": HOSTILE, "size": 3}
    reply = {"reply": 1, "agent": HOSTILE}
    call = {**reply, "call": "1", "tool": HOSTILE}
    asked = {"step": 1, "arguments": {HOSTILE: HOSTILE}, "problem": HOSTILE}
    yield {"type": "tool_requested", **call, **asked}
    files = {"attachments": [part], "diff": HOSTILE}
    yield {"type": "tool_finished", **call, "status": "ok", "result": f"{HOSTILE}\n", **files}
    yield {"type": "tool_finished", **call, "status": "error", "result": HOSTILE}
    yield {"type": "thought", **reply, "step": 1, "text": HOSTILE}
    yield {"type": "agent_ended", **reply, "mode": "error", "turns": 1, "output": HOSTILE}
    goal = {"goal": {"id": HOSTILE, "description": HOSTILE}, "count": 1, "result": HOSTILE}
    yield {"type": "goal", **reply, "action": "pop", **goal}


def hostile_control_events() -> Iterable[dict[str, Any]]:
    """The same of control: requests of agents, decisions of people, rules."""
    request = {"request": 1, "reply": 1, "agent": HOSTILE, "action": HOSTILE, "detail": HOSTILE}
    times = {"digest": "", "expires": ""}
    yield {"type": "approval_requested", **request, **times, "diff": HOSTILE}
    yield {"type": "approval_requested", **request, **times, "options": [HOSTILE]}
    decision = {"request": 1, "agent": HOSTILE, "digest": "", "decision": "approved"}
    yield {"type": "approval_decided", **decision, "by": HOSTILE, "because": HOSTILE}
    yield {"type": "approval_decided", **decision, "by": HOSTILE, "option": HOSTILE}
    yield {"type": "chain_paused", "chain": 1, "reason": "asked", "detail": HOSTILE}
    yield {"type": "agent_state", "agent": HOSTILE, "state": "paused", "by": HOSTILE}
    yield {"type": "steered", "chain": 1, "message": HOSTILE}
    calls = {"turn": 1, "agent": HOSTILE, "should_reply": [HOSTILE], "reason": HOSTILE}
    yield {"type": "supervised", **calls}
    yield {"type": "supervised", **calls, "fallback": HOSTILE}
    checked = {"decision": 1, "kind": "task", "by": HOSTILE, "rules": [HOSTILE]}
    yield {"type": "decision", **checked, "allowed": False}
    yield {"type": "rule_broken", "reply": 1, "agent": HOSTILE, "rule": HOSTILE, "error": HOSTILE}
    yield {"type": "breaker", "agent": HOSTILE, "state": "open", "reason": HOSTILE}
    yield {"type": "budget", "by": HOSTILE, "tokens": 9}
    asked = {"exchange": HOSTILE, "reply": 1, "requester": HOSTILE, "target": HOSTILE}
    yield {"type": "exchange_started", **asked, "mode": "wait", "max_turns": 5}
    yield {"type": "exchange_timed_out", **asked, "wait_s": 5}
    yield {"type": "exchange_finished", **asked, "end": "error", "reason": HOSTILE}
    yield sent(HOSTILE, exchange=HOSTILE, message={"shown_to": [HOSTILE]})
    yield sent(HOSTILE, exchange=HOSTILE)
    yield {"type": "degraded", "chain": 1, "step": HOSTILE, "detail": HOSTILE}
    yield {"type": "checkpoint", "label": HOSTILE, "at": 1, "by": HOSTILE}
    yield {"type": "marked_read", "agents": [HOSTILE], "upto": HOSTILE, "by": HOSTILE}
    yield {"type": "forked", "session": HOSTILE, "at": 1}
    yield {"type": "rewound", "to": 1, "by": HOSTILE, "from": 2}
    sorted_by = {"intent": "greeting", "confidence": 0.9, "by": HOSTILE}
    yield {"type": "intent", "chain": 1, **sorted_by, "answered_by": HOSTILE, "error": HOSTILE}
    yield {"type": "edited", "message": HOSTILE, "content": HOSTILE, "by": HOSTILE}


@pytest.mark.parametrize("event", list(hostile_events()), ids=lambda event: event["type"])
def test_no_text_steers_a_terminal_or_a_ci_runner(event: dict[str, Any]) -> None:
    timeline = Timeline(has_steps=True)
    told(session(), started(HOSTILE), timeline=timeline)
    text = told(event, ended("no_reply"), timeline=timeline)
    assert "\\x1b[31m" in text
    for line in text.splitlines():
        assert line.isprintable()
        assert not line.lstrip().startswith("::")
        assert "##[" not in line


def test_attachments_are_named() -> None:
    parts = [
        {"type": "image", "name": "图.png", "path": "sessions/s/图.png", "size": 9},
        {"type": "file", "name": "notes"},
    ]
    assert (
        told(sent("see", message={"attachments": parts})) == "09:30:05  user\n"
        "  see\n"
        "  [image: 图.png, 9 bytes at sessions/s/图.png]\n"
        "  [file: notes]\n"
        "\n"
    )


def drawn(kind: str, data: Any) -> list[str]:
    """The lines of one structured part."""
    part = {"type": kind, "data": data}
    return told(sent("", message={"structured": [part]})).splitlines()[1:-1]


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (["写", "测"], ["  [task_list]", "    [ ] 写", "    [ ] 测"]),
        (
            [{"title": "a", "done": True}, {"task": "b", "completed": "no"}, {"name": "c"}],
            ["  [task_list]", "    [x] a", "    [ ] b", "    [ ] c"],
        ),
        (
            {
                "title": "plan",
                "tasks": [
                    {"text": "a", "status": "completed", "owner": "dev"},
                    {"title": "b", "status": "in_progress", "subtasks": ["c", {"text": "d"}]},
                ],
                "due": "Friday",
            },
            [
                "  [task_list: plan]",
                "    [x] a (owner: dev)",
                "    [ ] b (status: in_progress)",
                "      [ ] c",
                "      [ ] d",
                "    due: Friday",
            ],
        ),
        ({"items": [{"name": "a", "checked": False}]}, ["  [task_list]", "    [ ] a"]),
        ({"subtasks": ["a"]}, ["  [task_list]", "    [ ] a"]),
        ([1, 2], ["  [task_list]", "    [", "      1,", "      2", "    ]"]),
        ([{"title": 5}], ["  [task_list]", "    [", "      {", '        "title": 5']),
        ({"a": 1}, ["  [task_list]", "    {", '      "a": 1', "    }"]),
        ([], ["  [task_list]", "    []"]),
        ("a\nb", ["  [task_list]", "    a", "    b"]),
        (None, ["  [task_list]", "    null"]),
    ],
)
def test_a_task_list_is_a_checklist(data: Any, lines: list[str]) -> None:
    assert drawn("task_list", data)[: len(lines)] == lines


@pytest.mark.parametrize(
    ("kind", "data", "lines"),
    [
        ("code_block", "a = 1\n\nb = 2\n", ["[code_block]", "  a = 1", "", "  b = 2"]),
        (
            "code_block",
            {"language": "python", "path": "a.py", "code": "x", "line": 3},
            ["[code_block: python, a.py]", "  x", "  line: 3"],
        ),
        ("code_block", {"lines": 3}, ["[code_block]", "  {", '    "lines": 3', "  }"]),
        ("architecture_diagram", "A --> B", ["[architecture_diagram]", "  A --> B"]),
        (
            "architecture_diagram",
            {"mermaid": "graph TD\n  A --> B", "title": "t"},
            ["[architecture_diagram: mermaid]", "  graph TD", "    A --> B", "  title: t"],
        ),
        (
            "architecture_diagram",
            {"format": "dot", "source": "digraph {}"},
            ["[architecture_diagram: dot]", "  digraph {}"],
        ),
        ("diff", "-a\n+b", ["[diff]", "  -a", "  +b"]),
        (
            "diff",
            {"files": [{"path": "x", "patch": "+b"}, "-c"], "base": "main"},
            ["[diff]", "  x", "  +b", "  -c", "  base: main"],
        ),
        ("diff", {"old": "a", "new": "b"}, ["[diff]", "  {", '    "old": "a",', '    "new": "b"']),
        (
            "approval_request",
            {"env": {"a": 1}, "reason": "because\nof it", "action": "deploy"},
            [
                "[approval_request]",
                "  action: deploy",
                "  reason:",
                "    because",
                "    of it",
                '  env: {"a": 1}',
            ],
        ),
        ("approval_request", "may I?", ["[approval_request]", "  may I?"]),
        ("approval_request", ["deploy"], ["[approval_request]", "  [", '    "deploy"', "  ]"]),
    ],
)
def test_structured_parts_are_drawn_by_kind(kind: str, data: Any, lines: list[str]) -> None:
    assert drawn(kind, data)[: len(lines)] == [line and f"  {line}" for line in lines]


def data_of(texts: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    """Data as agents write it, and as they should not."""
    known = ["title", "tasks", "done", "status", "code", "diff", "files", "mermaid", "action"]
    return st.recursive(
        st.none() | st.booleans() | st.integers() | texts,
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(known) | texts, inner, max_size=4)
        ),
        max_leaves=12,
    )


@given(st.sampled_from(KINDS), data_of(st.text("ab中+- ", max_size=8)))
def test_nothing_of_the_data_is_left_out(kind: str, data: Any) -> None:
    """But for a state, which a mark may say."""
    text = "\n".join(drawn(kind, data))
    for leaf in leaves(data):
        if isinstance(leaf, str) and leaf.strip().casefold() not in STATES:
            assert escape_text(leaf).rstrip() in text


@given(
    st.sampled_from(KINDS),
    data_of(
        st.sampled_from([HOSTILE, "::error::x", "\n::x", "##[x]", "\u202e", "\x9b2J", " ::y", ""])
    ),
)
def test_no_data_steers_a_terminal_or_a_ci_runner(kind: str, data: Any) -> None:
    for line in drawn(kind, data):
        assert line.isprintable()
        assert not line.lstrip().startswith("::")
        assert "##[" not in line


def leaves(data: Any) -> Iterator[Any]:
    if isinstance(data, dict):
        data = list(data.values())
    if isinstance(data, list):
        for one in data:
            yield from leaves(one)
    else:
        yield data


def test_an_attempt_is_a_second_one_only_of_the_same_reply() -> None:
    """Each session counts its replies from 1; a session whose team changed goes on counting."""
    timeline = Timeline()
    again = "  dev: attempt 2\n"
    tried = [session(), sent(), turn("dev"), started("dev")]
    told(*tried, timeline=timeline)
    assert told(session(team=None), started("dev", 2), timeline=timeline).endswith(again)
    for other in (session(session="t"), session(), sent(chain=2)):
        assert "attempt" not in told(other, started("dev"), timeline=timeline)
        assert told(started("dev", 2), timeline=timeline) == again


def test_avatars_stand_before_names_and_addresses_do_not() -> None:
    avatars = {"architect": "🏗️", "dev": "https://a.example/face.png", "ops": "x" * 13}
    timeline = Timeline(avatars=avatars)
    told(session(), timeline=timeline)
    said = [told(finished(agent), timeline=timeline) for agent in ("architect", "dev", "ops")]
    assert [one.split("  ")[1].split(" · ")[0] for one in said] == [
        "🏗️ 架构师 (architect)",
        "dev",
        "Ops (ops)",
    ]


def test_a_turn_of_another_number_shows_its_id() -> None:
    timeline = Timeline()
    asked = {"type": "candidates", "turn": 7, "asked": ["dev"]}
    assert told(session(), sent(), turn("dev", turn=7), asked, timeline=timeline).endswith(
        "── turn 1 (t7) · must reply: dev\n\n── turn 1 (t7) · may reply: dev\n"
    )


def test_an_agent_keeps_its_colour() -> None:
    def style(timeline: Timeline, agent: str) -> str:
        return timeline.named(agent)[-1].style

    first, second = Timeline(), Timeline()
    for timeline in (first, second):
        told(session(), timeline=timeline)
    styles = [style(first, agent) for agent in ("architect", "dev", "ops")]
    assert len(set(styles)) == 3
    assert [style(second, agent) for agent in ("architect", "dev", "ops")] == styles
    assert style(first, "gone") == style(Timeline(), "gone")


def test_chinese_stands_beside_the_words_of_files() -> None:
    timeline = Timeline(Words("zh"))
    text = told(
        session(),
        sent("@all", unresolved=["bob"]),
        turn("dev", deferred=["ops"], depth=1, mentioned_by={"dev": ["user"]}),
        finished("dev", "{name} 好", attempts=2),
        finished("ops", status="declined"),
        {
            "type": "candidates",
            "turn": 1,
            "asked": ["dev"],
            "passed_over": {"ops": {"relevance": 0.4, "threshold": 0.6}},
        },
        over(),
        ended(replies=2),
        timeline=timeline,
    )
    assert (
        text == "会话 s · 团队 crew\n"
        "\n"
        "09:30:05  user\n"
        "  @all\n"
        "  没有名为 @bob 的成员\n"
        "\n"
        "── 第 2 轮 (t1) · 必须回复：dev（被 user 点名）\n"
        "  推迟到下一轮：Ops\n"
        "09:30:05  dev · 第 2 轮 A · 1.2 秒 · 尝试 2 次\n"
        "  {name} 好\n"
        "09:30:05  Ops (ops) · 第 2 轮 A · 1.2 秒 · declined（不回复）\n"
        "  未选中：Ops（相关度 0.4，低于 0.6）\n"
        "\n"
        "── 第 2 轮 (t1) · 可以回复：dev\n"
        "\n"
        "══ quiet（无人待回复） · 1 轮，2 条回复 · 70 → 7 tokens\n"
        "\n"
    )


def test_what_is_no_note_says_of_which_message_and_why() -> None:
    event = {"type": "note", "note": "", "act": "refused", "by": "dev", "kind": "", "title": ""}
    event |= {"status": "", "message": "m7", "reason": "a note has no title"}
    assert told(event) == "  notes in m7 by dev: a note has no title\n"


def test_the_system_message_of_a_limit_names_its_author() -> None:
    system = message("no further turn opens", author_name="system", author_type="system")
    assert told({"type": "message", "message": system}) == (
        "09:30:05  system\n  no further turn opens\n\n"
    )


def test_no_kind_of_event_is_forgotten() -> None:
    told_of = {record["type"] for record in hostile_events()}
    told_of |= {"turn_finished", "chain_finished", "resumed", "status", "extracted"}
    told_of |= {"approval_used", "decision"}
    assert told_of == set(events.EVENT_TYPES)
