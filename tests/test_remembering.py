"""A team that remembers: notes are taken at a turn's end, and found again when they matter."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support import Puppets, Talk, puppet, team

from arena_cli.context import render
from arena_cli.ground.protocol import AgentInput, AgentOutput, StructuredContent, Usage
from arena_cli.session import examine
from arena_cli.session.session import Place, Session
from arena_cli.team.model import Member

SMALL = {"window_tokens": 1_200, "reserved_output_tokens": 0}
NOTE = (
    "Agreed.\n```note\nkind: decision\ntitle: We use PostgreSQL 16\n\nIt has row security.\n```\n"
)


@dataclass
class Memories(Talk):
    """A talk with an extracting agent, or none."""

    extractor: Member | None = None

    def open(self) -> Session:
        session = super().open
        if self.extractor is None:
            return session()
        place = Place(
            workspace=self.workspace,
            durability="flush",
            clock=self.clock,
            wait_s=0,
            adapter_type=self.adapter_type,
            extractor=self.extractor,
        )
        return Session(place, self.name, self.team, on_event=self.events.append)

    @property
    def folder(self) -> Path:
        return self.workspace / "sessions" / str(self.name) / "knowledge"

    def notes(self) -> dict[str, str]:
        return {one.stem: one.read_text(encoding="utf-8") for one in self.folder.glob("*.md")}


def memories(folder: Path, answers: dict[str, Any], **config: Any) -> tuple[Memories, Puppets]:
    puppets = Puppets(answers)
    members = [puppet(name, context=SMALL) for name in answers if name != "scribe"]
    talk = Memories(folder, team(*members, selection="none", **config), adapter_type=puppets)
    return talk, puppets


def prompt_of(shown: AgentInput) -> str:
    return render.render(shown)[1]


def test_what_an_agent_writes_as_a_note_is_one(tmp_path: Path) -> None:
    talk, _ = memories(tmp_path, {"dev": lambda _: NOTE})
    talk.send("@dev which database?")
    (event,) = talk.of("note")
    assert (event.act, event.by, event.kind, event.status) == ("added", "dev", "decision", "draft")
    assert event.message == talk.last("reply_finished").message.id
    text = talk.notes()[event.note]
    assert "title: We use PostgreSQL 16" in text
    assert "It has row security." in text
    order = [one.type for one in talk.events]
    assert order.index("reply_finished") < order.index("note") < order.index("turn_finished")


def test_structured_notes_count_too_and_what_is_none_is_refused_with_a_reason(
    tmp_path: Path,
) -> None:
    good = StructuredContent(type="note", data={"kind": "pit", "title": "Port 80 is taken"})
    bad = StructuredContent(type="note", data={"kind": "opinion", "title": "Nice"})
    talk, _ = memories(
        tmp_path, {"dev": lambda _: AgentOutput(content="x", structured=[good, bad])}
    )
    talk.send("@dev go")
    acts = {event.act: event for event in talk.of("note")}
    assert acts["added"].note == "pit-port-80-is-taken"
    assert acts["refused"].note == ""
    assert "opinion" in acts["refused"].reason


def test_rules_take_notes_of_what_people_decide_in_any_language(tmp_path: Path) -> None:
    talk, _ = memories(tmp_path, {"dev": lambda _: "好的"})
    talk.send("@dev 我们决定采用 PostgreSQL。")
    (event,) = talk.of("note")
    assert (event.by, event.kind, event.message) == ("rules", "decision", "m2")
    quiet, _ = memories(tmp_path / "off", {"dev": lambda _: "好的"}, memory={"rules": False})
    quiet.send("@dev 我们决定采用 PostgreSQL。")
    assert not quiet.of("note")


def test_the_same_thing_again_is_counted_and_makes_no_new_file(tmp_path: Path) -> None:
    talk, _ = memories(tmp_path, {"dev": lambda _: "ok"})
    talk.send("@dev Decision: we use PostgreSQL 16.")
    talk.send("@dev Decision: we use PostgreSQL 16!")
    assert [event.act for event in talk.of("note")] == ["added", "seen"]
    ((_, text),) = talk.notes().items()
    assert "occurrences: 2" in text


def test_a_decision_is_shown_whole_when_it_is_old_and_a_note_when_it_bears_on_the_call(
    tmp_path: Path,
) -> None:
    talk, puppets = memories(tmp_path, {"dev": lambda _: "word " * 60})
    talk.send("@dev Decision: we use PostgreSQL 16 and nothing else.")
    talk.send("@dev Blocker: the staging certificate is expired.")
    for number in range(20):
        talk.send(f"@dev go on with part {number}")
    assert not any("staging" in one.content for one in puppets.inputs["dev"][-1].messages)
    talk.send("@dev what about the certificate of staging?")
    shown = puppets.inputs["dev"][-1]
    assert any("PostgreSQL 16" in one.content for one in shown.messages)
    assert "the staging certificate is expired" in prompt_of(shown)
    started = talk.last("reply_started")
    assert started.notes == ["blocker-the-staging-certificate-is-expired"]


def test_a_note_that_is_edited_by_hand_half_way_is_shown_as_it_stands_then(tmp_path: Path) -> None:
    talk, puppets = memories(tmp_path, {"dev": lambda _: "word " * 60})
    talk.send("@dev Blocker: the staging certificate is expired.")
    for number in range(12):
        talk.send(f"@dev go on with part {number}")
    (path,) = talk.folder.glob("*.md")
    text = path.read_text(encoding="utf-8")
    path.write_text(text + "\nAsk 小王 for a new one.\n", encoding="utf-8")
    talk.send("@dev is the staging certificate there?")
    assert "Ask 小王 for a new one." in prompt_of(puppets.inputs["dev"][-1])


def test_a_note_with_broken_front_matter_is_told_and_the_rest_goes_on(tmp_path: Path) -> None:
    talk, _ = memories(tmp_path, {"dev": lambda _: "ok"})
    talk.send("@dev Decision: we use PostgreSQL 16.")
    (talk.folder / "pit-x.md").write_text("---\nkind: [pit\n---\nx\n", encoding="utf-8")
    told: list[str] = []
    place = Place(talk.workspace, durability="flush", clock=talk.clock, wait_s=0)
    place = dataclasses.replace(
        place, adapter_type=talk.adapter_type, on_problem=lambda fault: told.append(str(fault))
    )
    import asyncio

    from support import outgoing

    with Session(place, "talk", talk.team) as session:
        ended = asyncio.run(session.last(session.send(outgoing(talk.team, "@dev go on"))))
    assert ended.end == "quiet"
    assert len(told) == 1
    assert "sessions/talk/knowledge/pit-x.md:2" in told[0]


def test_another_run_writes_the_same_and_a_cut_short_one_goes_on_to_the_same(
    tmp_path: Path,
) -> None:
    from arena_cli.transcript import canonical

    answers = {"dev": lambda _: NOTE + "@ops please deploy", "ops": lambda _: "Blocker: no access."}
    told = []
    for name in ("one", "two"):
        talk, _ = memories(tmp_path / name, answers)
        talk.send("@dev Requirement: data must be deletable.")
        told.append(canonical.of(talk.events))
    assert told[0] == told[1]

    class Crash(Exception):
        pass

    count = [0]

    def crash(event: Any) -> None:
        count[0] += event.type == "note"
        if count[0] == 2:
            count[0] += 1
            raise Crash

    talk, _ = memories(tmp_path / "cut", answers)
    talk.on_event = crash
    with pytest.raises(Crash):
        talk.send("@dev Requirement: data must be deletable.")
    talk.resume()
    from arena_cli.transcript import read

    events = [event for line in read.lines(talk.transcript) for event in line.events]
    assert canonical.of(events) == told[0]


def test_a_blocker_that_a_reply_ignores_is_told(tmp_path: Path) -> None:
    replies = iter(["ok", "I deploy the payment service to production now."])
    talk, _ = memories(tmp_path, {"dev": lambda _: next(replies)})
    talk.send("@dev Blocker: deploying the payment service is blocked by the missing audit.")
    talk.send("@dev deploy the payment service, please")
    (event,) = talk.of("deviation")
    assert (event.agent, event.kind, event.level) == ("dev", "blocker", "replan_required")
    assert event.reply == talk.last("reply_finished").reply


def test_the_extracting_agent_is_asked_when_a_chain_ends(tmp_path: Path) -> None:
    found = [
        {"kind": "solution", "title": "Restart the queue", "source": "m2", "importance": 0.9},
        {"kind": "solution", "title": "Buy a bigger boat", "source": "m2"},
    ]
    answer = AgentOutput(content=json.dumps(found), usage=Usage(input_tokens=70, output_tokens=9))
    talk, puppets = memories(tmp_path, {"dev": lambda _: "ok", "scribe": lambda _: answer})
    talk.extractor = puppet("scribe")
    talk.send("@dev After all I had to restart the queue and it worked.")
    (event,) = talk.of("extracted")
    assert (event.by, event.notes) == ("scribe", 1)
    assert "bigger boat" in event.error
    assert list(talk.notes()) == ["solution-restart-the-queue"]
    finished = talk.last("chain_finished")
    assert finished.usage.input_tokens >= 70
    assert finished.session_usage.output_tokens == finished.usage.output_tokens
    assert "restart the queue" in puppets.inputs["scribe"][0].messages[0].content
    assert not [one for one in talk.of("reply_started") if one.agent == "scribe"]


def test_the_extracting_agent_that_fails_stops_nothing(tmp_path: Path) -> None:
    def fail(_: AgentInput) -> str:
        raise RuntimeError("out of order")

    talk, _ = memories(
        tmp_path, {"dev": lambda _: "ok", "scribe": fail}, memory={"extract_every": 2}
    )
    talk.extractor = puppet("scribe")
    talk.send("@dev one")
    talk.send("@dev two")
    assert talk.last("chain_finished").end == "quiet"
    assert all("out of order" in event.error for event in talk.of("extracted"))
    assert talk.of("extracted")


def test_approved_only_shows_no_drafts(tmp_path: Path) -> None:
    talk, _ = memories(tmp_path, {"dev": lambda _: "word " * 60}, memory={"approved_only": True})
    talk.send("@dev Blocker: the staging certificate is expired.")
    for number in range(12):
        talk.send(f"@dev go on with part {number}")
    talk.send("@dev is the staging certificate there?")
    assert talk.last("reply_started").notes == []
    (path,) = talk.folder.glob("*.md")
    text = path.read_text(encoding="utf-8").replace("status: draft", "status: approved")
    path.write_text(text, encoding="utf-8")
    talk.send("@dev is the staging certificate there?")
    assert talk.last("reply_started").notes == ["blocker-the-staging-certificate-is-expired"]


def test_doctor_tells_of_a_note_that_cannot_be_read(tmp_path: Path) -> None:
    talk, _ = memories(tmp_path, {"dev": lambda _: "ok"})
    talk.send("@dev Decision: we use PostgreSQL 16.")
    assert examine.examine(talk.transcript, tmp_path).problems == []
    (talk.folder / "pit-x.md").write_text("---\nkind: [pit\n---\nx\n", encoding="utf-8")
    (problem,) = examine.examine(talk.transcript, tmp_path).problems
    assert problem.startswith("sessions/talk/knowledge/pit-x.md:2")
