"""A team that remembers: notes are taken at a turn's end, and found again when they matter."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from product import (
    AgentInput,
    AgentOutput,
    Embedding,
    Index,
    Keeper,
    Member,
    Redactor,
    Session,
    SessionConfig,
    StructuredContent,
    Usage,
    WorkspaceMemory,
    doctor,
    planted,
    reader,
    shelves,
)
from product import context_render as render
from product import session_store as store
from product import transcript_compare as compare
from support import Puppets, Talk, outgoing, puppet, team

ASIDE = {"scribe", "finder"}
SMALL = {"window_tokens": 1_200, "reserved_output_tokens": 0}
NOTE = (
    "Agreed.\n```note\nkind: decision\ntitle: We use PostgreSQL 16\n\nIt has row security.\n```\n"
)


@dataclass
class Memories(Talk):
    """A talk with an extracting agent and one that summarises, or none."""

    extractor: Member | None = None
    summarizer: Member | None = None

    def open(self) -> Session:
        session = super().open
        if self.extractor is None and self.summarizer is None:
            return session()
        place = SessionConfig(
            workspace=self.workspace,
            durability="flush",
            clock=self.clock,
            wait_s=0,
            adapter_type=self.adapter_type,
            extractor=self.extractor,
            summarizer=self.summarizer,
            redact=self.redact,
        )

        def heard(event: Any) -> None:
            self.events.append(event)
            self.on_event(event)

        return Session(place, self.name, self.team, on_event=heard)

    @property
    def folder(self) -> Path:
        return self.workspace / "sessions" / str(self.name) / "knowledge"

    def notes(self) -> dict[str, str]:
        return {one.stem: one.read_text(encoding="utf-8") for one in self.folder.glob("*.md")}


def memories(folder: Path, answers: dict[str, Any], **config: Any) -> tuple[Memories, Puppets]:
    puppets = Puppets(answers)
    members = [puppet(name, context=SMALL) for name in answers if name not in ASIDE]
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
    place = SessionConfig(talk.workspace, durability="flush", clock=talk.clock, wait_s=0)
    place = dataclasses.replace(
        place, adapter_type=talk.adapter_type, on_problem=lambda fault: told.append(str(fault))
    )
    with Session(place, "talk", talk.team) as session:
        ended = asyncio.run(session.last(session.send(outgoing(talk.team, "@dev go on"))))
    assert ended.end == "quiet"
    assert len(told) == 1
    assert "sessions/talk/knowledge/pit-x.md:2" in told[0]


def test_another_run_writes_the_same_and_a_cut_short_one_goes_on_to_the_same(
    tmp_path: Path,
) -> None:

    answers = {"dev": lambda _: NOTE + "@ops please deploy", "ops": lambda _: "Blocker: no access."}
    told = []
    for name in ("one", "two"):
        talk, _ = memories(tmp_path / name, answers)
        talk.send("@dev Requirement: data must be deletable.")
        told.append(compare.canonicalize(talk.events))
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

    events = [event for line in reader.read_lines(talk.transcript) for event in line.events]
    assert compare.canonicalize(events) == told[0]


def test_a_blocker_that_a_reply_ignores_is_told(tmp_path: Path) -> None:
    replies = iter(["ok", "I deploy the payment service to production now.", "Then I wait."])
    talk, _ = memories(tmp_path, {"dev": lambda _: next(replies)})
    talk.send("@dev Blocker: deploying the payment service is blocked by the missing audit.")
    talk.send("@dev deploy the payment service, please")
    (event,) = talk.of("deviation")
    assert (event.agent, event.kind, event.level) == ("dev", "blocker", "replan_required")
    done = {event.reply: event.message.content for event in talk.of("reply_finished")}
    assert done[event.reply].startswith("I deploy")
    assert done[event.reply + 1] == "Then I wait."  # asked for another way


@pytest.mark.parametrize("most", [6, 2])
def test_no_more_notes_are_shown_than_the_team_says(tmp_path: Path, most: int) -> None:
    pits = tmp_path / "sessions" / "knowledge" / "pits"
    pits.mkdir(parents=True)
    for number in range(30):
        text = (
            f"---\ntitle: the database breaks at port {number}\nkind: pit\n---\nof the database\n"
        )
        (pits / f"pit-{number}.md").write_text(text, encoding="utf-8")
    talk, puppets = memories(tmp_path, {"dev": lambda _: "ok"}, memory={"shown": most})
    talk.team = team(puppet("dev"), selection="none", memory={"shown": most})
    talk.send("@dev what of the port of the database?")
    shown = talk.last("reply_started").notes
    assert len(shown) == most
    assert prompt_of(puppets.inputs["dev"][0]).count("[pits/") == most


def test_a_blocker_that_an_agent_is_not_shown_is_not_held_against_it(tmp_path: Path) -> None:
    said = iter(["ok", *["word " * 60] * 12, "I deploy the payment service to production now."])
    summary = "# Core goal\n- go on\n# Key decisions\n- a part\n# Next steps\n- a word"
    answers = {"dev": lambda _: next(said), "scribe": lambda _: summary}
    talk, puppets = memories(tmp_path, answers, memory={"shown": 0})
    talk.summarizer = puppet("scribe")
    talk.send("@dev Blocker: deploying the payment service is blocked by the missing audit.")
    for number in range(13):
        talk.send(f"@dev go on with part {number}")
    assert "missing audit" not in prompt_of(puppets.inputs["dev"][-1])
    assert not talk.of("deviation")


class Killed(Exception):
    pass


def killed_at(folder: Path, kind: str, answers: dict[str, Any]) -> Memories:
    """A talk that ends with the first event of a kind."""
    talk, _ = memories(folder, answers)

    def kill(event: Any) -> None:
        if event.type == kind:
            raise Killed

    talk.on_event = kill
    with pytest.raises(Killed):
        talk.send("@dev Blocker: deploying the payment service is blocked by the missing audit.")
    talk.on_event = lambda _: None
    return talk


@pytest.mark.parametrize("has_event", [True, False])
def test_what_is_noted_in_a_turn_is_not_held_against_its_replies_after_a_kill(
    tmp_path: Path, has_event: bool
) -> None:
    deploys = {"dev": lambda _: "I deploy the payment service to production now."}
    talk = killed_at(tmp_path, "note", deploys)
    if not has_event:
        lines = talk.transcript.read_bytes().splitlines(keepends=True)
        talk.transcript.write_bytes(b"".join(lines[:-1]))
    assert talk.notes()
    talk.resume()
    assert talk.last("chain_finished").end == "quiet"
    assert not talk.of("deviation")


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


DECISION = "@dev Decision: we keep Postgres. He said we must leave AWS."


@pytest.mark.parametrize("confirms", [True, False])
def test_an_extracting_agent_decides_on_the_notes_that_rules_propose(
    tmp_path: Path, confirms: bool
) -> None:
    confirmed = [{"kind": "decision", "title": "we keep Postgres", "source": "m2"}]
    answer = json.dumps(confirmed if confirms else [])
    talk, puppets = memories(tmp_path, {"dev": lambda _: "ok", "scribe": lambda _: answer})
    talk.extractor = puppet("scribe")
    talk.send(DECISION)
    (asked,) = puppets.inputs["scribe"]
    proposal = '{"kind": "decision", "title": "we keep Postgres", "source": "m2"}'
    assert proposal in asked.messages[0].content
    assert list(talk.notes()) == ["decision-we-keep-postgres"] * confirms
    assert [event.by for event in talk.of("note")] == ["scribe"] * confirms


@pytest.mark.parametrize("answer", ["no list at all", '[{"kind": "decision", "title": "x"}]', None])
def test_the_rules_decide_where_the_extracting_agent_does_not(
    tmp_path: Path, answer: str | None
) -> None:
    def extract(_: AgentInput) -> str:
        if answer is None:
            raise RuntimeError("out of order")
        return answer

    talk, _ = memories(tmp_path, {"dev": lambda _: "ok", "scribe": extract})
    talk.extractor = puppet("scribe")
    talk.send(DECISION)
    assert list(talk.notes()) == ["decision-we-keep-postgres"]
    (event,) = talk.of("extracted")
    assert (event.notes, bool(event.error)) == (0, True)


def test_the_rules_decide_on_messages_that_the_extracting_agent_has_no_room_for(
    tmp_path: Path,
) -> None:
    talk, puppets = memories(
        tmp_path,
        {"dev": lambda _: "word " * 300, "scribe": lambda _: "[]"},
        memory={"extract_every": 6},
    )
    talk.extractor = puppet("scribe", context=SMALL)
    talk.send(DECISION)
    talk.send("@dev and then?")
    talk.send("@dev Decision: the last one is not confirmed.")
    (asked,) = puppets.inputs["scribe"]
    assert "we keep Postgres" not in asked.messages[0].content
    assert list(talk.notes()) == ["decision-we-keep-postgres"]


def test_approved_only_shows_no_drafts(tmp_path: Path) -> None:
    talk, _ = memories(tmp_path, {"dev": lambda _: "word " * 60}, memory={"approved_only": True})
    talk.send("@dev Blocker: the staging certificate is expired.")
    for number in range(12):
        talk.send(f"@dev go on with part {number}")
    talk.send("@dev is the staging certificate there?")
    assert talk.last("reply_started").notes == []
    note = "blocker-the-staging-certificate-is-expired"
    place = SessionConfig(workspace=tmp_path, durability="flush", wait_s=0)
    shelf = shelves.open_shelf(tmp_path, store.find(tmp_path, "talk"))
    with contextlib.closing(Keeper(place, shelf, "ann", redactor=Redactor(set(), ()))) as keeper:
        keeper.step(note, "approve")
    talk.send("@dev is the staging certificate there?")
    assert talk.last("reply_started").notes == [note]


def test_doctor_tells_of_a_note_that_cannot_be_read(tmp_path: Path) -> None:
    talk, _ = memories(tmp_path, {"dev": lambda _: "ok"})
    talk.send("@dev Decision: we use PostgreSQL 16.")
    assert doctor.examine(talk.transcript, tmp_path).problems == []
    (talk.folder / "pit-x.md").write_text("---\nkind: [pit\n---\nx\n", encoding="utf-8")
    (problem,) = doctor.examine(talk.transcript, tmp_path).problems
    assert problem.startswith("sessions/talk/knowledge/pit-x.md:2")


SECRET = "sk-live-0123456789abcdef"


def test_a_secret_in_a_reply_reaches_nothing_that_is_remembered(tmp_path: Path) -> None:
    def leaks(_: AgentInput) -> AgentOutput:
        said = (
            f"```note\nkind: pit\ntitle: the key {SECRET} is old\n\n{SECRET}\n```\n" + "word " * 60
        )
        data = {"kind": "decision", "title": f"We use {SECRET} for now"}
        return AgentOutput(content=said, structured=[StructuredContent(type="note", data=data)])

    def found(shown: AgentInput) -> str:
        told = [{"kind": "pit", "title": f"key {SECRET} of m5", "source": "m5", "body": SECRET}]
        return json.dumps(told)

    summary = f"# Core goal\n- a shop\n# Key decisions\n- {SECRET}\n# Next steps\n- go on"
    answers = {"dev": leaks, "scribe": lambda _: summary, "finder": found}
    talk, puppets = memories(tmp_path, answers, memory={"extract_every": 2})
    talk.summarizer, talk.extractor, talk.redact = puppet("scribe"), puppet("finder"), [SECRET]
    for number in range(8):
        talk.send(f"@dev go on with part {number}")
    assert talk.of("compacted")
    assert any(one.by == "dev" for one in talk.of("note"))
    asked = [shown for inputs in puppets.inputs.values() for shown in inputs]
    assert not any(SECRET in shown.model_dump_json() for shown in asked)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not [path for path in files if SECRET.encode() in path.read_bytes()]


@pytest.mark.parametrize("who", ["scribe", "finder"])
def test_cancelled_while_an_agent_works_for_the_memory_it_is_asked_again(
    tmp_path: Path, who: str
) -> None:
    running: list[asyncio.Task[Any]] = []

    async def waits(_: AgentInput) -> str:
        running[0].cancel()
        await asyncio.Event().wait()
        return ""

    summary = "# Core goal\n- go on\n# Key decisions\n- a part\n# Next steps\n- a word"
    answers: dict[str, Any] = {"dev": lambda _: "word " * 60}
    answers |= {"scribe": lambda _: summary, "finder": lambda _: "[]"}
    settings = {"auto_summary_interval": 6, "memory": {"extract_every": 6}}
    talk, puppets = memories(tmp_path, answers, **settings)
    talk.summarizer, talk.extractor = puppet("scribe"), puppet("finder")
    puppets.answers = {**answers, who: waits}

    async def interrupted() -> None:
        with talk.open() as session:
            for number in range(8):
                sent = outgoing(talk.team, f"@dev go on with part {number}")
                running[:] = [asyncio.ensure_future(session.last(session.send(sent)))]
                await running[0]

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(interrupted())
    assert puppets.ended == [who]
    kind = {"scribe": "compacted", "finder": "extracted"}[who]
    assert not talk.of(kind)
    finished = len(talk.of("reply_finished"))
    puppets.answers = answers
    ended = talk.resume()
    assert ended is not None
    assert ended.end == "quiet"
    assert len(talk.of(kind)) == 1
    assert len(talk.of("reply_finished")) == finished


def test_what_was_said_in_a_chain_that_fails_is_noted(tmp_path: Path) -> None:
    def fails(_: AgentInput) -> str:
        raise RuntimeError("out of order")

    talk, _ = memories(tmp_path, {"dev": lambda _: NOTE, "ops": fails}, on_failure="abort")
    assert talk.send("@dev @ops go").end == "failed"
    assert list(talk.notes()) == ["decision-we-use-postgresql-16"]


def test_an_embedding_that_is_down_is_told_once_and_words_go_on(tmp_path: Path) -> None:
    talk, puppets = memories(tmp_path, {"dev": lambda _: "word " * 60})
    talk.send("@dev Blocker: the staging certificate is expired.")
    for number in range(12):
        talk.send(f"@dev go on with part {number}")
    told: list[str] = []
    down = Embedding(base_url="http://127.0.0.1:9/v1", model="e", timeout_s=1)
    place = SessionConfig(
        talk.workspace,
        clock=talk.clock,
        adapter_type=talk.adapter_type,
        memory=WorkspaceMemory(embedding=down),
        on_problem=lambda fault: told.append(str(fault)),
    )
    for _ in range(2):
        with Session(place, "talk", talk.team) as session:
            message = outgoing(talk.team, "@dev is the staging certificate there?")
            asyncio.run(session.last(session.send(message)))
    assert "the staging certificate is expired" in prompt_of(puppets.inputs["dev"][-1])
    assert len(told) == 2
    assert all("memory.embedding: notes are found by words alone" in one for one in told)


def test_the_same_question_again_in_one_process_finds_what_was_edited_meanwhile(
    tmp_path: Path,
) -> None:
    talk, puppets = memories(tmp_path, {"dev": lambda _: "word " * 60})
    talk.send("@dev Blocker: the staging certificate is expired.")
    for number in range(12):
        talk.send(f"@dev go on with part {number}")
    (path,) = talk.folder.glob("*.md")
    asked = "@dev is the staging certificate there?"

    async def twice(session: Session) -> None:
        await session.send(outgoing(talk.team, asked))
        text = path.read_text(encoding="utf-8")
        path.write_text(text + "\nAsk 小王 for a new one.\n", encoding="utf-8")
        await session.last(session.send(outgoing(talk.team, asked)))

    with talk.open() as session:
        asyncio.run(twice(session))
    before, after = (prompt_of(shown) for shown in puppets.inputs["dev"][-2:])
    assert "小王" not in before
    assert "Ask 小王 for a new one." in after


def test_one_question_is_searched_for_once_while_no_note_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    search = Index.search

    def counting(index: Index, query: str, **options: Any) -> Any:
        asked.append(query)
        return search(index, query, **options)

    monkeypatch.setattr(Index, "search", counting)
    talk, _ = memories(tmp_path, {"dev": lambda _: "word " * 60})
    talk.send("@dev Blocker: the staging certificate is expired.")
    asked.clear()
    talk.send("@dev is the staging certificate there?")
    assert len(asked) == 1


def test_a_reply_is_held_against_the_notes_as_they_are_when_it_ends(tmp_path: Path) -> None:
    def deploys(shown: AgentInput) -> str:
        for path in talk.folder.glob("*.md") if shown.call > 1 else ():
            text = path.read_text(encoding="utf-8")
            path.write_text(text.replace("status: draft", "status: archived"), encoding="utf-8")
        return "I deploy the payment service to production now."

    talk, _ = memories(tmp_path, {"dev": deploys})
    talk.send("@dev Blocker: deploying the payment service is blocked by the missing audit.")
    talk.send("@dev deploy the payment service, please")
    assert not talk.of("deviation")


def test_what_arena_itself_says_makes_no_note(tmp_path: Path) -> None:
    talk, _ = memories(tmp_path, {"dev": lambda _: "ok"})
    with talk.open() as session:
        session.plant(planted(talk.team, "system", "Decision: we use PostgreSQL 16."))
        asyncio.run(session.last(session.send(outgoing(talk.team, "@dev go on"))))
    assert not talk.of("note")


def test_the_extracting_agent_is_asked_after_every_so_many_messages(tmp_path: Path) -> None:
    answers = {"dev": lambda _: "ok", "scribe": lambda _: "[]"}
    talk, _ = memories(tmp_path, answers, memory={"extract_every": 4})
    talk.extractor = puppet("scribe")
    for number in range(6):
        talk.send(f"@dev part {number}")
    assert len(talk.of("extracted")) == 3


def test_the_extracting_agent_that_was_asked_before_a_crash_is_not_asked_again(
    tmp_path: Path,
) -> None:
    class Crash(Exception):
        pass

    def crash(event: Any) -> None:
        if event.type == "extracted":
            raise Crash

    talk, puppets = memories(tmp_path, {"dev": lambda _: "ok", "scribe": lambda _: "[]"})
    talk.extractor = puppet("scribe")
    talk.on_event = crash
    with pytest.raises(Crash):
        talk.send("@dev go on")
    talk.on_event = lambda _: None
    ended = talk.resume()
    assert ended is not None
    assert ended.end == "quiet"
    assert len(puppets.inputs["scribe"]) == 1


def test_how_full_a_window_is_is_told_anew_after_each_summary(tmp_path: Path) -> None:
    talk, _ = memories(tmp_path, {"dev": lambda _: "word " * 60})
    for number in range(40):
        talk.send(f"@dev go on with part {number}")
    reports = [
        event.type
        for event in talk.events
        if (event.type == "compacted" and not event.rolled_back)
        or (event.type == "context_usage" and event.level == "saturated")
    ]
    count = reports.count("compacted")
    assert count >= 2
    assert reports[: count * 2] == ["context_usage", "compacted"] * count
