"""A new kind of event: its shape, who writes it, and its line; every reader shows the rest."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from product import (
    EVENT_TYPES,
    INDENT,
    AgentCall,
    Line,
    Room,
    SideEvent,
    Usage,
    Volatile,
    Who,
    Words,
    after_turn,
    event_lines,
    line,
)
from program import Program

SCENARIO = """\
scenario: A talk about the sky
steps:
  - send: "@dev look up"
    expect: {replied: [dev]}
"""


class Sky:
    """What the writer of the event says of it."""

    color = "blue"


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Program]:
    """A workspace whose engine writes an event of a kind that arena does not have."""

    # 1: its shape
    class Weather(SideEvent):
        type: Literal["weather"] = "weather"
        agent: str
        color: str
        kelvin: Annotated[int, Volatile]

        @property
        def agent_call(self) -> AgentCall:
            return AgentCall("dev", Usage(input_tokens=7_000, output_tokens=1), {}, failed=False)

    # 2: what writes it
    original = after_turn.after_turn
    seen: list[int] = []

    async def after(room: Room) -> None:
        seen.append(0)
        room.journal.write(Weather, agent="dev", color=Sky.color, kelvin=270 + len(seen))
        await original(room)

    monkeypatch.setattr(after_turn, "after_turn", after)

    # 3: its line
    def render(event: Weather, say: Words, who: Who) -> Line:
        return line(INDENT, "the sky is ", event.color, " for ", who(event.agent))

    renderers: dict[Any, Any] = {**event_lines.RENDERERS, Weather: render}
    monkeypatch.setattr(event_lines, "RENDERERS", renderers)
    monkeypatch.setattr(Sky, "color", "blue")

    made = Program(tmp_path)
    made.program("dev", "say", "It is wide.")
    made.team()
    made.scenario(SCENARIO, "sky")
    yield made
    del EVENT_TYPES["weather"]


def test_a_new_kind_of_event_is_seen_by_every_reader(program: Program) -> None:
    sent = program.run("send", "@dev look up", "--session", "s")
    assert "  the sky is blue for dev\n" in sent.stdout
    assert "  the sky is blue for dev\n" in program.run("show", "s").stdout
    records = [json.loads(row) for row in program.run("show", "s", "--json").stdout.splitlines()]
    (weather,) = [record for record in records if record["type"] == "weather"]
    assert (weather["agent"], weather["color"], weather["kelvin"]) == ("dev", "blue", 271)
    assert "the sky is blue for dev" in program.run("show", "s", "--html").stdout
    assert "the sky is blue for dev" in program.run("show", "s", "--agent", "dev").stdout
    audit = json.loads(program.run("export", "s", "--audit", "--format", "json").stdout)
    (entry,) = [entry for entry in audit["entries"] if entry["entry"] == "weather"]
    assert (entry["agent"], entry["color"]) == ("dev", "blue")


def test_the_call_that_it_reports_counts_in_the_usage(program: Program) -> None:
    program.run("send", "@dev look up", "--session", "s")
    rows = json.loads(program.run("usage", "s", "--json").stdout)["rows"]
    assert sum(row["input_tokens"] for row in rows) > 7_000


def test_what_differs_in_it_is_a_difference_but_for_what_varies(program: Program) -> None:
    program.run("send", "@dev look up", "--session", "one")
    program.run("send", "@dev look up", "--session", "two")
    assert program.run("diff", "one", "two").stdout.endswith("no difference\n")
    Sky.color = "grey"
    program.run("send", "@dev look up", "--session", "three")
    different = program.run("diff", "one", "three")
    assert different.code == 1
    assert '"color": "{-blue-}{+grey+}"' in different.stdout
    assert "kelvin" not in different.stdout


def test_it_is_recorded_and_drifts(program: Program) -> None:
    assert program.run("run", "sky", "--record").code == 0
    recording = program.folder / "scenarios" / "recordings" / "sky.jsonl"
    lines = [json.loads(row) for row in recording.read_text(encoding="utf-8").splitlines()]
    (recorded,) = [record for record in lines if record["type"] == "weather"]
    assert recorded == {"type": "weather", "agent": "dev", "color": "blue"}
    assert program.run("run", "sky", "--replay").code == 0
    Sky.color = "grey"
    drifted = program.run("run", "sky", "--replay", "--json")
    assert drifted.code == 1
    (drift,) = json.loads(drifted.stdout)["drift"]
    told = (drift["field"], drift["before"], drift["after"])
    assert told == ("weather", "color: blue", "color: grey")
