"""Replies with tools in every report: costs, audits, filters, comparisons, states, pages, text."""

from __future__ import annotations

import asyncio
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from product import (
    LONGEST_ROW,
    REDACTED,
    AgentInput,
    AgentOutput,
    Emit,
    Health,
    Session,
    SessionConfig,
    Settings,
    Setup,
    TextDelta,
    find,
    read_status,
)
from product import outgoing_outgoing as outgoing
from program import Program
from support import Puppets, Talk, member, puppet, team
from test_html import HOSTILE, read
from tools import ONCE, SLOW, TWICE, FakeTool, asks, offer, scripted

COST = {"input_tokens": 100, "output_tokens": 10, "cost_usd": 0.001}
TASK = {"task": "Where is add?"}


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """`dev` lists the members and calls `ops` as a tool, which lists them too."""
    made = Program(tmp_path)
    calls: list[Any] = [
        [{"tool": "list_members"}, {"tool": "nope", "arguments": {"path": HOSTILE}}],
        {"tool": "agent:ops", "arguments": TASK},
    ]
    answer = {"say": "Found it.", "usage": COST, "calls": calls}
    made.agent("dev", answer, tools=["list_members", "agent:ops"])
    own = {"say": "In calc.py.", "usage": COST, "calls": [{"tool": "list_members"}]}
    made.agent("ops", own, tools=["list_members"])
    made.team(selection="none")
    return made


def send(program: Program, name: str = "s") -> None:
    program.run("send", "-s", name, "-q", "@dev go").check()


def acts(program: Program, *args: str) -> list[str]:
    """The lines of calls that the program prints."""
    return [line for line in program.run(*args).check().stdout.splitlines() if "▸" in line]


def test_show_prints_calls_and_with_steps_their_results(program: Program) -> None:
    sent = program.run("send", "-s", "s", "@dev go").check().stdout
    lines = [line for line in sent.splitlines() if "▸" in line]
    assert [line.strip().split("(")[0] for line in lines] == [
        "▸ list_members",
        "▸ nope",
        "▸ agent:ops",
        "▸ list_members",
    ]
    assert lines[2:] == [
        '  ▸ agent:ops(task: "Where is add?") · 2 turns of the model · $0.0020 → In calc.py.',
        "    ▸ list_members() · ops",
    ]
    assert acts(program, "show", "s") == lines
    steps = program.run("show", "s", "--steps").check().stdout
    assert '    | [{"id": "dev"' in steps
    assert "used:" not in steps
    events = program.run("show", "s", "--json").stdout
    assert program.run("show", "s", "--json", "--steps").stdout == events


def test_usage_and_audit_count_a_colleague_once(program: Program) -> None:
    send(program)
    document = json.loads(program.run("usage", "--json").check().stdout)
    rows = {(row["name"], row["memory"]): row for row in document["rows"]}
    assert {key: row["calls"] for key, row in rows.items()} == {
        ("dev", False): 1,
        ("ops", False): 1,
    }
    assert [rows[name, False]["cost_usd"] for name in ("dev", "ops")] == [0.003, 0.002]
    audit = json.loads(program.run("export", "s", "--audit", "--format", "json").stdout)
    assert audit["agents"]["ops"]["cost_usd"] == 0.002
    assert audit["total"]["cost_usd"] == 0.005
    assert "tool_finished" not in audit["total"]
    entries = [entry["entry"] for entry in audit["entries"]]
    assert entries.count("tool_requested") == entries.count("tool_finished") == 4


def test_each_agent_has_its_calls_by_agent(program: Program) -> None:
    send(program)
    whole = acts(program, "show", "s")
    assert acts(program, "show", "s", "--agent", "dev") == whole
    assert acts(program, "show", "s", "--turn", "1") == whole
    ops = program.run("show", "s", "--agent", "ops").check()
    assert [line for line in ops.stdout.splitlines() if "▸" in line] == whole[3:]
    assert ops.stdout.endswith("  Found it.\n\n")
    assert ops.stderr == ""


def test_two_sessions_differ_in_what_tools_gave_not_in_which_ended_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def talk(name: str, late: str, number: int) -> list[str]:
        """Two calls side by side, of which `late` ends last; the order in which they ended."""
        gate = asyncio.Event()

        def make(tool: str) -> FakeTool:
            async def answer(arguments: Any) -> str:
                if tool == late:
                    await gate.wait()
                gate.set()
                return f"{tool} {arguments['n']}"

            return FakeTool(tool, answer)

        offer(monkeypatch, make(ONCE), make(TWICE))
        model = scripted(asks((ONCE, {"n": number}), (TWICE, {"n": 1})), "Done.")
        members = team(puppet("dev", tools=[ONCE, TWICE]))
        talk = Talk(tmp_path, members, name, adapter_type=Puppets({"dev": model}))
        talk.send("@dev go")
        return [event.tool for event in talk.of("tool_finished")]

    assert talk("one", TWICE, 1) == [ONCE, TWICE]
    assert talk("two", ONCE, 1) == [TWICE, ONCE]
    talk("three", TWICE, 2)
    program = Program(tmp_path)
    program.file("arena.yaml", "")
    assert program.run("diff", "one", "two").stdout.endswith("no difference\n")
    different = program.run("diff", "one", "three")
    assert different.code == 1
    assert f'"result": "{ONCE} {{-1-}}{{+2+}}"' in different.stdout


def test_the_status_names_the_tool_that_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, str]] = []
    members = team(puppet("dev", tools=[SLOW]))

    def look(_: Any = None) -> str:
        stored = find(tmp_path, "talk")
        (agent,) = read_status(tmp_path, stored, members).agents
        seen.append((agent.state, agent.detail))
        return "seen"

    offer(monkeypatch, FakeTool(SLOW, look))
    model = scripted(asks((SLOW, {})), "Done.")

    def answer(shown: Any) -> Any:
        if shown.steps:
            look()
        return model(shown)

    Talk(tmp_path, members, adapter_type=Puppets({"dev": answer})).send("@dev go")
    assert seen == [("running", f"calling_tool: {SLOW}"), ("running", "generating")]


def test_a_page_folds_steps_and_shows_hostile_text_as_text(program: Program) -> None:
    send(program)
    page = read(program.run("show", "s", "--html").check().stdout)
    acts = page.all(cls="act")
    assert [(act.tag, act.classes[-1]) for act in acts] == [
        ("details", "within-0"),
        ("details", "within-0"),
        ("div", "within-0"),
        ("details", "within-1"),
    ]
    assert acts[0].one("summary").text == "list_members()"
    assert '"id": "dev"' in acts[0].one(cls="code").text
    assert "<img src=x onerror=alert(1)>" in acts[1].text
    assert acts[2].text == (
        'agent:ops(task: "Where is add?") · 2 turns of the model · $0.0020 → In calc.py.'
    )
    (card,) = page.all(cls="card", tag="div")[1:]
    assert "3 turns of the model" in card.one(cls="facts").text


def test_a_page_has_diffs_thoughts_and_files_and_what_a_running_reply_did(
    program: Program,
) -> None:
    send(program)
    records = program.records()
    image = {"type": "image", "name": "图.png", "path": "sessions/s/图.png", "size": 9}
    more = {"diff": "--- a\n+++ b\n-old\n+new\n", "attachments": [image]}
    kept = []
    for record in records:
        if record["type"] == "agent_ended" and "within" not in record:
            break
        if record["type"] == "tool_finished" and record["call"] == "1":
            record.update(more)
        kept.append(record)
    base = {"reply": 1, "agent": "dev", "ts": records[-1]["ts"]}
    text = "One.\n" + "z" * (LONGEST_ROW + 1)
    kept.append({"type": "thought", **base, "step": 1, "text": text, "kind": "thinking"})
    kept[-1]["seq"] = len(kept)
    lines = [json.dumps(record, ensure_ascii=False) + "\n" for record in kept]
    program.file("sessions/t/transcript.jsonl", "".join(lines))
    page = read(program.run("show", "t", "--html").check().stdout)
    assert "no answer yet" in page.text
    thought, listed, *_ = page.all("details", "act")
    assert thought.one("summary").text == "thinking: One."
    assert "z" * (LONGEST_ROW + 1) in thought.text
    assert "[image: 图.png, 9 bytes at sessions/s/图.png]" in listed.text
    assert (listed.texts(cls="added"), listed.texts(cls="removed")) == (["+new"], ["-old"])
    shown = program.run("show", "t").check().stdout
    assert "dev · no answer yet\n  ▸ list_members()\n    | --- a\n" in shown
    problems = program.run("doctor", "t")
    assert problems.code == 1
    assert "attachment 图.png" in problems.stdout + problems.stderr


def test_a_renamed_session_finds_the_files_of_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer(monkeypatch, FakeTool(ONCE, lambda _: "x" * 20_000))
    model = scripted(asks((ONCE, {})), "Done.")
    members = team(puppet("dev", tools=[ONCE]))
    Talk(tmp_path, members, "old", adapter_type=Puppets({"dev": model})).send("@dev go")
    program = Program(tmp_path)
    program.file("arena.yaml", "")
    program.run("doctor", "old").check()
    (tmp_path / "sessions" / "old").rename(tmp_path / "sessions" / "new")
    program.run("doctor", "new").check()
    records = [json.loads(row) for row in program.run("show", "new", "--json").stdout.splitlines()]
    (done,) = [record for record in records if record["type"] == "tool_finished"]
    (file,) = done["attachments"]
    content = (tmp_path / file["path"]).read_bytes()
    assert hashlib.sha256(content).hexdigest() == file["sha256"]


# Text as it grows


def deltas(stdout: str) -> list[dict[str, Any]]:
    records = [json.loads(line) for line in stdout.splitlines()]
    return [record for record in records if record["type"] == "delta"]


def test_programs_get_text_as_it_grows(program: Program) -> None:
    program.program("slow", "read", "say", "so far 你好 ", "say", "and on\x1b[31m now ")
    program.team(selection="none")
    done = program.run("send", "-s", "s", "--json", "--deltas", "@slow go")
    assert done.code == 0
    found = deltas(done.stdout)
    assert {record["agent"] for record in found} == {"slow"}
    assert "".join(record["text"] for record in found).startswith("so far 你好 and on")
    assert all(set(record) == {"type", "agent", "text"} for record in found)
    rest = [line for line in done.stdout.splitlines() if json.loads(line)["type"] != "delta"]
    assert "".join(f"{line}\n" for line in rest) == program.run("show", "s", "--json").stdout
    types = [json.loads(line)["type"] for line in done.stdout.splitlines()]
    assert types.index("reply_started") < types.index("delta") < types.index("reply_finished")
    plain = program.run("send", "-c", "--json", "@slow again").stdout
    assert deltas(plain) == []


@pytest.mark.parametrize("command", [("send", "-s", "s", "@dev go"), ("resume",)])
def test_deltas_are_for_programs(program: Program, command: tuple[str, ...]) -> None:
    program.run(*command, "--deltas").check(
        code=2,
        stdout="",
        stderr="arena: --deltas was given without --json\n  Give both, or none.\n",
    )


class Keyed(Settings):
    api_key: str


class Talker:
    """An agent that writes in pieces; `dev` calls `ops` first."""

    settings_type = Keyed

    def __init__(self, setup: Setup) -> None:
        self.agent = setup.agent_id

    async def start(self) -> None: ...

    async def invoke(self, input: AgentInput, emit: Emit) -> AgentOutput:
        if self.agent == "dev" and not input.steps:
            return asks(("agent:ops", TASK))
        for piece in ("the key is hun", f"ter22-is-it, {self.agent} "):
            emit(TextDelta(piece))
        return AgentOutput(content="done")

    async def health(self) -> Health:
        return Health(True)

    async def stop(self) -> None: ...


def test_whoever_calls_a_colleague_gets_its_text_redacted(tmp_path: Path) -> None:
    pieces: list[tuple[str, str]] = []
    tails: list[tuple[str, str]] = []
    key = {"type": "talker", "api_key": "${env:KEY}"}
    members = team(
        member("dev", adapter=key, tools=["agent:ops"]),
        member("ops", adapter=key),
        selection="none",
    )
    place = SessionConfig(
        workspace=tmp_path,
        durability="flush",
        environ={"KEY": "hunter22-is-it"},
        adapter_type=lambda _: Talker,
        on_delta=lambda *piece: pieces.append(piece),
    )
    with Session(place, "s", members, on_text=lambda *tail: tails.append(tail)) as session:
        asyncio.run(session.last(session.send(outgoing(members, "@dev go"))))
    texts: dict[str, str] = {}
    for agent, piece in pieces:
        texts[agent] = texts.get(agent, "") + piece
    assert texts == {agent: f"the key is {REDACTED}, {agent} " for agent in ("ops", "dev")}
    assert [agent for agent, _ in pieces] == ["ops", "ops", "dev", "dev"]
    assert {agent for agent, _ in tails} == {"dev"}
    assert tails[1] == ("dev", texts["ops"])


@pytest.mark.parametrize(
    "command",
    [
        ("send", "-c", "@plain again"),
        ("show", "s"),
        ("show", "s", "--html"),
        ("status",),
        ("usage",),
        ("diff", "s", "s"),
        ("export", "s", "--audit"),
    ],
    ids=" ".join,
)
def test_a_session_without_tools_pays_nothing_for_them(
    program: Program, command: tuple[str, ...]
) -> None:
    (program.folder / "agents" / "dev.yaml").unlink()
    (program.folder / "agents" / "ops.yaml").unlink()
    program.agent("plain", "one", "two")
    program.team(selection="none")
    program.run("send", "-s", "s", "-q", "@plain go").check()
    lazy = ("acting_lines", "acting_events")
    assert [name for name in program.list_imported(*command) if name.endswith(lazy)] == []
