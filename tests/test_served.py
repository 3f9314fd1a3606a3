"""`arena mcp`: the tools of an agent for its program, and teams for any client."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import forks
import pytest
from product import (
    Attachment,
    ServedAgent,
    ToolResult,
    ToolSpec,
    make_agent_server,
    session_served,
)
from program import LIMIT_S, Program, until

pytest.importorskip("mcp", reason="the SDK of the Model Context Protocol is not installed")

from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp.shared.exceptions import MCPError

T = TypeVar("T")
PROGRAMS = Path(__file__).parent / "programs"
SCHEMA = {"type": "object", "properties": {"lines": {"type": "integer"}}, "required": ["lines"]}
OUTPUT = {"name": "report", "schema": SCHEMA}
MEMBERS: list[Any] = ["list_members", {}]


class Caller:
    """A team with a program that calls tools by MCP (`programs/call_tools.py`).

    With `fresh`, the program starts arena by the very command that it is given.
    """

    fresh = False

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.program = Program(folder)
        path = folder / ("opencode.cmd" if sys.platform == "win32" else "opencode")
        script = PROGRAMS / "call_tools.py"
        if sys.platform == "win32":
            path.write_text(f'@"{sys.executable}" "{script}" %*\n', encoding="utf-8")
        else:
            path.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{script}" "$@"\n', "utf-8")
            path.chmod(0o755)
        self.program.agent("tester", "I test.")

    def team(self, *, tools: Any = ("list_members",), profile: Any = (), **config: Any) -> Program:
        env = {"CALLS_FOLDER": str(self.folder)}
        if not self.fresh:
            env["CALLS_ARENA"] = json.dumps(forks.list_command())
        adapter = {"type": "opencode", "program": f"./{self._name()}", "env": env}
        keys = {"tools": [*tools], **dict(profile)}
        self.program.agent("coder", adapter=adapter, **keys)
        return self.program.team(**config)

    def _name(self) -> str:
        return "opencode.cmd" if sys.platform == "win32" else "opencode"

    def plan(self, *runs: list[Any]) -> None:
        (self.folder / "calls.json").write_text(json.dumps(runs), encoding="utf-8")

    def results(self) -> list[dict[str, Any]]:
        path = self.folder / "results.jsonl"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        return [json.loads(line) for line in lines]

    def called(self) -> list[tuple[str, bool, str]]:
        return [(r["tool"], r["error"], r["text"]) for r in self.results() if "tool" in r]

    def events(self, *types: str) -> list[dict[str, Any]]:
        return [record for record in self.program.records() if record["type"] in types]


@pytest.fixture
def caller(tmp_path: Path) -> Caller:
    return Caller(tmp_path)


def test_a_program_asks_another_agent(caller: Caller) -> None:
    program = caller.team(tools=["ask_agent"], exchange={"max_turns": 0, "announce": False})
    ask = ["ask_agent", {"agent": "tester", "message": "Is it tested?", "wait_s": 60}]
    caller.plan([[ask], "It says so."])
    done = program.run("send", "-s", "s", "@coder is it tested?")
    assert done.code == 0, done.stderr
    assert caller.called() == [("ask_agent", False, "I test.")]
    (ended,) = caller.events("exchange_finished")
    assert (ended["requester"], ended["target"], ended["end"]) == ("coder", "tester", "limit")


def test_a_program_fetches_an_answer_later(caller: Caller) -> None:
    tools = ["ask_agent", "wait_for_agent", "merge_results"]
    program = caller.team(tools=tools, exchange={"max_turns": 0, "announce": False})
    ask = ["ask_agent", {"agent": "tester", "message": "Is it tested?"}]
    wait = ["wait_for_agent", {"exchange": "1.1", "timeout_s": 60}]
    merge = ["merge_results", {"exchanges": ["1.1", "1.9"]}]
    caller.plan([[ask], [wait], [merge], "It says so."])
    assert program.run("send", "-s", "s", "@coder is it tested?").code == 0
    asked = "accepted: exchange 1.1 with tester takes place after your reply"
    assert caller.called() == [
        ("ask_agent", False, asked),
        ("wait_for_agent", False, "I test."),
        ("merge_results", True, "you began no exchange 1.9"),
    ]


def test_a_program_that_is_asked_calls_its_tools(caller: Caller) -> None:
    replies = ["```ask @coder wait=60\nWho is here?\n```", "It says: ${result}"]
    caller.program.agent("boss", adapter={"type": "scripted", "replies": replies})
    program = caller.team(exchange={"max_turns": 0, "announce": False})
    caller.plan([[MEMBERS], "There are three."])
    done = program.run("send", "-s", "s", "@boss who is here?")
    assert done.code == 0, done.stderr
    assert "It says: There are three." in done.stdout
    (call,) = caller.events("tool_finished")
    assert (call["agent"], call["call"], call["status"]) == ("coder", "b1.s1.1", "ok")


def test_a_program_that_announces_an_exchange_calls_its_tools(caller: Caller) -> None:
    replies = ["```ask @coder wait=60\nWho is here?\n```", "It says: ${result}"]
    caller.program.agent("boss", adapter={"type": "scripted", "replies": replies})
    program = caller.team(exchange={"max_turns": 0})
    caller.plan([[MEMBERS], "There are three."])
    done = program.run("send", "-s", "s", "@boss who is here?")
    assert done.code == 0, done.stderr
    assert [call["call"] for call in caller.events("tool_finished")] == ["b1.s1.1", "b1.say.1"]
    shown = program.run("show", "s", "--steps")
    assert (shown.code, shown.stdout.count("list_members()")) == (0, 2), shown.stderr


def test_calls_of_a_program_are_events_of_its_reply(caller: Caller) -> None:
    caller.fresh = True
    program = caller.team()
    unknown = ["nothing", {}]
    wrong = ["list_members", {"all": True, "more": [1, 2]}]
    caller.plan([["tools"], [MEMBERS], [MEMBERS, unknown, wrong], "There are two."])
    done = program.run("send", "-s", "s", "@coder who is here?")
    assert done.code == 0, done.stderr
    offered = next(result["tools"] for result in caller.results() if "tools" in result)
    assert "list_members" in offered
    requested = caller.events("tool_requested")
    finished = caller.events("tool_finished")
    assert sorted(event["call"] for event in requested) == ["1", "2", "3", "4"]
    assert {event["reply"] for event in (*requested, *finished)} == {1}
    assert [event["status"] for event in finished].count("ok") == 2
    failed = [event["result"] for event in finished if event["status"] != "ok"]
    assert any("there is no tool nothing" in result for result in failed)
    assert any("'all', 'more' were unexpected" in result for result in failed)
    shown = [text for _, is_error, text in caller.called() if not is_error]
    assert len(shown) == 2
    assert all("tester" in text for text in shown)
    (ended,) = caller.events("agent_ended")
    assert (ended["mode"], ended["turns"]) == ("goal", 4)
    (reply,) = [r for r in caller.events("reply_finished") if r["agent"] == "coder"]
    assert reply["message"]["content"] == "There are two."
    assert caller.results()[0]["permission"] == {"*": "deny", "arena_*": "allow"}


def test_the_output_that_a_program_hands_in_is_its_reply(caller: Caller) -> None:
    program = caller.team(tools=[], profile={"output": OUTPUT})
    bad = ["complete_task", {"report": {"lines": "seven"}}]
    good = ["complete_task", {"report": {"lines": 7}}]
    again = ["complete_task", {"report": {"lines": 8}}]
    caller.plan([[bad], [good], [again], "I am done."])
    program.run("send", "-s", "s", "@coder count").check(stdout=None)
    assert [is_error for _, is_error, _ in caller.called()] == [True, False, True]
    assert "'seven' is not of type 'integer'" in caller.called()[0][2]
    (ended,) = caller.events("agent_ended")
    assert (ended["mode"], ended["output"]) == ("goal", {"lines": 7})
    (reply,) = caller.events("reply_finished")
    assert json.loads(reply["message"]["content"]) == {"lines": 7}
    assert reply["usage"]["input_tokens"] == 12
    assert "served_calls" not in reply["metadata"]


def test_a_program_that_hands_nothing_in_says_its_text(caller: Caller) -> None:
    program = caller.team(tools=[], profile={"output": OUTPUT})
    caller.plan(["I could not."])
    program.run("send", "-s", "s", "@coder count").check(stdout=None)
    (ended,) = caller.events("agent_ended")
    assert (ended["mode"], "output" in ended) == ("error_no_complete_task", False)
    assert caller.events("reply_finished")[0]["message"]["content"] == "I could not."


def test_what_was_handed_in_counts_though_the_program_fails_then(caller: Caller) -> None:
    program = caller.team(tools=[], profile={"output": OUTPUT}, retries=0)
    caller.plan([[["complete_task", {"report": {"lines": 7}}]], ["die"], "never said"])
    program.run("send", "-s", "s", "@coder count").check(stdout=None)
    (reply,) = caller.events("reply_finished")
    assert (reply["status"], json.loads(reply["message"]["content"])) == ("success", {"lines": 7})


def test_a_recording_keeps_what_was_handed_in_and_replay_calls_nothing(caller: Caller) -> None:
    program = caller.team(tools=[], profile={"output": OUTPUT})
    complete = ["complete_task", {"report": {"lines": 7}}]
    caller.plan([[MEMBERS, ["nothing", {}]], [complete], "I am done."])
    checks = "replies: {coder: [{contains: '\"lines\": 7'}]}"
    program.scenario(f"scenario: count\nsteps:\n- send: '@coder count'\n  expect: {{{checks}}}\n")
    recorded = program.run("run", "--record")
    assert recorded.code == 0, recorded.stdout + recorded.stderr
    assert len(caller.called()) == 3
    replayed = program.run("run", "--replay")
    assert replayed.code == 0, replayed.stdout + replayed.stderr
    assert len(caller.called()) == 3


def test_rules_of_the_team_hold_for_the_calls_of_a_program(caller: Caller) -> None:
    rule = {"id": "quiet", "on": "tool", "forbid": {"contains": "{}"}, "error": "ask nobody"}
    program = caller.team(rules=[rule])
    caller.plan([[MEMBERS], "I may not."])
    program.run("send", "-s", "s", "@coder who is here?").check(stdout=None)
    (call,) = caller.called()
    assert (call[0], call[1]) == ("list_members", True)
    assert "refused by rule quiet: ask nobody" in call[2]
    (finished,) = caller.events("tool_finished")
    assert finished["status"] == "denied"


def test_what_needs_approval_is_done_once_a_person_has_approved_it(caller: Caller) -> None:
    (caller.folder / "work").mkdir()
    program = caller.team(tools=["write_file"], profile={"workdir": "work"})
    write = ["write_file", {"path": "plan.md", "content": "one\n"}]
    caller.plan([[write], "I asked."], [[write], "It is written."])
    first = program.run("send", "-s", "s", "@coder write the plan")
    assert first.code == 4, first.stderr
    assert not (caller.folder / "work/plan.md").exists()
    assert "You are called again with the decision: request 1" in caller.called()[0][2]
    program.run("approve", "s", "1").check(stdout=None)
    program.run("resume", "s").check(stdout=None)
    assert (caller.folder / "work/plan.md").read_text(encoding="utf-8") == "one\n"
    denied, done = caller.events("tool_finished")
    assert (denied["status"], done["status"]) == ("denied", "ok")
    assert "+one" in done["diff"]


HOLD = """
from pathlib import Path
from time import sleep

def hold() -> None:
    with open("log.txt", "a") as file:
        file.write("held ")
    transcript = Path("sessions/s/transcript.jsonl")
    while transcript.read_text().count('"tool_requested"') < 3:
        sleep(0.02)
"""


def test_a_flow_that_runs_is_approved_again_if_it_is_called_again(caller: Caller) -> None:
    program = caller.team(tools=["run_flow"])
    program.file("work.py", HOLD)
    call = ["run_flow", {"flow": {"flow": "F", "steps": [{"id": "a", "python": "work.py:hold"}]}}]
    caller.plan([[call], "I asked."], [[call, ["wait", "log.txt"], call], "One ran."])
    assert program.run("send", "-s", "s", "@coder go").code == 4
    program.run("approve", "s", "1").check(stdout=None)
    program.run("resume", "s")
    assert (caller.folder / "log.txt").read_text() == "held "
    ends = {event["call"]: event["status"] for event in caller.events("tool_finished")[1:]}
    assert ends == {"1": "ok", "2": "denied"}
    assert len(caller.events("approval_requested")) == 2


def test_a_reply_that_was_cut_short_in_a_call_goes_on_with_its_counts(caller: Caller) -> None:
    program = caller.team()
    caller.plan([[MEMBERS], "first"], [[MEMBERS], "second"])
    program.run("send", "-s", "s", "@coder who is here?").check(stdout=None)
    lines = program.raw().splitlines(keepends=True)
    cut = next(i for i, line in enumerate(lines) if b'"tool_requested"' in line)
    program.transcript().write_bytes(b"".join(lines[: cut + 1]))
    program.run("resume", "s").check(stdout=None)
    assert [event["call"] for event in caller.events("tool_requested")] == ["1", "2"]
    first, second = caller.events("tool_finished")
    assert (first["call"], first["status"]) == ("1", "error")
    assert "interrupted" in first["result"]
    assert (second["call"], second["status"]) == ("2", "ok")
    (reply,) = [r for r in caller.events("reply_finished") if r["agent"] == "coder"]
    assert reply["message"]["content"] == "second"


def test_nothing_is_left_when_arena_is_interrupted_in_a_call(caller: Caller) -> None:
    if sys.platform == "win32":
        pytest.skip("signals of POSIX")
    caller.fresh = True
    program = caller.team()
    caller.plan([[MEMBERS], ["stay"], "never said"])
    running = program.start("send", "-s", "s", "@coder who is here?")
    until(lambda: any("stays" in result for result in caller.results()))
    running.send_signal(signal.SIGINT)
    assert program.finish(running).code == 130
    import psutil

    left = [p for p in psutil.process_iter(["cmdline"]) if str(caller.folder) in _words(p)]
    assert left == []
    (ended,) = caller.events("reply_finished")
    assert ended["status"] == "cancelled"
    assert not list((caller.folder / "sessions/s").glob("calls-*"))


def _words(process: Any) -> str:
    return " ".join(process.info["cmdline"] or [])


# A session that no process holds, by a client of its own.


def using(program: Program, *args: str, use: Callable[[Client], Awaitable[T]]) -> T:
    """Use a server that `arena mcp` runs as a real process."""
    command, *words = forks.list_command("mcp", *args)
    server = StdioServerParameters(
        command=command,
        args=words,
        env=program.environment(),
        cwd=program.folder,
    )

    async def run() -> T:
        async with asyncio.timeout(LIMIT_S), Client(server) as client:
            return await use(client)

    return asyncio.run(run())


def text_of(result: Any) -> str:
    text: str = result.content[0].text
    return text


def test_tools_of_a_session_that_no_process_holds(caller: Caller) -> None:
    program = caller.team(profile={"output": OUTPUT})
    caller.plan(["hello"])
    program.run("send", "-s", "s", "@coder hello").check(stdout=None)
    before = program.raw()

    async def use(client: Client) -> list[Any]:
        listed = (await client.list_tools()).tools
        assert {"complete_task", "list_members"} <= {tool.name for tool in listed}
        calls = (("list_members", {}), ("complete_task", {"report": {"lines": 1}}), ("none", {}))
        return [await client.call_tool(name, arguments) for name, arguments in calls]

    members, completed, unknown = using(program, "-s", "s", "--agent", "coder", use=use)
    assert not members.is_error
    assert json.loads(text_of(members))[1]["id"] == "tester"
    assert completed.is_error
    assert "no reply of coder is running" in text_of(completed)
    assert unknown.is_error
    assert "there is no tool none" in text_of(unknown)
    assert program.raw() == before


DUMP = """
def dump():
    return "x" * (16_384 - 8) + " sk-" + "q" * 20
"""


def test_calls_without_a_reply_are_refused_and_redacted_as_in_one(caller: Caller) -> None:
    caller.program.file("dump.py", DUMP)
    caller.program.file("app/x.txt", "one\n")
    rule = {"id": "no_payroll", "on": "tool", "forbid": {"contains": "payroll"}}
    program = caller.team(
        tools=["write_file", "python:dump.py:dump"], profile={"workdir": "app"}, rules=[rule]
    )
    program.file("arena.yaml", json.dumps({"team": "crew", "redact": ["sk-q+"]}))
    caller.plan(["hello"])
    program.run("send", "-s", "s", "@coder hello").check(stdout=None)
    before = program.raw()

    async def use(client: Client) -> list[Any]:
        calls: tuple[Any, ...] = (
            ("write_file", {"path": "x.txt", "content": "two\n"}),
            ("search_history", {"query": "payroll"}),
            ("search_history", {"query": "hello"}),
            ("dump", {}),
        )
        return [await client.call_tool(name, arguments) for name, arguments in calls]

    written, refused, found, dumped = using(program, "-s", "s", "--agent", "coder", use=use)
    assert "only one can ask for approval" in text_of(written)
    assert (program.folder / "app/x.txt").read_text() == "one\n"
    assert "refused by rule no_payroll" in text_of(refused)
    assert [result.is_error for result in (written, refused, found, dumped)] == [
        True,
        True,
        False,
        False,
    ]
    assert text_of(dumped).endswith("x [redact")
    assert "sk-" not in text_of(dumped)
    assert program.raw() == before


class _Offering(ServedAgent):
    """An agent with one tool, whose name no program takes; it returns a list and a picture."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.called: list[str] = []

    async def list_tools(self) -> list[ToolSpec]:
        return [ToolSpec(name="读 notes.all", description="Read.", input_schema={"type": "object"})]

    async def call_tool(self, tool: str, arguments: Mapping[str, Any]) -> ToolResult:
        self.called.append(tool)
        picture = Attachment(name="a.png", path="sessions/a.png")
        return ToolResult(text=self.text, attachments=[picture])


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("[1, 2]", {"result": [1, 2]}),
        ('{"a": 1}', None),
        ("no JSON", None),
        ("NaN", None),
        ("[" * 100_000, None),
    ],
)
def test_a_tool_is_served_as_programs_take_it(tmp_path: Path, text: str, value: Any) -> None:
    (tmp_path / "sessions").mkdir()
    (tmp_path / "sessions" / "a.png").write_bytes(b"png")
    agent = _Offering(text)

    async def use() -> tuple[Any, Any]:
        async with Client(make_agent_server(agent, tmp_path)) as client:
            result = await client.call_tool("__notes_all", {})
            return (await client.list_tools()).tools, result

    tools, result = asyncio.run(use())
    assert [tool.name for tool in tools] == ["__notes_all"]
    assert agent.called == ["读 notes.all"]
    assert text_of(result) == text
    assert result.structured_content == value
    assert result.content[1].data == base64.b64encode(b"png").decode()


def test_a_session_that_is_busy_with_others_says_so(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server is one in this process, where the patience of ten seconds can be shorter."""
    monkeypatch.setattr(session_served, "_PATIENCE_S", 0.1)
    program = caller.team()
    caller.plan([["stay"], "never said"])
    running = program.start("send", "-s", "s", "@coder stay")
    until(lambda: any("stays" in result for result in caller.results()))

    def open_team() -> Any:
        raise AssertionError("the session is held by another process")

    async def use() -> str:
        agent = ServedAgent(program.transcript().parent, "tester", open_team)
        async with Client(make_agent_server(agent, program.folder)) as client:
            with pytest.raises(MCPError) as caught:
                await client.call_tool("list_members", {})
        return str(caught.value)

    try:
        assert "session s is busy, and no reply of tester is running in it" in asyncio.run(use())
    finally:
        running.terminate()
        program.finish(running)


def test_a_server_that_cannot_serve_says_why(caller: Caller) -> None:
    program = caller.team()
    caller.plan(["hello"])
    program.run("send", "-s", "s", "@coder hello").check(stdout=None)
    for args, problem in (
        (["-s", "s"], "--session and --agent belong together"),
        (["--agent", "coder"], "--session and --agent belong together"),
        (["-s", "nosuch", "--agent", "coder"], "there is no session 'nosuch'"),
        (["-s", "s", "--agent", "nobody"], "no member of this team has the id 'nobody'"),
    ):
        done = program.run("mcp", *args)
        assert (done.code, done.stdout) == (2, "")
        assert done.stderr.startswith(f"arena: {problem}\n")


# Teams for any client.


@pytest.fixture
def desk(tmp_path: Path) -> Program:
    program = Program(tmp_path)
    first = {"when": {"call": 1}, "say": "@tester please test it."}
    program.agent("dev", first, "Done.", skills=["Python"])
    program.agent("tester", "It works.")
    program.file("sessions/knowledge/decisions/db.md", NOTE)
    return program.team()


NOTE = """\
---
id: decisions/db
kind: decision
title: We use PostgreSQL
status: draft
---
The database is PostgreSQL.
"""


def test_a_client_sends_messages_to_a_team(desk: Program) -> None:
    heard: list[tuple[float, str | None]] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, message))

    async def use(client: Client) -> list[Any]:
        tools = [tool.name for tool in (await client.list_tools()).tools]
        assert tools == ["send_to_team", "list_teams", "list_agents", "search_notes"]
        first = await client.call_tool(
            "send_to_team", {"message": "@dev build it"}, progress_callback=on_progress
        )
        session = first.structured_content["session"]
        second = await client.call_tool(
            "send_to_team", {"message": "@dev and now?", "session": session}
        )
        return [first, second]

    first, second = using(desk, use=use)
    session = first.structured_content["session"]
    replies = first.structured_content["replies"]
    assert [(r["author"], r["content"]) for r in replies] == [
        ("dev", "@tester please test it."),
        ("tester", "It works."),
    ]
    end = {key: first.structured_content[key] for key in ("end", "exit_code", "failures")}
    assert end == {"end": "quiet", "exit_code": 0, "failures": []}
    assert text_of(first).startswith("dev (@dev):\n@tester please test it.")
    assert text_of(first).endswith(f"[session {session}, quiet]")
    assert heard == [(1, "dev: @tester please test it."), (2, "tester: It works.")]
    assert second.structured_content["session"] == session
    assert [r["content"] for r in second.structured_content["replies"]] == ["Done."]


def test_calls_at_once_for_one_session_wait_for_each_other(desk: Program) -> None:
    desk.agent("slow", {"delay_s": 0.3, "say": "done"})
    desk.team()

    async def use(client: Client) -> list[Any]:
        calls = [
            client.call_tool("send_to_team", {"message": "@slow work", "session": name})
            for name in ("day", "Day")
        ]
        return await asyncio.gather(*calls)

    for result in using(desk, use=use):
        assert [reply["content"] for reply in result.structured_content["replies"]] == ["done"]
    types = [record["type"] for record in desk.records("day")]
    steps = [name for name in types if name in ("reply_started", "chain_finished")]
    assert steps == ["reply_started", "chain_finished"] * 2


def test_a_client_lists_teams_agents_and_notes(desk: Program) -> None:
    async def use(client: Client) -> list[Any]:
        names = ("list_teams", "list_agents", "search_notes")
        calls = zip(names, ({}, {}, {"query": "database PostgreSQL"}), strict=True)
        return [await client.call_tool(name, arguments) for name, arguments in calls]

    teams, agents, notes = (result.structured_content for result in using(desk, use=use))
    assert teams == {"teams": [{"team": "crew", "description": "", "members": ["dev", "tester"]}]}
    assert agents["agents"][0] == {
        "id": "dev",
        "name": "dev",
        "kind": "scripted",
        "skills": ["Python"],
    }
    assert [note["title"] for note in notes["notes"]] == ["We use PostgreSQL"]


def test_calls_that_cannot_be_made_are_error_results(desk: Program) -> None:
    message = {"message": "hi"}
    problems: list[tuple[str, dict[str, Any], str]] = [
        ("send_to_team", {}, "'message' is a required property"),
        ("send_to_team", {"message": 5}, "is not of type 'string'"),
        ("send_to_team", {"message": " "}, "the message is empty"),
        ("send_to_team", {**message, "team": "nosuch"}, "there is no team `nosuch`"),
        ("send_to_team", {**message, "session": "../x"}, "../x"),
        ("search_notes", {"query": "x", "kind": "wish"}, "'wish' is not one of"),
        ("search_notes", {"query": "x", "limit": 0}, "less than the minimum"),
        ("drop_team", {}, "there is no tool drop_team; there are: send_to_team"),
    ]

    async def use(client: Client) -> None:
        for tool, arguments, problem in problems:
            failed = await client.call_tool(tool, arguments)
            assert failed.is_error, arguments
            assert problem in text_of(failed)
            assert not (await client.call_tool("list_teams", {})).is_error

    using(desk, use=use)


def test_a_workspace_that_is_not_trusted_starts_nothing(caller: Caller) -> None:
    program = caller.team()
    caller.plan(["hello"])
    program.env["ARENA_TRUST"] = ""

    async def use(client: Client) -> Any:
        return await client.call_tool("send_to_team", {"message": "@coder hello"})

    result = using(program, use=use)
    assert result.is_error
    assert "is not trusted yet" in text_of(result)
    assert caller.results() == []


def test_files_that_broke_meanwhile_are_told_in_the_result(desk: Program) -> None:
    async def use(client: Client) -> Any:
        desk.file("agents/dev.yaml", "agent_id: dev\nadapter: {type: nosuch}\n")
        return await client.call_tool("send_to_team", {"message": "hello"})

    result = using(desk, use=use)
    assert result.is_error
    assert "agents/dev.yaml:2" in text_of(result)


def test_a_failure_of_an_agent_is_in_the_result(desk: Program) -> None:
    desk.program("broken", "exit=3")
    desk.team(retries=0)

    async def use(client: Client) -> Any:
        return await client.call_tool("send_to_team", {"message": "@broken go"})

    value = using(desk, use=use).structured_content
    assert (value["end"], value["exit_code"], value["replies"]) == ("failed", 3, [])
    assert value["failures"][0]["author"] == "broken"


def greeted(desk: Program) -> subprocess.Popen[bytes]:
    """A server that has answered its first request, and whose stdin is open."""
    client = {"capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    params = {"protocolVersion": "2025-06-18", **client}
    hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    running = desk.start("mcp", stdin=subprocess.PIPE)
    assert running.stdin
    assert running.stdout
    running.stdin.write(json.dumps(hello).encode() + b"\n")
    running.stdin.flush()
    assert json.loads(running.stdout.readline())["result"]["serverInfo"]["name"] == "arena"
    return running


def test_it_ends_with_its_stdin_and_writes_only_the_protocol(desk: Program) -> None:
    done = desk.finish(greeted(desk), b"no json\n")
    assert done.code == 0
    assert all(json.loads(line)["jsonrpc"] == "2.0" for line in done.stdout.splitlines())


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_ctrl_c_ends_it_while_its_stdin_is_open(desk: Program) -> None:
    running = greeted(desk)
    running.send_signal(signal.SIGINT)
    assert running.wait(LIMIT_S) == 130
    for stream in (running.stdin, running.stdout, running.stderr):
        assert stream
        stream.close()


@pytest.mark.real_program
@pytest.mark.parametrize("served", ["teams", "agent"])
def test_the_inspector_of_the_protocol_finds_nothing_wrong(caller: Caller, served: str) -> None:
    inspector = shutil.which("mcp-inspector")
    if inspector is None:
        pytest.skip("npm install -g @modelcontextprotocol/inspector")
    program = caller.team()
    caller.plan(["hello"])
    program.run("send", "-s", "s", "@coder hello").check(stdout=None)
    args, tool = (["-s", "s", "--agent", "coder"], "list_members")
    if served == "teams":
        args, tool = [], "list_teams"
    command = [sys.executable, "-m", "arena_cli", "-w", str(program.folder), "mcp", *args]

    def inspect(*options: str) -> dict[str, Any]:
        ran = subprocess.run(
            [inspector, "--cli", *command, *options],
            env={**program.environment(), "PATH": os.environ["PATH"]},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=LIMIT_S,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr.decode()
        found: dict[str, Any] = json.loads(ran.stdout)
        return found

    assert tool in [found["name"] for found in inspect("--method", "tools/list")["tools"]]
    result = inspect("--method", "tools/call", "--tool-name", tool)
    assert not result.get("isError")
    assert "coder" in result["content"][0]["text"]
