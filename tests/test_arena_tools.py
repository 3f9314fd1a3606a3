"""Agents use arena by its tools: notes, history, attachments, approvals, goals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from product import GoalChanged
from program import Program

TOOLS = [
    *("list_members", "search_notes", "search_history", "add_note", "read_attachment"),
    *("check_patterns", "request_approval", "goals"),
]


@pytest.fixture
def arena(tmp_path: Path) -> Program:
    return Program(tmp_path)


def call(tool: str, **arguments: Any) -> dict[str, Any]:
    return {"tool": tool, "arguments": arguments}


def events_of(arena: Program, *args: str, code: int = 0) -> list[dict[str, Any]]:
    done = arena.run(*args, "--json")
    assert done.code == code, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def ask(arena: Program, *calls: Any, text: str = "@dev go", session: str = "s") -> list[Any]:
    """Let the agent make these calls; return their results."""
    arena.agent("dev", {"calls": list(calls), "say": "done"}, tools=TOOLS)
    events = events_of(arena, "send", "-s", session, text)
    return [event for event in events if event["type"] == "tool_finished"]


def results(found: list[Any]) -> list[tuple[str, str]]:
    return [(event["status"], event["result"]) for event in found]


def test_members_are_listed(arena: Program) -> None:
    arena.agent("测试", {"say": "好"}, name="测试工程师")
    (event,) = ask(arena, call("list_members"))
    assert {row["id"] for row in json.loads(event["result"])} == {"dev", "测试"}


def test_a_note_is_written_and_found(arena: Program) -> None:
    found = ask(
        arena,
        call("add_note", title="用 Postgres", kind="decision", text="因为需要事务", tags=["db"]),
        call("search_notes", query="Postgres 事务"),
        call("search_notes", query="Postgres", kind="pit"),
        call("add_note", title="x", kind="rumour", text="y"),
    )
    (_, noted), (_, hits), (_, none), (status, problem) = results(found)
    assert noted == "noted as decision-用-postgres"
    (hit,) = json.loads(hits)
    assert (hit["title"], hit["status"], hit["kind"]) == ("用 Postgres", "draft", "decision")
    assert "因为需要事务" in hit["text"]
    assert none == "no note matches; try other words"
    assert status == "error"
    assert "rumour" in problem
    listed = arena.run("knowledge", "list", "-s", "s").check().stdout
    assert "用 Postgres" in listed
    assert "dev" in arena.run("knowledge", "history", "-s", "s").check().stdout


def test_a_rule_on_notes_holds_for_the_tool(arena: Program) -> None:
    rule = {"id": "no_db", "on": "note", "forbid": {"contains": "Postgres"}, "error": "not yet"}
    team = {"team": "t", "members": ["dev"], "config": {"rules": [rule]}}
    arena.file("agents/teams/t.yaml", json.dumps(team))
    arena.file("arena.yaml", "team: t\n")
    found = ask(arena, call("add_note", title="use Postgres", kind="decision", text="now"))
    ((status, problem),) = results(found)
    assert (status, problem) == ("denied", "not allowed: refused by rule no_db: not yet")
    assert not list(arena.folder.rglob("decision-*.md"))


def test_known_pits_are_found(arena: Program) -> None:
    arena.agent("dev", {"say": "ok"})
    arena.run("knowledge", "add", "Pool exhausted under load", "--kind", "pit", "--shared").check()
    found = ask(
        arena,
        call("check_patterns", text="raise the load on the pool"),
        call("check_patterns", text="colour of the logo"),
    )
    assert json.loads(found[0]["result"])[0]["kind"] == "pit"
    assert found[1]["result"].startswith("no note matches")


def test_history_is_found_beyond_the_window(arena: Program) -> None:
    arena.agent("dev", {"say": "ok"})
    arena.run("send", "-s", "s", "@dev the port of staging is 7070").check()
    arena.run("send", "-s", "s", "@dev 部署窗口是周四").check()
    found = ask(
        arena,
        call("search_history", query="port of staging"),
        call("search_history", query="部署窗口"),
        call("search_history", query="kangaroo"),
        call("search_history", query="the of"),
    )
    assert "7070" in json.loads(found[0]["result"])[0]["text"]
    assert "周四" in json.loads(found[1]["result"])[0]["text"]
    assert found[2]["result"] == "no message matches; try other words"
    assert found[3]["status"] in ("ok", "error")


def test_history_holds_no_reply_of_the_running_phase(arena: Program) -> None:
    arena.agent("bea", {"say": "the secret word is xylophone"})
    arena.agent(
        "dev",
        {"calls": [call("list_members")] * 3 + [call("search_history", query="xylophone")],
         "say": "done"},
        tools=TOOLS,
    )  # fmt: skip
    events = events_of(arena, "send", "-s", "s", "@bea @dev go")
    order = [event["type"] for event in events]
    assert order.index("reply_finished") < len(order) - 1 - order[::-1].index("tool_finished")
    last = [event for event in events if event["type"] == "tool_finished"][-1]
    assert last["result"] == "no message matches; try other words"


def test_an_attachment_is_read_in_pieces(arena: Program) -> None:
    arena.file("notes.txt", "字" * 30_000)
    (arena.folder / "x.bin").write_bytes(b"\xff\x00" * 10)
    arena.agent(
        "dev",
        {
            "calls": [
                call("read_attachment", name="notes.txt", offset=27_000),
                call("read_attachment", name="notes.txt", offset=99_000),
                call("read_attachment", name="x.bin"),
                call("read_attachment", name="../secret"),
            ],
            "say": "done",
        },
        tools=TOOLS,
    )
    events = events_of(
        arena, "send", "-s", "s", "@dev go", "--attach", "notes.txt", "--attach", "x.bin"
    )
    found = results([event for event in events if event["type"] == "tool_finished"])
    assert found[0] == ("ok", "字" * 3_000)
    assert found[1][1] == "(nothing from offset 99000 on; it has 30000)"
    assert found[2][1] == "x.bin is no text: 20 bytes"
    assert found[3] == (
        "error",
        "there is no attachment ../secret; there are: notes.txt, x.bin",
    )


def test_a_person_approves_an_act_once(arena: Program) -> None:
    arena.agent(
        "dev",
        {
            "calls": [call("request_approval", action="deploy", detail="release 7")],
            "say": "${result}",
        },
        tools=TOOLS,
    )
    events = events_of(arena, "send", "-s", "s", "@dev go", code=4)
    (finished,) = [event for event in events if event["type"] == "tool_finished"]
    assert finished["status"] == "denied"
    (request,) = [event for event in events if event["type"] == "approval_requested"]
    assert (request["action"], request["detail"]) == ("deploy", "release 7")
    arena.run("approve", "s", "1").check()
    resumed = events_of(arena, "resume", "s")
    assert [e["result"] for e in resumed if e["type"] == "tool_finished"] == [
        "approved: do exactly this now, once"
    ]


def test_goals_are_a_stack_that_is_shown_and_kept(arena: Program) -> None:
    found = ask(
        arena,
        call("push_goal", description="发布 1.2"),
        call("split_goal", parts=["测试", "打包"]),
        call("pop_goal", result="全部通过"),
    )
    last = found[-1]["result"]
    assert "g1.1 is ended." in last
    assert "- current: g1.2 打包 (part of g1)" in last
    arena.agent("dev", {"calls": [call("pop_goal"), call("pop_goal"), call("pop_goal")],
                        "say": "done"}, tools=TOOLS)  # fmt: skip
    again = events_of(arena, "send", "-s", "s", "@dev go on")
    ends = results([event for event in again if event["type"] == "tool_finished"])
    assert [status for status, _ in ends] == ["ok", "ok", "error"]
    assert ends[1][1] == "g1 is ended.\nThere is no open goal."
    changed = [GoalChanged.model_validate(event) for event in again if event["type"] == "goal"]
    assert [(event.action, event.goal.id) for event in changed] == [("pop", "g1.2"), ("pop", "g1")]


def test_ten_goals_at_most(arena: Program) -> None:
    found = ask(arena, *[call("push_goal", description=f"goal {n}") for n in range(11)])
    assert [status for status, _ in results(found)] == ["ok"] * 10 + ["error"]
    assert "10 goals may be open" in found[-1]["result"]
